"""Options that a command with a checkpoint would take without effect are refused in one line."""

import re

import pytest
from fairseq_commands import USER_DIR, corpus, run, trained


def last_line(done):
    """The one line of a refusal."""
    assert done.status == 1 and "Traceback" not in done.errors() and "usage:" not in done.errors()
    assert not re.search("^H-", done.output(), re.M)
    return done.errors().strip().splitlines()[-1]


@pytest.mark.parametrize("command", ["generate", "interactive", "validate"])
@pytest.mark.parametrize("more", [[], ["--arch", "ea_transformer_lite"]])
def test_options_of_the_model_are_those_of_its_checkpoint(command, more):
    arguments = [corpus(), "--path", trained() / "checkpoint_last.pt", *more]
    done = run(command, *arguments, "--user-dir", "ea_fairseq", "--ea-kernel-size=5")
    error = last_line(done)
    assert error.startswith("error: --ea-kernel-size: the model's options come from its checkpoint")
    assert "--model-overrides \"{'ea_kernel_size': VALUE}\"" in error


@pytest.mark.parametrize(
    ("command", "overrides", "expected"),
    [
        (
            "generate",
            "{'dropuot': 1}",
            "'dropuot' is no setting of the checkpoint: perhaps you meant dropout",
        ),
        (
            "validate",
            "{'dropuot': 1}",
            "'dropuot' is no setting of the checkpoint: perhaps you meant dropout",
        ),
        # Of a plain Transformer.
        ("interactive", "{'ea_alpha': 0.5}", "'ea_alpha' is no setting of the checkpoint"),
        ("generate", "dropout=0.5", "is dropout=0.5: expected a dictionary"),
    ],
)
def test_settings_that_the_checkpoint_does_not_have_are_not_overridden(
    command, overrides, expected
):
    arguments = [corpus(), "--path", trained() / "checkpoint_last.pt", "--max-tokens", "99"]
    more = ["--user-dir", "ea_fairseq", "--model-overrides", overrides]
    error = last_line(run(command, *arguments, *more))
    assert "--model-overrides" in error and expected in error


def test_settings_that_it_has_are():
    arguments = [corpus(), "--path", trained() / "checkpoint_last.pt", "--max-tokens", "99"]
    overrides = "{'dropout': 0.5, 'encoder_embed_dim': 16, 'data': 'elsewhere', 'seed': 3}"
    done = run("generate", *arguments, "--user-dir", USER_DIR, "--model-overrides", overrides)
    assert done.status == 0 and done.output().count("\nH-") == 11, done.errors()
