"""Weights that are no numbers in the type in use are refused, wherever they come from."""

import json

import pytest
import torch
from fairseq_commands import trained
from safetensors.torch import load_file, save_file
from small_folders import write_folder
from small_models import build

import ea_fairseq.plugin  # noqa: F401  (half of fairseq's models is checked)
from ea_fairseq import Translator
from ea_fairseq.checkpoints.finite_weights import unusable_weight
from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.errors import UserError
from ea_fairseq.files import sha256

NAME = "encoder.layers.0.fc1.weight"
BEYOND = f"{NAME} has values beyond 3.4e\\+38, the largest number of torch.float32"


def filled(weight, value, dtype=None):
    """A weight with one number changed, in a type that may hold more."""
    weight = weight.to(dtype or weight.dtype).clone()
    weight[1, 2] = value
    return weight


#: How a weight is changed, and what is said of it.
UNUSABLE = {
    "float64": (lambda w: filled(w, 1e300, torch.float64), BEYOND),
    "infinite": (lambda w: filled(w, -float("inf")), f"{NAME} has values that are NaN or infinite"),
    "float8": (
        lambda w: filled(w, float("nan")).to(torch.float8_e4m3fn),
        f"{NAME} has values that are NaN or infinite",
    ),
    "complex": (lambda w: w.to(torch.complex64), f"{NAME} has complex numbers"),
}
#: What safetensors cannot hold.
NO_PLAIN = {
    "sparse": lambda w: w.to_sparse(),
    "nested": lambda w: torch.nested.nested_tensor(list(w)),
    "quantized": lambda w: torch.quantize_per_tensor(w, float("inf"), 0, torch.qint8),
}


@pytest.mark.parametrize("kind", [*UNUSABLE, *NO_PLAIN])
@pytest.mark.filterwarnings("ignore")  # torch's, of what it stores
def test_a_checkpoint_with_such_a_weight_is_refused(kind, tmp_path):
    state = read_checkpoint(str(trained() / "checkpoint_last.pt"))
    change, words = UNUSABLE.get(kind) or (NO_PLAIN[kind], f"{NAME} is a {kind} tensor|damaged")
    state["model"][NAME] = change(state["model"][NAME])
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(UserError, match=words) as refusal:
        read_checkpoint(str(tmp_path / "bad.pt"))
    assert "bad.pt" in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("kind", [*UNUSABLE, "float4"])
def test_a_model_folder_with_such_a_weight_is_refused(kind, tmp_path):
    folder = write_folder(tmp_path / "model")
    change, words = UNUSABLE.get(kind) or (
        lambda w: torch.zeros(w.shape, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        f"{NAME} has numbers of type torch.float4_e2m1fn_x2",
    )
    rewrite(folder, change)
    with pytest.raises(UserError, match=f"model.safetensors: {words}"):
        Translator(folder)


def rewrite(folder, change):
    """Change one of a folder's weights, and the checksum with it."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights[NAME] = change(weights[NAME])
    save_file(weights, path)
    config = json.loads((folder / "config.json").read_text())
    config["files"]["model.safetensors"] = sha256(path)
    (folder / "config.json").write_text(json.dumps(config))


def test_weights_of_other_types_are_used_where_they_are_numbers(tmp_path):
    folder = write_folder(tmp_path / "model")
    rewrite(folder, lambda w: w.to(torch.float8_e4m3fn))
    weight = dict(Translator(folder).models[0].named_parameters())[NAME]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, load_file(folder / "model.safetensors")[NAME].float())


def test_what_bfloat16_cannot_hold_is_refused_in_it_alone(tmp_path):
    folder = write_folder(tmp_path / "model")
    rewrite(folder, lambda w: filled(w, 3.4e38))
    Translator(folder)
    with pytest.raises(UserError, match=f"dtype 'bfloat16': .*{NAME} has values beyond 3.39e"):
        Translator(folder, dtype="bfloat16")


def test_what_float16_cannot_hold_is_refused_in_it_alone():
    model = build("ea_transformer_lite")
    assert unusable_weight(model.state_dict()) is None
    model.half()
    model = build("ea_transformer_lite")
    with torch.no_grad():
        dict(model.named_parameters())[NAME][1, 2] = 65536.0
    with pytest.raises(UserError, match=f"--fp16: {NAME} has values beyond 6.55e\\+04"):
        model.half()
    assert dict(model.named_parameters())[NAME].dtype == torch.float32
