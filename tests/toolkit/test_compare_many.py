"""Kept runs compare as the runs that they are of, and only with the references they were scored by;
many systems in one table, with p corrected for their number."""

import gzip
import json
import random
import shutil

import compare_many
import keep_runs
import pytest
from refusals import refusal
from test_compare import WORDS, noisy, score, write

from ea_fairseq.commands import average, compare, evaluate, plot
from ea_fairseq.recipes.results.significance import holm
from ea_fairseq.recipes.results.tables import p_text

TEST_SETS = {"flickr": 30, "mscoco": 20}
SYSTEMS = {"plain.short": 0.5, "ea.short": 0.2, "other.short": 0.25}


def test_holms_correction_is_that_of_a_case_by_hand():
    # sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1, of which the last may not be below the third
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.4, 0.9]) == [1.0, 1.0, 1.0]
    assert holm([0.04]) == [0.04] and holm([]) == []


def test_no_p_is_shown_as_0():
    assert [p_text(p) for p in (0.0001, 0.0005, 0.04567, 1.0)] == [
        "<0.001",
        "0.001",
        "0.046",
        "1.000",
    ]


def make_run(work, name, seed, noise, epochs=2):
    """A finished run, as ea-recipe leaves it, on prepared data."""
    run = work / "runs" / "tiny.de-en" / name / f"seed{seed}"
    scores = {}
    for number, test_set in enumerate(TEST_SETS):
        references = [work / "data" / "tiny.de-en" / kind / f"{test_set}.en" for kind in PREPARED]
        lines = references[0].read_text().splitlines()
        write(run / f"{test_set}.hyp", noisy(lines, noise, len(name) + 100 * seed + number))
        record, tokenized = run / "scores" / f"{test_set}.json", "--tokenized-references"
        score(run / f"{test_set}.hyp", references[0], record, tokenized, references[1])
        scores[test_set] = json.loads(record.read_text())
    prepared = {"settings": {"name": "tiny"}, "inputs": {"train.de": "0"}, "dictionary": {"de": 9}}
    write(run / "text" / "corpus.json", [json.dumps({"prepared": prepared, "codes": "not kept"})])
    settings = {"train": {"arch": name.partition(".")[0], "max-epoch": epochs}, "average": {}}
    log = "2026-01-01 12:00:00 | INFO | valid | epoch 00{0} | loss 3 | ppl {1} | num_updates {0}0"
    write(run / "logs" / "train.log", [log.format(1, 5.5), log.format(2, 5.25)])
    content = {"corpus": "tiny.de-en", "seed": seed, "settings": settings, "parameters": 1234}
    write(run / "results.json", [json.dumps(content | {"scores": scores})])
    return run


PREPARED = ("raw", "tok")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three systems of two seeds each, all of them kept, and a seed that is not finished."""
    work = tmp_path_factory.mktemp("work")
    for test_set, count in TEST_SETS.items():
        choose = random.Random(count)
        lines = [" ".join(choose.choices(WORDS, k=choose.randint(6, 12))) for _ in range(count)]
        for kind in PREPARED:
            write(work / "data" / "tiny.de-en" / kind / f"{test_set}.en", lines)
    for name, noise in SYSTEMS.items():
        for seed in (1, 2):
            make_run(work, name, seed, noise)
    (work / "runs" / "tiny.de-en" / "ea.short" / "seed3").mkdir()
    folders = [str(work / "runs" / "tiny.de-en" / name) for name in SYSTEMS]
    assert keep_runs.main([*folders, "--into", str(work / "kept")]) == 0
    return work


@pytest.fixture
def work(made, tmp_path):
    """To be changed."""
    shutil.copytree(made, tmp_path / "work")
    return tmp_path / "work"


def rows(first, second, work, *options):
    """What compare.py finds of two systems."""
    out = work / "out.json"
    given = [str(first), str(second), "--work-dir", str(work), "--json", str(out), *options]
    assert compare.main([*given, "--samples", "50"]) == 0
    return json.loads(out.read_text())["rows"]


def test_kept_runs_compare_as_the_runs_that_they_are_of(work):
    runs, kept = work / "runs" / "tiny.de-en", work / "kept"
    theirs = rows(runs / "plain.short", runs / "ea.short", work, "--seeds", "1", "2")
    for name in SYSTEMS:
        (runs / name).rename(runs / f"{name}.gone")  # what is kept needs none of it
    assert rows(kept / "plain.short", kept / "ea.short", work) == theirs
    assert {row["score"] for row in theirs} > {"tokenized BLEU", "sacreBLEU", "chrF"}


def test_what_is_kept_is_small_and_holds_no_reference(made):
    folder = made / "kept" / "ea.short" / "seed1"
    names = {"results.json", "flickr.en.gz", "mscoco.en.gz"}
    assert {path.name for path in folder.iterdir()} == names
    hypotheses = (made / "runs" / "tiny.de-en" / "ea.short" / "seed1" / "flickr.hyp").read_text()
    assert gzip.decompress((folder / "flickr.en.gz").read_bytes()).decode() == hypotheses
    text = (folder / "results.json").read_text()
    references = (made / "data" / "tiny.de-en" / "raw" / "flickr.en").read_text().splitlines()
    assert not any(line in text for line in references) and str(made) not in text
    results = json.loads(text)
    assert results["parameters"] == 1234 and results["settings"]["train"]["max-epoch"] == 2
    assert results["validations"] == [
        {"epoch": 1, "updates": 10, "perplexity": 5.5},
        {"epoch": 2, "updates": 20, "perplexity": 5.25},
    ]


def test_keeping_again_changes_nothing_and_another_run_is_not_written_over(work, capsys):
    runs, kept = work / "runs" / "tiny.de-en", work / "kept"
    before = {path: path.read_bytes() for path in kept.glob("*/*/*")}
    command = [str(runs / "ea.short"), "--into", str(kept)]
    assert keep_runs.main(command) == 0
    output = capsys.readouterr().out
    assert output.count("kept before: ") == 2
    assert f"not finished: {runs / 'ea.short' / 'seed3'}" in output
    make_run(work, "ea.short", 2, 0.4)
    line = refusal(capsys, keep_runs.main, *command)
    assert f"{kept / 'ea.short' / 'seed2'}: keeps another run" in line
    assert {path: path.read_bytes() for path in kept.glob("*/*/*")} == before
    assert "no such folder" in refusal(capsys, keep_runs.main, runs / "eb", "--into", kept)


def refused(work, capsys):
    """The one line in which comparing kept runs ends."""
    kept = [work / "kept" / name for name in ("plain.short", "ea.short")]
    return refusal(capsys, compare.main, *kept, "--work-dir", work)


def test_other_references_than_those_of_the_scores_are_refused(work, capsys):
    references = work / "data" / "tiny.de-en" / "tok" / "mscoco.en"
    text = references.read_text()
    references.write_text(text.replace("the", "these", 1))
    line = refused(work, capsys)
    assert "scored with another tok/mscoco.en than that of" in line and "prepare it" in line
    references.write_text(text)
    # Data of other settings beside it is passed over.
    data = work / "data"
    (data / "tiny.de-en").rename(data / "tiny.de-en-2")
    write(data / "tiny.de-en" / "tok" / "mscoco.en", ["another"])
    assert rows(work / "kept" / "plain.short", work / "kept" / "ea.short", work)
    shutil.rmtree(data)
    assert f"{data} has none that fits: prepare it (ea-recipe tiny.de-en" in refused(work, capsys)


def test_translations_that_are_not_those_kept_are_refused(work, capsys):
    path = work / "kept" / "ea.short" / "seed2" / "flickr.en.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
    path.write_bytes(gzip.compress("".join(lines[:-1]).encode()))
    assert "the translations of flickr are not those kept" in refused(work, capsys)
    path.write_bytes(gzip.compress("".join([*lines[:-1], "the cat\n"]).encode()))
    assert "the translations of flickr are not those kept" in refused(work, capsys)
    path.write_bytes(gzip.compress("".join(lines).encode())[:-20])
    assert f"{path}: cannot be read: " in refused(work, capsys)


def test_no_more_is_unpacked_than_a_test_set_can_have(work, capsys, monkeypatch):
    monkeypatch.setattr("ea_fairseq.recipes.results.kept.LIMIT", 2_000)
    path = work / "kept" / "ea.short" / "seed1" / "flickr.en.gz"
    path.write_bytes(gzip.compress(b"x" * 2_001))
    assert f"{path}: unpacks to more than 2,000 bytes" in refused(work, capsys)


def change(path, keys, value):
    """A value in a JSON file, or in an object there, replaced; by ``...`` removed."""
    content = part = json.loads(path.read_text())
    *within, last = keys.split()
    for key in within:
        part = part[int(key) if isinstance(part, list) else key]
    part[last] = value
    if value is ...:
        del part[last]
    path.write_text(json.dumps(content))


#: Keys in results.json, what takes the place of their value, and how it is refused.
JUNK = [
    ("scores", ..., "lacks scores"),
    ("scores", [], "scores is []: expected an object"),
    ("scores", {}, "scores is {}: expected an object, not an empty one"),
    ("scores", {"test": None}, "scores: test is None: expected an object"),
    ("scores", {"test": {}}, "scores: test: lacks scores"),
    ("scores", {"a\nb": None}, "scores: a b is None"),
    ("scores mscoco", 3, "scores: mscoco is 3: expected an object"),
    ("scores mscoco scores 0 score", "x", "score is 'x': expected a whole number or a number"),
    ("scores mscoco scores 0 score", None, "scores: 0: score is None: expected"),
    ("scores mscoco scores 0 score", True, "scores: 0: score is True: expected"),
    ("scores mscoco scores 0 label", [], "scores: 0: label is []: expected text"),
    ("scores", {"../x": {"scores": []}}, "scores: '../x' cannot name a file"),
    ("corpus", ..., "lacks corpus"),
    ("corpus", 3, "corpus is 3: expected text"),
    ("corpus", "/", "corpus: '/' cannot name a file"),
    ("corpus", "../x", "corpus: '../x' cannot name a file"),
    ("settings", [], "settings is []: expected an object"),
    ("data", "x", "data is 'x': expected an object"),
    ("parameters", "x", "parameters is 'x': expected a whole number or null"),
]
JUNK_KEPT = [
    ("scores mscoco files", ..., "scores: mscoco: lacks files"),
    ("scores mscoco files", {"references": "a/b", "x": "y"}, "mscoco: files: lacks translations"),
    ("scores mscoco files", {"hypotheses": "a/b", "x": "y"}, "mscoco: files: lacks references"),
    ("scores mscoco target_lang", 3, "target_lang is 3: expected text or null"),
    ("scores mscoco sha256", ..., "scores: mscoco: lacks sha256"),
    ("scores mscoco sha256", "x", "scores: mscoco: sha256 is 'x': expected an object"),
    ("scores mscoco sha256 references", ..., "sha256: lacks references"),
    ("scores mscoco sha256 tokenized_references", ..., "sha256: lacks tokenized_references"),
    ("scores mscoco sha256 hypotheses", 3, "sha256: hypotheses is 3: expected text"),
    ("scores mscoco files losses", "x", "files has hypotheses, references, tokenized_ref"),
    ("scores mscoco files hypotheses", "../x.gz", "hypotheses: '../x.gz' cannot name a file"),
    ("scores mscoco files references", "../../x", "references: '..' cannot name a file"),
    ("scores mscoco target_lang", "../x", "target_lang: '../x' cannot name a file"),
]


@pytest.mark.parametrize(("keys", "value", "words"), JUNK + JUNK_KEPT)
def test_what_is_no_run_is_refused_in_a_line(work, capsys, keys, value, words):
    run, kept = (work / name / "ea.short" / "seed1" for name in ("runs/tiny.de-en", "kept"))
    pair = [work / "kept" / "plain.short", kept.parent, "--work-dir", work]
    commands = [(kept, compare.main, pair), (kept, compare_many.main, pair)]
    if (keys, value, words) in JUNK:
        commands.append((run, keep_runs.main, [run, "--into", work / "again"]))
        if value is not ...:  # runs are compared without them
            commands.append((run, compare.main, [run.parents[1] / "plain.short", run]))
    for folder in {folder: None for folder, _, _ in commands}:
        change(folder / "results.json", keys, value)
    for folder, main, arguments in commands:
        line = refusal(capsys, main, *arguments)
        assert f"{folder / 'results.json'}: " in line and words in line, line
    assert not (work / "again").exists()


def test_nothing_is_written_beside_what_is_kept(work, capsys):
    """Languages become names of files, as those of test sets do."""
    run = work / "runs" / "tiny.de-en" / "ea.short" / "seed1"
    scored = run / "scores" / "flickr.json"
    change(scored, "target_lang", "../../x")
    files = set(work.rglob("*"))
    line = refusal(capsys, keep_runs.main, run, "--into", work / "again")
    assert f"{scored}: target_lang: '../../x' cannot name a file" in line
    assert set(work.rglob("*")) == files


def cells(text, test_set, name):
    """The cells of a system's row in the table of a test set."""
    part = text.partition(f"{test_set}, ")[2]
    line = next(line for line in part.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_has_compares_differences_and_holms_p(work, capsys):
    against = ["--against", "plain.short", "ea.short", "--samples", "50"]
    times = work / "times.json"
    times.write_text(json.dumps({"other.short": {"training": 1.25, "decoding": 0.5}}))
    markdown, out = work / "table.md", work / "many.json"
    options = ["--work-dir", str(work), "--times", str(times), "--markdown", str(markdown)]
    assert compare_many.main([str(work / "kept"), *against, *options, "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert markdown.read_text() == text
    found = json.loads(out.read_text())
    for name in ("plain.short", "ea.short"):
        for test_set in (*TEST_SETS, "all together"):
            by_test_set = {
                other: next(row for row in each if row["test_set"] == test_set)
                for other, each in found[name].items()
            }
            p = [row["difference"]["p"] for row in by_test_set.values()]
            assert [row["holm"] for row in by_test_set.values()] == holm(p)
            for other, row in by_test_set.items():
                pair = work / "kept" / name, work / "kept" / other
                (theirs,) = (
                    theirs
                    for theirs in rows(*pair, work, "--score", "tokenized BLEU")
                    if theirs["test_set"] == test_set
                )
                assert {**theirs, "holm": row["holm"]} == row
                p, corrected = row["difference"]["p"], row["holm"]
                line = cells(text, test_set, other)
                at = (3 if test_set == "all together" else 2) + 3 * (name == "ea.short")
                assert line[at + 1 : at + 4] == [line[at + 1], f"{p:.3f}", f"{corrected:.3f}"]
                assert line[at + 1].startswith(f"{row['difference']['observed']:+.2f} (")
    assert cells(text, "all together", "other.short")[1:3] == ["1,234", "1, 2"]
    assert cells(text, "all together", "other.short")[-2:] == ["1.25", "0.50"]
    assert cells(text, "all together", "ea.short")[-2:] == ["", ""]
    assert "Holm's correction for the 2 comparisons" in text


def test_seeds_that_are_there_count_and_other_settings_are_told(work, capsys):
    make_run(work, "other.short", 3, 0.25)
    make_run(work, "long.short", 1, 0.25, epochs=9)
    runs = str(work / "runs" / "tiny.de-en")
    assert compare_many.main([runs, "--against", "plain.short", "--samples", "20"]) == 0
    text = capsys.readouterr().out
    assert cells(text, "all together", "other.short")[2] == "1, 2, 3"
    assert cells(text, "all together", "ea.short")[2] == "1, 2"
    assert "long.short, beside plain.short: train.max-epoch: 2 -> 9" in text
    assert compare_many.main([runs, "--seeds", "3", "1", "--samples", "20"]) == 0
    text = capsys.readouterr().out
    assert cells(text, "all together", "other.short")[2] == "1, 3"
    assert cells(text, "all together", "long.short")[2] == "1"


def test_systems_without_the_seeds_are_named(work, capsys):
    """With fewer comparisons Holm's p is smaller."""
    runs = work / "runs" / "tiny.de-en"
    make_run(work, "long.short", 3, 0.25)
    make_run(work, "ea.short", 3, 0.25)
    assert compare_many.main([str(runs), "--seeds", "3", "--samples", "20"]) == 0
    text = capsys.readouterr().out
    assert "Left out, none of these seeds is finished: other.short, plain.short." in text


def test_all_systems_have_one_score_on_the_same_test_sets(work, capsys):
    """A row was of fewer sentences, or of another score, than the others of its table."""
    runs = work / "runs" / "tiny.de-en"
    scores = runs / "ea.short" / "seed2" / "scores"
    scored = json.loads((scores / "mscoco.json").read_text())
    scored["scores"] = [one for one in scored["scores"] if one["label"] != "tokenized BLEU"]
    del scored["files"]["tokenized_references"]
    scored["files"]["translations"] = scored["files"].pop("hypotheses")
    whole = (scores / "mscoco.json").read_text()
    (scores / "mscoco.json").write_text(json.dumps(scored))
    line = refusal(capsys, compare_many.main, runs)
    assert "--score tokenized BLEU: not all runs have it, under one label, on every test" in line
    (scores / "mscoco.json").unlink()
    line = refusal(capsys, compare_many.main, runs)
    assert f"{scores.parents[1]}: scored on flickr (seed2), and " in line
    (scores / "mscoco.json").write_text(whole)
    for folder in runs.glob("*/seed?/scores"):
        shutil.copy(folder / "mscoco.json", folder / "mscoco.old.json")
    line = refusal(capsys, compare_many.main, runs)
    assert "mscoco.old: is mscoco under another name, and would count twice" in line


def test_systems_that_do_not_compare_are_refused_in_a_line(work, capsys):
    runs = work / "runs" / "tiny.de-en"
    for arguments, words in (
        ([runs, "--against", "plain.shrot"], "perhaps you meant plain.short (choose from "),
        ([runs / "plain.short"], "fewer than two systems"),
        ([runs, "--score", "BLUE"], "--score BLUE: "),
        ([runs, "--samples", "0"], "--samples 0: choose at least 1"),
        ([work], f"{work}: no finished run in it"),
        ([runs, work / "kept", "--work-dir", work], "give one of them"),
    ):
        assert words in refusal(capsys, compare_many.main, "--samples", "5", *arguments)
    for name in ("seed1", "seed2"):
        text = runs / "other.short" / name / "text" / "corpus.json"
        text.write_text(text.read_text().replace("train.de", "train2.de"))
    assert "trained on other data than" in refusal(capsys, compare_many.main, runs)


def test_a_mistyped_folder_of_an_output_makes_no_folders(work, capsys):
    """Of a typing error nobody wants folders, and nothing is worked out for nothing."""
    runs = work / "runs" / "tiny.de-en"
    wrong = work / "typo" / "deeper" / "out.json"
    pair = [runs / name / "seed1" for name in ("plain.short", "ea.short")]
    texts = ["--translations", work / "a", "--references", work / "a"]
    write(work / "a", WORDS)
    for program, *arguments in (
        (evaluate, *texts, "--json", wrong),
        (evaluate, *texts, "--text", wrong),
        (compare, *pair, "--json", wrong),
        (compare_many, *pair, "--json", wrong),
        (keep_runs, *pair, "--into", wrong),
        (plot, *pair, "--output", wrong.with_suffix(".png")),
        (average, "--inputs", *pair, "--output", wrong),
    ):
        assert f"{wrong.parent} is no folder; make it" in refusal(capsys, program.main, *arguments)
        assert not (work / "typo").exists()
