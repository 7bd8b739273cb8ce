"""The table of ablations: every row of the paper's, with what is there and what is missing."""

import json
import random
import statistics

import ablation
import evaluate
import pytest
from compare import main as compare
from test_compare import WORDS, noisy, write
from tiny_translation import REPOSITORY

from ea_fairseq.recipes.says.recipe import load_recipe

NAMES = set(ablation.ROWS.values())
CORPUS = REPOSITORY / "examples" / "translation" / "multi30k.de-en"


def write_results(work, recipe, seed, bleu, *overrides):
    """What run_recipe.py leaves of a finished run, as far as the table reads it."""
    sections = load_recipe(CORPUS / f"{recipe}.yml", list(overrides)).sections
    folder = work / "runs" / CORPUS.name / recipe / f"seed{seed}"
    folder.mkdir(parents=True)
    labels = ("tokenized BLEU, lower-cased", "sacreBLEU, lower-cased")
    scores = [{"label": label, "score": bleu + i} for i, label in enumerate(labels)]
    content = {
        "seed": seed,
        "settings": sections,
        "parameters": 1234567,
        "scores": {"flickr": {"scores": scores}},
    }
    (folder / "results.json").write_text(json.dumps(content))


def cells(text, name):
    """The cells of the row of that name."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_rows_are_the_papers_and_missing_ones_say_so(tmp_path):
    write_results(tmp_path, "transformer_lite", 1, 41.0)
    markdown, data = tmp_path / "table.md", tmp_path / "table.json"
    options = ["--print", "--work-dir", tmp_path, "--markdown", markdown, "--json", data]
    assert ablation.main([str(CORPUS), *map(str, options)]) == 0
    text = markdown.read_text()
    assert cells(text, "Transformer-Lite") == ["Transformer-Lite", "1,234,567", "1", "41.00"]
    for name in list(ablation.ROWS.values())[1:]:
        assert cells(text, name) == [name, "", "0", "not run yet"]
    content = json.loads(data.read_text())
    assert content["differences"] == {} and content["orderings"] == []
    rows = content["rows"]
    assert [row["recipe"] for row in rows] == list(ablation.ROWS)
    assert rows[0]["scores"] == {"flickr": [41.0]} and rows[1]["scores"] == {}


def test_seeds_give_mean_and_deviation_of_the_score_asked_for(tmp_path, capsys):
    for seed, bleu in ((1, 30.0), (2, 31.0), (3, 35.0)):
        write_results(tmp_path, "kernel_5", seed, bleu)
    options = ["--print", "--work-dir", str(tmp_path), "--score", "sacreBLEU", "--seeds"]
    assert ablation.main([str(CORPUS), *options, "1", "2", "3"]) == 0
    deviation = statistics.stdev([31.0, 32.0, 36.0])
    row = cells(capsys.readouterr().out, "- with 5x5 convolution")
    assert row[2:] == ["3", f"33.00 ± {deviation:.2f}"]


def test_rows_run_with_other_settings_are_marked(tmp_path, capsys):
    write_results(tmp_path, "kernel_5", 1, 30.0)
    write_results(tmp_path, "kernel_1", 1, 30.0, "max-epoch=2", "generate.beam=1")
    options = [CORPUS.name, "--print", "--work-dir", str(tmp_path)]  # found by its name
    assert ablation.main(options) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "settings" in line]
    assert len(notes) == 1 and notes[0].startswith("kernel_1, seed 1: run with other settings: ")
    assert "generate.beam: 5 -> 1" in notes[0] and "train.max-epoch: " in notes[0]
    assert ablation.main([*options, "--set", "max-epoch=2", "--set", "generate.beam=1"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "settings" in line]
    assert len(notes) == 1 and notes[0].startswith("kernel_5, seed 1: ")


def test_unknown_scores_and_folders_without_recipes_are_refused(tmp_path, capsys):
    write_results(tmp_path, "kernel_5", 1, 30.0)
    options = ["--print", "--work-dir", str(tmp_path)]
    assert ablation.main([str(CORPUS), *options, "--score", "METEOR"]) == 1
    assert "choose from tokenized BLEU, lower-cased, sacreBLEU" in capsys.readouterr().err
    assert ablation.main([str(tmp_path), *options]) == 1
    assert f"{tmp_path}: is no corpus' folder" in capsys.readouterr().err


def write_run(work, recipe, seed, noise):
    """A finished run on two test sets: translations with a share of words replaced, and scores."""
    write_results(work, recipe, seed, 40.0)
    folder = work / "runs" / CORPUS.name / recipe / f"seed{seed}"
    for number, test_set in enumerate(("flickr", "mscoco")):
        choose = random.Random(number)
        lines = [" ".join(choose.choices(WORDS, k=choose.randint(6, 12))) for _ in range(30)]
        references = work / f"{test_set}.ref"
        write(references, lines)
        write(folder / f"{test_set}.hyp", noisy(lines, noise, len(recipe) + 100 * seed + number))
        options = ["--hypotheses", folder / f"{test_set}.hyp", "--target-lang", "en"]
        options += ["--references", references, "--tokenized-references", references]
        (folder / "scores").mkdir(exist_ok=True)
        options += ["--json", folder / "scores" / f"{test_set}.json"]
        assert evaluate.main([str(option) for option in options]) == 0
    return folder


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Runs of four rows: 1x1 much worse than EA, the baseline better than EA, 5x5 as good."""
    work = tmp_path_factory.mktemp("work")
    noises = {"ea_transformer_lite": 0.3, "kernel_1": 0.8, "transformer_lite": 0.0, "kernel_5": 0.3}
    for recipe, noise in noises.items():
        for seed in (1, 2):
            write_run(work, recipe, seed, noise)
    return work


@pytest.fixture(scope="module")
def printed(work):
    """What --json holds of these runs."""
    output = work / "out.json"
    options = ["--seeds", "1", "2", "--samples", "200", "--json", output, "--markdown", work / "md"]
    assert ablation.main([str(CORPUS), "--print", "--work-dir", str(work), *map(str, options)]) == 0
    return json.loads(output.read_text()), (work / "md").read_text()


def test_differences_are_those_of_compare_py(work, printed):
    content, text = printed
    others = ["Transformer-Lite", "- with 1x1 convolution", "- with 5x5 convolution"]
    assert list(content["differences"]) == others
    folder = work / "runs" / CORPUS.name
    output = work / "compared.json"
    options = ["--samples", "200", "--score", "tokenized BLEU", "--json", output]
    pair = [folder / "ea_transformer_lite", folder / "kernel_1"]
    assert compare([str(part) for part in [*pair, *options]]) == 0
    rows = json.loads(output.read_text())["rows"]
    found = content["differences"]["- with 1x1 convolution"]
    assert found == {row["test_set"]: row["difference"] for row in rows}
    low, high = found["mscoco"]["interval"]
    assert high < 0
    assert f"{found['mscoco']['observed']:+.2f} ({low:+.2f} to {high:+.2f})" in text


def test_orderings_are_the_papers_where_its_three_corpora_agree():
    """Read off table 6 by hand, for two rows; EA is better than every other."""
    assert list(ablation.PUBLISHED) == list(ablation.ROWS.values())
    worse_than = {name: {w for b, w in ablation.ORDERINGS if b == name} for name in NAMES}
    assert worse_than["EA-Transformer-Lite"] == NAMES - {"EA-Transformer-Lite"}
    # Of the baseline, 1x1 is better on two corpora of three.
    assert worse_than["- with 1x1 convolution"] == {"- without encoder convolution"}
    assert worse_than["- without skip connection"] == {
        "Transformer-Lite",
        "- without encoder convolution",
        "- without encoder-decoder convolution",
        "- with 1x1 convolution",
    }


def test_orderings_hold_or_do_not_by_their_intervals(printed):
    content, text = printed
    outcome = {(o["better"], o["worse"]): o for o in content["orderings"]}
    ea, one, five = "EA-Transformer-Lite", "- with 1x1 convolution", "- with 5x5 convolution"
    expected = {(ea, one): "yes", (ea, "Transformer-Lite"): "no", (ea, five): "open"}
    expected |= {(five, one): "yes", (five, "Transformer-Lite"): "no"}
    assert outcome.keys() == expected.keys()  # rows that were run, and nothing else
    for (better, worse), verdict in expected.items():
        line = next(
            line
            for line in text.splitlines()
            if line.startswith(f"| {better} ") and f"| {worse:>22} |" in line
        )
        assert line.endswith(f"| {verdict:>10} |")
        low, high = outcome[better, worse]["interval"]
        assert (low > 0) == (verdict == "yes") and (high < 0) == (verdict == "no")
    assert "Holds here: yes: 2, open: 1, no: 2" in text
    for worse in (one, five, "Transformer-Lite"):
        of_all = content["differences"][worse]["all together"]["observed"]
        assert outcome[ea, worse]["observed"] == pytest.approx(-of_all)


def test_the_score_is_named_whole_and_what_is_left_to_chance(printed, work, capsys):
    assert printed[1].startswith("tokenized BLEU, lower-cased\n")  # by what these runs were scored
    assert printed[1].rstrip().endswith("p is about seeds and sentences")
    options = ["--print", "--work-dir", str(work), "--samples", "2", "--score", "sacre"]
    assert ablation.main([str(CORPUS), *options]) == 0
    text = capsys.readouterr().out.strip()
    assert text.startswith("sacreBLEU, lower-cased\n")
    assert "Of a system with one run, p is about" in text.splitlines()[-1]


@pytest.fixture
def two_rows(tmp_path):
    """EA and 1x1, one run of each."""
    runs = [write_run(tmp_path, name, 1, 0.4) for name in ("ea_transformer_lite", "kernel_1")]

    def printed():
        output = tmp_path / "out.json"
        options = ["--print", "--work-dir", tmp_path, "--samples", "20", "--json", output]
        assert ablation.main([str(CORPUS), *map(str, options)]) == 0
        return json.loads(output.read_text())

    return runs, printed


def test_a_row_of_other_data_has_no_interval_and_says_so(two_rows):
    """Made after a change to the corpus, its data lie in a folder of their own."""
    runs, printed = two_rows
    for run, size in zip(runs, (6000, 8000), strict=True):
        prepared = {"settings": {"subword_size": size}, "inputs": {}, "dictionary": {}}
        write(run / "text" / "corpus.json", [json.dumps({"prepared": prepared})])
    content = printed()
    assert content["orderings"] == [] and content["differences"] == {}
    notes = [note for row in content["rows"] for note in row["notes"] if "intervals" in note]
    assert notes == [
        f"kernel_1: no intervals: trained on other data than {runs[0]} "
        "(data.settings.subword_size: 6000 -> 8000)"
    ]


def test_a_row_of_other_test_sets_has_no_interval_and_says_so(two_rows):
    """Its orderings were of fewer sentences than others', or of the last test set alone."""
    runs, printed = two_rows
    assert list(printed()["differences"]["- with 1x1 convolution"])[-1] == "all together"
    (runs[1] / "scores" / "mscoco.json").unlink()
    content = printed()
    assert content["orderings"] == []
    notes = content["rows"][list(ablation.ROWS).index("kernel_1")]["notes"]
    expected = f"kernel_1: no intervals: scored on flickr, and {runs[0]} on flickr, mscoco"
    assert notes[-1] == expected


def test_a_score_that_some_test_set_lacks_gives_no_ordering(two_rows, capsys):
    """The last row would be that of one test set, under the heading of all."""
    runs, printed = two_rows
    for run in runs:
        scores = run / "scores" / "mscoco.json"
        record = json.loads(scores.read_text())
        del record["files"]["tokenized_references"]
        scores.write_text(json.dumps(record))
        write(run / "third.hyp", ["a cat sees it"])
        options = ["--hypotheses", run / "third.hyp", "--references", run / "third.hyp"]
        options += ["--tokenized-references", run / "third.hyp", "--target-lang", "en"]
        assert evaluate.main([*map(str, options), "--json", str(run / "scores/third.json")]) == 0
    with pytest.raises(AssertionError):
        printed()
    error = capsys.readouterr().err.strip().splitlines()[-1]
    name = "EA-Transformer-Lite has it on some test sets only"
    assert error == f"ablation.py: error: --score tokenized BLEU: {name}"


def test_of_ter_less_is_better(work, printed):
    """What holds by BLEU holds by TER, whose differences have the other sign."""
    options = ["--samples", "200", "--score", "TER"]
    args = ablation.make_parser().parse_args([str(CORPUS), *options])
    systems = {
        ablation.ROWS[name]: ablation.read_runs(work / "runs" / CORPUS.name / name, [1, 2])
        for name in ("ea_transformer_lite", "kernel_1", "transformer_lite", "kernel_5")
    }
    found = {(o["better"], o["worse"]): o for o in ablation.read_orderings(systems, args)}
    by_bleu = {(o["better"], o["worse"]): o for o in printed[0]["orderings"]}
    assert found.keys() == by_bleu.keys()
    for rows, ordering in found.items():
        assert ordering["holds"] == by_bleu[rows]["holds"]
        if ordering["holds"] != "open":
            assert ordering["observed"] * by_bleu[rows]["observed"] < 0


def test_all_tables_are_of_one_score(work, printed):
    """A label that begins like several: the differences were of the last of them."""
    output = work / "any.json"
    options = ["--seeds", "1", "2", "1", "--samples", "200", "--score", "", "--json", output]
    assert ablation.main([str(CORPUS), "--print", "--work-dir", str(work), *map(str, options)]) == 0
    found = json.loads(output.read_text())
    assert {name: found[name] for name in ("differences", "orderings", "rows")} == {
        name: printed[0][name] for name in ("differences", "orderings", "rows")
    }


def test_no_samples_and_scores_that_not_all_runs_have_are_refused(work, capsys):
    options = ["--print", "--work-dir", str(work), "--seeds", "1"]
    assert ablation.main([str(CORPUS), *options, "--samples", "0"]) == 1
    assert capsys.readouterr().err == "ablation.py: error: --samples 0: choose at least 1\n"
    runs = ablation.read_runs(work / "runs" / CORPUS.name / "kernel_5", [1])
    with pytest.raises(ValueError, match="--score chrF2: not all runs have it"):
        ablation.compare_by("chrF2", runs, runs, samples=5)


def test_runs_of_another_name_are_read(tmp_path):
    folder = write_run(tmp_path, "kernel_5", 1, 0.3).parent
    folder.rename(folder.with_name("kernel_5.short"))
    options = [str(CORPUS), "--print", "--work-dir", str(tmp_path), "--json", str(tmp_path / "out")]
    for name, seeds in (("{recipe}", []), ("{recipe}.short", [1])):
        assert ablation.main([*options, "--name", name]) == 0
        rows = json.loads((tmp_path / "out").read_text())["rows"]
        assert [row["seeds"] for row in rows] == [[]] * 7 + [seeds]


def test_rows_without_translations_have_no_interval_and_say_so(tmp_path, capsys):
    write_results(tmp_path, "kernel_5", 1, 30.0)
    assert ablation.main([str(CORPUS), "--print", "--work-dir", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "kernel_5: no intervals: no translations in " in output and "orderings" not in output


def test_what_is_missing_is_run_with_what_the_command_was_given(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(ablation.command, "main", lambda words: told.append(words) or 3)
    options = ["--work-dir", str(tmp_path), "--raw", "r", "--seeds", "1", "2", "--jobs", "2"]
    options += ["--set", "lr=0.5", "--set", "generate.beam=1", "--name", "{recipe}.x"]
    options += ["--threads", "4"]
    assert ablation.main([str(CORPUS), *options]) == 3
    given = ablation.command.make_parser().parse_args([str(CORPUS), "--variant", "a", *options])
    found = ablation.command.make_parser().parse_args(told[0])
    assert vars(found) == vars(given) | {"variant": list(ablation.ROWS)}
