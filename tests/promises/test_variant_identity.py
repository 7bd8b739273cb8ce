"""Checkpoints of one variant, continued or decoded as another: refused, naming both."""

import re

import pytest
from fairseq import checkpoint_utils
from fairseq_commands import corpus, generation, last_line, run, training

from ea_fairseq.checkpoints import model_identity, reading
from ea_fairseq.checkpoints.reading import read_checkpoint

#: Variants whose weights have the same names and shapes.
ALIKE = {
    "residual": [],
    "evolving": ["--ea-convolution", "none"],
    "encoder=residual,decoder=residual": [],
}
EA = ["--arch", "ea_transformer_lite", "--max-epoch", "1", "--encoder-layers", "2"]


def train(folder, variant, *more, before=None):
    options = ["--ea-variant", variant, *ALIKE[variant], *more]
    return run("train", *training(corpus(), folder), *EA, *options, before=before)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    found = {}
    for number, variant in enumerate(ALIKE):
        folder = tmp_path_factory.mktemp(f"variant{number}")
        done = train(folder, variant)
        assert done.status == 0, done.errors()
        found[variant] = folder / "checkpoint_last.pt"
    return found


def test_another_variant_is_refused(checkpoints, tmp_path):
    names, ways = list(ALIKE), ("--restore-file", "--finetune-from-model", "--restore-file")
    for before, now, way in zip(names, [*names[1:], names[0]], ways, strict=True):
        path = checkpoints[before]
        message = last_line(train(tmp_path / "new", now, way, path, "--max-epoch", "2"))
        for part in (str(path), f"--ea-variant {before},", f"{now} was asked for"):
            assert part in message
    assert not list(tmp_path.glob("new/*.pt"))


@pytest.mark.parametrize("variant", ["residual", "evolving"])
def test_a_variants_training_does_not_go_on_as_a_plain_transformers(checkpoints, tmp_path, variant):
    path = checkpoints[variant]
    plain = ["--arch", "transformer_lite", "--encoder-layers", "2", "--restore-file", path]
    message = last_line(run("train", *training(corpus(), tmp_path / "new"), *plain))
    for part in (str(path), f"--ea-variant {variant},", "--arch transformer_lite, not ea_trans"):
        assert part in message
    assert "ea_version" not in message


@pytest.mark.parametrize(
    "option", ["--criterion label_smoothed_cross_entropy_with_alignment", "--optimizer sgd"]
)
def test_another_loss_or_optimizer_is_refused(checkpoints, tmp_path, option):
    """fairseq says so in a traceback, and advises to throw the optimizer's state away."""
    path = checkpoints["evolving"]
    more = ["--restore-file", path, "--max-epoch", "2", *option.split()]
    message = last_line(train(tmp_path / "new", "evolving", *more))
    assert re.search(rf"was trained with {option.split()[0]} \w+, and {option.split()[1]}", message)
    assert "--finetune-from-model" in message and "--reset-optimizer" not in message


def test_the_same_variant_goes_on_and_other_options_are_named(checkpoints, tmp_path):
    path = checkpoints["evolving"]
    other = ["--ea-alpha", "0.3", "--ea-learned-mixing", "true"]
    done = train(tmp_path, "evolving", "--restore-file", path, "--max-epoch", "2", *other)
    assert done.status != 0  # of the parameters that it learns there are none
    said = done.output() + done.errors()
    assert "--ea-alpha 0.1 -> 0.3" in said and "--ea-learned-mixing False -> True" in said


def test_the_training_of_a_plain_transformer_does_not_go_on_as_a_variants(tmp_path):
    """With the same parameters it did, and the baseline's weights were called the variant's."""
    plain = ["--arch", "transformer_lite", "--max-epoch", "1", "--encoder-layers", "2"]
    done = run("train", *training(corpus(), tmp_path), *plain)
    assert done.status == 0, done.errors()
    last = tmp_path / "checkpoint_last.pt"
    before = last.read_bytes()
    message = last_line(train(tmp_path, "residual", "--max-epoch", "2"))
    assert f"{last} is of a plain Transformer, and --ea-variant residual was asked for" in message
    assert last.read_bytes() == before
    done = train(tmp_path / "new", "residual", "--finetune-from-model", last)
    assert done.status == 0, done.errors()


def test_a_checkpoint_is_read_once(checkpoints, tmp_path):
    """However much is compared with it: it may be of gigabytes."""

    def say():
        original = reading.load

        def load(*arguments, **options):
            print("reads", flush=True)
            return original(*arguments, **options)

        reading.load = checkpoint_utils.torch.load = load

    path = checkpoints["evolving"]
    done = train(tmp_path, "evolving", "--restore-file", path, "--max-epoch", "1", before=say)
    assert done.status == 0 and done.output().count("reads\n") == 1


@pytest.mark.parametrize(
    "variant, override, words",
    [
        ("residual", "{'ea_variant': 'evolving'}", "ea_variant evolving .*{} is of"),
        ("evolving", "{'ea_variant': 'residual'}", "ea_variant residual .*{} is of"),
        (
            "residual",
            "{'ea_beta': 0.5}",
            "--ea-beta 0.5 is an option of evolving, not of --ea-variant residual",
        ),
    ],
)
def test_decoding_cannot_override_the_variant(checkpoints, variant, override, words):
    path = checkpoints[variant]
    done = run("generate", *generation(corpus(), path, "--model-overrides", override))
    assert re.search(words.format(path), last_line(done))


def test_a_checkpoint_keeps_its_variants_own_options_only(checkpoints):
    kept = {
        name: {k for k in vars(read_checkpoint(str(path))["cfg"]["model"]) if k.startswith("ea_")}
        for name, path in checkpoints.items()
    }
    assert kept["residual"] == {"ea_variant", "ea_skip"}
    # What version 0.1 reads.
    assert kept["evolving"] == {
        "ea_variant", "ea_alpha", "ea_beta", "ea_kernel_size", "ea_convolution", "ea_skip"
    }  # fmt: skip


def test_other_settings_are_told(checkpoints, tmp_path):
    path = checkpoints["evolving"]
    resumed = ["--restore-file", path, "--max-epoch", "2"]
    done = train(tmp_path / "goes on", "evolving", *resumed, "--lr", "5e-4", "--dropout", "0.25")
    assert done.status == 0, done.errors()
    said = done.output() + done.errors()
    (line,) = (line for line in said.splitlines() if "goes on with other settings: " in line)
    assert "--lr [" in line and "-> [0.0005]" in line and re.search(r"--dropout \S+ -> 0.25", line)
    assert "max-epoch" not in line and "weight-decay" not in line


def test_the_optimizer_goes_on_with_what_it_is_told(checkpoints, tmp_path):
    """The message said so, and it went on with what its first start had been told."""
    new = ["--weight-decay", "0.5", "--adam-betas", "(0.5, 0.6)", "--adam-eps", "1e-3"]
    done = train(
        tmp_path, "evolving", "--restore-file", checkpoints["evolving"], "--max-epoch", "2", *new
    )
    assert re.search(r"--adam-betas \S+ \S+ -> \(0.5, 0.6\)", done.output() + done.errors())
    (group,) = read_checkpoint(str(tmp_path / "checkpoint_last.pt"))["last_optimizer_state"][
        "param_groups"
    ]
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.5, 0.6), 1e-3, 0.5)
    settings = [
        {"optimization": {"lr": [lr]}, "lr_scheduler": {"_name": "reduce_lr_on_plateau"}}
        for lr in (0.1, 0.2)
    ]
    told = model_identity.changed_settings(*settings)
    assert told.startswith("--lr [0.1] -> [0.2] (without effect: ")
