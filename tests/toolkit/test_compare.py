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
from refusals import refusal
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


def score(translations, references, record, *options):
    """Score tokens by ea-evaluate, which writes a record of it."""
    record.parent.mkdir(parents=True, exist_ok=True)
    files = ["--hypotheses", translations, "--references", references, "--json", record]
    options = [*files, "--target-lang", "en", *options]
    assert evaluate.main([str(option) for option in options]) == 0


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Two systems with two seeds each, as ea-recipe leaves them, of which B is much better; beside
    them references, others and such as do not fit."""
    path = tmp_path_factory.mktemp("scored")
    choose = random.Random(2)
    lines = [" ".join(choose.choices(WORDS, k=choose.randint(6, 12))) for _ in range(60)]
    write(path / "ref", lines)
    write(path / "others", lines[1:] + lines[:1])
    write(path / "short", lines[:-1])
    write(path / "long", [*lines, "one more"])
    write(path / "pieces", ["ca@@ t", *lines[1:]])
    write(path / "all_pieces", [f"ca@@ t {line}" for line in lines])
    write(path / "scores", [f"-0.5\t{line}" for line in lines])  # ea-translate --scores
    write(path / "empty", [])
    for system, share in {"A": 0.5, "B": 0.15}.items():
        for seed in (1, 2):
            folder = path / system / f"seed{seed}"
            write(folder / "hyp", noisy(lines, share, seed))
            record, tokens = folder / "scores" / "test.json", ["--tokenized-references"]
            score(folder / "hyp", path / "ref", record, *tokens, path / "ref")
    return path


@pytest.fixture
def references(scored):
    return (scored / "ref").read_text().splitlines()


@pytest.fixture
def systems(tmp_path, scored):
    """These two, to be changed."""
    shutil.copytree(scored, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(folder, first, second, *options):
    """Rows of a comparison, by the label of the score."""
    output = ["--json", str(folder / "out.json"), *options]
    assert compare.main([str(folder / first), str(folder / second), *output]) == 0
    return {row["score"]: row for row in json.loads((folder / "out.json").read_text())["rows"]}


def accepted(folder, *options):
    run(folder, "A", "B", "--samples", "2", *options)


def refused(capsys, *arguments):
    """The line in which a comparison ends."""
    line = refusal(capsys, compare.main, *arguments)
    assert line.startswith("compare.py: error: ")
    return line


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
    assert 0 < low < difference < high and row["difference"]["p"] < 0.01
    assert f" {low:+.2f} to {high:+.2f} |" in output
    assert "p is about seeds and sentences" in output and "warning" not in output


def test_every_run_is_scored_on_the_same_sentences(systems, capsys):
    """So another run with the same translations widens and narrows nothing; it is told."""
    alone = run(systems, "A/seed1", "B/seed1", "--samples", "50")
    assert "warning" not in capsys.readouterr().err
    for name in "AB":
        for file in ("hyp", "scores/test.json"):
            shutil.copyfile(systems / name / "seed1" / file, systems / name / "seed2" / file)
    for label, row in run(systems, "A", "B", "--samples", "50").items():
        assert row["difference"] == alone[label]["difference"]
    assert f"warning: {systems / 'B'}: seed1 and seed2 have the same" in capsys.readouterr().err


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


def test_all_test_sets_together_are_scored_as_one(systems, references, capsys):
    """The last rows are those of one test set with the sentences of all, in the same order."""
    for folder in (systems / system / f"seed{seed}" for system in "AB" for seed in (1, 2)):
        (folder / "scores" / "test.json").unlink()
        lines = (folder / "hyp").read_text().splitlines()
        for name, part in {"half": slice(30), "rest": slice(30, 60)}.items():
            hypotheses, compared = folder / f"{name}.hyp", folder / f"{name}.ref"
            write(hypotheses, lines[part])
            write(compared, references[part])
            record = folder / "scores" / f"{name}.json"
            score(hypotheses, compared, record, "--tokenized-references", compared)
    run(systems, "A", "B", "--samples", "100", "--score", "tokenized")
    assert "\nall together: the 60 sentences of half, rest\n" in capsys.readouterr().out
    rows = json.loads((systems / "out.json").read_text())["rows"]
    assert [row["test_set"] for row in rows] == ["half", "rest", "all together"]
    assert [row["sentences"] for row in rows] == [30, 30, 60]
    for system, scores in (("A", rows[2]["first"]), ("B", rows[2]["second"])):
        for name, found in scores.items():
            hypotheses = (systems / system / name / "hyp").read_text().splitlines()
            bleu = BLEU(tokenize="none", force=True)
            assert found == pytest.approx(bleu.corpus_score(hypotheses, [references]).score)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("--translations", ["--lowercase"]),
        ("--hypotheses", ["--compound-split"]),
        ("--generated", ["--lowercase"]),
    ],
)
def test_what_is_compared_is_what_was_scored(tmp_path, references, kind, options):
    """Of each form of translations, an empty line and a language's apostrophes among them."""
    references = ["l' eau de la ville", *references[:9]]
    lines = [references[0].upper(), *noisy(references[1:], 0.3, 1)]
    lines[4] = ""
    if kind == "--generated":
        lines = [f"D-{i}\t-0.5\t{line}" for i, line in reversed(list(enumerate(lines)))]
    write(tmp_path / "ref", references)
    write(tmp_path / "file", lines)
    arguments = [kind, tmp_path / "file", "--references", tmp_path / "ref", *options]
    if kind != "--translations":
        arguments += ["--tokenized-references", tmp_path / "ref", "--target-lang", "fr"]
    record = tmp_path / "A" / "seed1" / "scores" / "test.json"
    record.parent.mkdir(parents=True)
    assert evaluate.main([str(part) for part in [*arguments, "--json", record]]) == 0
    found = {s["label"]: s["score"] for s in json.loads(record.read_text())["scores"]}
    rows = run(tmp_path, "A", "A", "--samples", "2")
    assert {label: row["first"]["seed1"] for label, row in rows.items()} == pytest.approx(found)


def test_a_score_that_a_test_set_lacks_has_no_row_of_all_together(tmp_path, references):
    """Which would be of other sentences than its name says."""
    for number in range(3):
        file = tmp_path / f"{number}.ref"
        write(file, references[4 * number : 4 * number + 4])
        tokens = ["--tokenized-references", file] if number < 2 else []
        score(file, file, tmp_path / "A" / "seed1" / "scores" / f"{number}.json", *tokens)
    run(tmp_path, "A", "A", "--samples", "2")
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    together = {row["score"]: row["sentences"] for row in rows if row["test_set"] == "all together"}
    assert together == {"sacreBLEU": 12, "chrF": 12, "TER": 12}


def test_what_some_run_lacks_is_named(systems, capsys):
    """ "All together" would be read as all that the other system was scored on."""
    shutil.copyfile(systems / "A/seed1/scores/test.json", systems / "A/seed1/scores/more.json")
    folder = systems / "B" / "seed2"
    score(folder / "hyp", systems / "ref", folder / "scores" / "test.json", "--lowercase")
    for order in (("A", "B"), ("B", "A")):
        assert list(run(systems, *order, "--samples", "2")) == ["TER"]
    printed = capsys.readouterr().out
    labels = [f"{name}{case} of test" for case in ("", ", lower-cased") for name in SCORES]
    labels.remove("tokenized BLEU, lower-cased of test")  # scored without tokenized references
    assert f"not compared, for not every run has it: more; {'; '.join(labels)}\n" in printed
    assert "| TER (lower is better) |" in printed
    line = refused(capsys, systems / "A", systems / "B", "--score", "sacreBLEU")
    assert "--score sacreBLEU: A and B have no score of that name" in line
    run(systems, "A/seed2", "B/seed1", "--samples", "2")
    assert "not compared" not in capsys.readouterr().out


def test_one_label_computed_in_two_ways_is_refused(systems, capsys):
    """Equal translations: more than 50 points apart, by sacrebleu's tokenizer of Chinese."""
    for name, language in (("A", "en"), ("B", "zh")):
        folder = systems / name / "seed1"
        write(folder / "hyp", ["一只 狗 在 跑"] * 60)
        record = folder / "scores" / "test.json"
        score(folder / "hyp", systems / "ref", record, "--target-lang", language)
    line = refused(capsys, systems / "A/seed1", systems / "B/seed1", "--score", "sacreBLEU")
    assert "error: test: sacreBLEU of A and B is computed in two ways" in line
    assert "|tok:13a|" in line and "|tok:zh|" in line


def test_translations_that_are_not_those_scored_are_refused(systems, references, capsys):
    changed = systems / "B" / "seed2"
    write(changed / "hyp", noisy(references, 0.4, 9))
    line = refused(capsys, systems / "A", systems / "B", "--samples", "2")
    assert "error: test, seed2: tokenized BLEU was " in line
    score(changed / "hyp", systems / "ref", changed / "scores" / "test.json")
    accepted(systems)


def test_ensembles_with_a_model_in_common_are_no_two_runs(systems, capsys):
    for name in "AB":
        (systems / name / "seed1").rename(systems / name / "seed1+2")
        (systems / name / "seed2").rename(systems / name / "seed1+2+3")
    named = f"{systems / 'A' / 'seed1+2+3'}: has the model of seed 1 in common with seed1+2:"
    assert named in refused(capsys, systems / "A", systems / "B")
    for name in "AB":
        (systems / name / "seed1+2+3").rename(systems / name / "seed3+4")
    accepted(systems)


def settle(folder, seed, **sections):
    """The settings of a run, as its results.json has them."""
    write(folder / f"seed{seed}" / "results.json", [json.dumps({"settings": sections})])


def test_what_two_systems_differ_in_is_printed(systems, capsys):
    """All of it stands behind a difference of scores, be it a longer training."""
    for name, epochs in (("A", 60), ("B", 22)):
        train = {"arch": f"lite_{name}", "max-epoch": epochs, "lr": "1e-3"}
        for seed in (1, 2):
            settle(systems / name, seed, train=train)
    accepted(systems)
    line = "\nA -> B: train.arch: lite_A -> lite_B; train.max-epoch: 60 -> 22\n"
    assert line in capsys.readouterr().out
    run(systems, "A", "A", "--samples", "2")
    assert "A -> B" not in capsys.readouterr().out


def test_runs_of_other_settings_have_no_mean(systems, capsys):
    """One seed translated again with another beam counted beside the others."""
    both, b = (systems / "A", systems / "B"), systems / "B"
    for seed, beam in ((1, 5), (2, 1)):
        train = {"dropout": 0.3, "log-interval": seed}
        settle(b, seed, train=train, generate={"beam": beam})
    named = f"{b / 'seed2'}: made with other settings than seed1 (generate.beam: 5"
    assert named in refused(capsys, *both)
    accepted(systems, "--seeds", "2")  # each is one run
    settle(b, 2, train=train, generate={"beam": 5})
    accepted(systems)
    for size in (1, 0):  # of one corpus, prepared with other versions of a library
        for seed in (1, 2):
            prepared = {"settings": {"size": seed * size}, "versions": {"babel": seed}}
            path = b / f"seed{seed}" / "text" / "corpus.json"
            write(path, [json.dumps({"prepared": prepared})])
        if size:
            assert "(data.settings.size: 1 -> 2)" in refused(capsys, *both)
        else:
            accepted(systems)
    # What was put aside is no run of the system.
    (b / "seed2").rename(b / "seed2.old")
    accepted(systems)
    assert "B (1 run)" in capsys.readouterr().out


@pytest.mark.parametrize("other", ["short", "long"])
@pytest.mark.parametrize("changed", ["references", "tokenized_references"])
def test_references_that_have_other_lines_by_now_are_refused(systems, changed, other, capsys):
    """sacrebleu would compare as many sentences as both have."""
    for record in systems.glob("*/*/scores/test.json"):
        named = rf'("{changed}": ".*/)ref"'
        record.write_text(re.sub(named, rf'\g<1>{other}"', record.read_text()))
    line = refused(capsys, systems / "A", systems / "B")
    count = {"short": 59, "long": 61}[other]
    assert "/hyp has 60 lines, " in line and f"{other} has {count}" in line


def other_references(systems):
    record = systems / "B" / "seed2" / "scores" / "test.json"
    record.write_text(record.read_text().replace("/ref", "/others"))


def other_test_set(systems):
    scores = systems / "B" / "seed1" / "scores"
    (scores / "test.json").rename(scores / "other.json")


def no_translations(systems):
    (systems / "B" / "seed1" / "hyp").unlink()


def being_redone(systems):
    """Some of its translations may be those of another model."""
    (systems / "B" / "seed2" / "steps").mkdir()


#: What is done to the systems, what is compared, and what the line says.
FILE, REFERENCES = "{}/A/seed1/hyp", ["--references", "{}/ref"]
REFUSED = [
    (None, ["{}/A", "{}/B", "--seeds", "2", "7"], "{}/A/seed7: "),
    (None, ["{}/A", "{}/B", "--score", "METEOR"], "--score METEOR: "),
    (None, ["{}/A", "{}/B", "--samples", "0"], "--samples 0: "),
    (None, ["{}/A", "{}/nowhere"], "{}/nowhere"),
    (other_references, ["{}/A", "{}/B"], "the references of A and B differ"),
    (other_test_set, ["{}/A", "{}/B/seed1"], "no test set in common"),
    (no_translations, ["{}/A", "{}/B"], "hyp: no such file"),
    (no_translations, ["{}/A", "{}/B"], "to move a run, move the whole work folder"),
    (being_redone, ["{}/A", "{}/B"], "{}/B/seed2: this run is not finished"),
    (None, [FILE, FILE], "{}/A/seed1/hyp: translations in a file need their --references"),
    (None, [FILE, "{}/short", *REFERENCES], "{}/short has 59 lines, {}/ref has 60"),
    (None, [FILE, "{}/pieces", *REFERENCES], "{}/pieces: 'ca@@' in sentence 1 is a piece"),
    (None, [FILE, "{}/pieces", *REFERENCES], "translate with --post-process subword_nmt"),
    (None, [FILE, FILE, "--references", "{}/all_pieces"], "before they were split into subwords"),
    (None, [FILE, "{}/A", "--references", "{}/all_pieces"], "before they were split into subwords"),
    (None, [FILE, "{}/scores", *REFERENCES], "{}/scores: has a tab in every line"),
    (None, ["{}/scores", "{}/A"], "{}/scores: has a tab in every line"),
    (None, ["{}/empty", "{}/empty", "--references", "{}/empty"], "{}/empty is empty: there is"),
    # Options without effect.
    (None, [FILE, "{}/A", "--json", FILE], f"--json {FILE}: is the same file as {FILE}, which is"),
    (None, ["{}/A", "{}/A", *REFERENCES], "--references {}/ref: for files; runs have their"),
    (None, ["{}/A", "{}/A", "--lowercase"], "--lowercase: for two files; of a run its recipe says"),
    (None, [FILE, "{}/A", "--lowercase"], "--lowercase: for two files; of a run its recipe says"),
    (None, [FILE, "{}/A", "--target-lang", "en"], "--target-lang en: for two files; a run's is"),
    (None, [FILE, FILE, *REFERENCES, "--seeds", "1"], "--seeds: for runs, of which neither A nor"),
]


@pytest.mark.parametrize(("change", "arguments", "words"), REFUSED)
def test_what_cannot_be_compared_is_named(systems, capsys, change, arguments, words):
    if change is not None:
        change(systems)
    line = refused(capsys, *(argument.replace("{}", str(systems)) for argument in arguments))
    assert words.replace("{}", str(systems)) in line


def test_a_run_that_was_redone_and_files_without_their_case_are_compared(systems):
    being_redone(systems)
    write(systems / "B" / "seed2" / "results.json", ["{}"])
    accepted(systems)
    options = ["--references", str(systems / "ref"), "--lowercase", "--samples", "2"]
    assert run(systems, "A/seed1/hyp", "A/seed1/hyp", *options)


def test_a_run_is_compared_with_a_file(systems, references, capsys):
    write(systems / "file", noisy(references, 0.3, 5))
    one, file = systems / "A" / "seed1", systems / "file"
    options = ("--references", str(systems / "ref"))
    for order in ((one, file), (file, one)):
        rows = run(systems, *order)
        assert list(rows) == ["sacreBLEU", "chrF", "TER"]
        assert rows == run(systems, *order, *options)
        plain = [one / "hyp" if path == one else path for path in order]
        files = run(systems, *plain, *options)["sacreBLEU"]
        for side in ("first", "second"):
            assert [*rows["sacreBLEU"][side].values()] == [*files[side].values()]
    # Two test sets of that size: which one is meant?
    scores = systems / "A" / "seed1" / "scores"
    other = (scores / "test.json").read_text().replace('/ref"', '/others"')
    (scores / "test2.json").write_text(other)
    line = refused(capsys, one, file)
    assert "fits 2 of the run's test sets test (60), test2 (60)" in line
    assert list(run(systems, one, file, *options)) == ["sacreBLEU", "chrF", "TER"]
    write(systems / "ref3", ["something else"] * 60)
    assert "ref3: fits none" in refused(capsys, one, file, "--references", systems / "ref3")


def test_beside_a_run_that_ignores_case_a_file_has_its_case_ignored_too(systems, references):
    write(systems / "upper", [line.upper() for line in references])
    folder = systems / "A" / "seed1"
    score(systems / "ref", systems / "ref", folder / "scores" / "test.json", "--lowercase")
    rows = run(systems, "A/seed1", "upper", "--samples", "2")
    assert list(rows) == ["sacreBLEU, lower-cased", "chrF, lower-cased", "TER"]
    assert rows["sacreBLEU, lower-cased"]["second"] == {"upper": pytest.approx(100)}


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
    accepted(systems)
    seed3 = systems / "B" / "seed3"
    shutil.copytree(systems / "B" / "seed1", seed3)
    line = refused(capsys, systems / "A", systems / "B")
    assert f"{seed3}: the run in it was made with seed 1" in line
    shutil.rmtree(seed3)
    # Without a record of the seed, a link is told by where it leads.
    (systems / "A" / "seed3").symlink_to(systems / "A" / "seed1", target_is_directory=True)
    line = refused(capsys, systems / "A", systems / "B")
    assert f"{systems / 'A' / 'seed3'}: is seed1 under another name" in line


@pytest.mark.parametrize("name", ["averaged.pt", "checkpoints/checkpoint_best.pt"])
def test_two_seeds_do_not_have_one_model(systems, capsys, name):
    for seed, content in (("seed1", b"\0" * 10_000 + b"1"), ("seed2", b"\0" * 10_000 + b"2")):
        write(systems / "B" / seed / name, [])
        (systems / "B" / seed / name).write_bytes(content)
    accepted(systems)
    shutil.copyfile(systems / "B" / "seed1" / name, systems / "B" / "seed2" / name)
    line = refused(capsys, systems / "A", systems / "B")
    assert f"{systems / 'B' / 'seed2' / name}: is the model of seed1" in line


def test_scores_of_another_run_are_told_by_what_the_run_ended_with(systems, capsys):
    """Copied with the translations, they agree with one another."""
    target, source = systems / "A" / "seed1", systems / "B" / "seed1"
    for folder in (target, source):
        as_a_run(folder, 1)
    run(systems, target, source, "--samples", "2")
    # Scored anew with the case ignored they are the run's own.
    score(target / "hyp", systems / "ref", target / "scores" / "test.json", "--lowercase")
    run(systems, target, source, "--samples", "2")
    for file in ("hyp", "scores/test.json"):
        shutil.copyfile(source / file, target / file)
    line = refused(capsys, target, source)
    assert f"{target / 'scores' / 'test.json'}: tokenized BLEU is " in line
    # With that run's results as well, the steps say otherwise.
    shutil.copyfile(source / "results.json", target / "results.json")
    write(target / "steps" / "train.json", [json.dumps({"seconds": 77.0})])
    line = refused(capsys, target, source)
    assert f"{target / 'results.json'}: is of another run than " in line


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
    line = refused(capsys, systems / "A", systems / "B")
    assert len(line) < 400 and (str(path) in line or "losses.json" in line)
