"""scripts/export_model.py: from a run or a checkpoint to a model folder, and back to fairseq."""

import json
import os
import random
import re
import shutil
import threading
from types import SimpleNamespace

import export_model
import pytest
import torch
from fairseq.data import Dictionary
from small_folders import WORDS, write_folder

from ea_fairseq import Translator
from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.checkpoints.text_identity import KEY, check, identity_of_checkpoint
from ea_fairseq.corpus.subwords import learn
from ea_fairseq.errors import UserError
from ea_fairseq.files import write_json
from ea_fairseq.inference.build_model import load_model
from ea_fairseq.inference.export_checkpoint import subword_pieces
from ea_fairseq.inference.model_folder import Longest, read_model_folder
from ea_fairseq.recipes.runs import export_run as exporting
from ea_fairseq.recipes.runs.export_run import checkpoint_of_run, exported_run
from ea_fairseq.text.subwords import apply

LINES = ["w1 w2 w3", "", "w5 w4 w4 w7"]


def refused(capsys, out, *arguments):
    """The line that says why there is no folder ``out``."""
    assert export_model.main([str(argument) for argument in arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("export_model.py: error: ") and error.count("\n") == 1
    assert not out.exists()
    return error


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model folder, the checkpoint made of it, and the folder made of that."""
    top = tmp_path_factory.mktemp("export")
    write_folder(top / "model")
    model, back, again = (str(top / name) for name in ("model", "back", "again"))
    assert export_model.main([model, back, "--to-fairseq"]) == 0
    checkpoint = [f"{back}/model.pt", again, "--data", back, "-s", "de", "-t", "en"]
    assert export_model.main(checkpoint) == 0
    return top


def test_from_folder_to_checkpoint_to_folder_it_translates_the_same(folders):
    first, second = (Translator(folders / name) for name in ("model", "again"))
    assert first.translate(LINES, n_best=3) == second.translate(LINES, n_best=3)


def test_the_checkpoint_knows_its_languages_and_dictionaries(folders, caplog):
    path = str(folders / "back" / "model.pt")
    known = identity_of_checkpoint(read_checkpoint(path))
    words = Dictionary.load(str(folders / "back" / "dict.de.txt"))
    others = Dictionary.load(str(folders / "back" / "dict.de.txt"))
    others.symbols[-2:] = reversed(others.symbols[-2:])

    def use(source, target, languages=("de", "en")):
        cfg = SimpleNamespace(source_lang=languages[0], target_lang=languages[1])
        task = SimpleNamespace(source_dictionary=source, target_dictionary=target, cfg=cfg)
        check(path, known, task)

    use(words, words)
    assert not caplog.records  # no warning of a checkpoint that knows nothing
    for dictionaries in ((others, words), (words, others)):
        with pytest.raises(UserError, match="another (source|target) dictionary"):
            use(*dictionaries)
    with pytest.raises(UserError, match="trained on de to en"):
        use(words, words, ("en", "de"))


def test_of_a_run_its_average_is_exported_and_without_one_its_best_checkpoint(tmp_path):
    best, averaged = tmp_path / "checkpoints" / "checkpoint_best.pt", tmp_path / "averaged.pt"
    best.parent.mkdir()
    for path in (best, averaged):
        path.touch()
        assert checkpoint_of_run(tmp_path) == path
    # The best checkpoint stood under the average's scores where that was deleted.
    averaged.unlink()
    for average, is_missed in ((None, False), ({"num-epoch-checkpoints": 2}, True)):
        write_json(tmp_path / "steps" / "average.json", {"settings": {"average": average}})
        if not is_missed:
            assert checkpoint_of_run(tmp_path) == best
            continue
        for asked in (checkpoint_of_run, exported_run):
            with pytest.raises(UserError, match="averaged.pt: is gone, .*--steps average"):
                asked(tmp_path)
    best.unlink()
    with pytest.raises(UserError, match="averaged.pt: is gone, .* as its checkpoints are$"):
        checkpoint_of_run(tmp_path)
    # A model folder made before needs it no more.
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    assert exported_run(tmp_path) == tmp_path / "model"


def test_a_runs_folder_takes_its_text_scores_and_search_along(folders, tmp_path, capsys):
    run = tmp_path / "runs" / "tiny.de-en" / "mine" / "seed1"
    shutil.copytree(folders / "back", run / "text")
    (run / "text" / "model.pt").rename(run / "averaged.pt")
    (run / "text" / "codes").write_text("#version: 0.2\nw 1</w>\n")
    text = {"source_lang": "de", "target_lang": "en", "subword": "bpe", "data": "data"}
    (run / "text" / "corpus.json").write_text(json.dumps(text | {"tokenize": {}}))
    for kind, line in (("raw", "Eins. Zwei."), ("bpe", "E@@ ins . Z@@ wei .")):
        (run / "data" / kind).mkdir(parents=True)
        (run / "data" / kind / "train.de").write_text(f"{line}\n")
    scores = {"test": {"scores": [{"label": "BLEU", "score": 1.0, "signature": "s"}]}}
    generate = {"beam": 3, "sampling": True, "post-process": "subword_nmt"}
    results = {"scores": scores, "settings": {"generate": generate}, "versions": {"torch": "2"}}
    (run / "results.json").write_text(json.dumps(results))
    assert export_model.main([str(run), str(tmp_path / "out")]) == 0
    warned = capsys.readouterr().err
    assert "generate: sampling is no option of Translator" in warned and warned.count("\n") == 1
    config = Translator(tmp_path / "out").config
    assert (config.search.beam, config.scores, config.text.subword) == (3, scores, "bpe")
    assert config.longest == Longest(tokens=6, sentences=2)
    # Of a run that is not finished, whose data is gone, the folder has less, which is said.
    for missing, said in (
        ("results.json", f"{run}: has no results"),
        ("data", "data: no such folder"),
    ):
        (run / missing).rename(run / "away")
        assert export_model.main([str(run), str(tmp_path / f"without {missing}")]) == 0
        assert said in capsys.readouterr().err
        (run / "away").rename(run / missing)
    # What commands that take a run export by themselves is made anew where the run went on.
    own = exported_run(run)
    written = (own / "config.json").stat().st_mtime_ns
    assert own == run / "model" and exported_run(run) == own
    assert (own / "config.json").stat().st_mtime_ns == written
    for beam, newer in ((4, "averaged.pt"), (2, "results.json")):
        results["settings"]["generate"]["beam"] = beam
        (run / "results.json").write_text(json.dumps(results))
        for name in ("averaged.pt", "results.json"):
            seconds = written / 1e9 + (9 if name == newer else -9)
            os.utime(run / name, (seconds, seconds))
        assert Translator(exported_run(run)).config.search.beam == beam
    # Two commands that found it old wrote into one folder.
    made, at_once = [], threading.Barrier(2)
    write, is_new = exporting.write_model_folder, exporting._is_new
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "write_model_folder", lambda *a: (made.append(1), write(*a)))

        def both_look(*arguments):
            found = is_new(*arguments)
            if threading.current_thread() not in looked:
                looked.add(threading.current_thread())
                at_once.wait(60)
            return found

        looked = set()
        patch.setattr(exporting, "_is_new", both_look)
        for name, seconds in (("results.json", 2), ("averaged.pt", 2), ("model/config.json", 1)):
            os.utime(run / name, (seconds, seconds))
        threads = [threading.Thread(target=exported_run, args=(run,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert made == [1] and Translator(run / "model").config.search.beam == 2
    assert capsys.readouterr().err.count("sampling is no option of Translator") == 4
    # Its checkpoint alone does not take the codes along, which is said.
    given = [str(run / "averaged.pt"), str(tmp_path / "alone"), "--data", str(run / "text")]
    assert export_model.main([*given, "-s", "de", "-t", "en"]) == 0
    warned = capsys.readouterr().err
    assert f"takes text as it is: export_model.py {run} FOLDER" in warned
    assert warned.count("\n") == 1
    # With the codes, but without the rules of its tokenization.
    given[1] = str(tmp_path / "other")
    given += ["--codes", str(run / "text" / "codes")]
    assert export_model.main([*given, "-s", "de", "-t", "en"]) == 0
    warned = capsys.readouterr().err
    assert "other takes text otherwise than the model's recipe made it (" in warned
    assert f"export_model.py {run} FOLDER knows how" in warned and warned.count("\n") == 1


def test_a_folder_without_codes_or_tokenizer_says_what_text_it_takes(folders, tmp_path, capsys):
    checkpoint, back = str(folders / "back" / "model.pt"), str(folders / "back")
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\nw 1</w>\n")
    for name, options, takes in (
        ("split", [], "tokenised and split into subwords as its training text was"),
        ("bpe", ["--codes", str(codes)], "tokenised as its training text was"),
        ("raw", ["--codes", str(codes), "--tokenizer", "moses"], None),
    ):
        out = tmp_path / name
        assert export_model.main([checkpoint, str(out), "--data", back, *options]) == 0
        warned, card = capsys.readouterr().err, (out / "README.md").read_text()
        assert read_model_folder(out).config.text.takes == takes
        assert card.count("**Text must be ") == warned.count("\n") == (takes is not None)
        if takes:
            assert f"for {out}, text must be {takes}" in warned and f"must be {takes}**" in card


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_subwords_that_codes_make_are_known(tmp_path, kind):
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdef", k=5)) for _ in range(80)]
    (tmp_path / "text").write_text(
        "".join(f"{' '.join(draw.choices(words, k=6))}\n" for _ in words)
    )
    learn(kind, [tmp_path / "text"], 60, 1, 1, tmp_path / "codes")
    lines = (tmp_path / "text").read_text().splitlines()
    made = {piece for line in apply(kind, tmp_path / "codes", lines) for piece in line.split()}
    long = {piece for piece in made if len(piece.removesuffix("@@")) > 1}
    assert len(long) > 20 and long <= subword_pieces(tmp_path / "codes", kind)


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_codes_of_another_model_are_refused(folders, tmp_path, capsys, kind):
    """They split every word into pieces that the model does not know."""
    training = tmp_path / "training"
    checkpoint, back = str(folders / "back" / "model.pt"), str(folders / "back")
    for name, words in (("own", WORDS), ("others", [f"{word[1:]}z" for word in WORDS])):
        training.write_text(f"{' '.join(words)}\n" * 50)
        learn(kind, [training], 40, 1, 1, tmp_path / name)
    for name in ("others", "own") if kind == "bpe" else ("others",):
        given = ["--data", back, "--codes", str(tmp_path / name)]
        status = export_model.main([checkpoint, str(tmp_path / "out"), *given])
        error = capsys.readouterr().err
        words = f"{tmp_path / name}: are of another model: {back}/dict.de.txt has"
        assert (words in error) == status == (name == "others"), error


@pytest.mark.parametrize("escaped", [True, False])
def test_how_moses_was_called_is_told_by_the_dictionary(folders, tmp_path, escaped):
    """Quotation marks were unknown words to a model of text with &quot;."""
    data = tmp_path / "data"
    shutil.copytree(folders / "back", data)
    for language in ("de", "en"):
        path = data / f"dict.{language}.txt"
        lines = path.read_text().splitlines()
        if escaped:
            lines[:2] = ["&quot; 9", "@-@ 8"]
        path.write_text("".join(f"{line}\n" for line in lines))
    state = read_checkpoint(str(data / "model.pt"))
    state["extra_state"].pop(KEY, None)  # of the dictionaries before
    torch.save(state, data / "model.pt")
    arguments = [data / "model.pt", tmp_path / "model", "--data", data, "-s", "de", "-t", "en"]
    assert export_model.main([*map(str, arguments), "--tokenizer", "moses"]) == 0
    tokenize = read_model_folder(tmp_path / "model").config.text.tokenize
    assert (tokenize.escape, tokenize.split_hyphens) == (escaped, escaped)


def test_languages_the_other_way_round_are_refused(folders, tmp_path, capsys):
    back, out = folders / "back", tmp_path / "out"
    given = [back / "model.pt", out, "--data", back, "-s", "en", "-t", "de"]
    words = "--source-lang en, --target-lang de: translates from de to en"
    assert words in refused(capsys, out, *given)


def test_another_language_than_it_was_trained_on_is_refused(folders, tmp_path, capsys):
    """With a joined dictionary it became a folder that translates from English to English."""
    back, out = folders / "back", tmp_path / "out"
    given = [back / "model.pt", out, "--data", back, "-s", "en"]
    words = "was trained on de to en, and is used for en to en"
    assert words in refused(capsys, out, *given)


def test_parameters_are_counted_without_what_marks_versions(folders):
    folder = read_model_folder(folders / "again")
    model, _ = load_model(folder)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert sum(value.numel() for value in model.state_dict().values()) > count
    assert json.loads((folder.path / "config.json").read_text())["parameters"] == count
    assert f" {count:,} parameters" in (folder.path / "README.md").read_text()


def test_what_does_not_fit_is_one_line_and_writes_nothing(folders, tmp_path, capsys):
    out, model, back = tmp_path / "out", folders / "model", folders / "back"
    checkpoint, other, newer = back / "model.pt", tmp_path / "other.pt", tmp_path / "newer.pt"
    torch.save({"weights": 1}, other)
    # An option of another version was left out, and the model computed something else.
    state = read_checkpoint(str(checkpoint))
    vars(state["cfg"]["model"])["ea_foo"] = 0.3
    torch.save(state, newer)
    for first, options, words in (
        ("nowhere", [], "nowhere: no such file or folder"),
        (model, ["--data", "bin"], "--data is for a checkpoint"),
        (model, ["--lowercase"], "--lowercase is for a checkpoint"),
        (model, [], "no such file; train first"),  # a folder, and no run
        (checkpoint, ["--data", tmp_path], "dict.de.txt"),
        (checkpoint, ["--data", back, "--codes", "none"], "none: cannot be read"),
        (other, ["--data", back], "other.pt"),
        (newer, ["--data", back], "newer.pt: ea_foo = 0.3 is no option of this version of ea_f"),
        (checkpoint, ["--to-fairseq"], str(checkpoint)),
        (back, ["--to-fairseq"], "config.json"),
    ):
        assert words in refused(capsys, out, first, out, *options)
    no_codes, words = tmp_path / "no.codes", (back / "dict.de.txt").read_bytes()
    for content in (b"a text of words\n", b"\0\1\2\xff", words, b""):
        no_codes.write_bytes(content)
        error = refused(capsys, out, checkpoint, out, "--data", back, "--codes", no_codes)
        assert re.search(f"error: {no_codes}: (cannot be used for subwords|is empty or a d)", error)


def test_what_is_there_already_is_not_written_over(folders, capsys):
    model, back, again = (folders / name for name in ("model", "back", "again"))
    before = [path.read_bytes() for path in (again / "config.json", back / "dict.de.txt")]
    for given in ([back / "model.pt", again, "--data", back], [model, back, "--to-fairseq"]):
        assert export_model.main([str(argument) for argument in given]) == 1
        assert f"{given[1]}: is there already; choose another name" in capsys.readouterr().err
    assert before == [path.read_bytes() for path in (again / "config.json", back / "dict.de.txt")]


def test_no_folder_is_made_for_the_output(folders, tmp_path, capsys):
    for given in ([folders / "model", tmp_path / "typo" / "x", "--to-fairseq"],):
        assert export_model.main([str(argument) for argument in given]) == 1
        assert f"{tmp_path / 'typo'} is no folder; make it" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
