"""One line says how far a command is: read from what fairseq and tqdm print."""

import io
import json

from ea_fairseq.recipes.runs import progress
from ea_fairseq.recipes.runs.progress import Display, Status, TrainingStatus

HEAD = "2026-01-01 12:00:00 | INFO | "


def record(kind, **values):
    return f"{HEAD}{kind} | {json.dumps(values)}"


def inner(epoch, update, updates, **more):
    values = {"epoch": epoch, "update": update, "loss": "5.314", "wps": "3210.6"}
    return record("train_inner", **values, num_updates=str(updates), **more)


def test_a_training_tells_epoch_update_loss_speed_and_the_time_left():
    times = iter([100.0, 160.0])
    status = TrainingStatus({"max-epoch": 10}, now=lambda: next(times))
    assert status.read("anything else") is None
    first = status.read(inner(1, 1.0, 50))
    assert first == "epoch 1 of 10, update 50, loss 5.31, 3,211 words/s, 10 %"
    # One epoch in 60 seconds, and eight to go.
    second = status.read(inner(2, 2.0, 100))
    assert second.endswith("20 %, 8 min left")
    assert status.read(record("valid", epoch=2, valid_loss="4.5", valid_bleu="12.3")) is None
    assert status.read(record("train", epoch=2, train_loss="5", train_num_updates="120")) is None
    assert status.summary() == "2 epochs, 120 updates, validation loss 4.50, BLEU 12.30"


def test_a_training_that_goes_on_says_so_and_counts_the_time_from_there():
    times = iter([0.0, 10.0])
    status = TrainingStatus({"max-epoch": 4}, now=lambda: next(times))
    loaded = f"{HEAD}fairseq.trainer | Loaded checkpoint a.pt (epoch 3 @ 1200 updates)"
    assert status.read(loaded) == "going on after update 1,200"
    status.read(inner(3, 2.0, 1200))
    assert status.read(inner(3, 3.0, 1800)).endswith("75 %, 10 s left")


def test_bars_of_other_commands_are_read():
    status = Status("test_2016")
    assert (
        status.read("  42%|####      | 5/12 [00:01<00:02,  3.1it/s, wps=900]")
        == "test_2016 5 of 12"
    )
    assert Status().read("tokenize train: 12.5k lines [00:15, 830 lines/s]") == (
        "tokenize train, 12.5k lines"
    )
    assert status.read("no bar") is None and status.summary() == "test_2016"


def test_a_log_shows_a_line_now_and_then_and_warnings_once(monkeypatch):
    clock = iter([0.0, 10.0, 40.0, 40.0, 50.0, 60.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    display = Display("train", TrainingStatus({}, now=lambda: 0.0), stream)
    warning = b"2026-01-01 12:00:00 | WARNING | a.b | a bad thing\n"
    display.feed(f"{inner(1, 0.1, 10)}\n".encode() + warning)
    # A line may come in two pieces.
    text = f"{inner(1, 0.2, 20)}\r".encode()
    display.feed(text[:30])
    display.feed(text[30:] + warning + b"warning: too few\n" + f"{inner(1, 0.3, 30)}\n".encode())
    display.finish()
    assert stream.getvalue().splitlines() == [
        "train     warning: a bad thing",
        "train     epoch 1, update 20, loss 5.31, 3,211 words/s",
        "train     warning: too few",
        "train     1 epoch, 30 updates (60 s)",
    ]


def test_a_terminal_shows_one_line_that_changes(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    display = Display("train", TrainingStatus({}), stream)
    for updates in (10, 20):
        display.feed(f"{inner(1, 0.1, updates)}\n".encode())
    display.finish()
    assert stream.getvalue().count("\n") == 1 and stream.getvalue().endswith("\n")
    shown = stream.getvalue().split("\r\x1b[K")
    assert shown[2:4] == ["train     epoch 1, update 10,", "train     epoch 1, update 20,"]
    assert shown[4].startswith("train     1 epoch, 20 updates (")
