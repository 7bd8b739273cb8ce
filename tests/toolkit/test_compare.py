"""Comparisons agree with sacrebleu's own paired bootstrap; a system equals itself.

What the bootstrap over seeds and sentences gives is in test_significance.py.
"""

import json
import random
import re
import shutil
import statistics
import subprocess
import sys

import pytest
from sacrebleu.metrics import BLEU

from ea_fairseq.commands import compare, evaluate

SCORES = ["tokenized BLEU", "sacreBLEU", "chrF"]  # whose labels say whether the case counts
WORDS = "the a cat dog house sees likes not very old tree and it is great".split()


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def noisy(lines, share, seed):
    """The lines with that share of their words replaced."""
    choose = random.Random(seed)
    swap = lambda word: choose.choice(WORDS) if choose.random() < share else word  # noqa: E731
    return [" ".join(swap(word) for word in line.split()) for line in lines]


@pytest.fixture(scope="module")
def lines():
    choose = random.Random(2)
    return [" ".join(choose.choices(WORDS, k=choose.randint(6, 12))) for _ in range(60)]


@pytest.fixture
def references(tmp_path, lines):
    write(tmp_path / "ref", lines)
    return list(lines)


@pytest.fixture(scope="module")
def scored(tmp_path_factory, lines):
    """Two systems with two seeds each, as run_recipe.py leaves them; B is much better."""
    path = tmp_path_factory.mktemp("scored")
    write(path / "ref", lines)
    for system, share in {"A": 0.5, "B": 0.15}.items():
        for seed in (1, 2):
            folder = path / system / f"seed{seed}"
            write(folder / "hyp", noisy(lines, share, seed))
            files = ["--hypotheses", folder / "hyp", "--references", path / "ref"]
            files += ["--tokenized-references", path / "ref"]
            (folder / "scores").mkdir()
            options = ["--target-lang", "en", "--json", folder / "scores" / "test.json"]
            assert evaluate.main([str(part) for part in files + options]) == 0
    return path


@pytest.fixture
def systems(tmp_path, references, scored):
    """These two, to be changed."""
    shutil.copytree(scored, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(folder, first, second, *options):
    """Rows of a comparison, by the label of the score."""
    output = ["--json", str(folder / "out.json"), *options]
    assert compare.main([str(folder / first), str(folder / second), *output]) == 0
    return {row["score"]: row for row in json.loads((folder / "out.json").read_text())["rows"]}


def test_a_system_does_not_differ_from_itself(systems, capsys):
    for name, options in {"A": (), "A/seed1/hyp": ("--references", str(systems / "ref"))}.items():
        for row in run(systems, name, name, *options).values():
            assert row["first"] == row["second"]
            assert set(row["by_seed"].values()) == {1.0}
            assert row["difference"]["p"] == 1.0
        assert "+0.00 |" in capsys.readouterr().out


def test_scores_and_p_values_are_those_of_sacrebleus_command(systems, references):
    files = [(systems / name / "seed1" / "hyp").rename(systems / name / name) for name in "AB"]
    write(systems / "C" / "C", noisy(references, 0.45, 5))  # hardly better than A
    files.append(systems / "C" / "C")
    command = [sys.executable, "-m", "sacrebleu", systems / "ref", "-i", *files, "--paired-bs"]
    command += ["-w", "6"]  # BLEU alone: its JSON fails with chrF and TER
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    found = {name: system["BLEU"] for name, system in zip("ABC", theirs, strict=True)}
    for other in "BC":
        options = ("--references", str(systems / "ref"))
        ours = run(systems, "A/A", f"{other}/{other}", *options)["sacreBLEU"]
        for name, system in (("A", "first"), (other, "second")):
            assert ours[system] == {name: pytest.approx(found[name]["score"], abs=1e-5)}
        (p,) = ours["by_seed"].values()
        assert p == pytest.approx(found[other]["p_value"], abs=1e-5)
    assert found["B"]["p_value"] < 0.001 < 0.02 < found["C"]["p_value"]


def test_a_clear_difference_is_significant_and_noise_is_not(systems):
    clear = run(systems, "A", "B")["sacreBLEU"]
    assert max(clear["by_seed"].values()) < 0.01
    assert clear["difference"]["p"] < 0.01 and clear["difference"]["interval"][0] > 0
    # The same amount of noise with another seed: two systems equally good.
    noise = run(systems, "B/seed1", "B/seed2")["sacreBLEU"]
    assert min(noise["by_seed"].values()) > 0.05 and noise["difference"]["p"] > 0.1
    low, high = noise["difference"]["interval"]
    assert low < 0 < high


def test_seeds_give_mean_and_standard_deviation(systems, capsys):
    row = run(systems, "A", "B")["tokenized BLEU"]
    assert list(row["first"]) == list(row["second"]) == list(row["by_seed"]) == ["seed1", "seed2"]
    output = capsys.readouterr().out
    first, second = list(row["first"].values()), list(row["second"].values())
    for scores in (first, second):
        mean = sum(scores) / 2
        assert f" {mean:.2f} ± {statistics.stdev(scores):.2f} |" in output
    difference = sum(second) / 2 - sum(first) / 2
    assert f" {difference:+.2f} |" in output
    assert row["difference"]["observed"] == pytest.approx(difference)
    low, high = row["difference"]["interval"]
    assert low < difference < high and f" {low:+.2f} to {high:+.2f} |" in output
    assert "p is about seeds and sentences" in output


def test_every_run_is_scored_on_the_same_sentences(systems):
    """So another run with the same translations widens and narrows nothing."""
    alone = run(systems, "A/seed1", "B/seed1", "--samples", "50")
    for name in "AB":
        for file in ("hyp", "scores/test.json"):
            shutil.copyfile(systems / name / "seed1" / file, systems / name / "seed2" / file)
    for score, row in run(systems, "A", "B", "--samples", "50").items():
        assert row["difference"] == alone[score]["difference"]


def test_only_runs_of_the_same_seed_are_a_pair(systems, capsys):
    """Seeds 1 and 2 beside 2 and 3: one pair; of 1 beside 3 there is none."""
    (systems / "B" / "seed1").rename(systems / "B" / "seed3")
    row = run(systems, "A", "B", "--samples", "50")["sacreBLEU"]
    assert list(row["first"]) == ["seed1", "seed2"] and list(row["second"]) == ["seed2", "seed3"]
    assert list(row["by_seed"]) == ["seed2"]
    assert re.search(r" seed2: 0\.\d{3} \|", capsys.readouterr().out)
    (systems / "A" / "seed2").rename(systems / "A" / "seed4")
    assert run(systems, "A", "B", "--samples", "50")["sacreBLEU"]["by_seed"] == {}
    assert "no seed in common |" in capsys.readouterr().out


def test_seeds_and_scores_that_are_asked_for_are_compared(systems, capsys):
    options = ["--seeds", "2", "--score", "chrF", "--samples", "50"]
    rows = run(systems, "A", "B", *options)
    assert list(rows) == ["chrF"] and list(rows["chrF"]["first"]) == ["seed2"]
    assert "Of a system with one run, p is about" in capsys.readouterr().out
    for wrong, named in {
        ("--seeds", "2", "7"): f"{systems / 'A' / 'seed7'}: ",
        ("--score", "METEOR"): "--score METEOR: ",
        ("--samples", "0"): "--samples 0: ",
    }.items():
        assert compare.main([str(systems / "A"), str(systems / "B"), *wrong]) == 1
        assert f"error: {named}" in capsys.readouterr().err


def test_all_test_sets_together_are_scored_as_one(systems, references, tmp_path, capsys):
    """The last rows are those of one test set with the sentences of all, in the same order."""
    for system in "AB":
        for seed in (1, 2):
            folder = tmp_path / system / f"seed{seed}"
            files = {"half": (references[:30], 30), "rest": (references[30:], 60)}
            (folder / "scores" / "test.json").unlink()
            lines = (folder / "hyp").read_text().splitlines()
            for name, (some, end) in files.items():
                write(folder / f"{name}.hyp", lines[end - len(some) : end])
                write(folder / f"{name}.ref", some)
                parts = ["--hypotheses", folder / f"{name}.hyp", "--target-lang", "en"]
                parts += ["--references", folder / f"{name}.ref"]
                parts += ["--tokenized-references", folder / f"{name}.ref"]
                parts += ["--json", folder / "scores" / f"{name}.json"]
                assert evaluate.main([str(part) for part in parts]) == 0
    output = tmp_path / "out.json"
    options = ["--json", str(output), "--samples", "100", "--score", "tokenized"]
    assert compare.main([str(tmp_path / "A"), str(tmp_path / "B"), *options]) == 0
    assert "\nall together: the 60 sentences of half, rest\n" in capsys.readouterr().out
    rows = json.loads(output.read_text())["rows"]
    assert [row["test_set"] for row in rows] == ["half", "rest", "all together"]
    assert [row["sentences"] for row in rows] == [30, 30, 60]
    for system, scores in (("A", rows[2]["first"]), ("B", rows[2]["second"])):
        for name, score in scores.items():
            hypotheses = (tmp_path / system / name / "hyp").read_text().splitlines()
            bleu = BLEU(tokenize="none", force=True)
            assert score == pytest.approx(bleu.corpus_score(hypotheses, [references]).score)


def test_what_is_compared_is_what_was_scored(tmp_path, references):
    """Each form of translations, case ignored or not, an empty line and a language's apostrophes
    among them: the scores are those that evaluate.py has found."""
    references = ["l' eau de la ville", *references[:9]]
    lines = [references[0].upper(), *noisy(references[1:], 0.3, 1)]
    lines[4] = ""
    generated = [f"D-{i}\t-0.5\t{line}" for i, line in reversed(list(enumerate(lines)))]
    write(tmp_path / "ref", references)
    for option, content, options in (
        ("--translations", lines, ["--lowercase"]),
        ("--hypotheses", lines, ["--compound-split"]),
        ("--generated", generated, ["--lowercase"]),
    ):
        folder = tmp_path / option
        write(folder / "file", content)
        arguments = [option, folder / "file", "--references", tmp_path / "ref", *options]
        if option != "--translations":
            arguments += ["--tokenized-references", tmp_path / "ref", "--target-lang", "fr"]
        scored = folder / "seed1" / "scores" / "test.json"
        scored.parent.mkdir(parents=True)
        assert evaluate.main([str(part) for part in [*arguments, "--json", scored]]) == 0
        found = {s["label"]: s["score"] for s in json.loads(scored.read_text())["scores"]}
        rows = run(tmp_path, option, option, "--samples", "2")
        assert {label: row["first"]["seed1"] for label, row in rows.items()} == pytest.approx(found)


def test_a_score_that_a_test_set_lacks_has_no_row_of_all_together(tmp_path, references):
    """Which would be of other sentences than its name says."""
    for number, tokens in enumerate((["--tokenized-references"], ["--tokenized-references"], [])):
        file = tmp_path / f"{number}.ref"
        write(file, references[4 * number : 4 * number + 4])
        options = [o for option in tokens for o in (option, file)] + ["--target-lang", "en"]
        scored = tmp_path / "A" / "seed1" / "scores" / f"{number}.json"
        scored.parent.mkdir(parents=True, exist_ok=True)
        options += ["--hypotheses", file, "--references", file, "--json", scored]
        assert evaluate.main([str(option) for option in options]) == 0
    output = ["--json", str(tmp_path / "out.json"), "--samples", "2"]
    assert compare.main([str(tmp_path / "A"), str(tmp_path / "A"), *output]) == 0
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    together = {row["score"]: row["sentences"] for row in rows if row["test_set"] == "all together"}
    assert together == {"sacreBLEU": 12, "chrF": 12, "TER": 12}


def score(folder, references, *options):
    """Score a run's translations anew."""
    files = ["--hypotheses", folder / "hyp", "--references", references, *options]
    assert evaluate.main([str(o) for o in [*files, "--json", folder / "scores" / "test.json"]]) == 0


def test_what_some_run_lacks_is_named(systems, capsys):
    """ "All together" would be read as all that the other system was scored on."""
    shutil.copyfile(systems / "A/seed1/scores/test.json", systems / "A/seed1/scores/more.json")
    score(systems / "B" / "seed2", systems / "ref", "--target-lang", "en", "--lowercase")
    run(systems, "A", "B", "--samples", "2")
    printed = capsys.readouterr().out
    labels = [f"{name}{case} of test" for case in ("", ", lower-cased") for name in SCORES]
    labels.remove("tokenized BLEU, lower-cased of test")  # scored without tokenized references
    assert f"not compared, for not every run has it: more; {'; '.join(labels)}\n" in printed
    assert "| TER (lower is better) |" in printed
    run(systems, "A/seed2", "B/seed1", "--samples", "2")
    assert "not compared" not in capsys.readouterr().out


def test_one_label_computed_in_two_ways_is_refused(systems, capsys):
    """Equal translations: more than 50 points apart, by sacrebleu's tokenizer of Chinese."""
    for name, language in (("A", "en"), ("B", "zh")):
        write(systems / name / "seed1" / "hyp", ["一只 狗 在 跑"] * 60)
        score(systems / name / "seed1", systems / "ref", "--target-lang", language)
    options = ["--seeds", "1", "--score", "sacreBLEU"]
    assert compare.main([str(systems / "A"), str(systems / "B"), *options]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "|tok:13a|" in error and "|tok:zh|" in error
    assert error.startswith("compare.py: error: test: sacreBLEU of A and B is computed in two ways")


def test_translations_that_are_not_those_scored_are_refused(systems, references, capsys):
    changed = systems / "B" / "seed2" / "hyp"
    write(changed, noisy(references, 0.4, 9))
    both = [str(systems / "A"), str(systems / "B"), "--samples", "2"]
    assert compare.main(both) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "error: test, seed2: tokenized BLEU was " in error
    score(changed.parent, systems / "ref", "--target-lang", "en")
    assert compare.main(both) == 0


def test_ensembles_with_a_model_in_common_are_no_two_runs(systems, capsys):
    for name in "AB":
        (systems / name / "seed1").rename(systems / name / "seed1+2")
        (systems / name / "seed2").rename(systems / name / "seed1+2+3")
    both = [str(systems / "A"), str(systems / "B"), "--samples", "2"]
    assert compare.main(both) == 1
    message = f"{systems / 'A' / 'seed1+2+3'}: has the model of seed 1 in common with seed1+2:"
    assert message in capsys.readouterr().err
    for name in "AB":
        (systems / name / "seed1+2+3").rename(systems / name / "seed3+4")
    assert compare.main(both) == 0


def test_what_two_systems_differ_in_is_printed(systems, capsys):
    """All of it stands behind a difference of scores, be it a longer training."""
    for name, epochs in (("A", 60), ("B", 22)):
        for seed in (1, 2):
            settings = {"train": {"arch": f"lite_{name}", "max-epoch": epochs, "lr": "1e-3"}}
            results = systems / name / f"seed{seed}" / "results.json"
            write(results, [json.dumps({"settings": settings})])
    assert compare.main([str(systems / "A"), str(systems / "B"), "--samples", "2"]) == 0
    line = "\nA -> B: train.arch: lite_A -> lite_B; train.max-epoch: 60 -> 22\n"
    assert line in capsys.readouterr().out
    assert compare.main([str(systems / "A"), str(systems / "A"), "--samples", "2"]) == 0
    assert "A -> B" not in capsys.readouterr().out


def test_systems_scored_on_other_references_are_refused(systems, references, capsys):
    write(systems / "ref2", references[1:] + references[:1])
    scored = systems / "B" / "seed2" / "scores" / "test.json"
    scored.write_text(scored.read_text().replace("/ref", "/ref2"))
    assert compare.main([str(systems / "A"), str(systems / "B")]) == 1
    assert "the references of A and B differ" in capsys.readouterr().err


@pytest.mark.parametrize("count", [59, 61])
@pytest.mark.parametrize("changed", ["references", "tokenized_references"])
def test_references_that_have_other_lines_by_now_are_refused(
    systems, changed, count, references, capsys
):
    """sacrebleu would compare as many sentences as both have."""
    write(systems / "ref2", [*references, "one more"][:count])
    for run in (1, 2):
        for system in "AB":
            scored = systems / system / f"seed{run}" / "scores" / "test.json"
            scored.write_text(re.sub(rf'("{changed}": ".*/ref)"', r'\g<1>2"', scored.read_text()))
    assert compare.main([str(systems / "A"), str(systems / "B")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "/hyp has 60 lines, " in error and f"ref2 has {count}" in error


def test_scores_that_a_seed_lacks_are_not_compared(systems, references, capsys):
    """A traceback, where one seed's scores ignore case and the others' do not."""
    ignoring = systems / "B" / "seed2"
    files = ["--hypotheses", ignoring / "hyp", "--references", systems / "ref", "--lowercase"]
    files += ["--target-lang", "en", "--json", ignoring / "scores" / "test.json"]
    assert evaluate.main([str(part) for part in files]) == 0
    for order in (("A", "B"), ("B", "A")):
        assert list(run(systems, *order, "--samples", "2")) == ["TER"]
    both = [str(systems / "A"), str(systems / "B")]
    assert compare.main([*both, "--score", "sacreBLEU"]) == 1
    assert "--score sacreBLEU: A and B have no score of that name" in capsys.readouterr().err


def test_runs_of_other_settings_have_no_mean(systems, capsys):
    """One seed translated again with another beam counted beside the others."""
    both = [str(systems / "A"), str(systems / "B"), "--samples", "2"]
    for seed, beam in ((1, 5), (2, 1)):
        settings = {"train": {"dropout": 0.3, "log-interval": seed}, "generate": {"beam": beam}}
        write(systems / "B" / f"seed{seed}" / "results.json", [json.dumps({"settings": settings})])
    assert compare.main(both) == 1
    error = capsys.readouterr().err
    assert (
        f"{systems / 'B' / 'seed2'}: made with other settings than seed1 (generate.beam: 5" in error
    )
    assert compare.main([*both, "--seeds", "2"]) == 0  # each is one run
    settings["generate"]["beam"] = 5
    write(systems / "B" / "seed2" / "results.json", [json.dumps({"settings": settings})])
    assert compare.main(both) == 0
    for size in (1, 0):  # of one corpus, prepared with other versions of a library
        for seed in (1, 2):
            prepared = {"settings": {"size": seed * size}, "versions": {"babel": seed}}
            path = systems / "B" / f"seed{seed}" / "text" / "corpus.json"
            write(path, [json.dumps({"prepared": prepared})])
        assert compare.main(both) == size
    assert "(data.settings.size: 1 -> 2)" in capsys.readouterr().err
    # What was put aside is no run of the system.
    (systems / "B" / "seed2").rename(systems / "B" / "seed2.old")
    assert compare.main(both) == 0
    assert "B (1 run)" in capsys.readouterr().out


def test_options_without_effect_are_refused(systems, capsys):
    run, file = str(systems / "A"), str(systems / "A" / "seed1" / "hyp")
    references = ["--references", str(systems / "ref")]
    for words, expected in (
        ([file, run, "--json", file], f"--json {file}: is the same file as {file}, which is read"),
        ([run, run, *references], f"--references {systems / 'ref'}: for files; runs have their"),
        ([run, run, "--lowercase"], "--lowercase: for two files; of a run its recipe says"),
        ([file, run, "--lowercase"], "--lowercase: for two files; of a run its recipe says"),
        ([file, run, "--target-lang", "en"], "--target-lang en: for two files; a run's is known"),
        ([file, file, *references, "--seeds", "1"], "--seeds: for runs, of which neither A nor B"),
    ):
        assert compare.main(words) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"compare.py: error: {expected}") and error.count("\n") == 1
    assert compare.main([file, file, *references, "--lowercase", "--samples", "2"]) == 0


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


def test_a_run_is_compared_with_a_file(systems, references, capsys):
    write(systems / "file", noisy(references, 0.3, 5))
    one, file = str(systems / "A" / "seed1"), str(systems / "file")
    options = ("--references", str(systems / "ref"))
    for order in ((one, file), (file, one)):
        rows = run(systems, *order)
        assert list(rows) == ["sacreBLEU", "chrF", "TER"]
        assert rows == run(systems, *order, *options)
        plain = [str(systems / "A/seed1/hyp") if path == one else path for path in order]
        files = run(systems, *plain, *options)["sacreBLEU"]
        for side in ("first", "second"):
            assert [*rows["sacreBLEU"][side].values()] == [*files[side].values()]
    # Two test sets of that size: which one is meant?
    scores = systems / "A" / "seed1" / "scores"
    write(systems / "ref2", references[1:] + references[:1])
    other = (scores / "test.json").read_text().replace('/ref"', '/ref2"')
    (scores / "test2.json").write_text(other)
    assert compare.main([one, file]) == 1
    error = capsys.readouterr().err
    assert "fits 2 of the run's test sets test (60), test2 (60)" in error
    assert list(run(systems, one, file, *options)) == ["sacreBLEU", "chrF", "TER"]
    write(systems / "ref3", ["something else"] * 60)
    assert compare.main([one, file, "--references", str(systems / "ref3")]) == 1
    assert "ref3: fits none" in capsys.readouterr().err


def test_beside_a_run_that_ignores_case_a_file_has_its_case_ignored_too(tmp_path, references):
    write(tmp_path / "ref", references)
    write(tmp_path / "upper", [line.upper() for line in references])
    scored = tmp_path / "A" / "seed1" / "scores" / "test.json"
    scored.parent.mkdir(parents=True)
    options = ["--translations", tmp_path / "ref", "--references", tmp_path / "ref", "--lowercase"]
    assert evaluate.main([str(option) for option in [*options, "--json", scored]]) == 0
    rows = run(tmp_path, "A", "upper", "--samples", "2")
    assert list(rows) == ["sacreBLEU, lower-cased", "chrF, lower-cased", "TER"]
    assert rows["sacreBLEU, lower-cased"]["second"] == {"upper": pytest.approx(100)}


def test_pieces_of_words_are_refused(systems, references, capsys):
    write(systems / "pieces", ["ca@@ t", *references[1:]])
    whole = str(systems / "A" / "seed1" / "hyp")
    options = ["--references", str(systems / "ref")]
    assert compare.main([whole, str(systems / "pieces"), *options]) == 1
    error = capsys.readouterr().err
    assert "ca@@" in error and "--post-process" in error and error.count("\n") == 1


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
    assert "to move a run, move the whole work folder" in error


def as_a_run(folder, seed):
    """Make scores a finished run's, as ea-recipe leaves it."""
    scored = json.loads((folder / "scores" / "test.json").read_text())
    seconds = {"train": 100.0 + seed, "generate": 10.0}
    results = {"seed": seed, "settings": {}, "seconds": seconds, "scores": {"test": scored}}
    write(folder / "results.json", [json.dumps(results)])
    for step, time in seconds.items():
        write(folder / "steps" / f"{step}.json", [json.dumps({"seconds": time})])


def test_a_copied_or_linked_seed_is_no_run_of_its_own(systems, capsys):
    """Its deviation would be 0, and p would speak of seeds that nobody has run."""
    for seed in (1, 2):
        as_a_run(systems / "B" / f"seed{seed}", seed)
    run(systems, "A", "B", "--samples", "50")
    seed3 = systems / "B" / "seed3"
    shutil.copytree(systems / "B" / "seed1", seed3)
    assert compare.main([str(systems / "A"), str(systems / "B")]) == 1
    assert f"{seed3}: the run in it was made with seed 1" in capsys.readouterr().err
    shutil.rmtree(seed3)
    # Without a record of the seed, a link is told by where it leads.
    (systems / "A" / "seed3").symlink_to(systems / "A" / "seed1", target_is_directory=True)
    assert compare.main([str(systems / "A"), str(systems / "B")]) == 1
    assert f"{systems / 'A' / 'seed3'}: is seed1 under another name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["averaged.pt", "checkpoints/checkpoint_best.pt"])
def test_two_seeds_do_not_have_one_model(systems, capsys, name):
    for seed, content in (("seed1", b"\0" * 10_000 + b"1"), ("seed2", b"\0" * 10_000 + b"2")):
        write(systems / "B" / seed / name, [])
        (systems / "B" / seed / name).write_bytes(content)
    run(systems, "A", "B", "--samples", "50")
    shutil.copyfile(systems / "B" / "seed1" / name, systems / "B" / "seed2" / name)
    assert compare.main([str(systems / "A"), str(systems / "B")]) == 1
    assert f"{systems / 'B' / 'seed2' / name}: is the model of seed1" in capsys.readouterr().err


def test_equal_translations_of_two_seeds_are_told(systems, capsys):
    run(systems, "A", "B", "--samples", "50")
    assert "warning" not in capsys.readouterr().err
    for file in ("hyp", "scores/test.json"):
        shutil.copyfile(systems / "B" / "seed1" / file, systems / "B" / "seed2" / file)
    run(systems, "A", "B", "--samples", "50")
    assert f"warning: {systems / 'B'}: seed1 and seed2 have the same" in capsys.readouterr().err


def test_scores_of_another_run_are_told_by_what_the_run_ended_with(systems, capsys):
    """Copied with the translations, they agree with one another."""
    target, source = systems / "A" / "seed1", systems / "B" / "seed1"
    for folder, seed in ((target, 1), (source, 1)):
        as_a_run(folder, seed)
    run(systems, "A/seed1", "B/seed1", "--samples", "50")
    # Scored anew with the case ignored they are the run's own.
    own = ["--hypotheses", target / "hyp", "--references", systems / "ref", "--target-lang", "en"]
    own += ["--lowercase", "--json", target / "scores" / "test.json"]
    assert evaluate.main([str(part) for part in own]) == 0
    run(systems, "A/seed1", "B/seed1", "--samples", "50")
    for file in ("hyp", "scores/test.json"):
        shutil.copyfile(source / file, target / file)
    assert compare.main([str(target), str(source)]) == 1
    assert f"{target / 'scores' / 'test.json'}: tokenized BLEU is " in capsys.readouterr().err
    # With that run's results as well, the steps say otherwise.
    shutil.copyfile(source / "results.json", target / "results.json")
    write(target / "steps" / "train.json", [json.dumps({"seconds": 77.0})])
    assert compare.main([str(target), str(source)]) == 1
    assert f"{target / 'results.json'}: is of another run than " in capsys.readouterr().err


@pytest.mark.parametrize(
    "junk",
    ["[]", "{}", "3", '{"files": 3}', '{"files": {"x": "y"}, "scores": []}', "[" * 100_000]
    + ['{"files": {"references": "r", "hypotheses": "h"}, "scores": [{"label": 1}]}']
    + ['{"files": {"losses": "../losses.json"}, "scores": []}', '{"a": ' + "9" * 400 + "}"],
)
def test_scores_that_are_none_are_named(systems, capsys, junk):
    path = systems / "A" / "seed1" / "scores" / "test.json"
    path.write_text(junk)
    (systems / "A" / "seed1" / "losses.json").write_text('[{"scored": 3}]')
    assert compare.main([str(systems / "A"), str(systems / "B")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and len(error) < 400
    assert str(path) in error or "losses.json" in error
