"""When a model reaches the baseline's best perplexity: logs with times and values made up."""

import json

import pytest
import time_to_match
from refusals import refusal

COMMAND = "$ OMP_NUM_THREADS={} python -m fairseq_cli.train bin --seed 1"
BEGINS = "fairseq_cli.train | max tokens per device = 100 and max sentences per device = None"


def write_log(folder, perplexities, minutes=10, updates=200, threads=1):
    """A training that validates after each epoch, from 12:00 on."""
    lines = [COMMAND.format(threads), f"2026-01-01 12:00:00 | INFO | {BEGINS}"]
    for epoch, perplexity in enumerate(perplexities, start=1):
        time = f"2026-01-01 {12 + epoch * minutes // 60}:{epoch * minutes % 60:02}:00"
        stats = {"epoch": epoch, "valid_loss": f"{perplexity / 2}", "valid_ppl": f"{perplexity}"}
        stats["valid_num_updates"] = f"{epoch * updates}"
        lines.append(f"{time} | INFO | valid | {json.dumps(stats)}")
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "train.log").write_text("\n".join(lines) + "\n")
    return folder


def rows_of(tmp_path, *names, options=()):
    output = tmp_path / "out.json"
    paths = [str(tmp_path / name) for name in names]
    assert time_to_match.main([*paths, *options, "--json", str(output)]) == 0
    return json.loads(output.read_text())


def refused(tmp_path, capsys, first, second):
    return refusal(capsys, time_to_match.main, tmp_path / first, tmp_path / second)


def ends(run):
    """Have a training end, which has a record of its steps."""
    (run / "steps").mkdir(exist_ok=True)
    (run / "steps" / "train.json").touch()


def test_it_is_the_first_validation_as_good_as_the_first_best_one(tmp_path, capsys):
    write_log(tmp_path / "A" / "seed1", [9.0, 7.0, 5.5, 5.2, 5.3, 5.2])
    write_log(tmp_path / "B" / "seed1", [8.0, 5.2, 5.4, 5.0], minutes=12, updates=202)
    (row,) = rows_of(tmp_path, "A", "B")
    assert row["A"] == {
        "perplexity": 5.2,
        "epoch": 4,
        "updates": 800,
        "core_hours": pytest.approx(40 / 60),
    }
    assert (row["B"]["epoch"], row["B"]["updates"]) == (2, 404)
    assert row["B"]["core_hours"] == pytest.approx(24 / 60)
    assert row["B / A"] == {
        "epochs": pytest.approx(2 / 4),
        "updates": pytest.approx(404 / 800),
        "core hours": pytest.approx(24 / 40),
    }
    cells = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].split("|")[1:-1]]
    assert cells == "seed1 5.20 4 800 0.67 2 0.50 404 0.51 0.40 0.60".split()


def test_seeds_are_paired_and_averaged(tmp_path, capsys):
    for seed, reached in ((1, 2), (2, 4), (10, 3)):
        write_log(tmp_path / "A" / f"seed{seed}", [9.0, 8.0, 7.0, 6.0, 5.0])
        write_log(tmp_path / "B" / f"seed{seed}", [9.0] * (reached - 1) + [4.0])
    write_log(tmp_path / "B" / "seed3", [1.0])  # of which the baseline has none
    rows = rows_of(tmp_path, "A", "B")
    assert [row["seed"] for row in rows] == ["seed1", "seed2", "seed10"]
    assert [row["B / A"]["epochs"] for row in rows] == [2 / 5, 4 / 5, 3 / 5]
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].count(" 0.60 ± 0.20 ") == 3
    assert f"\nleft out, in one of them alone: {tmp_path / 'B' / 'seed3'}\n" in printed
    some = rows_of(tmp_path, "A", "B", options=["--seeds", "10", "1"])
    assert [row["seed"] for row in some] == ["seed10", "seed1"]


def test_what_is_never_reached_says_so_and_has_no_mean(tmp_path, capsys):
    for seed, values in ((1, [9.0, 4.0]), (2, [9.0, 6.25])):
        write_log(tmp_path / "A" / f"seed{seed}", [9.0, 8.0, 5.0])
        write_log(tmp_path / "B" / f"seed{seed}", values)
    rows = rows_of(tmp_path, "A", "B")
    assert rows[0]["B"]["epoch"] == 2 and rows[1]["B"] is None and rows[1]["B / A"] is None
    output = capsys.readouterr().out
    assert "seed2: B did not reach it; its best is 6.25" in output
    mean = next(line for line in output.splitlines() if line.startswith("| mean"))
    assert set(mean) == set("| mean")


def test_runs_of_other_settings_have_no_mean_and_what_two_systems_differ_in_is_printed(
    tmp_path, capsys
):
    for name, seed, dropout in (("A", 1, 0.1), ("A", 2, 0.1), ("B", 1, 0.1), ("B", 2, 0.3)):
        folder = write_log(tmp_path / name / f"seed{seed}", [9.0, 5.0])
        settings = {"train": {"arch": name, "dropout": dropout}}
        (folder / "results.json").write_text(json.dumps({"settings": settings}))
    named = f"{tmp_path / 'B' / 'seed2'}: made with other settings than seed1 (train.dropout: "
    assert named in refused(tmp_path, capsys, "A", "B")
    rows_of(tmp_path, "A", "B", options=["--seeds", "1"])
    assert "\nA -> B: train.arch: A -> B\n" in capsys.readouterr().out


def test_core_hours_count_the_threads(tmp_path):
    write_log(tmp_path / "A", [9.0, 5.0])
    write_log(tmp_path / "B", [9.0, 5.0], threads=2)
    (row,) = rows_of(tmp_path, "A", "B")
    assert row["B / A"]["core hours"] == pytest.approx(2)


def test_without_a_number_of_threads_there_are_no_core_hours(tmp_path, capsys):
    for name in "AB":
        log = write_log(tmp_path / name, [9.0, 5.0]) / "logs" / "train.log"
        log.write_text(log.read_text().replace("OMP_NUM_THREADS=1 ", ""))
    (row,) = rows_of(tmp_path, "A", "B")
    assert row["B / A"] == {"epochs": 1, "updates": 1, "core hours": None}
    table, note = capsys.readouterr().out.strip().splitlines()[-3::2]
    assert [cell.strip() for cell in table.split("|")[1:-1]][-2:] == ["", ""]
    assert note.startswith(f"no core hours: {tmp_path / 'A'}") and note.endswith("it is not given")


def test_a_training_that_may_yet_be_better_is_refused(tmp_path, capsys):
    for name, last in (("A", 5.0), ("B", 6.0), ("C", 4.0)):
        (write_log(tmp_path / name, [9.0, last]) / "steps").mkdir()
    for name in "AB":
        named = f"{tmp_path / name}: its training has not ended"
        assert named in refused(tmp_path, capsys, "A", "B")
        ends(tmp_path / name)
    rows_of(tmp_path, "A", "C")  # what it has reached it has reached
    rows_of(tmp_path, "A", "B")
    assert "B did not reach it" in capsys.readouterr().out


def test_runs_that_do_not_compare_are_named(tmp_path, capsys):
    a = write_log(tmp_path / "A" / "seed1", [9.0])
    write_log(tmp_path / "B" / "seed2", [9.0])
    assert "no seed in common" in refused(tmp_path, capsys, "A", "B")
    assert f"{tmp_path / 'C'}: no run" in refused(tmp_path, capsys, "A/seed1", "C")
    log = a / "logs" / "train.log"
    log.write_text(log.read_text().replace("valid_ppl", "valid_other"))
    assert "no perplexities" in refused(tmp_path, capsys, "A/seed1", "B/seed2")


def test_perplexities_of_other_data_do_not_compare(tmp_path, capsys):
    for name in "AB":
        run = write_log(tmp_path / name / "seed1", [9.0, 8.0])
        ends(run)
        prepared = {"settings": {"subword_size": name}, "versions": {"babel": name}}
        (run / "text").mkdir()
        (run / "text" / "corpus.json").write_text(json.dumps({"prepared": prepared}))
    line = refused(tmp_path, capsys, "A", "B")
    assert "B/seed1: was trained on other data than " in line
    rows_of(tmp_path, "A", "A")
