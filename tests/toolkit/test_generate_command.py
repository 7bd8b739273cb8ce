"""``ea-generate``: what is typed or piped in is gone on with, line by line."""

import json
from types import SimpleNamespace

import pytest
from small_folders import answered, write_folder, write_language_model

from ea_fairseq import LanguageModel, Sampling
from ea_fairseq.commands import generate as generate_command
from ea_fairseq.commands import lines as line_command

LINES = ["w1 w2 w3", "", "w4", "w4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_language_model(tmp_path_factory.mktemp("command") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return LanguageModel(folder)


def generate(folder, text, *options):
    return answered(generate_command.main, folder, text, *options)


def test_lines_are_gone_on_with_in_their_places(folder, model):
    text = "\n".join(LINES).encode()
    code, written = generate(folder, text)
    assert code == 0 and written == [*model.generate(LINES), ""]
    options = ["--buffer-size", "3", "--beam", "4", "--lenpen", "2", "--max-len", "3", "--scores"]
    _, written = generate(folder, text, *options, "--n-best", "2")
    found = model.generate(LINES, beam=4, lenpen=2.0, max_len=3, n_best=2, details=True)
    for line, one in zip(written, (one for texts in found for one in texts), strict=False):
        score, text = line.split("\t")
        assert text == one.text and float(score) == pytest.approx(one.score, abs=1e-4)
    assert len(written) == 2 * len(LINES) + 1


def test_what_is_drawn_is_drawn_again_with_the_same_seed(folder, model):
    text = "\n".join(LINES).encode()
    options = ["--sampling", "--top-k", "5", "--top-p", "0.9", "--temperature", "1.5"]
    options += ["--n-best", "3", "--seed"]
    (_, first), (_, again), (_, other) = (
        generate(folder, text, *options, seed) for seed in ("7", "7", "8")
    )
    expected = model.generate(LINES, n_best=3, sampling=Sampling(1.5, 5, 0.9, 7))
    assert first == again == [*(line for texts in expected for line in texts), ""] != other
    assert generate(folder, text, "--sampling")[1][:-1] == model.generate(
        LINES, sampling=Sampling(seed=1)
    )


def test_json_has_all_of_it(folder, model):
    _, written = generate(folder, b"w1 w2\nw4", "--json")
    for line, found in zip(written, model.generate(["w1 w2", "w4"], details=True), strict=False):
        content = json.loads(line)
        for name in ("prefix", "prefix_tokens", "text", "tokens", "cut", "problem"):
            assert content.pop(name) == getattr(found, name)
        assert content.pop("score") == pytest.approx(found.score, abs=1e-5)
        assert content.pop("token_scores") == pytest.approx(found.token_scores, abs=1e-5)
        assert not content
    _, written = generate(folder, b"w4", "--json", "--n-best", "2")
    texts = [one["text"] for one in json.loads(written[0])["texts"]]
    assert texts == model.generate("w4", n_best=2)


def test_a_line_that_is_too_long_is_named_and_the_rest_is_there(folder, capsys):
    code, written = generate(folder, b"w1\n" + b"w1 " * 40 + b"\n\xff w4\n")
    assert code == 1 and len(written) == 4 and written[0] and not written[1] and written[2]
    first, second = capsys.readouterr().err.splitlines()
    assert first == "ea-generate: line 2: 40 subwords; the model takes 39"
    assert second.startswith("ea-generate: line 3: is not UTF-8 (") and "iconv" in second


def test_mistakes_end_in_one_line(folder, tmp_path, capsys):
    translates = write_folder(tmp_path / "translates")
    source = tmp_path / "source.txt"
    for arguments, words in (
        ([tmp_path / "none"], "none: no such folder"),
        ([translates], "translates: translates from de to en: that is ea-translate's work"),
        ([folder, "--beam", "0"], "beam is 0"),
        ([folder, "--n-best", "9"], "n_best is 9: choose from 1 to beam, 5"),
        ([folder, "--max-len", "0"], "max_len is 0: expected a whole number from 1"),
        ([folder, "--top-k", "3"], "--top-k goes with --sampling: give that too"),
        ([folder, "--seed", "3"], "--seed goes with --sampling"),
        ([folder, "--temperature", "0"], "--temperature goes with --sampling"),
        ([folder, "--sampling", "--beam", "5"], "--beam goes with beam search: leave it or"),
        ([folder, "--sampling", "--lenpen", "1"], "--lenpen goes with beam search"),
        ([folder, "--sampling", "--top-k", "0"], "top_k is 0: expected a whole number from 1"),
        ([folder, "--ensemble", translates], "translates: translates from de to en"),
        ([folder, "--output", source], "source.txt: is the same file as"),
    ):
        source.write_text("w1\n")
        given = ["--input", source, "--output", tmp_path / "out", *arguments]
        assert generate_command.main([str(argument) for argument in given]) == 1
        output = capsys.readouterr()
        assert words in output.err and output.err.startswith("ea-generate: error: ")
        assert len(output.err.splitlines()) == 1 and output.out == ""
        assert not (tmp_path / "out").exists()


def test_who_types_gets_a_ready_sign_and_answers_at_once(folder, model, monkeypatch, capsys):
    """The prompt is that of ea-translate."""

    def typed(path, talking, broken):
        assert path is None and talking and broken == []
        ready = "\rready: type the beginning of a line; Ctrl-D ends\n"
        assert capsys.readouterr().err == f"loading ...{ready}"
        yield "w4"
        assert capsys.readouterr().out == f"{model.generate('w4')}\n"

    monkeypatch.setattr(line_command, "lines", typed)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    assert generate_command.main([str(folder)]) == 0
