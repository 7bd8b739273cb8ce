"""A training that has reached its end makes no update more, however often it is started."""

import pytest
from fairseq_commands import corpus, run, training


def files(folder):
    """The checkpoints' content and time; the lock names the process that had it last."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("*.pt")}


@pytest.mark.parametrize(
    ("end", "higher"),
    [
        (("--max-update", "4"), ("--max-update", "5")),
        (("--stop-time-hours", "1e-09"), ("--stop-time-hours", "1", "--max-update", "3")),
        (("--max-epoch", "1"), ("--max-epoch", "2")),
    ],
)
def test_a_finished_training_does_nothing_more_until_its_end_is_raised(tmp_path, end, higher):
    done = run("train", *training(corpus(), tmp_path, *end))
    assert done.status == 0, done.errors()
    before = files(tmp_path)
    for _ in range(2):
        done = run("train", *training(corpus(), tmp_path, *end))
        assert done.status == 0, done.errors()
        assert "begin training epoch" not in done.output()
        assert files(tmp_path) == before
        if end[0] != "--max-epoch":
            assert done.output().count("this training is finished: ") == 1
            assert f"of {end[0]} {end[1]}" in done.output()
    done = run("train", *training(corpus(), tmp_path, *higher))
    assert done.status == 0, done.errors()
    assert files(tmp_path) != before
