"""Comparisons agree with sacrebleu's own paired bootstrap; a system equals itself."""

import json
import random
import statistics
import subprocess
import sys

import compare
import evaluate
import pytest

WORDS = "the a cat dog house sees likes not very old tree and it is great".split()


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def noisy(lines, share, seed):
    """The lines with that share of their words replaced."""
    choose = random.Random(seed)
    swap = lambda word: choose.choice(WORDS) if choose.random() < share else word  # noqa: E731
    return [" ".join(swap(word) for word in line.split()) for line in lines]


@pytest.fixture
def references(tmp_path):
    choose = random.Random(2)
    lines = [" ".join(choose.choices(WORDS, k=choose.randint(6, 12))) for _ in range(60)]
    write(tmp_path / "ref", lines)
    return lines


@pytest.fixture
def systems(tmp_path, references):
    """Two systems with two seeds each, as run_recipe.py leaves them; B is much better."""
    for system, share in {"A": 0.5, "B": 0.15}.items():
        for seed in (1, 2):
            folder = tmp_path / system / f"seed{seed}"
            write(folder / "hyp", noisy(references, share, seed))
            files = ["--hypotheses", folder / "hyp", "--references", tmp_path / "ref"]
            files += ["--tokenized-references", tmp_path / "ref"]
            options = ["--target-lang", "en", "--json", folder / "scores" / "test.json"]
            assert evaluate.main([str(part) for part in files + options]) == 0
    return tmp_path


def run(folder, first, second, *options):
    """Rows of a comparison, by the label of the score."""
    output = ["--json", str(folder / "out.json"), *options]
    assert compare.main([str(folder / first), str(folder / second), *output]) == 0
    return {row["score"]: row for row in json.loads((folder / "out.json").read_text())["rows"]}


def test_a_system_does_not_differ_from_itself(systems, capsys):
    for name, options in {"A": (), "A/seed1/hyp": ("--references", str(systems / "ref"))}.items():
        for row in run(systems, name, name, *options).values():
            assert row["A"] == row["B"]
            assert set(row["p"]) == {1.0}
        assert "+0.00 |" in capsys.readouterr().out


def test_scores_and_p_values_are_those_of_sacrebleus_command(systems):
    files = [(systems / name / "seed1" / "hyp").rename(systems / name / name) for name in "AB"]
    command = [sys.executable, "-m", "sacrebleu", systems / "ref", "-i", *files, "--paired-bs"]
    command += ["-w", "6"]  # BLEU alone: its JSON fails with chrF and TER
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    references = ("--references", str(systems / "ref"))
    ours = run(systems, "A/A", "B/B", *references)
    for system, found in zip("AB", theirs, strict=True):
        assert ours["sacreBLEU"][system] == [pytest.approx(found["BLEU"]["score"], abs=1e-5)]
    assert ours["sacreBLEU"]["p"] == [pytest.approx(theirs[1]["BLEU"]["p_value"], abs=1e-5)]


def test_a_clear_difference_is_significant_and_noise_is_not(systems):
    assert max(run(systems, "A", "B")["sacreBLEU"]["p"]) < 0.01
    # The same amount of noise with another seed: two systems equally good.
    assert min(run(systems, "B/seed1", "B/seed2")["sacreBLEU"]["p"]) > 0.05


def test_seeds_give_mean_and_standard_deviation(systems, capsys):
    row = run(systems, "A", "B")["tokenized BLEU"]
    assert len(row["A"]) == len(row["B"]) == len(row["p"]) == 2
    output = capsys.readouterr().out
    for scores in (row["A"], row["B"]):
        mean = sum(scores) / 2
        deviation = (sum((score - mean) ** 2 for score in scores) / (2 - 1)) ** 0.5
        assert deviation == pytest.approx(statistics.stdev(scores))
        assert f" {mean:.2f} ± {deviation:.2f} |" in output
    assert f"{sum(row['B']) / 2 - sum(row['A']) / 2:+.2f} |" in output


def test_systems_scored_on_other_references_are_refused(systems, references, capsys):
    write(systems / "ref2", references[1:] + references[:1])
    scored = systems / "B" / "seed2" / "scores" / "test.json"
    scored.write_text(scored.read_text().replace("/ref", "/ref2"))
    assert compare.main([str(systems / "A"), str(systems / "B")]) == 1
    assert "the references of A and B differ" in capsys.readouterr().err


def test_what_cannot_be_compared_is_named(systems, references, capsys):
    a, b = str(systems / "A" / "seed1" / "hyp"), str(systems / "short")
    write(systems / "short", references[:-1])
    assert compare.main([a, a]) == 1
    assert "--references" in capsys.readouterr().err
    assert compare.main([a, b, "--references", str(systems / "ref")]) == 1
    error = capsys.readouterr().err
    assert b in error and "59" in error and "60" in error
    assert compare.main([str(systems / "A"), str(systems / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
    (systems / "B" / "seed1" / "scores" / "test.json").rename(
        systems / "B" / "seed1" / "scores" / "other.json"
    )
    assert compare.main([str(systems / "A"), str(systems / "B" / "seed1")]) == 1
    assert "no test set in common" in capsys.readouterr().err


def test_a_run_that_is_being_redone_is_refused(systems, capsys):
    """Some of its translations may be those of another model."""
    folder = systems / "B" / "seed2"
    (folder / "steps").mkdir()
    assert compare.main([str(systems / "A"), str(systems / "B")]) == 1
    assert f"{folder}: this run is not finished" in capsys.readouterr().err
    (folder / "results.json").write_text("{}")
    assert compare.main([str(systems / "A"), str(systems / "B"), "--samples", "20"]) == 0


def test_missing_translations_are_named_in_one_line(systems, capsys):
    (systems / "B" / "seed1" / "hyp").unlink()
    assert compare.main([str(systems / "A"), str(systems / "B")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "hyp: no such file" in error
