"""Values that fairseq takes and then fails at, or learns nothing with, are refused in one line."""

import re

import pytest
from fairseq import options
from fairseq_commands import USER_DIR, corpus, generation, run, trained, training
from trained_language_models import corpus as text
from trained_language_models import training as language_training

from ea_fairseq.errors import UserError
from ea_fairseq.fairseq_options.values import check


def refused(done):
    assert done.status == 1 and "Traceback" not in done.errors()
    return done.errors().strip().splitlines()[-1].removeprefix("error: ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--lr=-1"], "--lr is [-1.0]: each must be above 0"),
        (["--lr", "0.1,0"], "--lr is [0.1, 0.0]: each must be above 0"),
        (["--dropout", "1.5"], "--dropout is 1.5: expected a number from 0 to 1"),
        (["--max-tokens", "0"], "--max-tokens is 0: expected a number from 1"),
        (
            ["--eval-bleu", "--eval-bleu-args", "beam=4"],
            "--eval-bleu-args is beam=4: expected JSON",
        ),
        (
            ["--eval-bleu", "--eval-bleu-args", '{"max-len-b": 9}'],
            "--eval-bleu-args: 'max-len-b' is",
        ),
    ],
)
def test_training(tmp_path, options, expected):
    done = run("train", *training(corpus(), tmp_path / "saved", "--max-update", "1", *options))
    assert refused(done).startswith(expected.split(":")[0])
    assert expected.split(": ")[1] in refused(done)
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # The first two kept the worst checkpoint as the best, and patience ended at once.
        (
            ["bleu", "--eval-bleu"],
            "--best-checkpoint-metric bleu needs --eval-bleu and --maximize-best-checkpoint-metric",
        ),
        (
            ["loss", "--maximize-best-checkpoint-metric"],
            "--maximize-best-checkpoint-metric: a lower loss is better",
        ),
        # These failed with a traceback after the first epoch, before it was saved.
        (
            ["bleu", "--maximize-best-checkpoint-metric"],
            "--best-checkpoint-metric bleu needs --eval-bleu and",
        ),
        (
            ["nll_loss"],
            "--best-checkpoint-metric nll_loss: cross_entropy does not measure it: choose from "
            "loss, ppl",
        ),
    ],
)
def test_what_the_best_checkpoint_is_chosen_by(tmp_path, options, expected):
    more = ("--max-update", "1", "--best-checkpoint-metric", *options)
    done = run("train", *training(corpus(), tmp_path / "saved", *more))
    assert refused(done).startswith(expected)
    assert not (tmp_path / "saved").exists()


def test_training_names_what_is_missing(tmp_path):
    """All sentences would be one batch."""
    arguments = training(corpus(), tmp_path / "saved", "--max-update", "1")
    where = arguments.index("--max-tokens")
    del arguments[where : where + 2]
    assert refused(run("train", *arguments)).startswith("--max-tokens is missing, or --batch-size")


@pytest.mark.parametrize("command", ["generate", "interactive"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--beam", "0"], "--beam is 0: expected a number from 1"),
        (["--beam", "-2"], "--beam is -2: expected a number from 1"),
        (["--lenpen", "1000"], "--lenpen is 1000.0: expected a number from -10 to 10"),
    ],
)
def test_translation(command, options, expected):
    done = run(command, *generation(corpus(), trained() / "checkpoint_last.pt", *options))
    assert refused(done).startswith(expected)


def test_switches_that_fairseq_generate_leaves_without_effect():
    """It printed its own BLEU as that of sacreBLEU, and translated all in the place of a part."""
    arguments = generation(corpus(), trained() / "checkpoint_last.pt")
    assert refused(run("generate", *arguments, "--sacrebleu")).endswith("give --scoring sacrebleu")
    parts = ("--num-shards", "2", "--shard-id", "1")
    told = refused(run("generate", *arguments, *parts)).partition(": give ")[2].split()
    assert told == ["--distributed-world-size", "2", "--distributed-rank", "1"]
    found = []
    for rank in ("0", "1"):
        done = run("generate", *arguments, *told[:-1], rank)
        found.append(re.findall(r"^H-(\d+)", done.output(), re.M))
    assert all(found) and sorted(map(int, found[0] + found[1])) == list(range(11))


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        ("generate", "--sampling-topk 3", "--sampling-topk and --sampling-topp need --sampling"),
        ("generate", "--sampling-topp 0.9", "--sampling-topk and --sampling-topp need --sampl"),
        ("generate", "--lm-path lm.pt", "--lm-path has no effect without --lm-weight, which is 0"),
        ("interactive", "--lm-path lm.pt --lm-weight 1", "--lm-path has no effect on fairseq-int"),
        ("generate", "--lm-path lm.pt --lm-weight 0.3", None),
        ("generate", "--sampling --sampling-topk 3 --nbest 5", None),
        ("interactive", "--num-shards 2", None),
    ],
)
def test_what_has_no_effect_is_refused(command, words, expected):
    parser = options.get_generation_parser(interactive=command == "interactive")
    args = options.parse_args_and_arch(parser, ["data", "--path", "model.pt", *words.split()])
    if expected is None:
        check(parser, args)
        return
    with pytest.raises(UserError) as error:
        check(parser, args)
    assert str(error.value).startswith(expected)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Most of these failed behind the first epoch, before it was saved.
        ('{"beam": 0}', "beam is 0: expected a number from 1 to 1000"),
        ('{"beam": 2.5}', "beam is 2.5: expected a whole number"),
        ('{"beam": "4"}', 'beam is "4": expected a whole number'),
        ('{"lenpen": true}', "lenpen is true: expected a number"),
        ('{"lenpen": NaN}', "lenpen is nan: expected a finite number"),
        ('{"sampling": "false"}', 'sampling is "false": expected true or false'),  # it drew
        (
            '{"sampling": true, "beam": 3, "lenpen": 1, "max_len_a": 1, "no_repeat_ngram_size": 2}',
            "",
        ),
        ('{"print_alignment": "hard", "lenpen": 0.6, "max_len_b": 9}', ""),
    ],
)
def test_the_search_of_a_validation(settings, expected):
    arguments = training("data", "saved", "--eval-bleu", "--eval-bleu-args", settings)
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [str(argument) for argument in arguments])
    if not expected:
        check(parser, args)
        return
    with pytest.raises(UserError, match="^" + re.escape(f"--eval-bleu-args: {expected}")):
        check(parser, args)


def test_alignments_of_both_kinds():
    """Of each token, its source's likeliest is where it attends to most."""
    printed = []
    for kind in ("hard", "soft"):
        more = ("--print-alignment", kind)
        done = run("generate", *generation(corpus(), trained() / "checkpoint_last.pt", *more))
        assert done.status == 0, done.errors()
        printed.append(dict(re.findall(r"^A-(\d+)\t(.*)$", done.output(), re.M)))
    hard, soft = printed
    assert len(hard) == len(soft) == 11
    for number, pairs in hard.items():
        maps = [list(map(float, row.split(","))) for row in soft[number].split()]
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in maps)
        likeliest = [row.index(max(row[:-1])) for row in maps[:-1]]  # ends are not aligned
        assert pairs.split() == [f"{source}-{place}" for place, source in enumerate(likeliest)]


@pytest.mark.parametrize("lenpen", ["-10", "10"])
def test_the_ends_of_the_range_work(lenpen):
    done = run(
        "generate", *generation(corpus(), trained() / "checkpoint_last.pt", "--lenpen", lenpen)
    )
    assert done.status == 0, done.errors()
    assert done.output().count("\nH-") == 11 and not re.search(r"\t-?(inf|nan)", done.output())


def test_perplexity():
    words = ("--user-dir", USER_DIR, "--path", "unread.pt", "--tokens-per-sample", "0")
    done = run("eval-lm", text(), *words)
    assert refused(done).startswith("--tokens-per-sample is 0: expected a number from 1")


def test_blocks_that_no_batch_takes(tmp_path):
    """Training left all of them out but the last, which is shorter, with a warning."""
    arguments = language_training(tmp_path / "saved", "--max-update", "1", "--max-tokens", "23")
    expected = "--max-tokens 23 takes no block of --tokens-per-sample 24: give --max-tokens 24"
    assert refused(run("train", *arguments)).startswith(expected)
    assert not (tmp_path / "saved").exists()


def test_a_window_across_lines_that_are_apart():
    """It showed each line the ones before it, against what --sample-break-mode eos says."""
    window = ("--sample-break-mode", "eos", "--context-window", "8")
    done = run("eval-lm", text(), "--user-dir", USER_DIR, "--path", "unread.pt", *window)
    assert refused(done).startswith("--context-window 8: lines apart (--sample-break-mode eos)")


def test_validation_without_the_size_of_a_batch():
    done = run("validate", corpus(), "--user-dir", USER_DIR, "--path", "unread.pt")
    assert refused(done).startswith("--max-tokens is missing, or --batch-size")
