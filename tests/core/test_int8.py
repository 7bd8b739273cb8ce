"""Translating with bytes: the same integers on every processor, close to float32."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from compiled import needs_compiler
from small_folders import WORDS, write_folder
from test_decoders import Steps, large

from ea_fairseq import Translator
from ea_fairseq.commands.translate import main
from ea_fairseq.errors import UserError
from ea_fairseq.kernels.cpp.build import FLAGS, FOLDER, compiler
from ea_fairseq.kernels.cpp.library import torch_alone

pytestmark = needs_compiler

PROGRAM = Path(__file__).with_name("int8_products.cpp")
SHAPES = [(1, 1, 1), (7, 5, 33), (13, 38, 70), (6, 160, 64)]  # rows, steps, columns


def rounded(numbers):
    """Bytes of rows, from -127 to 127, and what one of them counts: by the definition."""
    most = np.abs(numbers).max(axis=1, keepdims=True)
    return np.rint(numbers * np.float32(127) / np.where(most > 0, most, 1)), most / 127


def between(draw, rows, columns):
    """Numbers up to 127 times a power of two that is each row's own, none of them half way between
    two bytes."""
    numbers = draw.integers(-126, 127, (rows, columns)) + draw.uniform(-0.3, 0.3, (rows, columns))
    numbers[:, 0] = -127
    return (numbers * 2.0 ** draw.integers(-9, -3, (rows, 1))).astype(np.float32)


@pytest.mark.parametrize("options", [[], ["-mno-avx512vnni"], ["-mno-avx512f"]], ids=str)
def test_products_are_those_of_rounded_numbers_on_any_processor(tmp_path, options):
    flags = [flag for flag in FLAGS if flag not in ("-O3", "-shared")]
    program = tmp_path / "program"
    command = [*compiler(), *flags, "-O1"]
    macros = ["-dM", "-E", "-x", "c++", "/dev/null"]
    usual, told = (
        subprocess.run([*command, *more, *macros], capture_output=True) for more in ([], options)
    )
    if told.returncode or options and told.stdout == usual.stdout:
        pytest.skip(f"{' '.join(options)} takes nothing from this processor or compiler")
    command += options
    subprocess.run([*command, f"-I{FOLDER}", str(PROGRAM), "-o", program], check=True)
    draw = np.random.default_rng(1)
    for rows, steps, columns in SHAPES:
        numbers, weight = between(draw, rows, steps), between(draw, columns, steps)
        numbers[1:2], weight[1:2] = 0, 0
        bias = draw.normal(size=columns).astype(np.float32)
        sizes = np.array([rows, steps, columns], dtype=np.int64)
        given = b"".join(array.tobytes() for array in (sizes, numbers, weight, bias))
        done = subprocess.run([program], input=given, capture_output=True, check=True)
        found = np.frombuffer(done.stdout, dtype=np.float32).reshape(rows, columns)
        (x, x_scale), (w, w_scale) = rounded(numbers), rounded(weight)
        expected = (x @ w.T) * (x_scale * w_scale.T) + bias
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)


class Rounded(torch.nn.Linear):
    """A linear layer whose weights and input are rounded to bytes, in torch."""

    def forward(self, x):
        (x, x_scale), (w, w_scale) = map(self.rounded, (x, self.weight))
        product = (x.double() @ w.double().T).float() * (x_scale * w_scale.squeeze(-1))
        return product if self.bias is None else product + self.bias

    @staticmethod
    def rounded(numbers):
        most = numbers.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30)
        return (numbers * (127 / most)).round(), most / 127


def test_steps_equal_the_full_pass_of_a_model_with_rounded_layers():
    model = large("ea_transformer_lite", {"ea_skip": "encoder,decoder"})
    steps, plain = (Steps(model, [3, 12, 7], int8=int8) for int8 in (True, False))
    far = 0.0
    found = []
    for time in range(5):
        found.append(steps.step())
        far = max(far, (found[-1] - plain.step()).abs().nan_to_num(0).max().item())
        for one in (steps, plain):
            one.go_on([0, 1, 2] if time < 3 else [1], beam=3)
    expected = []
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = Rounded
    again = Steps(model, [3, 12, 7], compiled=False)
    for time in range(5):
        expected.append(again.full())
        again.go_on([0, 1, 2] if time < 3 else [1], beam=3)
    errors = [(a - b).abs().nan_to_num(0) for a, b in zip(found, expected, strict=True)]
    # A number that lies between two bytes may go to either: that moves few scores, and these
    # little.
    assert max(e.max().item() for e in errors) < far / 2
    assert torch.cat([e.flatten() for e in errors]).median() < far / 20


def test_a_translator_of_bytes_translates_nearly_as_well(tmp_path):
    path = write_folder(tmp_path / "model")
    texts = [" ".join(WORDS[i % 20] for i in range(n, 2 * n + 1)) for n in range(1, 9)]
    exact = Translator(path).translate(texts, details=True)
    found = Translator(path, dtype="int8").translate(texts, details=True)
    assert [f.score for f in found] != [e.score for e in exact]
    differences = [abs(f.score - e.score) for f, e in zip(found, exact, strict=True)]
    assert sum(differences) / len(differences) < 0.3, differences  # of bits a token, of 4 or so
    for one in found:
        assert one.attention.shape == (len(one.tokens), len(one.source_tokens))
    assert Translator(path, dtype="int8").translate(texts) == [f.text for f in found]


def test_the_command_translates_with_bytes(tmp_path, capsys):
    path = write_folder(tmp_path / "model")
    (tmp_path / "in.txt").write_text("w1 w2\nw3\n")
    options = ["--input", str(tmp_path / "in.txt"), "--json"]
    assert main([str(path), *options, "--dtype", "int8"]) == 0
    in_bytes = capsys.readouterr().out
    assert main([str(path), *options]) == 0
    assert capsys.readouterr().out != in_bytes
    found = [json.loads(line)["score"] for line in in_bytes.splitlines()]
    expected = Translator(path, dtype="int8").translate(["w1 w2", "w3"], details=True)
    assert found == pytest.approx([one.score for one in expected])


def test_bytes_where_they_cannot_be_are_refused(tmp_path):
    path = write_folder(tmp_path / "model")
    other = write_folder(tmp_path / "other", options={"ea_variant": "residual"})
    chain = {"ea_variant": "encoder=residual,decoder=evolving,encoder-decoder=evolving"}
    half = write_folder(tmp_path / "half", options=chain)  # of which only the decoder is compiled
    for model in (other, half, [path, path]):
        with pytest.raises(UserError, match="dtype 'int8' is for one model with plain or evolving"):
            Translator(model, dtype="int8")
    with torch_alone(), pytest.raises(UserError, match="dtype 'int8' is for one model"):
        Translator(path, dtype="int8")
