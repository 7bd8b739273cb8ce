"""A training stopped and continued ends where it would have ended, and once ended does no more."""

import re
import signal
import subprocess
import sys

import pytest
from fairseq_commands import corpus, run, signal_after, succeeds, training

from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.checkpoints.writing import save_checkpoint_file
from ea_fairseq.guard import stopping

# So small a step changes no weight: the loss never falls.
NO_BETTER = ["--lr", "1e-20", "--max-epoch", "20"]
STOPPED = "early stop since valid performance hasn't improved for last"


def epochs(folder):
    return len(list(folder.glob("checkpoint[0-9]*.pt")))


def train(folder, *more):
    done = succeeds("train", *training(corpus(), folder, *NO_BETTER, *more))
    return done.output()


#: What is said at each start of a training, and how many epochs are there after it.
STARTS = {
    "without a stop": [("--patience 3", 4)],
    "stopped after each epoch": [
        *((f"--patience 3 --max-epoch {epoch}", epoch) for epoch in (1, 2, 3)),
        ("--patience 3", 4),
    ],
    "stopped early, until it gets more patience, or endless patience by none at all": [
        *(("--patience 1", 2), ("--patience 1", 2), ("--patience 3", 4), ("--max-epoch 6", 6)),
    ],
    # The first epoch stays the best.
    "none in between": [("--patience 1", 2), ("--max-epoch 3", 3), ("--patience 3", 3 + 3)],
    "forgotten as the best score": [("--patience 1", 2), ("--patience 1 --reset-meters", 4)],
}


@pytest.mark.parametrize("starts", STARTS.values(), ids=STARTS)
def test_patience_survives_restarts(starts, tmp_path):
    before = 0
    for options, expected in starts:
        output = train(tmp_path, *options.split())
        assert epochs(tmp_path) == expected
        if expected == before:
            assert "stopped early before, with --patience 1; a higher one lets it go on" in output
            assert "begin training epoch" not in output
        else:
            assert "stopped early before" not in output
            assert (STOPPED in output) == ("--max-epoch" not in options)
        before = expected


def test_patience_goes_by_bleu_where_it_is_told_to(tmp_path):
    """A model of two epochs scores nothing, however its loss falls."""
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 9}']
    bleu += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    done = run("train", *training(corpus(), tmp_path, *bleu, "--patience", "2", "--max-epoch", "9"))
    assert done.status == 0 and STOPPED in done.output(), done.errors()
    found = re.findall(
        r"valid on 'valid' subset \| loss ([\d.]+) .*\| bleu ([\d.]+)", done.output()
    )
    losses, scores = zip(*((float(loss), float(score)) for loss, score in found), strict=True)
    assert list(losses) == sorted(losses, reverse=True) and losses[0] > losses[-1]
    # The best, and then as many that are no better as patience allows.
    assert scores.index(max(scores)) == len(scores) - 3 and len(scores) < 9


@pytest.mark.parametrize(
    ("patience", "more", "updates"),
    [("3", [], 4 * 8), ("30", ["--validate-interval-updates", "1"], 31)],
    ids=["by epochs", "by updates"],
)
def test_patience_survives_a_signal_in_the_middle_of_an_epoch(tmp_path, patience, more, updates):
    arguments = training(corpus(), tmp_path, *NO_BETTER, "--patience", patience, *more)
    stop = signal_after(15, signal.SIGTERM)  # in the second epoch
    assert run("train", *arguments, before=stop).status == 143
    assert epochs(tmp_path) < 4
    assert STOPPED in train(tmp_path, "--patience", patience, *more)
    state = read_checkpoint(str(tmp_path / "checkpoint_last.pt"))
    assert state["optimizer_history"][-1]["num_updates"] == updates


def test_a_plateau_is_counted_over_restarts(tmp_path):
    """Each restart forgot an epoch: killed in each, a training never lowered its learning rate."""

    def rate(name, *kills):
        more = ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", "1", "--max-epoch", "5"]
        more += ["--lr-threshold", "0.9", "--no-epoch-checkpoints"]
        arguments = training(corpus(), tmp_path / name, *more)
        for update in kills:
            killed = run("train", *arguments, before=signal_after(update, signal.SIGKILL))
            assert killed.status == -signal.SIGKILL
        succeeds("train", *arguments)
        state = read_checkpoint(str(tmp_path / name / "checkpoint_last.pt"))
        return state["last_optimizer_state"]["param_groups"][0]["lr"]

    assert rate("killed", 10, 18, 26, 34) == rate("whole") < 0.002


def test_what_a_signal_stops_is_saved_whatever_is_not_kept(tmp_path):
    stop = signal_after(15, signal.SIGTERM)
    arguments = training(corpus(), tmp_path, *NO_BETTER, "--no-last-checkpoints")
    assert run("train", *arguments, "--no-epoch-checkpoints", before=stop).status == 143
    state = read_checkpoint(str(tmp_path / "checkpoint_last.pt"))
    assert 15 <= state["optimizer_history"][-1]["num_updates"] < 24


def test_nothing_is_left_to_the_next_training_of_a_process(tmp_path):
    """As in a notebook: the program's own counters and the signal that ended a training."""

    first, second = (
        [str(part) for part in training(corpus(), tmp_path / name, *NO_BETTER, "--patience", "1")]
        for name in ("first", "second")
    )

    def before():
        import fairseq_cli.train  # in the command's own process, to log there

        sys.argv[1:] = first
        fairseq_cli.train.cli_main()
        stopping._received = signal.SIGTERM  # came after the last update
        sys.argv[1:] = second

    succeeds("train", *second, before=before)
    assert epochs(tmp_path / "first") == epochs(tmp_path / "second") == 2


@pytest.mark.thorough
def test_python_m_is_the_same_program_by_another_name(tmp_path):
    program = [sys.executable, "-m", "fairseq_cli.train"]
    for patience in ("1", "1", "2"):
        arguments = training(corpus(), tmp_path, *NO_BETTER, "--patience", patience)
        subprocess.run([*program, *map(str, arguments)], check=True, capture_output=True)
        assert epochs(tmp_path) == int(patience) + 1


def test_a_model_to_start_from_gives_no_impatience(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    train(first, "--patience", "1")
    train(second, "--patience", "1", "--finetune-from-model", first / "checkpoint_last.pt")
    assert epochs(second) == 2


def test_a_checkpoint_of_fairseq_alone_gives_the_best_score(tmp_path):
    train(tmp_path, "--patience", "3", "--max-epoch", "2")
    last = tmp_path / "checkpoint_last.pt"
    state = read_checkpoint(str(last))
    del state["extra_state"]["early_stopping"]
    save_checkpoint_file(state, str(last))
    train(tmp_path, "--patience", "3")
    assert epochs(tmp_path) == 5  # the third epoch is not the best one: two and three more


def test_a_score_of_another_metric_is_not_compared(tmp_path):
    """The loss of this model is about 4, its perplexity about 20."""
    assert "begins anew" not in train(tmp_path, "--patience", "9", "--max-epoch", "1")
    more = ("--max-epoch", "2", "--best-checkpoint-metric", "ppl")
    assert (
        "checkpoint_last.pt: its best checkpoint was chosen by loss: by --best-checkpoint-metric "
        "ppl the comparison begins anew"
    ) in train(tmp_path, "--patience", "9", *more)
    state = read_checkpoint(str(tmp_path / "checkpoint_best.pt"))["extra_state"]
    assert state["best"] == state["val_loss"] == state["early_stopping"]["best"] > 10


def files(folder):
    """The checkpoints' content and time; the lock names the process that had it last."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("*.pt")}


@pytest.mark.parametrize(
    ("end", "higher", "said"),
    [
        ("--max-update 4", "--max-update 5", "this training is finished: 4 updates of --max-upd"),
        (
            "--stop-time-hours 1e-09",
            "--stop-time-hours 1 --max-update 3",
            "hours of --stop-time-hours 1e-09",
        ),
        ("--max-epoch 1", "--max-epoch 2", ""),
        ("--patience 1", "--patience 2", "this training has stopped early before, with --patience"),
    ],
    ids=lambda value: value.split()[0] if value else "",
)
def test_a_finished_training_does_nothing_more_until_its_end_is_raised(tmp_path, end, higher, said):
    train(tmp_path, *end.split())
    before = files(tmp_path)
    for _ in range(2):
        output = train(tmp_path, *end.split())
        assert "begin training epoch" not in output and files(tmp_path) == before
        assert not said or output.count(said) == 1
    train(tmp_path, *higher.split())
    assert files(tmp_path) != before
