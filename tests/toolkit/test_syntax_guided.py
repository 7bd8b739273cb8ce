"""The loss that points self-attention at hints: its value, its gradient, and in training."""

import json
import math
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import syntax_hints
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.tasks.translation import TranslationTask
from fairseq_commands import SIZES, USER_DIR, corpus, run, training
from small_models import EOS, PAD, build, build_strong, dictionary, padded, sentences

from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.errors import UserError
from ea_fairseq.models.recorded_maps import recorded_self_attention
from ea_fairseq.syntax.criterion import SyntaxGuidedCriterion, pointer_loss

HINTS = [[0, 0, 2], [], [0, 1, 1, 3, 2, 0], [0]]
ROOT = Path(__file__).resolve().parents[2]
PLAIN = {"ea_variant": "plain"}


def criterion(tmp_path, weight=0.5, hints=HINTS, sentence_avg=False, task=None, sizes=None, **cfg):
    path = tmp_path / "hints"
    if hints is not None:
        path.write_text("".join(" ".join(map(str, line)) + "\n" for line in hints))
    if task is None:
        task = TranslationTask.__new__(TranslationTask)
    task.cfg = SimpleNamespace(train_subset="train", **cfg)
    sizes = [len(line) + 1 for line in HINTS] if sizes is None else sizes
    task.datasets = {"train": SimpleNamespace(tgt_sizes=np.array(sizes))}
    task.tgt_dict = dictionary()
    return SyntaxGuidedCriterion(task, sentence_avg, 0.1, 0, False, str(path), weight)


def fairseqs(sentence_avg=False):
    """fairseq's criterion, without hints."""
    task = SimpleNamespace(target_dictionary=dictionary())
    return LabelSmoothedCrossEntropyCriterion(task, sentence_avg, 0.1)


def batch(ids, left=False, seed=3):
    """A sample of fairseq's, of the sentences whose hints are HINTS."""
    lengths = [len(line) for line in HINTS]
    targets = sentences([n + 1 for n in lengths], seed, last=EOS)
    sources = sentences([4, 2, 5, 3], seed + 1, last=EOS)
    prefixes = [torch.cat([torch.tensor([EOS]), target[:-1]]) for target in targets]
    net_input = {
        "src_tokens": padded([sources[i] for i in ids], left=True),
        "src_lengths": torch.tensor([len(sources[i]) for i in ids]),
        "prev_output_tokens": padded([prefixes[i] for i in ids], left),
    }
    target = padded([targets[i] for i in ids], left)
    ntokens = int(target.ne(PAD).sum())
    return {"id": torch.tensor(ids), "net_input": net_input, "target": target, "ntokens": ntokens}


def by_loops(model, sample):
    """Sum over layers and positions of the mean over heads of -log A[t, hint(t)]."""
    with torch.no_grad():
        _, extra = model(**sample["net_input"])
    total = 0.0
    for row, sentence in enumerate(sample["id"].tolist()):
        hints = HINTS[sentence]
        length = len(hints) + 1
        for x, layer in zip(extra["inner_states"], model.decoder.layers.children(), strict=False):
            attention = layer.self_attn
            heads = attention.num_heads
            dim = attention.head_dim
            q, k = (
                (x[:length, row] @ part.weight.T + part.bias).detach().numpy()
                for part in (attention.q_proj, attention.k_proj)
            )
            for t in range(length):
                hint = hints[t] if t < len(hints) else t
                for h in range(heads):
                    part = slice(h * dim, (h + 1) * dim)
                    logits = [q[t, part] @ k[s, part] / math.sqrt(dim) for s in range(t + 1)]
                    log_sum = math.log(sum(math.exp(logit) for logit in logits))
                    total += (log_sum - logits[hint]) / heads
    return total


def in_training(arch="ea_transformer_lite", **options):
    """A strong model in training, without dropout."""
    nothing = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    return build_strong(arch, **nothing, **options).train()


@pytest.mark.parametrize("sentence_avg", [False, True])
def test_the_loss_is_the_label_smoothed_one_and_the_pointers(sentence_avg, tmp_path):
    model = in_training(**PLAIN)
    sample = batch([2, 0, 3, 1])
    loss, size, logged = criterion(tmp_path, 0.5, sentence_avg=sentence_avg)(model, sample)
    expected, expected_size, _ = fairseqs(sentence_avg)(model, sample)
    pointed = by_loops(model, sample)
    assert size == expected_size == (4 if sentence_avg else sample["ntokens"])
    assert float(logged["syntax_loss"]) == pytest.approx(pointed, rel=1e-6)
    # What is optimized is loss / size: the pointers' mean over positions, once for each layer.
    mean = pointed / sample["ntokens"]
    assert float((loss - expected).detach()) / size == pytest.approx(0.5 * mean, rel=1e-6)
    assert torch.equal(logged["loss"], loss)


@pytest.mark.parametrize("left", [False, True])
def test_sentences_count_the_same_alone_and_in_any_batch(left, tmp_path):
    model, loss = in_training(**PLAIN), criterion(tmp_path)
    alone = sum(float(loss(model, batch([i]))[2]["syntax_loss"]) for i in range(4))
    together = loss(model, batch([1, 2, 0, 3], left))[2]["syntax_loss"]
    # fairseq counts positions from where the padding ends; so does attention.
    assert float(together) == pytest.approx(alone, rel=1e-5 if left else 1e-9)


def test_without_weight_and_in_validation_it_is_fairseqs_loss_to_the_bit(tmp_path):
    model, sample = in_training(**PLAIN), batch([0, 1, 2, 3])
    plain = fairseqs()
    expected = plain(model, sample)
    loss, size, logged = criterion(tmp_path, weight=0.0)(model, sample)
    assert torch.equal(loss, expected[0]) and logged == expected[2]
    model.eval()
    loss, size, logged = criterion(tmp_path)(model, sample)
    assert torch.equal(loss, plain(model, sample)[0]) and "syntax_loss" not in logged


def test_its_gradient_points_attention_at_the_hints(tmp_path):
    torch.manual_seed(1)
    model, sample = build("ea_transformer_lite", **PLAIN).train(), batch([0, 2])
    guided = criterion(tmp_path, weight=10.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss, _, logged = guided(model, sample)
        losses.append(float(logged["syntax_loss"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0]
    with torch.no_grad(), recorded_self_attention(model.eval().decoder) as maps:
        model(**sample["net_input"])
    found = [probs[:, 1, t, hint].mean() for probs in maps for t, hint in enumerate(HINTS[2])]
    assert sum(found) / len(found) > 0.8
    assert not model.decoder.layers[0].self_attn._forward_hooks  # nothing is left behind


def test_a_probability_of_zero_gives_a_finite_loss():
    probs = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]], requires_grad=True)
    loss = pointer_loss(probs, torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool))
    loss.backward()
    assert loss.isfinite() and probs.grad.isfinite().all()


@pytest.mark.parametrize("variant", ["evolving", "residual", "talking_heads"])
def test_it_goes_with_other_attentions(variant, tmp_path):
    model = in_training(ea_variant=variant)
    loss, _, logged = criterion(tmp_path)(model, batch([0, 1, 2, 3]))
    loss.backward()
    assert logged["syntax_loss"] > 0
    assert all(p.grad.isfinite().all() for p in model.decoder.layers[0].self_attn.parameters())


@pytest.mark.parametrize(
    "changes,named",
    [
        ({"hints": None}, "--syntax-hints .*/hints: no such file"),
        ({"hints": HINTS[:3]}, "hints: 3 lines for the 4 sentences of the training set"),
        ({"hints": [[0], *HINTS[1:]]}, "hints: line 1 has 1 hints for the 3 subwords of that"),
        ({"hints": [[0, 0, 5], *HINTS[1:]]}, "hints: line 1: hint 3 must be from 0 to 2, not 5"),
        # Where the data does not tell its sizes, the batch does.
        ({"hints": [[0], *HINTS[1:]], "sizes": ()}, "line 1 has 1 hints for the 3 subwords"),
        ({"hints": HINTS[:2], "sizes": ()}, "2 lines, and none for sentence 3"),
        ({"weight": -1.0}, "--syntax-lambda must be a number from 0 up, not -1"),
        ({"weight": math.nan}, "--syntax-lambda must be a number from 0 up, not nan"),
        ({"data": "bin1:bin2"}, "hints: is for the sentences of one folder, not of bin1:bin2"),
        ({"num_batch_buckets": 4}, "--num-batch-buckets 4 cannot be combined with --criterion"),
        ({"task": SimpleNamespace(target_dictionary=dictionary())}, "needs --task translation"),
    ],
)
def test_hints_that_do_not_fit_are_refused_in_one_line(changes, named, tmp_path):
    with pytest.raises(UserError, match=named) as refused:
        guided = criterion(tmp_path, **changes)
        if changes.get("sizes") == ():
            guided.task.datasets = {}
        guided(in_training(**PLAIN), batch([2, 0, 1]))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("variant", ["diagonal_free", "bird_eye"])
def test_a_decoder_without_a_diagonal_is_refused(variant, tmp_path):
    with pytest.raises(UserError, match="--ea-diagonal 1"):
        criterion(tmp_path)(in_training(ea_variant=variant), batch([0, 1]))
    loss, _, _ = criterion(tmp_path)(
        in_training(ea_variant=variant, ea_diagonal=1.0), batch([0, 1])
    )
    assert loss.isfinite()


def test_fairseqs_own_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="--ea-variant plain is the same model"):
        criterion(tmp_path)(in_training("transformer_lite"), batch([0, 1]))


def test_where_layerdrop_drops_all_layers_nothing_points(tmp_path):
    model, sample = in_training(decoder_layerdrop=1.0, **PLAIN), batch([0, 1])
    guided = criterion(tmp_path)
    loss, _, logged = guided(model, sample)
    expected, _, _ = LabelSmoothedCrossEntropyCriterion.forward(guided, model, sample)
    assert torch.equal(loss, expected) and logged["syntax_loss"] == 0


def test_maps_that_are_not_kept_are_refused(tmp_path):
    model = in_training(checkpoint_activations=True, **PLAIN)
    with pytest.raises(UserError, match="--checkpoint-activations cannot be combined"):
        criterion(tmp_path)(model, batch([0, 1]))


# In fairseq's commands.


def guided_training(folder, hints, *more):
    options = ("--arch", "ea_transformer_lite", "--ea-variant", "plain", *SIZES)
    options += ("--criterion", "syntax_guided_cross_entropy", "--label-smoothing", "0.1")
    options += ("--syntax-hints", hints, "--max-update", "4", "--log-format", "json")
    return run("train", *training(corpus(), folder, *options, *more))


@pytest.fixture(scope="module")
def hints(tmp_path_factory):
    """Hints for the tests' corpus: every subword looks at the first."""
    path = tmp_path_factory.mktemp("hints") / "train.hints"
    lines = (corpus().parent / "train.en").read_text().splitlines()
    counts = [len(line.split()) for line in lines]
    path.write_text("".join(" ".join(["0", *["1"] * (n - 1)]) + "\n" for n in counts))
    return path


def test_fairseq_train_logs_the_loss_and_goes_on_after_a_stop(hints, tmp_path):
    done = guided_training(tmp_path, hints)
    assert done.status == 0, done.errors()
    found = re.findall(r'\{[^{}]*"syntax_loss"[^{}]*\}', done.output() + done.errors())
    logged = [json.loads(line) for line in found]
    assert len(logged) >= 4 and all(float(log["syntax_loss"]) > 0 for log in logged)
    assert '"valid_loss"' in done.output() + done.errors()
    assert '"valid_syntax_loss"' not in done.output() + done.errors()
    done = guided_training(tmp_path, hints, "--max-update", "6")
    assert done.status == 0 and read_checkpoint(str(tmp_path / "checkpoint_last.pt"))
    # Who translates or validates needs no hints.
    hints.rename(hints.with_suffix(".away"))
    try:
        more = ("--task", "translation", "--user-dir", USER_DIR, "--max-tokens", "99")
        done = run("validate", corpus(), "--path", tmp_path / "checkpoint_last.pt", *more)
        assert done.status == 0, done.errors()
    finally:
        hints.with_suffix(".away").rename(hints)


def test_the_commands_of_the_page_work_as_they_stand(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "syntax.md").read_text(encoding="utf-8").replace("\\\n", " ")
    hints, train = re.findall(r"^ +((?:python|fairseq-train) .*)$", page, re.M)
    monkeypatch.chdir(tmp_path)
    Path("bin").symlink_to(corpus())
    Path("bpe").mkdir()
    lines = (corpus().parent / "train.en").read_text()
    Path("bpe/train.en").write_text(lines)
    trees = []  # every word hangs on the one before
    for line in lines.splitlines():
        for number, word in enumerate(line.split(), start=1):
            trees.append(f"{number}\t{word}\t_\t_\t_\t_\t{number - 1}\t_\t_\t_")
        trees.append("")
    Path("train.conllu").write_text("\n".join(trees))
    assert syntax_hints.main(shlex.split(hints)[2:]) == 0
    small = [*SIZES, "--max-update", "1", "--num-workers", "0", "--user-dir", USER_DIR]
    done = run("train", *shlex.split(train)[1:], *small)
    assert done.status == 0, done.errors()
    assert "syntax_loss" in done.output() + done.errors()
