"""Raw text through a trained recipe's model: the command that users give their own text to."""

import subprocess
import sys

import pytest
from tiny_translation import SCRIPTS, SIZES, arguments, command, make_corpus, run


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A recipe that was run, test sets translated."""
    path = make_corpus(tmp_path_factory.mktemp("trained")) / "ea_transformer_lite.yml"
    assert run(command(*arguments(path))).returncode == 0
    return path


def translator(recipe, *options):
    work = recipe.parents[1] / "work"
    program = [sys.executable, SCRIPTS / "translate.py", recipe, "--work-dir", work, *options]
    return [str(part) for part in program]


def translate(recipe, text, *options):
    done = subprocess.run(
        translator(recipe, *options), input=text, capture_output=True, timeout=300
    )
    print(done.stderr.decode())
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_raw_test_set_gets_the_translations_of_the_recipe(recipe):
    raw = (recipe.parent / "raw" / "first.de").read_bytes()
    run_folder = recipe.parents[1] / "work" / "runs" / "tiny.de-en" / "ea_transformer_lite"
    expected = (run_folder / "seed1" / "generate" / "first.en").read_text()
    code, output, errors = translate(recipe, raw, "--buffer-size", "5")
    assert code == 0 and output == expected
    assert output.count("\n") == SIZES["first"]
    assert errors.startswith("$ ") and len(errors.splitlines()) == 1


def test_every_line_is_answered_in_its_place(recipe):
    lines = [b"Ein Hund mag das Buch.", b"", b"\xff Ein Baum", b"Hund " * 1100, b"a\tb\rc"]
    code, output, errors = translate(recipe, b"\n".join([*lines, lines[0]]))
    answers = output.split("\n")
    assert code == 0 and len(answers) == 7 and answers[6] == ""
    assert answers[1] == answers[3] == "" and answers[0] == answers[5] != ""
    assert "line 3 of the input is not valid UTF-8" in errors
    assert "line 4 of the input has" in errors and "INFO" not in errors
    assert translate(recipe, b"")[:2] == (0, "")


def test_options_of_the_search_can_be_set(recipe):
    code, output, errors = translate(
        recipe, b"Ein Hund.\n" * 3, "--set", "generate.nbest=2", "--set", "generate.beam=3"
    )
    assert code == 0 and output.count("\n") == 3 and "--nbest 2" in errors


def test_a_line_is_answered_before_the_next_one_is_sent(recipe):
    program = translator(recipe, "--buffer-size", "1")
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        for _ in range(2):
            child.stdin.write(b"Ein Hund mag das Haus.\n")
            child.stdin.flush()
            assert child.stdout.readline().endswith(b"\n")
        child.stdin.close()
        assert child.stdout.read() == b""
    assert child.returncode == 0


def test_what_is_missing_is_named_in_one_line(recipe):
    for options, words in {
        ("--seed", "7"): ["seed7", "averaged.pt: no such file; train first"],
        ("--set", "generate.beem=4"): ["beem", "beam"],
        ("--buffer-size", "0"): ["--buffer-size", "0"],
        ("--work-dir", "/nowhere"): ["/nowhere", "prepared.json: no such file"],
    }.items():
        code, output, errors = translate(recipe, b"Ein Hund.\n", *options)
        assert code and output == "" and all(word in errors for word in words)
        assert "Traceback" not in errors

    corpus = recipe.parent / "corpus.yml"
    text = corpus.read_text()
    try:
        corpus.write_text(text.replace("lowercase: true", "lowercase: false"))
        code, output, errors = translate(recipe, b"Ein Hund.\n")
    finally:
        corpus.write_text(text)
    assert code == 1 and output == "" and "other settings than the recipe's corpus.yml" in errors


def test_a_failing_command_is_told_and_shown(recipe):
    checkpoint = recipe.parents[1] / "work/runs/tiny.de-en/ea_transformer_lite/seed1/averaged.pt"
    whole = checkpoint.read_bytes()
    try:
        checkpoint.write_bytes(whole[:1000])
        code, output, errors = translate(recipe, b"Ein Hund.\n")
    finally:
        checkpoint.write_bytes(whole)
    assert code == 1 and output == ""
    assert "averaged.pt" in errors.splitlines()[-2]
    assert "fairseq-interactive ended with exit code 1" in errors.splitlines()[-1]


def test_a_reader_that_has_enough_ends_it(recipe):
    program = translator(recipe, "--buffer-size", "1")
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdin.write(b"Ein Hund.\n" * 200)
        child.stdin.flush()
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(timeout=120) == 1
        assert b"Traceback" not in child.stderr.read()
