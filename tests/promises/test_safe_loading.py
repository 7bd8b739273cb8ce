"""Nothing in a checkpoint runs, nothing damaged is used, and every refusal is one line."""

import argparse
import io
import os
import pathlib
import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq_commands import corpus, generation, run, trained, training

from ea_fairseq.checkpoints.literals import literal
from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.errors import UserError
from scripts import average_checkpoints


class Runs:
    """Its pickle creates a file when it is loaded without protection."""

    def __init__(self, path):
        self.command = f"touch {path}"

    def __reduce__(self):
        return os.system, (self.command,)


def validation(checkpoint):
    return [corpus(), "--path", checkpoint, "--task", "translation", "--max-tokens", "100"]


COMMANDS = {
    "generate": lambda bad, out: generation(corpus(), bad, "--results-path", out),
    "interactive": lambda bad, out: generation(corpus(), bad, "--input", os.devnull),
    "train": lambda bad, out: training(corpus(), out, "--restore-file", bad, "--max-epoch", "1"),
    "validate": lambda bad, out: validation(bad),
}


def error_line(done):
    """The one line that a refused command prints."""
    errors = done.errors()
    assert done.status == 1 and errors.startswith("error: ") and errors.count("\n") == 1, errors
    return errors


@pytest.fixture
def state():
    return read_checkpoint(str(trained() / "checkpoint_last.pt"))


@pytest.fixture(params=["top", "nested", "instead of the weights"])
def malicious(request, state, tmp_path):
    """A real checkpoint with one object in it that would create the file "ran"."""
    ran = tmp_path / "ran"
    if request.param == "top":
        state["surprise"] = Runs(ran)
    elif request.param == "nested":
        state["extra_state"]["metrics"]["default"].append([{"deep": (1, Runs(ran))}])
    else:
        state["model"] = Runs(ran)
    path = tmp_path / "malicious.pt"
    torch.save(state, path)
    torch.load(path, weights_only=False)  # the trap works
    assert ran.exists()
    ran.unlink()
    return path, ran


@pytest.mark.parametrize("name", COMMANDS)
def test_code_in_a_checkpoint_never_runs(malicious, name, tmp_path):
    bad, ran = malicious
    switch = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    done = run(name, *COMMANDS[name](bad, tmp_path / "out"), env=switch)
    message = error_line(done)
    assert str(bad) in message and "posix.system" in message and "nothing" in message
    assert not ran.exists()


def test_averaging_never_runs_code(malicious, tmp_path, monkeypatch, capsys):
    bad, ran = malicious
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    good = str(trained() / "checkpoint1.pt")
    output = tmp_path / "average.pt"
    assert average_checkpoints.main(["--inputs", good, str(bad), "--output", str(output)]) == 1
    assert "posix.system" in capsys.readouterr().err
    assert not ran.exists() and not output.exists()


def test_settings_in_a_checkpoint_never_run(state, tmp_path):
    """fairseq's fconv passes its layers to eval: strings alone would be enough."""
    ran = tmp_path / "ran"
    fconv = vars(state["cfg"]["model"])
    fconv |= {
        "_name": "fconv",
        "arch": "fconv",
        "encoder_layers": f"__import__('os').system('touch {ran}')",
    }
    torch.save(state, tmp_path / "strings.pt")
    done = run("generate", *generation(corpus(), tmp_path / "strings.pt"))
    assert "was not executed" in error_line(done)
    assert not ran.exists()


@pytest.mark.parametrize(
    "text", ["[(512, 3)] * 2 + [(1024, 1)]", "(0.9, 0.98)", "-1e-3", "{'a': [1, None]}", "{1}"]
)
def test_settings_are_values(text):
    assert literal(text) == eval(text)


NESTED = ["-" * 50_000 + "1", "1" + "*1" * 20_000, "(" * 300 + "1"]
CODE = ["a", "f()", "[x for x in (1,)]", "().__class__", "1 if 1 else 2", "1 +", "[0][0]", *NESTED]


@pytest.mark.parametrize("text", CODE, ids=lambda text: text[:9])
def test_other_settings_are_no_value_and_do_not_run(text):
    with pytest.raises(UserError, match="is no value .* was not executed"):
        literal(text)


def save(content, path):
    torch.save(content, path)
    return str(path)


@pytest.mark.parametrize(
    "content",
    [pathlib.PurePosixPath("a"), print, io.StringIO, np.float64(1.0), torch.nn.Linear(1, 1)],
)
def test_other_types_are_refused_by_name(content, tmp_path):
    path = save({"model": {}, "x": content}, tmp_path / "a.pt")
    with pytest.raises(UserError, match="contains [A-Za-z_.]+, which") as error:
        read_checkpoint(path)
    assert path in str(error.value) and "\n" not in str(error.value)


def test_namespaces_and_arrays_of_numbers_are_read(tmp_path):
    arrays = [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([True, False]),
        np.array(3, dtype=np.uint8),
        np.ones(2, dtype=np.float16),
    ]
    content = {"model": {}, "args": argparse.Namespace(a=[1, "x"], b=None), "arrays": arrays}
    path = save(content, tmp_path / "a.pt")
    for _ in range(2):  # saved again, the arrays are what they were
        found = read_checkpoint(path)
        assert found["args"] == content["args"]
        for array, expected in zip(found["arrays"], arrays, strict=True):
            assert array.dtype == expected.dtype and array.shape == expected.shape
            assert np.array_equal(array, expected)
        path = save(found, tmp_path / "b.pt")
        plain = torch.load(path, weights_only=False)["arrays"]
        assert all(type(array) is np.ndarray for array in plain)


class Crafted:
    """Pickles as a number type whose flags make numpy follow the numbers as pointers."""

    def __reduce__(self):
        state = (3, "<", None, None, None, -1, -1, 63)
        return np.dtype, ("i8", False, True), state


class CraftedArray:
    def __init__(self, dtype, data):
        self.arguments = dtype, data

    def __reduce__(self):
        dtype, data = self.arguments
        reconstruct = np.zeros(1).__reduce__()[0]
        return reconstruct, (np.ndarray, (0,), b"b"), (1, (1,), dtype, False, data)


def test_crafted_number_types_cannot_make_pointers(tmp_path):
    crafted = np.dtype("i8", False, True)
    crafted.__setstate__(Crafted().__reduce__()[2])
    assert crafted.hasobject  # numpy's own hook believes the file
    dtype = Crafted()
    array = CraftedArray(dtype, b"A" * 8)
    found = read_checkpoint(save({"model": {}, "a": array, "b": dtype}, tmp_path / "a.pt"))
    assert not found["a"].dtype.hasobject and found["a"].tolist() == [0x4141414141414141]
    for bad in (CraftedArray(np.dtype("O"), [1]), CraftedArray(np.dtype(">i8"), b"A" * 8)):
        with pytest.raises(UserError, match="nothing in it was executed"):
            read_checkpoint(save({"model": {}, "a": bad}, tmp_path / "b.pt"))


def test_cut_short_at_any_length_is_refused(tmp_path):
    whole = (trained() / "checkpoint_last.pt").read_bytes()
    cut = tmp_path / "cut.pt"
    for length in [0, 1, 2, 3, 4, 100, *range(5000, len(whole), 9973), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(UserError, match="cut.pt") as error:
            read_checkpoint(str(cut))
        assert "\n" not in str(error.value)


def equal(a, b):
    """True if two contents of checkpoints are the same to the bit."""
    if torch.is_tensor(a):
        return torch.is_tensor(b) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def test_flipped_bits_are_refused_or_without_effect(tmp_path, state):
    """Every byte of a file is a tensor's, the pickle's, the archive's or padding."""
    small = {key: state[key] for key in ("cfg", "optimizer_history", "extra_state")}
    small["model"] = OrderedDict(a=torch.randn(30, 30), b=torch.arange(100))
    whole = io.BytesIO()
    torch.save(small, whole)
    whole = whole.getvalue()
    path = tmp_path / "flipped.pt"
    generator = random.Random(0)
    refused = 0
    for _ in range(300):
        flipped = bytearray(whole)
        flipped[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
        path.write_bytes(flipped)
        try:
            found = read_checkpoint(str(path))
        except UserError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            assert equal(found, small)
    assert refused > 200


def test_weights_that_are_marked_as_a_folder_are_refused(tmp_path):
    """One flipped bit, outside of every checksum, for which torch reads uninitialised memory."""
    path = tmp_path / "flipped.pt"
    torch.save({"model": OrderedDict(a=torch.randn(30, 30))}, path)
    whole = bytearray(path.read_bytes())
    entry = whole.rindex(b"/data/0") - len("flipped") - 46  # of the archive's directory
    assert whole[entry : entry + 4] == b"PK\x01\x02"
    whole[entry + 38] ^= 0x10
    path.write_bytes(whole)
    with pytest.raises(UserError, match="flipped.pt is damaged: its part .*data/0 is no file"):
        read_checkpoint(str(path))


def not_numbers(path, state):
    state["model"]["encoder.layers.0.fc1.weight"][3, 5] = float("nan")
    torch.save(state, path)


def flipped(path, state):
    whole = bytearray((trained() / "checkpoint_last.pt").read_bytes())
    whole[whole.index(b"/data/0") + 1000] ^= 16
    path.write_bytes(whole)
    torch.load(path, weights_only=True)  # torch does not notice


#: How a file that no command can use comes about, and what is said of it.
UNUSABLE = {
    "NaN": (not_numbers, "{} is unusable: encoder.layers.0.fc1.weight has values that are NaN"),
    "flipped bit": (flipped, "{} is damaged: wrong checksum"),
    "missing": (lambda path, state: None, "{}"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("fault", UNUSABLE)
def test_a_file_of_no_use_is_refused(state, tmp_path, fault, name):
    bad, (make, words) = tmp_path / "bad.pt", UNUSABLE[fault]
    make(bad, state)
    done = run(name, *COMMANDS[name](bad, tmp_path / "out"))
    # Of a file that is missing, fairseq may say something before.
    last = done.errors().splitlines()[-1] if fault == "missing" else error_line(done)
    assert done.status == 1 and words.format(bad) in last
    assert not list(tmp_path.glob("out/*.pt"))


@pytest.mark.parametrize("content", [[1, 2], {"state": 1}, {"model": {}}, {"model": {}, "cfg": 3}])
def test_other_contents_are_no_checkpoints(content, tmp_path):
    path = save(content, tmp_path / "a.pt")
    with pytest.raises(UserError, match="a.pt is not a .*fairseq checkpoint"):
        checkpoint_utils.load_checkpoint_to_cpu(path)


def test_misfits_name_the_first_parameter_with_both_shapes(tmp_path):
    checkpoint = trained() / "checkpoint_last.pt"
    wide = training(corpus(), tmp_path, "--restore-file", checkpoint, "--max-epoch", "3")
    message = error_line(run("train", *wide, "--encoder-ffn-embed-dim", "24"))
    assert str(checkpoint) in message
    assert "encoder.layers.0.fc1.weight is (16, 16) in the checkpoint and (24, 16)" in message
    overrides = "{'decoder_layers': 3}"
    deep = generation(corpus(), checkpoint, "--model-overrides", overrides)
    message = error_line(run("generate", *deep))
    assert str(checkpoint) in message and "the checkpoint lacks decoder.layers.2." in message


def test_every_kind_of_training_saves_what_can_be_loaded(tmp_path):
    kinds = [
        ["--optimizer", "adafactor", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4"],
        ["--optimizer", "nag", "--store-ema", "--ema-fp32", "--lr-scheduler", "triangular"],
        ["--memory-efficient-fp16", "--lr-scheduler", "reduce_lr_on_plateau"],
        ["--criterion", "label_smoothed_cross_entropy", "--report-accuracy", "--eval-bleu"],
    ]
    kinds[1] += ["--max-lr", "0.01", "--lr-period-updates", "10"]
    kinds[3] += ["--eval-bleu-args", '{"beam": 1, "max_len_b": 5}', "--update-freq", "2"]
    kinds[3] += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    for number, options in enumerate(kinds):
        arguments = training(corpus(), tmp_path / str(number), "--max-epoch", "1", *options)
        done = run("train", *arguments)
        assert done.status == 0, done.errors()
        assert read_checkpoint(str(tmp_path / str(number) / "checkpoint_last.pt"))
    found = read_checkpoint(str(tmp_path / "3" / "checkpoint_last.pt"))
    meters = {name: meter for _, name, _, meter in found["extra_state"]["metrics"]["valid"]}
    assert isinstance(meters["_bleu_counts"]["sum"], np.ndarray)
