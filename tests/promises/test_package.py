"""The built package, installed away from the clone, holds all that its commands need."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PathDistribution

from installed import distributions, installed, shell
from pages import ROOT

from ea_fairseq.commands import recipe as command


def test_wheel_and_source_hold_every_file_of_the_package_and_the_recipes():
    sdist, wheel = distributions()
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    inside = set(zipfile.ZipFile(wheel).namelist())
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "ea_fairseq").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    kinds = {".py", ".cpp", ".h", ".html", ".css", ".js", ".typed"}
    assert kinds == {f".{f.split('.')[1]}" for f in package}
    assert package <= source and package <= inside
    recipes = {str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("*.yml")}
    assert recipes <= source and {f"ea_fairseq/{name}" for name in recipes} <= inside
    assert {"LICENSE", "README.md", "docs/reliability.md", "tests/conftest.py"} <= source
    # Nothing but the package, and nothing of this machine.
    assert {name.split("/")[0].split("-")[0] for name in inside} == {"ea_fairseq"}
    assert not [name for name in source | inside if "__pycache__" in name or "/." in name]


def test_extras_are_declared_and_the_readme_is_the_description():
    (folder,) = installed().glob("ea_fairseq-*.dist-info")
    metadata = PathDistribution(folder).metadata
    assert {"recipes", "page"} <= set(metadata.get_all("Provides-Extra"))
    for extra, package in {"recipes": "sacrebleu", "page": "fastapi"}.items():
        wanted = rf"{package}.*; extra == .{extra}."
        assert any(re.match(wanted, line) for line in metadata.get_all("Requires-Dist"))
    assert metadata.get_payload().startswith("# ea_fairseq")


def test_every_recipe_is_named_from_any_folder_and_makes_its_files_there(tmp_path):
    # One that builds on another's files.
    output = shell("ea-recipe multi30k.en-fr --variant without_skip --dry-run", tmp_path)
    assert f"fairseq_cli.train {tmp_path}/work/data/multi30k.en-fr/bin" in output
    programs = set(re.findall(r"python\S* (/\S+\.py)", output))
    assert {p.rsplit("/", 1)[1] for p in programs} >= {"prepare.py", "average_checkpoints.py"}
    assert all(program.startswith(str(installed())) for program in programs)
    assert str(ROOT) not in output.replace(sys.prefix, "") and not any(tmp_path.iterdir())


def test_what_is_gone_from_the_tree_is_gone_from_the_next_build(tmp_path):
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    package = tmp_path / "ea_fairseq"
    package.mkdir()
    for name in ("__init__.py", "old.py"):
        (package / name).touch()
    build = [sys.executable, "setup.py", "-q", "build_py"]
    subprocess.run(build, cwd=tmp_path, check=True)
    (package / "old.py").rename(package / "new.py")
    subprocess.run(build, cwd=tmp_path, check=True)
    built = tmp_path / "build" / "lib" / "ea_fairseq"
    assert {path.name for path in built.glob("*.py")} == {"__init__.py", "new.py"}


def test_a_library_that_trained_models_need_is_named():
    program = "import sys; sys.modules['sacremoses'] = None; from ea_fairseq import Translator"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: Translator needs sacremoses: pip")


def test_every_script_of_the_wheel_runs_there_and_those_that_the_package_names_are_in_it(tmp_path):
    scripts = installed() / "ea_fairseq" / "scripts"
    names = sorted(path.name for path in scripts.glob("*.py"))
    sources = "".join(path.read_text() for path in (ROOT / "ea_fairseq").rglob("*.py"))
    named = re.findall(r"SCRIPTS / \"(\w+\.py)\"", sources)
    assert "evaluate.py" in named and set(named) <= set(names)
    (tmp_path / "help.py").write_text(HELP)
    helped = shell(f"python help.py {scripts} {' '.join(names)}", tmp_path)
    assert helped.count("usage: ") == len(names)


def test_scripts_have_names_of_their_own_as_console_commands(tmp_path):
    (tmp_path / "empty").touch()
    said = shell("ea-export empty out 2>&1 || true", tmp_path)
    assert said.startswith("ea-export: error: checkpoint empty is empty") and said.count("\n") == 1


# One process for all of them: each has what the others import.
HELP = """
import runpy, sys
folder, *names = sys.argv[1:]
sys.path.insert(0, folder)
for name in names:
    sys.argv = [name, "--help"]
    try:
        runpy.run_path(f"{folder}/{name}", run_name="__main__")
    except SystemExit as end:
        assert not end.code
"""


def test_without_the_extra_recipes_are_refused_by_its_name_and_the_folder_is_told(
    monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "babel", None)  # as if it were not installed
    assert command.main(["--user-dir"]) == 0
    assert command.main(["cldr.de-en", "--variant", "transformer_lite"]) == 1
    error = capsys.readouterr().err
    assert error == "ea-recipe: error: babel is not installed: pip install 'ea_fairseq[recipes]'\n"
