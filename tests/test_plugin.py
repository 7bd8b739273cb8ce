"""When the plugin registers with fairseq: at its import, or as soon as fairseq is there."""

import subprocess
import sys

import pytest

KNOWS = "from fairseq.models import ARCH_MODEL_REGISTRY as a; assert 'ea_transformer_lite' in a"
SAFE = "from ea_fairseq import compat; assert compat._installed; import torch; "
SAFE += "assert not torch.backends.cudnn.allow_tf32"  # whole products in convolutions


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("order", [("ea_fairseq", "fairseq"), ("fairseq", "ea_fairseq")])
def test_registers_in_either_order(order):
    asked = "import importlib.util; importlib.util.find_spec('fairseq')"  # which imports nothing
    done = run(f"import {order[0]}; {asked}; import {order[1]}; {KNOWS}; {SAFE}")
    assert done.returncode == 0, done.stderr


def test_a_broken_fairseq_is_named_with_the_remedy(tmp_path):
    (tmp_path / "fairseq.py").write_text("raise ValueError('mutable default')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ea_fairseq; import fairseq"
    done = run(code)
    assert "pip install ve-fairseq" in done.stderr and "mutable default" in done.stderr


@pytest.mark.parametrize("first", ["compat.safe_loading", "modules.transformer_layer", "models"])
def test_any_module_may_be_imported_first(first):
    done = run(f"import ea_fairseq.{first}; {KNOWS}; {SAFE}")
    assert done.returncode == 0, done.stderr
