"""Values that fairseq takes and then fails at, or learns nothing with, are refused in one line."""

import re
import shutil

import pytest
from fairseq import options
from fairseq.data import Dictionary
from fairseq.scoring import build_scorer
from fairseq_commands import USER_DIR, corpus, generation, run, trained, training
from trained_language_models import corpus as text
from trained_language_models import training as language_training

from ea_fairseq.errors import UserError
from ea_fairseq.guard.options import option_values
from ea_fairseq.guard.options.option_values import check


def refused(done):
    assert done.status == 1 and "Traceback" not in done.errors()
    return done.errors().strip().splitlines()[-1].removeprefix("error: ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--lr=-1"], "--lr is [-1.0]: each must be above 0"),
        (["--lr", "0.1,0"], "--lr is [0.1, 0.0]: each must be above 0"),
        (["--adam-betas", "0.9"], "--adam-betas is 0.9: expected two numbers from 0 to below 1"),
        (["--adam-betas", "(0.9,1)"], "--adam-betas is (0.9,1): expected two numbers from 0 to"),
        (["--adam-betas=x()"], "--adam-betas is x(): expected two numbers from 0 to below 1"),
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


@pytest.mark.parametrize("option", ["--optimizer", "--max-tokens"])
def test_training_names_what_is_missing(tmp_path, option):
    arguments = training(corpus(), tmp_path / "saved", "--max-update", "1")
    where = arguments.index(option)
    del arguments[where : where + 2]
    assert refused(run("train", *arguments)).startswith(f"{option} is missing")


@pytest.mark.parametrize("command", ["generate", "interactive"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--beam", "0"], "--beam is 0: expected a number from 1"),
        (["--beam", "-2"], "--beam is -2: expected a number from 1"),
        (["--beam", "2", "--nbest", "3"], "--nbest is 3: choose from 1 to --beam 2"),
        (["--beam", "2", "--sampling"], "--sampling with --beam 2 needs --nbest 2 as well, or "),
        (["--lenpen", "1000"], "--lenpen is 1000.0: expected a number from -10 to 10"),
        (["--post-process", "subwordnmt"], "--post-process is 'subwordnmt': choose from subword_n"),
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
        ("interactive", "--print-alignment soft", "--print-alignment soft is not for fairseq-int"),
        (
            "generate",
            "--print-alignment soft --score-reference",
            "--print-alignment soft is not for --score-reference: give --print-alignment hard",
        ),
        (
            "interactive",
            "--print-alignment --task language_modeling",
            "--print-alignment: a language model has no source to align with: leave it out",
        ),
        ("generate", "--print-step", "--print-step, --retain-iter-history, --decoding-format and"),
        ("generate", "--retain-iter-history", "--print-step, --retain-iter-history, --decoding"),
        ("generate", "--decoding-format vote", "--print-step, --retain-iter-history, --decoding"),
        ("interactive", "--iter-decode-max-iter 9", "--print-step, --retain-iter-history, --dec"),
        ("generate", "--iter-decode-with-beam 2", "--print-step, --retain-iter-history, --decod"),
        ("generate", "--eos-token x", "--eos-token x has no effect on the task translation: lea"),
        (
            "interactive",
            "--retain-dropout-modules TransformerModel",
            "--retain-dropout-modules has no effect without --retain-dropout: give that as well",
        ),
        ("generate", "--retain-dropout --retain-dropout-modules TransformerModel", None),
        ("generate", "--sampling-topk 3", "--sampling-topk and --sampling-topp need --sampling"),
        ("generate", "--sampling-topp 0.9", "--sampling-topk and --sampling-topp need --sampl"),
        (
            "generate",
            "--sampling --sampling-topk 9 --sampling-topp 0.9 --nbest 5",
            "--sampling-topk 9 has no effect beside --sampling-topp: give one of them",
        ),
        ("generate", "--lm-weight 0.3", "--lm-weight 0.3 has no effect without --lm-path: leave"),
        ("interactive", "--lm-weight=-1", "--lm-weight -1.0 has no effect without --lm-path: le"),
        (
            "generate",
            "--diverse-beam-strength 0.9",
            "--diverse-beam-strength 0.9 has no effect without --diverse-beam-groups: give that",
        ),
        ("generate", "--beam 4 --diverse-beam-groups 2 --diverse-beam-strength 0.9", None),
        ("generate", "--match-source-len --diversity-rate 0.5", "--sampling, --match-source-len"),
        ("interactive", "--constraints --match-source-len", "--sampling, --match-source-len, --di"),
        ("interactive", "--constraints --sampling --nbest 5", "--sampling, --match-source-len, --"),
        (
            "interactive",
            "--constraints --task language_modeling",
            "--constraints: a language model takes none: leave it out",
        ),
        ("generate", "--beam 3 --diverse-beam-groups 2", "--diverse-beam-groups 2 does not div"),
        ("generate", "--temperature 0", "--temperature is 0.0: expected a number above 0"),
        ("generate", "--constraints", "--constraints stand behind the lines that fairseq-inter"),
        ("generate", "--distributed-rank 1", "--distributed-rank is 1: expected one from 0 to "),
        ("interactive", "--bpe subword_nmt", "--bpe-codes is missing"),
        ("interactive", "--tokenizer moses", "--tokenizer moses needs --source-lang and --tar"),
        ("interactive", "--constraints --print-alignment hard", None),
        ("generate", "--sampling --sampling-topk 3 --nbest 5 --print-alignment soft", None),
        ("generate", "--beam 4 --diverse-beam-groups 2", None),
        ("generate", "--tokenizer moses --source-lang de --target-lang en", None),
    ],
)
def test_what_ends_in_a_traceback_is_refused(command, words, expected):
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
        ('{"temperature": 0}', "--temperature is 0: expected a number above 0"),
        ('{"beam": 4, "diverse_beam_groups": 3}', "--diverse-beam-groups 3 does not divide --bea"),
        ('{"sampling_topk": 3}', "--sampling-topk and --sampling-topp need --sampling as well"),
        ('{"iter_decode_with_beam": 2}', "--print-step, --retain-iter-history, --decoding-format"),
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


@pytest.mark.parametrize(
    ("scoring", "package"),
    [("wer", "editdistance"), ("meteor", "nltk"), ("bert_score", "bert-score")],
)
def test_scores_of_packages(monkeypatch, scoring, package):
    found = {}
    monkeypatch.setattr(option_values.importlib.util, "find_spec", found.get)

    def check_choice(choice):
        parser = options.get_generation_parser()
        words = ["data", "--path", "model.pt", "--scoring", choice]
        check(parser, options.parse_args_and_arch(parser, words))

    with pytest.raises(UserError) as error:
        check_choice(scoring)
    expected = f"--scoring {scoring} needs the package {package}: pip install {package}, or choose "
    assert str(error.value).startswith(f"{expected}from ")
    for other in str(error.value).rpartition("from ")[2].split(", "):
        check_choice(other)
        build_scorer(other, Dictionary())
    found[package.replace("-", "_")] = "installed"
    check_choice(scoring)


def test_words_of_other_pieces_have_no_perplexity():
    """Any other rule ended in a traceback."""
    words = ("--user-dir", USER_DIR, "--path", "unread.pt", "--post-process", "sentencepiece")
    expected = "--post-process is 'sentencepiece': fairseq-eval-lm joins the pieces of subword-nmt"
    assert refused(run("eval-lm", text(), *words)).startswith(expected)


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


@pytest.mark.parametrize("command", ["generate", "interactive", "validate", "eval-lm"])
def test_a_checkpoint_must_be_named(command):
    assert refused(run(command, corpus(), "--user-dir", USER_DIR)).startswith("--path is missing")


def test_a_batch_of_more_lines_than_are_read():
    sizes = ("--buffer-size", "8", "--batch-size", "16")
    done = run("interactive", *generation(corpus(), trained() / "checkpoint_last.pt", *sizes))
    assert refused(done).startswith("--batch-size 16 is more than the --buffer-size 8")


@pytest.mark.parametrize(
    ("tokens", "context", "expected"),
    [
        ("64", "100", "--context-window 100 leaves nothing of --tokens-per-sample 64"),
        ("64", "64", "--context-window 64 leaves nothing of --tokens-per-sample 64"),
        ("0", "0", "--tokens-per-sample is 0: expected a number from 1"),
    ],
)
def test_perplexity(tokens, context, expected):
    sizes = ("--tokens-per-sample", tokens, "--context-window", context)
    done = run("eval-lm", text(), "--user-dir", USER_DIR, "--path", "unread.pt", *sizes)
    assert refused(done).startswith(expected)


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


def test_a_translation_model_has_no_perplexity(tmp_path):
    """As in a folder of binarized parallel text."""
    shutil.copyfile(corpus() / "dict.en.txt", tmp_path / "dict.txt")
    checkpoint = trained() / "checkpoint_last.pt"
    done = run("eval-lm", tmp_path, "--user-dir", USER_DIR, "--path", checkpoint)
    assert "transformer translates: the task language_modeling wants a language model" in refused(
        done
    )


def test_the_folder_above_the_data_is_named():
    parent = corpus().parent
    error = refused(run("generate", *generation(parent, trained() / "checkpoint_last.pt")))
    assert error.startswith(f"{parent}: ") and f"meant {corpus()}" in error
    assert "dict.*.txt" in error and "--source-lang and --target-lang" in error
