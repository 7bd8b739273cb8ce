"""fairseq's commands on language models: train, resume, score, generate; and what cannot work."""

import json
import math
import re
import shlex
import shutil

import evaluate_lm
import export_model
import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data.data_utils import load_indexed_dataset
from fairseq_commands import USER_DIR, here, refusal, run, succeeds
from fairseq_commands import corpus as parallel_corpus
from fairseq_commands import trained as trained_translation
from pages import ROOT, commands
from trained_language_models import SIZES, corpus, trained, training

from ea_fairseq import LanguageModel
from ea_fairseq.checkpoints.reading import read_checkpoint

PAGE = ROOT / "examples" / "language_modeling" / "README.md"


def evaluation(checkpoint, *more, data=None):
    return [
        data or corpus(),
        *("--user-dir", USER_DIR, "--path", checkpoint, "--gen-subset", "test"),
        *("--max-tokens", "200", "--tokens-per-sample", "24", *more),
    ]


def perplexity(checkpoint, *more, data=None):
    done = succeeds("eval-lm", *evaluation(checkpoint, *more, data=data))
    return float(re.search(r"Perplexity: ([\d.]+)", done.output() + done.errors())[1])


@pytest.mark.parametrize("mode", ["none", "eos"])
def test_it_learns(mode):
    checkpoint = trained(mode) / "checkpoint_last.pt"
    found = perplexity(checkpoint, "--sample-break-mode", mode)
    assert 1 < found < 15  # of 20 words and an end of line


def by_hand(model, text, block, context):
    """Perplexity of a text of token numbers, an end of line before it, in base e."""
    losses = []
    for start in range(0, len(text), block):
        before = text[max(0, start - context) : start]
        targets = text[start : start + block]
        first = text[start - len(before) - 1] if start else 2
        inputs = torch.tensor([[first, *before, *targets[:-1]]])
        with torch.no_grad():
            scores = model(inputs)[0].log_softmax(-1)[0, len(before) :]
        losses += [-scores[i, token].item() for i, token in enumerate(targets)]
    return math.exp(sum(losses) / len(losses))


def check_perplexity(data, checkpoint, block, context, found):
    (model,), _, task = load_model_ensemble_and_task([str(checkpoint)], {"data": str(data)})
    lines = load_indexed_dataset(str(data / "test"), task.dictionary, "mmap")
    text = [int(token) for line in lines for token in line]
    assert found == pytest.approx(by_hand(model.eval(), text, block - context, context), abs=0.006)


@pytest.mark.parametrize(
    ("context", "more"),
    [(0, []), (12, []), (12, ["--batch-size", "1", "--num-workers", "2"])],
)
def test_perplexity_is_that_of_every_token_once(context, more):
    """End-of-line tokens count as words; with a window each block sees the tokens before it, where
    several processes read, too."""
    checkpoint = trained() / "checkpoint_last.pt"
    window = ("--sample-break-mode", "none", "--context-window", str(context))
    check_perplexity(corpus(), checkpoint, 24, context, perplexity(checkpoint, *window, *more))


def test_a_text_shorter_than_a_block_is_scored_whole(tmp_path):
    (tmp_path / "test").write_text("w3 w4 w7\nw5\n")
    arguments = ["--only-source", "--workers", "1", "--srcdict", corpus() / "dict.txt"]
    data = tmp_path / "bin"
    done = run("preprocess", *arguments, "--testpref", tmp_path / "test", "--destdir", data)
    assert done.status == 0
    checkpoint = trained() / "checkpoint_last.pt"
    found = perplexity(checkpoint, "--sample-break-mode=none", data=data)
    check_perplexity(data, checkpoint, 24, 0, found)


def refused(words, command, *arguments):
    assert re.search(words, refusal(command, *arguments))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            "--tokens-per-sample 64",
            "--tokens-per-sample 64: .* than the model's 24 positions .* give",
        ),
        (
            "--sample-break-mode none --context-window 12 --num-shards 2",
            "--context-window 12 wants the whole text in its order: leave out --num-shards 2",
        ),
    ],
)
def test_a_window_wants_the_whole_text(options, words):
    checkpoint = trained() / "checkpoint_last.pt"
    refused(words, "eval-lm", *evaluation(checkpoint, *options.split()))


def with_other_words(folder):
    """A folder's data by a dictionary of the same words in another order."""
    other = shutil.copytree(corpus(), folder)
    entries = (corpus() / "dict.txt").read_text().splitlines()
    (other / "dict.txt").write_text("".join(f"{line}\n" for line in reversed(entries)))
    return other


def test_a_dictionary_of_another_corpus_is_refused(tmp_path):
    """Perplexities without sense, and no error."""
    other = with_other_words(tmp_path / "bin")
    words = "another source dictionary .*entries are others, or in another order"
    refused(words, "eval-lm", *evaluation(trained() / "checkpoint_last.pt", data=other))


def beginning_with_bos(path):
    """A checkpoint that says that it was trained with --add-bos-token."""
    state = read_checkpoint(str(trained() / "checkpoint_last.pt"))
    state["cfg"]["task"]["add_bos_token"] = True
    torch.save(state, path)
    return path


@pytest.mark.parametrize("command", ["eval-lm", "generate"])
def test_texts_begin_as_in_training(tmp_path, command):
    """With another beginning than it knows a model gave another perplexity, and no error."""
    task = ["--task", "language_modeling"] if command == "generate" else []
    wanted = evaluation(beginning_with_bos(tmp_path / "bos.pt"), *task)
    refused("bos.pt was trained with --add-bos-token: give it here as well$", command, *wanted)
    given = evaluation(trained() / "checkpoint_last.pt", *task, "--add-bos-token")
    refused("was trained without --add-bos-token: leave it out here as well$", command, *given)


def test_a_training_goes_on_with_the_same_beginnings(tmp_path):
    path = beginning_with_bos(tmp_path / "bos.pt")
    more = ["--max-epoch", "5", "--sample-break-mode", "none", "--restore-file", path]
    refused("bos.pt was trained with --add-bos-token", "train", *training(tmp_path / "new", *more))


#: Checkpoint ("" for one that is there), options of scripts/evaluate_lm.py, and the refusal's
#: beginning; {0} stands for a folder.
SCORING = """
unread.pt | --json {0} --losses {0}/a         | --json {0}: is a folder; name a file
unread.pt | --json {0}/a --losses {0}/a       | --losses {0}/a: is the file of --json
unread.pt | --tokens-per-sample 0             | --tokens-per-sample is 0: expected a number from 1
          | --subword sentencepiece           | --subword sentencepiece:
          | --unit character                  | --unit character:
"""


@pytest.mark.parametrize("row", SCORING.strip("\n").splitlines())
def test_scoring_that_cannot_work_is_refused_and_writes_nothing(tmp_path, capsys, row):
    checkpoint, options, expected = (cell.strip().format(tmp_path) for cell in row.split("|"))
    arguments = map(str, evaluation(checkpoint or trained() / "checkpoint_last.pt"))
    files = ["--json", str(tmp_path / "scores"), "--losses", str(tmp_path / "losses")]
    given = [*arguments, "--subword", "none", *files, *options.split()]
    assert evaluate_lm.main(given) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"evaluate_lm.py: error: {expected}")
    assert not list(tmp_path.iterdir())


def test_resumed_equals_uninterrupted_to_the_bit(tmp_path):
    for epochs in ("2", "4"):
        succeeds("train", *training(tmp_path, "--max-epoch", epochs, "--sample-break-mode", "none"))
    one, other = (
        read_checkpoint(str(folder / "checkpoint_last.pt"))["model"]
        for folder in (tmp_path, trained())
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def continued(command, *more):
    """{number: words} of what the model makes of the test's or typed lines."""
    arguments = [
        *(corpus(), "--user-dir", USER_DIR, "--task", "language_modeling"),
        *("--path", trained("eos") / "checkpoint_last.pt", "--max-len-b", "12", *more),
    ]
    done = succeeds(command, *arguments)
    found = dict(re.findall(r"^H-(\d+)\t[^\t]*\t(.*)$", done.output(), re.M))
    return {number: words.split() for number, words in found.items()}, done.output()


@pytest.mark.parametrize("search", ["--beam 4", "--sampling --sampling-topk 5 --beam 2 --nbest 2"])
def test_generation_continues_prefixes(search):
    more = ["--sample-break-mode", "eos", "--prefix-size", "2", "--max-tokens", "200"]
    found, output = continued("generate", *more, "--no-progress-bar", *search.split())
    targets = dict(re.findall(r"^T-(\d+)\t(.*)$", output, re.M))
    assert len(found) == len(targets) == 15
    for number, words in found.items():
        assert words[:2] == targets[number].split()[:2]


@pytest.mark.parametrize("search", ["--beam 3", "--sampling --beam 1"])
def test_lines_typed_in_are_continued(search, tmp_path):
    """fairseq-interactive: each line is a prefix, in the tokens of the training text."""
    prefixes = ["w3 w6", "w1", "w7 w8 w9"]
    (tmp_path / "prefixes").write_text("".join(f"{line}\n" for line in prefixes))
    more = ["--input", tmp_path / "prefixes", "--buffer-size", "3", "--seed", "1"]
    found, _ = continued("interactive", *more, *search.split())
    assert len(found) == len(prefixes)
    for number, prefix in enumerate(map(str.split, prefixes)):
        words = found[str(number)]
        assert words[: len(prefix)] == prefix and len(words) > len(prefix)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model folder made of a checkpoint, and a checkpoint made of that."""
    top = tmp_path_factory.mktemp("exported")
    model, back = str(top / "model"), str(top / "back")
    assert export_model.main([str(trained("eos") / "checkpoint_last.pt"), model]) == 0
    assert export_model.main([model, back, "--to-fairseq"]) == 0
    return top


def test_an_exported_model_writes_what_fairseq_interactive_writes(exported, tmp_path):
    """And so does the checkpoint that is made of it again."""
    lines = ["w3 w6", "w1", "w7 w8 w9", "w2 new"]
    (tmp_path / "prefixes").write_text("".join(f"{line}\n" for line in lines))
    found = LanguageModel(exported / "model").generate(lines, n_best=2, beam=3, details=True)
    for data, file in (
        (corpus(), trained("eos") / "checkpoint_last.pt"),
        (exported / "back", exported / "back" / "model.pt"),
    ):
        arguments = [data, "--user-dir", USER_DIR, "--task", "language_modeling", "--path", file]
        arguments += ["--input", tmp_path / "prefixes", "--beam", "3", "--nbest", "2"]
        done = succeeds("interactive", *arguments, "--buffer-size", "4", "--batch-size", "4")
        hypotheses = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", done.output(), re.M)
        scores = re.findall(r"^P-\d+\t(.*)$", done.output(), re.M)
        assert len(hypotheses) == len(scores) == 2 * len(lines)
        ours = [(str(n), one) for n, texts in enumerate(found) for one in texts]
        for (number, one), (of, score, text), each in zip(ours, hypotheses, scores, strict=True):
            assert (number, one.tokens[:-1]) == (of, text.split())
            assert one.text == " ".join(one.tokens[:-1]).replace("<unk>", "new", 1)
            assert one.score == pytest.approx(float(score), abs=1e-4)
            assert one.token_scores == pytest.approx([float(x) for x in each.split()], abs=1e-4)


def test_a_run_of_bytes_reads_and_writes_them(tmp_path):
    (tmp_path / "text").mkdir()
    shutil.copy(trained("eos") / "checkpoint_last.pt", tmp_path / "averaged.pt")
    shutil.copy(corpus() / "dict.txt", tmp_path / "text" / "dict.txt")
    (tmp_path / "text" / "codes").touch()
    for kind, subword, tokens in (("bytes", "bytes", ["195", "188"]), ("plain", "none", ["ü"])):
        files = {"train": [{"path": "train", "format": kind}]}
        text = {"language": "en", "tokenize": {"tokenizer": "none"}, "subword": "none"}
        text |= {"data": "nowhere", "prepared": {"settings": {"files": files}}}
        (tmp_path / "text" / "corpus.json").write_text(json.dumps(text))
        assert export_model.main([str(tmp_path), str(tmp_path / kind)]) == 0
        model = LanguageModel(tmp_path / kind)
        assert model.config.text.subword == subword
        assert model.tokens("ü") == tokens and model.text(tokens) == "ü"


def test_checkpoints_that_cannot_be_exported_are_refused_in_one_line(tmp_path, capsys):
    checkpoint = str(trained("eos") / "checkpoint_last.pt")
    translation = str(trained_translation() / "checkpoint_last.pt")
    others, bos = with_other_words(tmp_path / "others"), beginning_with_bos(tmp_path / "bos.pt")
    for arguments, words in {
        (checkpoint, "--data", str(others)): "another source dictionary",
        (checkpoint, "-s", "de"): "holds a language model: give --language",
        (checkpoint, "--tokenizer", "moses"): "give --language, by whose rules",
        (translation, "--language", "de"): "translates: --language is for a language model",
        (str(bos),): "was trained with --add-bos-token",
    }.items():
        assert export_model.main([arguments[0], str(tmp_path / "out"), *arguments[1:]]) == 1
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_models_of_the_other_task_are_refused_in_one_line():
    model = ["--user-dir", USER_DIR, "--path", trained("eos") / "checkpoint_last.pt"]
    words = "another source dictionary|is a language model"
    refused(words, "generate", parallel_corpus(), *model, "--task", "translation")
    model = ["--user-dir", USER_DIR, "--path", trained_translation() / "checkpoint_last.pt"]
    refused("checkpoint", "eval-lm", corpus(), *model)


def test_the_pages_commands_run_as_they_stand(tmp_path, monkeypatch):
    (tmp_path / "text").mkdir()
    for split in ("train", "valid", "test"):
        text = (corpus().parent / split).read_text()
        (tmp_path / "text" / f"{split}.en").write_text(text)
    small = shlex.join([*SIZES, "--max-epoch", "2", "--num-workers", "0"])
    shown = [line for line in commands(PAGE) if "fairseq-" in line]
    assert [line.startswith("fairseq-") for line in shown] == [True] * 4 + [False]
    *lines, typed = shown
    for line in lines:
        output = here(f"{line} {small if line.startswith('fairseq-train') else ''}", tmp_path)
        if line.startswith("fairseq-eval-lm"):
            assert re.search(r"Perplexity: \d+\.", output)
    assert len(re.findall(r"^H-", output, re.M)) == 15
    text, _, interactive = typed.partition(" | ")  # which has no standard input here
    (tmp_path / "prefix").write_text(f"{shlex.split(text)[1]}\n")
    output = here(f"{interactive} --input prefix", tmp_path)
    assert len(re.findall(r"^H-0\t", output, re.M)) == 1
    monkeypatch.chdir(tmp_path)
    (export,) = re.findall(r"`ea-export ([^`]+)`", PAGE.read_text())
    assert export_model.main(shlex.split(export)) == 0
    assert LanguageModel(export.split()[-1]).generate("w1").startswith("w1")
