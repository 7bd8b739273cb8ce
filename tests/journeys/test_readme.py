"""Every command of the README and of other pages about fairseq runs as it stands there."""

import os
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path

import model_cost
import pytest
import worst_differences
from fairseq_commands import WORDS, here
from pages import DOCS, README, ROOT, bash, commands

FAIRSEQ, ARCHITECTURES = DOCS / "fairseq.md", DOCS / "architectures.md"
TESTING, GPU = DOCS / "testing.md", DOCS / "gpu.md"
COMMANDS = [c for page in (README, FAIRSEQ, TESTING, GPU) for c in commands(page)]
TRAIN = "fairseq-train bin --user-dir ea_fairseq"
# What makes them short; added behind what the README says.
SMALL = {
    TRAIN: "--max-epoch 3 --encoder-layers 1 --decoder-layers 1 --num-workers 0",
    "bash examples/translation/demo.sh": "--set max-update=3 --set save-interval-updates=1"
    " --set max-valid-steps=1"
    " --set generate.max-len-a=0 --set generate.max-len-b=5",  # an untrained model never ends
    "bash scripts/test.sh": "tests/promises/test_errors.py",
}


def environment():
    """That of a user whose shell has the environment of the tests activated."""
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": scripts + os.pathsep + os.environ["PATH"],
        "EA_VENV": sys.prefix,
        "OMP_NUM_THREADS": "1",
    }


def run(command, folder, more=""):
    """What a command prints; what is added to it belongs to the first of two programs."""
    first, pipe, second = command.partition(" | ")
    return bash(f"{first} {more}{pipe}{second}", folder, environment())


def shown(start):
    """The pages' commands that start so."""
    found = [command for command in COMMANDS if command.startswith(start)]
    assert found, f"the pages show no command that starts with {start}"
    return found


def test_every_shown_command_is_known_here():
    run_below = (
        "bash examples/translation/demo.sh",
        "bash scripts/test.sh",
        "pip install",
        "fairseq-",
        "ea-average",
        "ea-evaluate",
        "ea-compare",
        "ea-plot",
        "ea-export",
        "ea-translate",
        "ea-recipe",  # in test_docs.py
        "source .venv/bin/activate",
        "torchrun",  # in test_same_result.py
        "bash scripts/check_gpu.sh",  # in test_check_gpu.py
        "export GOMP_SPINCOUNT=",  # in test_environment.py
    )
    assert [c for c in COMMANDS if not c.strip().startswith(run_below)] == []


def test_commands_within_sentences_run_and_print_what_the_page_says(capsys):
    text = "".join(page.read_text(encoding="utf-8") for page in (README, ARCHITECTURES, TESTING))
    inline = set(re.findall(r"`((?:python|bash) [\w/]+\.(?:py|sh))`", text))
    # Below, and in test_benchmark.py.
    inline -= {"bash scripts/test.sh", "python scripts/benchmark.py"}
    assert inline == {"python scripts/model_cost.py", "python tests/thorough/worst_differences.py"}
    assert model_cost.main([]) == 0
    costs = capsys.readouterr().out
    for parameters in re.findall(r"\d+,\d{3},\d{3}", ARCHITECTURES.read_text()):
        assert parameters in costs
    check_worst_differences(["a long chain", "a chain", "branches, evolving", "pre-norm"], capsys)


@pytest.mark.thorough
def test_worst_differences_over_all_settings(capsys):
    check_worst_differences([], capsys)


def check_worst_differences(settings, capsys):
    worst_differences.main(settings)
    printed = capsys.readouterr().out
    worst = re.findall(r"^(torch\.float\d+) +(.*?) +(\S+)$", printed, re.M)
    assert len(worst) == 6
    for dtype, property, difference in worst:
        exact = dtype == "torch.float64"
        # fairseq's positions are float32 in both; the oracle's are not.
        tolerance = (1e-5 if property == "model = oracle" else 1e-11) if exact else 1e-4
        assert float(difference) < tolerance, property


def test_installed_packages_are_the_tested_ones():
    """The pip commands made the environment of this test; here stands what they must give."""
    assert [shlex.split(c)[2:] for c in shown("pip install")] == [
        ["torch==2.13.0"],
        ["-r", "requirements.txt"],
        ["--no-deps", "-e", "."],
    ]
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            name, version = line.split("==")
            assert metadata.version(name).split("+")[0] == version


def test_own_corpus_section_from_binarizing_to_translating(tmp_path):
    for folder in ("bpe", "tok", "raw"):
        (tmp_path / folder).mkdir()
    for split, count in {"train": 40, "valid": 4, "test": 5}.items():
        for language, step in {"de": 3, "en": 5}.items():
            lines = (" ".join(WORDS[i % 7 : i % 7 + step]) for i in range(count))
            text = "\n".join(lines) + "\n"
            for folder in ("bpe", "tok", "raw"):  # words without pieces or punctuation
                (tmp_path / folder / f"{split}.{language}").write_text(text)
            (tmp_path / "baseline.en").write_text(text)
    outputs = {}
    for start in (
        *("fairseq-preprocess", TRAIN, "ea-average"),
        *("fairseq-generate", "fairseq-interactive"),
        *("ea-evaluate", "ea-compare", "ea-plot"),
        *("ea-export", "ea-translate model"),
    ):
        for command in shown(start):
            outputs[start] = here(f"{command} {SMALL.get(start, '')}", tmp_path)
    assert "BLEU4 = " in outputs["fairseq-generate"]
    assert len(re.findall(r"^D-\d", outputs["fairseq-interactive"], re.M)) == 5
    assert "sacreBLEU" in outputs["ea-evaluate"]
    assert "| test.en" in outputs["ea-compare"]
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert (tmp_path / "hypotheses.bpe.en").read_text().count("\n") == 5


@pytest.mark.thorough
def test_test_command_passes_in_this_environment():
    (command,) = shown("bash scripts/test.sh")
    assert re.search(r"\d+ passed", run(command, ROOT, SMALL[command]))


@pytest.mark.thorough
def test_demo_prints_score_signature_and_ten_translations(tmp_path):
    (command,) = shown("bash examples/translation/demo.sh")
    more = f"{SMALL[command]} --work-dir {shlex.quote(str(tmp_path))}"
    output = run(command, ROOT, more)
    assert re.search(r"^train +\d+ epochs?, 3 updates", output, re.M)
    assert re.search(r"^sacreBLEU.*: nrefs:1\|.*\|version:", output, re.M)
    assert len(re.findall(r"^  translation ", output, re.M)) == 10
    assert f"checkpoint    {tmp_path}" in output
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")
    activate, *uses = [c for c in COMMANDS if " work/runs/cldr" in c or c.startswith("source ")]
    assert activate == "source .venv/bin/activate"
    (tmp_path / "new.de").write_text("Heute ist Montag.\n\n")
    translate, serve = (use.replace(" work/", f" {tmp_path}/") for use in uses)
    run(translate, tmp_path)
    assert (tmp_path / "new.en").read_text().count("\n") == 2
    for way in (translate.partition(" < ")[0], serve.partition(" ")[2], "Translator("):
        assert way in output
    again = run(command, ROOT, more)
    assert re.search(r"^train +done before", again, re.M)
    assert output[output.index("== ") :].splitlines()[-1] == again.splitlines()[-1]
