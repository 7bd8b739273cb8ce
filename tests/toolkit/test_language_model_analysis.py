"""What language models attend to: their maps, statistics of these, and hints that guide them."""

import json
import math
import re
import shutil
from types import SimpleNamespace

import attention_statistics as command
import numpy as np
import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import TokenBlockDataset
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq_commands import run
from refusals import refusal
from small_folders import write_language_model
from small_models import EOS, PAD, dictionary, padded, sentences
from test_language_model import build_strong
from trained_language_models import corpus, trained, training

from ea_fairseq.errors import UserError
from ea_fairseq.inference.attention_maps import attention_maps, language_model_maps
from ea_fairseq.models.recorded_maps import recorded_self_attention
from ea_fairseq.syntax.criterion import SyntaxGuidedCriterion

TEXT = [5, 9, 7, 12, 6, EOS]


def recorded(model, read):
    """Each layer's probabilities, (heads, len, len), by the hooks that training uses."""
    with recorded_self_attention(model.decoder) as maps, torch.no_grad():
        model(torch.as_tensor(read)[None])
    return [probs[:, 0] for probs in maps]


@pytest.mark.parametrize("options", [{}, {"ea_variant": "plain"}, {"ea_variant": "multi_token"}])
def test_maps_are_those_of_reading(options):
    model = build_strong(**options).eval()
    found = language_model_maps(model, TEXT)
    assert list(found) == ["decoder"] and len(found["decoder"]) == 3
    for maps, probs in zip(found["decoder"], recorded(model, [EOS, *TEXT[:-1]]), strict=True):
        assert torch.allclose(maps.probs, probs.float(), atol=1e-5)
        assert maps.visible.equal(torch.ones(6, 6, dtype=torch.bool).tril())


def test_a_language_model_has_no_pair_of_sentences():
    with pytest.raises(UserError, match="has no encoder attention"):
        attention_maps(build_strong().eval(), TEXT, TEXT)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of two runs, of fairseq's own model and of an EA model, as ea-recipe leaves them,
    lines to read, and what is neither."""
    folder = tmp_path_factory.mktemp("runs")
    for name, arch in {"plain": "transformer_lm_lite", "ea": "ea_transformer_lm_lite"}.items():
        (folder / name / "text").mkdir(parents=True)
        (folder / name / "text" / "dict.txt").write_bytes((corpus() / "dict.txt").read_bytes())
        checkpoint = trained("none", arch) / "checkpoint_last.pt"
        (folder / name / "averaged.pt").write_bytes(checkpoint.read_bytes())
    lines = (corpus().parent / "test").read_text().splitlines()[:6]
    (folder / "lines").write_text("".join(f"{line}\n" for line in lines))
    (folder / "empty").write_text("\n \n\n")
    shutil.copytree(folder / "ea" / "text", folder / "unfinished" / "text")
    write_language_model(folder / "model")
    return folder


def blocks_read(folder, words, tokens_per_sample):
    """What fairseq has a model read in training."""
    lines = [
        words.encode_line(line, add_if_not_exist=False).long()
        for line in (folder / "lines").read_text().splitlines()
    ]
    options = dict(pad=words.pad(), eos=words.eos(), include_targets=True)
    kind = "none" if tokens_per_sample else "eos"
    sizes = [len(line) for line in lines]
    return [
        source
        for source, *_ in TokenBlockDataset(
            lines, sizes, tokens_per_sample, break_mode=kind, **options
        )
    ]


@pytest.mark.parametrize("tokens_per_sample", [None, 16])
def test_weight_on_current_and_earlier_tokens_is_that_of_loops(runs, tokens_per_sample):
    """Table 1 of "Bird-Eye Transformers for Text Generation Models"."""
    more = ["--tokens-per-sample", str(tokens_per_sample)] if tokens_per_sample else []
    output = ["--json", str(runs / "out.json")]
    assert command.main([str(runs / "ea"), "--test", str(runs / "lines"), *output, *more]) == 0
    (layers,) = json.loads((runs / "out.json").read_text())["ea"].values()
    path = [str(runs / "ea" / "averaged.pt")]
    (model,), _, task = load_model_ensemble_and_task(path, {"data": str(runs / "ea" / "text")})
    current, earlier = ([[] for _ in layers] for _ in range(2))
    for block in blocks_read(runs, task.dictionary, tokens_per_sample):
        for number, maps in enumerate(recorded(model.eval(), block)):
            for head in maps.tolist():
                for t, row in enumerate(head):
                    current[number].append(row[t])
                    earlier[number] += row[:t]
    for number, layer in enumerate(layers):
        assert layer["current"] == pytest.approx(np.mean(current[number]), abs=1e-5)
        assert layer["earlier"] == pytest.approx(np.mean(earlier[number]), abs=1e-5)


def test_two_language_models_stand_side_by_side(runs, capsys):
    models = [str(runs / "plain"), str(runs / "ea")]
    picture = ["--plot", str(runs / "picture.png")]
    assert command.main([*models, "--test", str(runs / "lines"), *picture]) == 0
    printed = capsys.readouterr().out
    assert "decoder, plain / ea" in printed and "encoder" not in printed
    assert (runs / "picture.png").stat().st_size > 1000


OF_A_RUN = "{}/ea/.*: is of a language model's run: give the run's folder, {}/ea$"


@pytest.mark.parametrize(
    ("given", "text", "options", "message"),
    [
        ("ea", "lines", ["--tokens-per-sample", "25"], "{}/ea: reads 24 tokens, and .* 25"),
        ("ea", "lines", ["--tokens-per-sample", "0"], "choose at least 1"),
        ("ea", "empty", [], "{}/empty: no text in it"),
        ("unfinished", "lines", [], "no model in it"),
        ("ea/model", "lines", [], OF_A_RUN),
        ("ea/averaged.pt", "lines", [], OF_A_RUN),
        ("ea/checkpoints/checkpoint_best.pt", "lines", [], OF_A_RUN),
        ("model", "lines", [], "holds a language model: give the folder of its run"),
    ],
)
def test_mistakes_end_in_one_line(runs, capsys, given, text, options, message):
    line = refusal(capsys, command.main, runs / given, "--test", runs / text, *options)
    assert line.startswith("attention_statistics.py: error: ")
    assert re.search(message.replace("{}", str(runs)), line)


HINTS = [[0, 0, 2], [], [0, 1, 1, 3, 2, 0]]


def guided(tmp_path, mode="eos", lines=HINTS):
    path = tmp_path / "hints"
    path.write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
    task = LanguageModelingTask(SimpleNamespace(sample_break_mode=mode), dictionary())
    sizes = np.array([len(line) + 1 for line in HINTS])
    task.datasets = {"train": SimpleNamespace(sizes=sizes)}
    return SyntaxGuidedCriterion(task, False, 0.1, 0, False, str(path), 0.5)


def test_hints_guide_a_language_model(tmp_path):
    """-log of the weight on each hint, the mean over heads, summed over layers and positions."""
    nothing = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model = build_strong(ea_variant="plain", **nothing).train()
    targets = sentences([len(line) + 1 for line in HINTS], 3, last=EOS)
    inputs = [torch.cat([torch.tensor([EOS]), target[:-1]]) for target in targets]
    target = padded(targets)
    sample = {
        "id": torch.arange(len(HINTS)),
        "net_input": {"src_tokens": padded(inputs), "src_lengths": torch.tensor([4, 1, 7])},
        "target": target,
        "ntokens": int(target.ne(PAD).sum()),
    }
    expected = 0.0
    for text, hints in zip(targets, HINTS, strict=True):
        for maps in recorded(model, [EOS, *text[:-1].tolist()]):
            for t, hint in enumerate([*hints, len(hints)]):
                expected -= sum(math.log(head[t][hint]) for head in maps.tolist()) / len(maps)
    _, _, logged = guided(tmp_path)(model, sample)
    assert float(logged["syntax_loss"]) == pytest.approx(expected, rel=1e-5)


def test_hints_of_another_text_and_other_breaks_are_refused(tmp_path):
    with pytest.raises(UserError, match="--sample-break-mode eos .* not none: hints are for lines"):
        guided(tmp_path, mode="none")
    other = guided(tmp_path, lines=HINTS[:2])
    with pytest.raises(UserError, match="2 lines for the 3 sentences of the training set"):
        other._read()


def test_fairseq_train_takes_hints_for_language_models(tmp_path):
    text = (corpus().parent / "train").read_text().splitlines()
    hints = [
        " ".join(str(max(0, place - 1)) for place in range(len(line.split()))) for line in text
    ]
    (tmp_path / "hints").write_text("".join(f"{line}\n" for line in hints))
    more = ["--sample-break-mode", "eos", "--max-epoch", "1", "--ea-variant", "plain"]
    more += ["--criterion", "syntax_guided_cross_entropy", "--log-format", "json"]
    more += ["--syntax-hints", tmp_path / "hints", "--syntax-lambda", "0.5"]
    done = run("train", *training(tmp_path / "checkpoints", *more))
    assert done.status == 0, done.errors()
    assert '"train_syntax_loss"' in done.output() + done.errors()
