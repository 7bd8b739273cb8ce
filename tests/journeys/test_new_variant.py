"""A variant is one file and one registration: that of docs/architectures.md, in its own folder."""

import importlib
import re
import subprocess
import sys
from types import SimpleNamespace

import export_model
import model_cost
import pytest
import references
from fairseq_commands import corpus, generation, run, training
from pages import DOCS, blocks
from reference import attention as reference_attention

from ea_fairseq import testing
from ea_fairseq.attention.variants import VARIANTS
from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.commands import recipe as recipe_command
from ea_fairseq.commands import translate as translate_command
from ea_fairseq.recipes.runs.report import _import_of

ORACLE = """
def before(logits, carry, visible, params, place, options, projected):
    z = logits.copy()
    for head in range(len(z)):
        z[head] *= params["scale"][head, 0, 0]
    return z * visible, visible
"""


@pytest.fixture(scope="module")
def user_dir(tmp_path_factory):
    """The page's file in a folder of its own, and its oracle where tests find it by name."""
    (code,) = blocks(DOCS / "architectures.md", "python")
    folder = tmp_path_factory.mktemp("own") / "scaled"
    folder.mkdir()
    (folder / "__init__.py").write_text(code)
    oracles = tmp_path_factory.mktemp("oracles")
    (oracles / "scaled.py").write_text(ORACLE)
    references.__path__.append(str(oracles))
    yield folder
    references.__path__.remove(str(oracles))


def told(arguments, user_dir):
    """fairseq's arguments, with the folder in the place of the plugin's own."""
    where = arguments.index("--user-dir") + 1
    return [*arguments[:where], user_dir, *arguments[where + 1 :]]


def test_trains_saves_resumes_and_decodes(user_dir, tmp_path):
    arguments = told(training(corpus(), tmp_path, "--arch", "scaled_transformer_lite"), user_dir)
    for epochs in ("1", "2"):
        more = ["--ea-start", "0.7", "--max-epoch", epochs, "--encoder-layers", "2"]
        done = run("train", *arguments, *more)
        assert done.status == 0, done.errors()
    assert re.search(r"checkpoint_last.pt \(epoch 2", done.output() + done.errors())
    state = read_checkpoint(str(tmp_path / "checkpoint_last.pt"))
    kept = {k: v for k, v in vars(state["cfg"]["model"]).items() if k.startswith("ea_")}
    assert kept == {"ea_variant": "scaled", "ea_start": 0.7}
    scale = state["model"]["decoder.layers.0.self_attn.transform.scale"]
    assert scale.ne(0.7).any()  # it learned

    arguments = generation(corpus(), tmp_path / "checkpoint_last.pt", "--beam", "5")
    # In a process of its own, where nothing but --user-dir names the plugin.
    code = "import sys; from fairseq_cli.generate import cli_main; sys.exit(cli_main())"
    assert len(re.findall(r"^H-", python(code, *told(arguments, user_dir)), re.M)) == 11

    # Without it: which is missing, and where it is to come from.
    done = run("generate", *generation(corpus(), tmp_path / "checkpoint_last.pt"))
    expected = r"'scaled_transformer_lite' \(--ea-variant scaled\) is not registered: .*--user-dir"
    assert done.status == 1 and re.search(expected, done.errors()), done.errors()

    # And as a model folder, in commands of their own.
    folder = tmp_path / "model"
    export = [export_model.main, tmp_path / "checkpoint_last.pt", folder, "--data", corpus()]
    translate = [translate_command.main, folder, "--input", tmp_path / "text"]
    (tmp_path / "text").write_text("a b\n")
    for command, words in ((export, "is not"), (translate, "is not known")):
        done = run(*command)
        assert done.status == 1 and words in done.errors() and "--user-dir" in done.errors()
        assert done.errors().count("\n") == 1, done.errors()
        done = run(*command, "--user-dir", user_dir)
        assert done.status == 0, done.errors()
    assert done.output().count("\n") == 1
    assert f"--user-dir {user_dir.name}" in (folder / "README.md").read_text()
    # In a program, as a recipe's last lines say.
    (line,) = _import_of(SimpleNamespace(user_dir=user_dir))
    program = [line.removeprefix("  >>> "), "from ea_fairseq import Translator"]
    python("\n".join([*program, f"Translator({str(folder)!r}).translate('a b')"]))


def python(code, *arguments):
    """What a program prints, in a process of its own."""
    words = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_fails_in_a_folder_of_ones_own_is_told_in_a_line(tmp_path):
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    command = [translate_command.main, tmp_path, "--user-dir", wrong]
    assert f"--user-dir {wrong}: is no folder with an __init__.py" in run(*command).errors()
    (wrong / "__init__.py").write_text("\nraise RuntimeError('half done')\n")
    done = run(*command)
    assert done.errors().count("\n") == 1 and done.status == 1
    assert "RuntimeError: half done" in done.errors() and "__init__.py, line 2" in done.errors()


def test_a_recipe_takes_it_with_seeds_of_its_own(user_dir, tmp_path):
    """The commands that train, translate and score get the folder; the average needs none."""
    recipe = [recipe_command.main, "cldr.de-en", "--work-dir", tmp_path, "--dry-run"]
    recipe += ["--variant", "scaled_transformer_lite", "--seeds", "1", "2"]
    done = run(*recipe, "--user-dir", user_dir)
    assert done.status == 0, done.errors()
    commands = [line for line in done.output().splitlines() if "fairseq_cli." in line]
    assert len(commands) == 4 and all(f"--user-dir {user_dir}" in c for c in commands)
    assert "--arch=scaled_transformer_lite" in commands[0]
    done = run(*recipe)
    assert done.status == 1 and "scaled_transformer_lite" in done.errors()


def test_its_options_are_its_own(user_dir, tmp_path):
    arguments = told(training(corpus(), tmp_path, "--arch", "scaled_transformer_lite"), user_dir)
    for options, words in (
        (["--ea-alpha", "0.3"], "--ea-alpha 0.3 is an option of .*evolving.*, not of"),
        (["--ea-start", "7"], r"--ea-start.*\[0, 1\], not '7'"),
        (["--ea-variant", "residual"], "--arch scaled_transformer_lite is --ea-variant scaled"),
    ):
        done = run("train", *arguments, *options)
        assert done.status != 0 and re.search(words, done.errors().splitlines()[-1])


# Last: it registers the variant in this process, of which the others' commands are forks.
def test_help_cost_table_and_contract_know_it(user_dir, capsys):
    sys.path.insert(0, str(user_dir.parent))
    try:
        importlib.import_module("scaled")
        known = [case for case in testing.cases() if case[0] == "scaled"]
        assert len(known) == 6  # two sets of options in three attentions
        for case in known:
            testing.check(*case, reference_attention)
        assert model_cost.main(["--arch", "scaled_transformer_lite", "transformer_lite"]) == 0
        rows = capsys.readouterr().out.splitlines()[1:]
        counted = {row.split()[0]: int(row.split()[1].replace(",", "")) for row in rows}
        heads, attentions = 4, 18
        assert (
            counted["scaled_transformer_lite"] - counted["transformer_lite"] == heads * attentions
        )
    finally:
        sys.path.remove(str(user_dir.parent))
        del VARIANTS["scaled"]
