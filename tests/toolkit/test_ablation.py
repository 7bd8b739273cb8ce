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

from ea_fairseq.files import write_json
from ea_fairseq.recipes.says.recipe import load_recipe

NAMES = set(ablation.ROWS.values())
CORPUS = REPOSITORY / "examples" / "translation" / "multi30k.de-en"


def write_results(work, recipe, seed, bleu, *overrides):
    """What run_recipe.py leaves of a finished run, as far as the table reads it."""
    labels = ("tokenized BLEU, lower-cased", "sacreBLEU, lower-cased")
    scores = [{"label": label, "score": bleu + i} for i, label in enumerate(labels)]
    content = {
        "seed": seed,
        "settings": load_recipe(CORPUS / f"{recipe}.yml", list(overrides)).sections,
        "parameters": 1234567,
        "scores": {"flickr": {"scores": scores}},
    }
    folder = work / "runs" / CORPUS.name / recipe / f"seed{seed}"
    write_json(folder / "results.json", content)
    return folder


def tables(work, *options):
    """What --json and --markdown hold of the runs that are there."""
    output = [work / "out.json", work / "out.md"]
    fixed = ["--print", "--work-dir", work, "--json", output[0], "--markdown", output[1]]
    assert ablation.main([str(option) for option in (CORPUS, *fixed, *options)]) == 0
    return json.loads(output[0].read_text()), output[1].read_text()


def refused(work, *options):
    """Whether the table is refused."""
    words = [CORPUS, "--print", "--work-dir", work, *options]
    return ablation.main([str(word) for word in words]) == 1


def cells(text, name):
    """The cells of the row of that name."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_rows_are_the_papers_and_missing_ones_say_so(tmp_path):
    write_results(tmp_path, "transformer_lite", 1, 41.0)
    content, text = tables(tmp_path)
    assert cells(text, "Transformer-Lite") == ["Transformer-Lite", "1,234,567", "1", "41.00"]
    for name in list(ablation.ROWS.values())[1:]:
        assert cells(text, name) == [name, "", "0", "not run yet"]
    assert content["differences"] == {} and content["orderings"] == []
    rows = content["rows"]
    assert [row["recipe"] for row in rows] == list(ablation.ROWS)
    assert rows[0]["scores"] == {"flickr": [41.0]} and rows[1]["scores"] == {}
    assert "transformer_lite: no intervals: no translations in " in text
    assert "orderings" not in text


def test_seeds_give_mean_and_deviation_of_the_score_asked_for(tmp_path):
    for seed, bleu in ((1, 30.0), (2, 31.0), (3, 35.0)):
        write_results(tmp_path, "kernel_5", seed, bleu)
    _, text = tables(tmp_path, "--score", "sacreBLEU", "--seeds", "1", "2", "3")
    deviation = statistics.stdev([31.0, 32.0, 36.0])
    assert cells(text, "- with 5x5 convolution")[2:] == ["3", f"33.00 ± {deviation:.2f}"]


def test_rows_run_with_other_settings_are_marked(tmp_path):
    write_results(tmp_path, "kernel_5", 1, 30.0)
    write_results(tmp_path, "kernel_1", 1, 30.0, "max-epoch=2", "generate.beam=1")
    changed = ("--set", "max-epoch=2", "--set", "generate.beam=1")
    for options, marked in (((), "kernel_1"), (changed, "kernel_5")):
        _, text = tables(tmp_path, *options)
        (note,) = [line for line in text.splitlines() if "settings" in line]
        assert note.startswith(f"{marked}, seed 1: run with other settings: ")
        assert "generate.beam: " in note and "train.max-epoch: " in note


def test_what_cannot_be_printed_is_refused(tmp_path, capsys):
    write_results(tmp_path, "kernel_5", 1, 30.0)
    assert refused(tmp_path, "--score", "METEOR")
    assert "choose from tokenized BLEU, lower-cased, sacreBLEU" in capsys.readouterr().err
    assert refused(tmp_path, "--samples", "0")
    assert capsys.readouterr().err == "ablation.py: error: --samples 0: choose at least 1\n"
    assert ablation.main([str(tmp_path), "--print"]) == 1
    assert f"{tmp_path}: is no corpus' folder" in capsys.readouterr().err


def write_run(work, recipe, seed, noise):
    """A finished run on two test sets: translations with a share of words replaced, and scores."""
    folder = write_results(work, recipe, seed, 40.0)
    for number, test_set in enumerate(("flickr", "mscoco")):
        choose = random.Random(number)
        lines = [" ".join(choose.choices(WORDS, k=choose.randint(6, 12))) for _ in range(30)]
        write(work / f"{test_set}.ref", lines)
        write(folder / f"{test_set}.hyp", noisy(lines, noise, len(recipe) + 100 * seed + number))
        score(folder, test_set, folder / f"{test_set}.hyp", work / f"{test_set}.ref")
    return folder


def score(run, test_set, translations, references):
    """Has evaluate.py score a run's translations."""
    options = ["--hypotheses", translations, "--references", references, "--target-lang", "en"]
    options += ["--tokenized-references", references]
    (run / "scores").mkdir(exist_ok=True)
    options += ["--json", run / "scores" / f"{test_set}.json"]
    assert evaluate.main([str(option) for option in options]) == 0


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
    """The tables of these runs."""
    return tables(work, "--seeds", "1", "2", "--samples", "200")


def test_differences_are_those_of_compare_py(work, printed):
    content, text = printed
    others = ["Transformer-Lite", "- with 1x1 convolution", "- with 5x5 convolution"]
    assert list(content["differences"]) == others
    output = work / "compared.json"
    options = ["--samples", "200", "--score", "tokenized BLEU", "--json", output]
    pair = [work / "runs" / CORPUS.name / name for name in ("ea_transformer_lite", "kernel_1")]
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
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    shown = {(line[0], line[1]): line[-1] for line in lines if len(line) == 5}
    for pair, verdict in expected.items():
        assert shown[pair] == verdict
        low, high = outcome[pair]["interval"]
        assert (low > 0) == (verdict == "yes") and (high < 0) == (verdict == "no")
    assert "Holds here: yes: 2, open: 1, no: 2" in text
    for worse in (one, five, "Transformer-Lite"):
        of_all = content["differences"][worse]["all together"]["observed"]
        assert outcome[ea, worse]["observed"] == pytest.approx(-of_all)


def test_no_p_is_shown_as_0():
    found = {"better": "a", "worse": "b", "observed": 1.0, "interval": [0.5, 1.5], "p": 1 / 10001}
    assert "<0.001" in ablation.ordering_table([found | {"holds": "yes"}])


def test_the_score_is_named_whole_and_what_is_left_to_chance(printed, work):
    assert printed[1].startswith("tokenized BLEU, lower-cased\n")  # by what these runs were scored
    assert printed[1].rstrip().endswith("p is about seeds and sentences")
    _, text = tables(work, "--samples", "2", "--score", "sacre")
    assert text.startswith("sacreBLEU, lower-cased\n")
    assert "Of a system with one run, p is about" in text.splitlines()[-1]


@pytest.fixture
def two_runs(tmp_path):
    """Of EA and 1x1, one run of each."""
    return [write_run(tmp_path, name, 1, 0.4) for name in ("ea_transformer_lite", "kernel_1")]


def test_a_row_of_other_data_has_no_interval_and_says_so(two_runs, tmp_path):
    """Made after a change to the corpus, its data lie in a folder of their own."""
    for run, size in zip(two_runs, (6000, 8000), strict=True):
        prepared = {"settings": {"subword_size": size}, "inputs": {}, "dictionary": {}}
        write_json(run / "text" / "corpus.json", {"prepared": prepared})
    content, _ = tables(tmp_path, "--samples", "20")
    assert content["orderings"] == [] and content["differences"] == {}
    notes = [note for row in content["rows"] for note in row["notes"] if "intervals" in note]
    assert notes == [
        f"kernel_1: no intervals: trained on other data than {two_runs[0]} "
        "(data.settings.subword_size: 6000 -> 8000)"
    ]


def test_a_row_of_other_test_sets_has_no_interval_and_says_so(two_runs, tmp_path):
    """Its orderings were of fewer sentences than others', or of the last test set alone."""
    content, _ = tables(tmp_path, "--samples", "20")
    assert list(content["differences"]["- with 1x1 convolution"])[-1] == "all together"
    (two_runs[1] / "scores" / "mscoco.json").unlink()
    content, _ = tables(tmp_path, "--samples", "20")
    assert content["orderings"] == []
    notes = content["rows"][list(ablation.ROWS).index("kernel_1")]["notes"]
    expected = (
        f"kernel_1: no intervals: scored on flickr (seed1), and {two_runs[0]} on flickr, mscoco"
    )
    assert notes[-1] == expected


def test_a_score_that_some_test_set_lacks_gives_no_ordering(two_runs, tmp_path, capsys):
    """The last row would be that of one test set, under the heading of all."""
    for run in two_runs:
        scores = run / "scores" / "mscoco.json"
        record = json.loads(scores.read_text())
        del record["files"]["tokenized_references"]
        write_json(scores, record)
        write(run / "third.hyp", ["a cat sees it"])
        score(run, "third", run / "third.hyp", run / "third.hyp")
    capsys.readouterr()
    assert refused(tmp_path, "--samples", "20")
    name = "EA-Transformer-Lite has it on some test sets only"
    error = capsys.readouterr().err
    assert error == f"ablation.py: error: --score tokenized BLEU: {name}\n"


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
    found, _ = tables(work, "--seeds", "1", "2", "1", "--samples", "200", "--score", "")
    assert found == printed[0] | {"score": ""}


def test_a_score_that_not_all_runs_have_is_refused(work):
    runs = ablation.read_runs(work / "runs" / CORPUS.name / "kernel_5", [1])
    with pytest.raises(ValueError, match="--score chrF2: not all runs have it"):
        ablation.compare_by("chrF2", runs, runs, samples=5)


def test_runs_of_another_name_are_read_and_the_corpus_found_by_its_name(tmp_path):
    folder = write_results(tmp_path, "kernel_5", 1, 30.0).parent
    folder.rename(folder.with_name("kernel_5.short"))
    output = tmp_path / "out"
    options = [CORPUS.name, "--print", "--work-dir", str(tmp_path), "--json", str(output)]
    for name, seeds in (("{recipe}", []), ("{recipe}.short", [1])):
        assert ablation.main([*options, "--name", name]) == 0
        rows = json.loads(output.read_text())["rows"]
        assert [row["seeds"] for row in rows] == [[]] * 7 + [seeds]


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
