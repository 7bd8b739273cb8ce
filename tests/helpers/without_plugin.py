"""What fairseq says to its users without the plugin, and with what docs/troubleshooting.md advises.

    python tests/helpers/without_plugin.py DATA CHECKPOINT_FOLDER

prints JSON: name of the case -> exit code and output. fairseq is imported once, each case a fork.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import fairseq.tasks  # noqa: F401

DATA, FOLDER = sys.argv[1:]
CHECKPOINT = f"{FOLDER}/checkpoint_last.pt"
RECIPES = Path(__file__).resolve().parents[2] / "scripts" / "run_recipe.py"  # ea-recipe, in a clone
FOUND = subprocess.run(
    [sys.executable, RECIPES, "--user-dir"], capture_output=True, text=True, check=True
).stdout.strip()


def command(name, *words):
    def call():
        sys.argv = [f"fairseq-{name}", DATA, *words]
        __import__(f"fairseq_cli.{name}", fromlist=["cli_main"]).cli_main()

    return call


def hub(with_plugin):
    if with_plugin:
        import ea_fairseq.plugin  # noqa: F401
    from fairseq.models.transformer import TransformerModel

    model = TransformerModel.from_pretrained(FOLDER, "checkpoint_last.pt", DATA)
    print("translation:", model.translate("w1 w2"))


CASES = {
    "generate": command("generate", "--path", CHECKPOINT),
    "train": command("train", "--arch", "ea_transformer_lite"),
    "hub": lambda: hub(False),
    "generate with --user-dir": command(
        "generate", "--path", CHECKPOINT, "--user-dir", FOUND, "--beam", "1"
    ),
    "hub with the import": lambda: hub(True),
}


def run(case):
    """Its exit code and all that it printed, of a fork of this process."""
    with tempfile.TemporaryFile("w+") as output:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for number in (1, 2):
                    os.dup2(output.fileno(), number)
                case()
                code = 0
            except SystemExit as end:
                code = end.code
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output.seek(0)
        return code, output.read()


if __name__ == "__main__":
    assert "ea_fairseq" not in sys.modules
    print(json.dumps({name: run(case) for name, case in CASES.items()}))
