"""Bad input ends in one line; everything else keeps its traceback."""

import shutil
import sys
from pathlib import Path

import pytest
from fairseq_commands import console_script, corpus, generation, run, trained, training

from ea_fairseq import errors
from ea_fairseq.errors import CommandParser, one_line

ROOT = Path(__file__).resolve().parents[2]


def raised(statement, program="fairseq-train", traceback="0", prepare="pass"):
    """What a program of that name prints when it ends by the statement."""

    def end():
        sys.excepthook = sys.__excepthook__
        names = {"sys": sys, "UserError": errors.UserError}
        exec(prepare, names)
        errors.install()
        errors.install()
        sys.argv[0] = program
        exec(statement, names)

    done = run("train", before=end, env={"EA_FAIRSEQ_TRACEBACK": traceback})
    assert done.status == 1
    return done.errors().splitlines()


@pytest.mark.parametrize(
    "program", ["/bin/fairseq-generate", "/x/fairseq_cli/train.py", str(ROOT / "scripts" / "a.py")]
)
def test_bad_input_is_one_line_in_commands(program):
    assert raised("raise UserError('--x 3:\\n choose 4')", program)[-1] == "error: --x 3: choose 4"
    lines = raised("open('/no/such/file')", program)
    assert lines[-1] == "error: No such file or directory: /no/such/file"
    assert not any("Traceback" in line for line in lines)


def test_traceback_stays_for_other_errors_and_programs_and_on_demand():
    for lines in (
        raised("raise ValueError('a bug')"),
        raised("raise UserError('x')", program="/home/me/experiment.py"),
        raised("raise UserError('x')", traceback="1"),
    ):
        assert "Traceback (most recent call last):" in lines and "error: x" not in lines


def test_an_earlier_hook_still_gets_the_other_errors():
    prepare = "sys.excepthook = lambda *error: print('earlier', error[1], file=sys.stderr)"
    assert raised("raise KeyError('k')", prepare=prepare)[-1] == "earlier 'k'"
    assert raised("raise UserError('u')", prepare=prepare)[-1] == "error: u"


def test_workers_hand_over_the_line():
    """As fairseq starts one process for each GPU."""
    prepare = "class ProcessRaisedException(Exception): pass"
    text = "\\n\\n-- Process 1 terminated:\\nTraceback\\nea_fairseq.errors.UserError: --x 3\\n"
    statement = f"raise ProcessRaisedException('{text}')"
    assert raised(statement, prepare=prepare)[-1] == "error: --x 3"
    statement = "raise ProcessRaisedException('Traceback\\nValueError: a bug')"
    assert "ValueError: a bug" in raised(statement, prepare=prepare)[-1]


def test_names_that_were_perhaps_meant_are_those_that_are_like_it():
    known = {"max_len_a", "max_len_b", "beam"}
    assert errors.perhaps_meant("baem", known) == ": perhaps you meant beam"
    both = ": perhaps you meant max_len_b or max_len_a"  # the most like it first
    assert errors.perhaps_meant("max-len-b", known, most=3) == both
    assert errors.perhaps_meant("xyz", known) == errors.perhaps_meant("beam", []) == ""


@pytest.mark.parametrize("name", ["train", "generate"])
def test_missing_data_is_named(name, tmp_path):
    checkpoint = trained() / "checkpoint_last.pt"

    def refusal(data, *more):
        if name == "train":
            done = run(name, *training(data, tmp_path / "out", "--max-epoch", "1", *more))
        else:
            done = run(name, *generation(data, checkpoint, *more))
        assert done.status == 1
        assert done.errors().startswith("error: ") and done.errors().count("\n") == 1
        return done.errors()

    missing = tmp_path / "missing"
    assert str(missing) in refusal(missing)
    data = tmp_path / "bin"
    shutil.copytree(corpus(), data)
    (data / "dict.en.txt").unlink()
    assert str(data / "dict.en.txt") in refusal(data, "--source-lang", "de", "--target-lang", "en")
    shutil.copy(corpus() / "dict.en.txt", data)
    for split in ("valid", "test"):
        for file in data.glob(f"{split}.*"):
            file.unlink()
    assert "Dataset not found" in refusal(data) and str(data) in refusal(data)


def test_a_missing_model_of_fairseqs_is_one_line():
    missing = OSError("Model file not found:  none.pt")
    assert one_line(missing) == "Model file not found: none.pt"
    assert one_line(OSError(28, "No space left on device")) is None  # where, the traceback says


@pytest.mark.thorough
def test_installed_command_ends_in_one_line(tmp_path):
    done = console_script("generate", *generation(corpus(), tmp_path / "none.pt"))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and str(tmp_path / "none.pt") in last


def test_validation_needs_no_task():
    options = ("--user-dir", ROOT / "ea_fairseq", "--max-tokens", "99")
    done = run("validate", corpus(), "--path", trained() / "checkpoint_last.pt", *options)
    assert done.status == 0, done.errors()
    assert "valid on 'valid' subset | loss" in done.output() + done.errors()


@pytest.mark.parametrize(
    "command, options, shown",
    [
        ("train", ["--arch", "ea_transformer_lite"], ["--ea-alpha", "--dropout", "--max-epoch"]),
        ("train", ["-a", "transformer", "--optimizer=adam"], ["--dropout", "--adam-betas"]),
        ("train", [], ["--arch", "--max-epoch"]),
        ("generate", [], ["--beam", "--source-lang"]),
        ("validate", [], ["--max-tokens", "--source-lang"]),
    ],
)
def test_help_shows_the_options_of_what_was_chosen(command, options, shown):
    done = run(command, "--user-dir", ROOT / "ea_fairseq", *options, "--help")
    assert done.status == 0 and not done.errors().count("Traceback")
    for option in shown:
        assert f"  {option} " in done.output(), option


def test_a_mistyped_option_is_one_line_with_what_was_meant(capsys):
    parser = CommandParser(prog="ea-x")
    parser.add_argument("--beam", type=int)
    parser.add_argument("model")
    for given, said in {
        ("m", "--beem", "3"): "unrecognized arguments: --beem 3: perhaps you meant --beam",
        ("m", "--beem=3"): "unrecognized arguments: --beem=3: perhaps you meant --beam",
        ("m", "--zzz"): "unrecognized arguments: --zzz",
        ("m", "--beam", "x"): "argument --beam: invalid int value: 'x'",
        (): "the following arguments are required: model",
    }.items():
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(given)
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"ea-x: error: {said} (see ea-x --help)\n"
