"""``ea-translate``: one answer a line, in its place, and a word for each that is missing."""

import gzip
import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from forks import Fork
from small_folders import answered, write_folder
from time_limit import wait_for

from ea_fairseq import Translator
from ea_fairseq.commands import lines as line_command
from ea_fairseq.commands.translate import main
from ea_fairseq.inference.model_folder import Longest, Search
from ea_fairseq.page import api

LINES = ["w1 w2 w3", "", "w4", "w5 w6 w7 w8 w9 w1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("command") / "model"
    return write_folder(path, longest=Longest(12, None), search=Search(max_len_b=90))


def translate(folder, text, *options):
    return answered(main, folder, text, *options)


def refused(capsys, *arguments):
    """The line that a command which does nothing ends with."""
    assert main([str(argument) for argument in arguments]) == 1
    output = capsys.readouterr()
    assert output.err.count("\n") == 1 and output.out == ""
    return output.err


def test_lines_are_answered_in_their_places(folder):
    expected = Translator(folder).translate(LINES)
    for buffer in ("1", "3"):
        code, answers = translate(folder, "\n".join(LINES).encode(), "--buffer-size", buffer)
        assert code == 0 and answers == [*expected, ""] and expected[1] == ""


def test_lines_cut_at_the_limit_are_named_at_the_end(tmp_path, capsys):
    cut = write_folder(tmp_path / "model", search=Search(max_len_b=2))
    code, answers = translate(cut, "\n".join(["w1 w2 w3"] * 23).encode())
    assert code == 0 and len(set(answers[:23])) == 1 and answers[0]
    *named, likewise = capsys.readouterr().err.splitlines()
    reason = "the translation was cut at 2 tokens, the limit of its length"
    assert named == [f"ea-translate: line {number}: {reason}" for number in range(1, 21)]
    assert likewise == "ea-translate: likewise lines 21, 22, 23"


def test_an_alternative_that_was_cut_says_so(tmp_path, capsys):
    folder = write_folder(tmp_path / "model", search=Search(max_len_b=3))
    texts = [f"w{i} w{j}" for i in range(9) for j in range(9)]
    found = Translator(folder).translate(texts, n_best=3, details=True)
    cut = [number for number, best in enumerate(found) if not best[0].problem and best[2].problem]
    source = texts[cut[0]]
    code, answers = translate(folder, source.encode(), "--n-best", "3", "--json")
    (answer,) = (json.loads(line) for line in answers if line)
    for name in ("text", "tokens", "problem"):
        written = [one[name] for one in answer["translations"]]
        assert written == [getattr(one, name) for one in found[cut[0]]]
    problems = [one["problem"] for one in answer["translations"]]
    assert code == 0
    assert answer["problem"] is None and problems[2].startswith("the translation was cut at 3 ")
    assert capsys.readouterr().err == f"ea-translate: line 1: {problems[2]}\n"
    request = api.TranslateRequest(text=source, model="x", n_best=3)
    (piece,) = api._pieces(Translator(folder), request)
    assert piece.problem == problems[2]


def test_scores_alternatives_and_alignments(folder):
    found = Translator(folder).translate(LINES, beam=3, n_best=2, details=True)
    options = ("--beam", "3", "--n-best", "2", "--scores", "--alignments")
    _, answers = translate(folder, "\n".join(LINES).encode(), *options)
    expected = [translation for pair in found for translation in pair]
    for line, translation in zip(answers, expected, strict=False):
        score, text, pairs = line.split("\t")
        assert float(score) == pytest.approx(translation.score, abs=1e-4)
        assert text == translation.text
        if not translation.parts:
            assert pairs == ""
            continue
        looked_at = translation.attention[:-1, :-1].argmax(dim=1).tolist()
        assert pairs == " ".join(f"{i}-{j}" for j, i in enumerate(looked_at))
    assert len(answers) == 2 * len(LINES) + 1


def test_alignments_of_a_line_in_parts_count_its_words(folder):
    """The end of a sentence between two parts is in no line that is printed."""
    line = " , ".join(["w1 w2 w3 w4 w5 w6 w7 w8"] * 4)
    (translation,) = Translator(folder).translate([line], details=True)
    assert len(translation.parts) > 1
    _, (answer, *_) = translate(folder, line.encode(), "--alignments")
    pairs = [pair.split("-") for pair in answer.split("\t")[1].split()]
    count = sum(len(part.tokens) - 1 for part in translation.parts)
    assert [int(target) for _, target in pairs] == list(range(count))


def test_much_unknown_text_is_told_once_and_named(folder, caplog):
    """Raw text, for a model whose text comes split; a word or two are nothing to speak of."""
    lines = ["w1 w2 w3 w4 Haus", "w4", "", "Die Frau, w5 Hund."]
    code, answers = translate(folder, "\n".join(lines).encode(), "--json")
    assert code == 0
    found = [json.loads(line)["unknown_tokens"] for line in answers if line]
    assert found == [["Haus"], [], [], ["Die", "Frau,", "Hund."]]
    (warned,) = caplog.messages
    assert warned.startswith("4 of 10 tokens of the text are unknown to the model: text for it ")
    assert "tokenised and split into subwords" in warned and "'Haus', 'Die'" in warned
    caplog.clear()
    for few in ("w1 w2 w3 w4 w5 Haus\n" * 5, "Haus w1 Haus"):
        translate(folder, few.encode())
        assert not caplog.messages


def test_json_has_all_of_it_and_every_option_of_the_search_reaches_it(tmp_path):
    settings = {"longest": Longest(12, None), "search": Search(beam=2, max_len_b=15)}
    folder = write_folder(tmp_path / "a", seed=1, **settings)
    other = write_folder(tmp_path / "b", seed=2, **settings)
    clauses = "w1 w2 w3 w4 w5 w6 w7 w8 , " * 4
    lines = [*LINES, clauses.strip(" ,")]
    plain = Translator(folder).translate(lines, details=True)
    for given, models, options in (
        ((), folder, {}),
        (("--ensemble", other), [folder, other], {}),
        (("--lenpen", "-3"), folder, {"lenpen": -3.0}),
        (("--long", "whole"), folder, {"long": "whole"}),
    ):
        expected = Translator(models).translate(lines, details=True, **options)
        assert ([t.tokens for t in expected] != [t.tokens for t in plain]) == bool(given), given
        _, answers = translate(folder, "\n".join(lines).encode(), "--json", "--alignments", *given)
        for line, translation in zip(answers, expected, strict=False):
            found = json.loads(line)
            for name in ("source", "source_tokens", "text", "tokens", "problem"):
                assert found[name] == getattr(translation, name)
            for name in ("score", "token_scores"):
                assert found[name] == pytest.approx(getattr(translation, name), abs=1e-5)
            ends = translation.tokens.count("</s>")
            assert len(found["alignments"]) == len(translation.tokens) - ends
            for source, target in found["alignments"]:  # over all parts, their ends apart
                row = translation.attention[target].clone()
                row[[i for i, t in enumerate(translation.source_tokens) if t == "</s>"]] = 0
                assert row[source] == row.max() and translation.tokens[target] != "</s>"
    assert len(plain[-1].parts) > 1


def test_what_cannot_be_translated_is_named_and_the_rest_is_there(folder, capsys, caplog):
    text = b"w1 w2 w3\n" + b"w1 " * 1100 + b"\n\xff w4\na\tb\rc\n"
    code, answers = translate(folder, text)
    assert code == 1 and len(answers) == 5 and answers[1] == answers[4] == ""
    assert answers[0] and answers[2] and answers[3]
    told = [line for line in capsys.readouterr().err.splitlines() if " line 2: " in line]
    assert told == ["ea-translate: line 2: 1,100 subwords in one piece; the model takes 1,023"]


def test_text_of_another_encoding_is_told_once_and_fails(folder, capsys, caplog):
    """A warning a line, and the exit code 0, hid it among thousands of lines."""
    text = "w1 w2\nfür w3\nw4 schön\nw5\nwär\n".encode("latin-1")
    code, answers = translate(folder, text)
    assert code == 1 and len(answers) == 6 and all(answers[:5])
    errors = capsys.readouterr().err
    assert errors.startswith("ea-translate: line 2: is not UTF-8, nor are 2 more lines")
    assert errors.count("iconv -f LATIN1 -t UTF-8") == errors.count("line 2") == 1
    assert "UTF-8" not in caplog.text


def test_compressed_files_are_what_their_names_say(folder, tmp_path, capsys):
    source, plain, packed = (tmp_path / name for name in ("source.txt.gz", "plain", "packed.gz"))
    source.write_bytes(gzip.compress("\n".join(LINES * 20).encode()))
    for target in (plain, packed):
        given = [str(folder), "--input", str(source), "--output", str(target)]
        assert main(given) == 0
    assert plain.read_text().split("\n")[:-1] == Translator(folder).translate(LINES * 20)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert packed.stat().st_size < plain.stat().st_size
    for broken in (gzip.compress(b"w1\n" * 999)[:-9], b"w1\n"):
        source.write_bytes(broken)
        assert f"{source}: broken gzip file (" in refused(capsys, *given)


def test_no_folder_is_made_for_the_output(folder, tmp_path, capsys):
    typo = tmp_path / "typo"
    for option in (["--output", typo / "x"], ["--plot", typo / "x.png", "w1"]):
        assert f"{typo} is no folder; make it" in refused(capsys, folder, *option)
    assert not list(tmp_path.iterdir())


def test_mistakes_end_in_one_line(folder, tmp_path, capsys):
    for arguments, words in (
        ([tmp_path / "none"], "none: no such folder"),
        ([folder, "--beam", "0"], "beam is 0"),
        ([folder, "--n-best", "9"], "n_best is 9: choose from 1 to beam, 5"),
        ([folder, "--buffer-size", "0"], "--buffer-size 0"),
        ([folder, "--device", "tpu7"], "device 'tpu7'"),
        ([folder, "--device", "cuda:99"], "cuda:99" if torch.version.cuda else "or choose cpu"),
        ([folder, "--input", tmp_path / "none.txt"], "none.txt: no such file"),
        ([folder, "--ensemble", tmp_path / "other"], "other: no such folder"),
    ):
        (tmp_path / "source.txt").write_text("w1\n")
        given = ["--input", tmp_path / "source.txt", "--output", tmp_path / "out", *arguments]
        assert words in refused(capsys, *given) and not (tmp_path / "out").exists()


def test_a_runs_checkpoint_is_no_model_and_says_where_the_model_is(folder, tmp_path, capsys):
    run = tmp_path / "seed1"
    (run / "checkpoints").mkdir(parents=True)
    for path in (run / "averaged.pt", run / "checkpoints" / "checkpoint_best.pt"):
        path.touch()
        for inside in ("", f", such as {run / 'model'}"):
            wanted = f"{path}: is a file: expected a model folder{inside}, or make one: ea-export"
            assert wanted in refused(capsys, path)
            shutil.copytree(folder, run / "model", dirs_exist_ok=True)
        shutil.rmtree(run / "model")


def test_the_input_is_never_written_over(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source, link, hard = (tmp_path / name for name in ("source", "link", "hard"))
    source.write_text("w1\n")
    link.symlink_to(source)
    hard.hardlink_to(source)
    for output in ("source", source, link, hard, tmp_path / "." / "source"):
        message = f"--output {output}: is the same file as {source}, which is read"
        assert message in refused(capsys, "no-model", "--input", source, "--output", output)
        assert source.read_text() == "w1\n" and link.is_symlink()
    part = source.rename("out.part")  # what an interruption would leave
    error = refused(capsys, "no-model", "--input", part, "--output", "out")
    assert f"is the same file as {part}" in error
    error = refused(capsys, "no-model", "--input", part, "--output", tmp_path)
    assert "is a folder; name a file" in error


def test_what_is_no_utf8_text_is_named_before_the_model_is_loaded(folder, tmp_path, capsys):
    source = tmp_path / "source.txt"
    for content, words in (
        (gzip.compress(b"w1\n"), "compressed (gzip)"),
        ("w1\n".encode("utf-16"), "UTF-16"),
        (b"\xfe\xff" + "w1\n".encode("utf-16-be"), "UTF-16"),
        ("w1\n".encode("utf-16-le"), "UTF-16LE"),
    ):
        source.write_bytes(content)
        assert f"{source}: is {words}" in refused(capsys, "no-model", "--input", source)
    # Of a pipe nothing is known before it is read.
    ours, theirs = os.pipe()
    os.write(theirs, gzip.compress(b"w1\n"))
    os.close(theirs)
    assert "is compressed (gzip)" in refused(capsys, folder, "--input", f"/dev/fd/{ours}")
    os.close(ours)


def test_a_device_is_written_to(folder, tmp_path, capsys):
    source = tmp_path / "source.txt"
    source.write_text("w1\n")
    error = refused(capsys, folder, "--input", source, "--output", "/dev/full")
    assert error == "ea-translate: error: No space left on device: /dev/full\n"


def test_a_full_disk_keeps_what_was_translated(tmp_path):
    lines = [f"answer {number}" for number in range(100)]
    output, part = tmp_path / "out", tmp_path / "out.part"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as stopped:
            line_command.write(output, (([line], None, True) for line in lines))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert stopped.value.filename == f"{output} ({part} has what was written)"
    assert part.read_text() == "".join(f"{line}\n" for line in lines)[:300]
    assert list(tmp_path.iterdir()) == [part]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_translated(folder, tmp_path, sent):
    """SIGTERM is what a job manager sends."""
    output, part = tmp_path / "out", tmp_path / "out.part"
    process = Fork(main, folder, "--buffer-size", "1", "--output", output)
    process.stdin.write(b"w4\n")
    process.stdin.flush()
    temporary = tmp_path / ".out.tmp"
    wait_for(lambda: temporary.exists() and temporary.stat().st_size)
    os.kill(process.pid, sent)
    assert process.wait() == 130
    message = f"ea-translate: interrupted: {part} has what was written\n"
    assert process.stderr.read().decode() == message and list(tmp_path.iterdir()) == [part]
    assert part.read_text() == f"{Translator(folder).translate('w4')}\n"


def test_closed_standard_output_is_named(folder):
    process = Fork(main, folder, closed=True)
    error = b"ea-translate: error: standard output is closed: give --output FILE\n"
    assert (process.wait(), process.stderr.read()) == (1, error)


def test_help_imports_nothing_slow():
    code = """
import sys
from ea_fairseq.commands import translate as command
try:
    command.main(["--help"])
finally:
    print({"torch", "fairseq", "sacremoses", "numpy"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ea-translate MODEL < source.txt" in done.stdout
    assert done.returncode == 0 and done.stdout.endswith("\nset()\n")


def test_a_pipe_is_answered_line_by_line_and_its_end_is_no_error(folder):
    """Nothing but translations is printed, and a reader that has enough ends it."""
    program = [sys.executable, "-m", "ea_fairseq.commands.translate", folder, "--buffer-size", "1"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(program, **pipes) as child:
        expected = Translator(folder).translate("w4").encode() + b"\n"
        for _ in range(2):
            child.stdin.write(b"w4\n")
            child.stdin.flush()
            assert child.stdout.readline() == expected
        child.stdout.close()
        child.stdin.write(b"w4\n" * 50)
        child.stdin.flush()
        assert child.wait() == 1
        assert child.stderr.read() == b""


def test_a_terminal_gets_a_ready_sign_a_prompt_and_answers(folder):
    ours, theirs = pty.openpty()
    child = Fork(main, folder, stdin=theirs)
    os.write(ours, b"w4\n")
    assert child.stdout.readline().decode().strip() == Translator(folder).translate("w4")
    os.write(ours, b"\x04")
    assert child.wait() == 0
    shown = child.stderr.read().decode()
    os.close(ours)
    assert "ready: type de, read en; Ctrl-D ends\n> > \n" in shown
