"""Values of fairseq's commands with which the result is wrong without a word, or hours are lost."""

import re
import shlex

import pytest
import trained_language_models
from fairseq import options
from fairseq_commands import USER_DIR, corpus, generation, run, trained, training

from ea_fairseq.errors import UserError
from ea_fairseq.fairseq_options.values import check

#: Command, what is added to its words, and how the refusal begins; nothing where it is taken.
TABLE = """
train       | --lr=-1                         | --lr is [-1.0]: each must be above 0
train       | --lr 0.1,0                      | --lr is [0.1, 0.0]: each must be above 0
train       | --dropout 1.5                   | --dropout is 1.5: expected a number from 0 to 1
train       | --max-tokens 0                  | --max-tokens is 0: expected a number from 1
train-lm    | --max-tokens 23                 | --max-tokens 23 takes no block of \
--tokens-per-sample 24: give --max-tokens 24
generate    | --beam 0                        | --beam is 0: expected a number from 1
generate    | --beam -2                       | --beam is -2: expected a number from 1
generate    | --lenpen 1000                   | --lenpen is 1000.0: expected a number from -10 to 10
interactive | --beam 0                        | --beam is 0: expected a number from 1
eval-lm     | --tokens-per-sample 0           | --tokens-per-sample is 0: expected a number from 1
# All sentences would be one batch.
train       | --max-tokens None               | --max-tokens is missing, or --batch-size
validate    | --max-tokens None               | --max-tokens is missing, or --batch-size
# The best checkpoint: of the first two fairseq kept the worst, and patience ended at once.
train       | --best-checkpoint-metric bleu --eval-bleu | --best-checkpoint-metric bleu needs \
--eval-bleu and --maximize-best-checkpoint-metric
train       | --best-checkpoint-metric loss --maximize-best-checkpoint-metric | \
--maximize-best-checkpoint-metric: a lower loss is better
# These failed with a traceback after the first epoch, before it was saved.
train       | --best-checkpoint-metric bleu --maximize-best-checkpoint-metric | \
--best-checkpoint-metric bleu needs --eval-bleu and
train       | --best-checkpoint-metric nll_loss | --best-checkpoint-metric nll_loss: \
cross_entropy does not measure it: choose from loss, ppl
validation  | beam=4                          | is beam=4: expected JSON
validation  | {"max-len-b": 9}                | 'max-len-b' is no option of the search
validation  | {"beam": 0}                     | beam is 0: expected a number from 1 to 1000
validation  | {"beam": 2.5}                   | beam is 2.5: expected a whole number
validation  | {"beam": "4"}                   | beam is "4": expected a whole number
validation  | {"lenpen": true}                | lenpen is true: expected a number
validation  | {"lenpen": NaN}                 | lenpen is nan: expected a finite number
validation  | {"print_alignment": "hard", "lenpen": 0.6, "max_len_b": 9} |
validation  | {"sampling": true, "beam": 3, "max_len_a": 1, "no_repeat_ngram_size": 2} |
# It drew at random.
validation  | {"sampling": "false"}           | sampling is "false": expected true or false
# What fairseq takes without effect.
generate    | --sacrebleu                     | --sacrebleu has no effect on what is printed: give \
--scoring sacrebleu
generate    | --num-shards 2 --shard-id 1     | --num-shards 2 has no effect, all sentences would \
be translated: give --distributed-world-size 2 --distributed-rank 1
generate    | --sampling-topk 3               | --sampling-topk and --sampling-topp need --sampling
generate    | --sampling-topp 0.9             | --sampling-topk and --sampling-topp need --sampling
generate    | --lm-path lm.pt                 | --lm-path has no effect without --lm-weight
interactive | --lm-path lm.pt --lm-weight 1   | --lm-path has no effect on fairseq-interactive
generate    | --lm-path lm.pt --lm-weight 0.3 |
generate    | --sampling --sampling-topk 3 --nbest 5 |
interactive | --num-shards 2                  |
# It showed each line the ones before it, against what --sample-break-mode eos says.
eval-lm     | --sample-break-mode eos --context-window 8 | --context-window 8: lines apart \
(--sample-break-mode eos)
"""
ROWS = [tuple(map(str.strip, row.split("|"))) for row in TABLE.splitlines() if "|" in row]
#: Of each command, fairseq's parser and the words that stand before those of the table.
COMMANDS = {
    "train": (options.get_training_parser, training("data", "saved")),
    "train-lm": (options.get_training_parser, trained_language_models.training("saved")),
    "generate": (options.get_generation_parser, generation("data", "model.pt")),
    "interactive": (options.get_interactive_generation_parser, generation("data", "model.pt")),
    "validate": (options.get_validation_parser, ["data", "--path", "model.pt", "--max-tokens", 9]),
    "eval-lm": (options.get_eval_lm_parser, ["data", "--path", "model.pt"]),
}


@pytest.mark.parametrize(("command", "words", "expected"), ROWS)
def test_the_table(command, words, expected):
    given = shlex.split(words)
    if command == "validation":
        command, given = "train", ["--eval-bleu", "--eval-bleu-args", words]
        expected = expected and f"--eval-bleu-args{' ' if ' JSON' in expected else ': '}{expected}"
    parser, before = COMMANDS[command]
    parser, before = parser(), list(map(str, before))
    if given[-1] == "None":
        where = before.index(given[0])
        before, given = before[:where] + before[where + 2 :], []
    args = options.parse_args_and_arch(parser, [*before, *given])
    if not expected:
        check(parser, args)
        return
    with pytest.raises(UserError, match="^" + re.escape(expected)):
        check(parser, args)


def refused(done):
    assert done.status == 1 and "Traceback" not in done.errors()
    return done.errors().strip().splitlines()[-1].removeprefix("error: ")


def test_every_command_looks_before_any_work(tmp_path):
    saved = tmp_path / "saved"
    unread = ("--user-dir", USER_DIR, "--path", "unread.pt")
    for command, words, expected in (
        ("train", training(corpus(), saved, "--lr=-1"), "--lr is [-1.0]"),
        ("generate", generation(corpus(), "unread.pt", "--beam", "0"), "--beam is 0"),
        ("interactive", generation(corpus(), "unread.pt", "--beam", "0"), "--beam is 0"),
        ("validate", [corpus(), *unread], "--max-tokens is missing"),
        ("eval-lm", [corpus(), *unread, "--tokens-per-sample", "0"], "--tokens-per-sample is 0"),
    ):
        assert refused(run(command, *words)).startswith(expected), command
    assert not saved.exists()


def test_the_options_that_a_refusal_names_translate_a_part_each():
    arguments = generation(corpus(), trained() / "checkpoint_last.pt")
    parts = ("--num-shards", "2", "--shard-id", "1")
    told = refused(run("generate", *arguments, *parts)).partition(": give ")[2].split()
    assert told == ["--distributed-world-size", "2", "--distributed-rank", "1"]
    found = []
    for rank in ("0", "1"):
        done = run("generate", *arguments, *told[:-1], rank)
        found.append(re.findall(r"^H-(\d+)", done.output(), re.M))
    assert all(found) and sorted(map(int, found[0] + found[1])) == list(range(11))


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
