"""What can go wrong around the runner's commands: folders, full disks. One line, nothing lost."""

import sys
from pathlib import Path

import pytest
from tiny_translation import arguments, make_corpus

from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.recipes.runs import execution
from ea_fairseq.recipes.runs.execution import execute


@pytest.mark.parametrize(
    "option, value, words",
    [
        ("--work-dir", "{folder}/a:b", ["a:b", "colon", "--work-dir"]),
        ("--name", "a:b", ["a:b", "colon", "--name"]),
        ("--name", "x" * 241, ["x" * 241, "too long", "240 bytes"]),
        ("--name", "ß" * 121, ["too long"]),
        ("--work-dir", "{folder}/file/x", ["Not a directory", "{folder}/file/x"]),
        ("--work-dir", "/proc/x", ["/proc/x"]),
    ],
)
def test_folders_that_cannot_be_used_are_refused_before_any_work(
    tmp_path, capfd, option, value, words
):
    recipe = make_corpus(tmp_path) / "transformer_lite.yml"
    (tmp_path / "file").touch()
    given = [option, value.format(folder=tmp_path)]
    assert run_recipe.main([*arguments(recipe), *given]) == 1
    error = capfd.readouterr().err.strip()
    assert error.startswith("ea-recipe: error: ") and "\n" not in error
    for word in words:
        assert word.format(folder=tmp_path) in error
    assert not (tmp_path / "work").exists()


def test_a_step_without_a_prepared_corpus_is_refused_and_makes_nothing(tmp_path, capfd):
    recipe = make_corpus(tmp_path) / "transformer_lite.yml"
    assert run_recipe.main([*arguments(recipe), "--steps", "generate", "evaluate"]) == 1
    error = capfd.readouterr().err
    assert error.startswith("ea-recipe: error: ") and error.count("\n") == 1
    assert error.endswith("data/tiny.de-en: the corpus is not prepared; --steps prepare first\n")
    assert not (tmp_path / "work" / "runs").exists()


SAVES = """
import pathlib, signal, sys, time
def save(*_):
    print("saving", flush=True)
    pathlib.Path(sys.argv[1]).touch()
    sys.exit(1)
signal.signal(signal.SIGTERM, save)
print("working", flush=True)
time.sleep(60)
"""


def test_a_log_on_a_full_disk_is_named_and_the_command_may_save_first(tmp_path, capfd):
    """/dev/full takes nothing; a log that fills up in the middle is one that fails there."""
    with pytest.raises(ValueError, match="^/dev/full: cannot be written: No space left"):
        execute([sys.executable, "-c", "print(1)"], Path("/dev/full"), {})

    class Filling(execution.Log):
        def write(self, chunk):
            if b"working" in chunk and not chunk.startswith(b"$"):
                self.file.close()
                self.file = open("/dev/full", "ab", buffering=0)
            super().write(chunk)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "Log", Filling)
        with pytest.raises(ValueError, match=f"^{tmp_path / 'log'}: cannot be written: No space"):
            execute([sys.executable, "-c", SAVES, str(tmp_path / "saved")], tmp_path / "log", {})
    assert (tmp_path / "saved").exists() and "saving" in capfd.readouterr().out
