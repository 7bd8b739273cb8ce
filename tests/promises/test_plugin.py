"""When the plugin registers with fairseq: where somebody asks for it, now or as soon as fairseq is
there; the attention library leaves fairseq as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

import ea_fairseq

KNOWS = "from fairseq.models import ARCH_MODEL_REGISTRY as a; assert 'ea_transformer_lite' in a"
SAFE = "from ea_fairseq.guard import subwords; from fairseq import scoring;"
SAFE += " assert hasattr(scoring.build_scorer, '__wrapped__'); import torch; "
SAFE += "assert not torch.backends.cudnn.allow_tf32"  # whole products in convolutions


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize(
    "order", [("ea_fairseq.plugin", "fairseq"), ("fairseq", "ea_fairseq.plugin")]
)
def test_registers_in_either_order(order):
    asked = "import importlib.util; importlib.util.find_spec('fairseq')"  # which imports nothing
    done = run(f"import {order[0]}; {asked}; import {order[1]}; {KNOWS}; {SAFE}")
    assert done.returncode == 0, done.stderr


def test_a_broken_fairseq_is_named_with_the_remedy(tmp_path):
    (tmp_path / "fairseq.py").write_text("raise ValueError('mutable default')")
    first = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    done = run(first + "import ea_fairseq.plugin; import fairseq")
    assert "pip install ve-fairseq" in done.stderr and "mutable default" in done.stderr


def test_the_attention_library_leaves_fairseq_as_it_was():
    done = run(
        "import sys; before = list(sys.meta_path); import ea_fairseq.attention.variants;"
        "assert not any(name.split('.')[0] == 'fairseq' for name in sys.modules), 'imported';"
        "assert sys.meta_path == before, 'a hook';"
        "import fairseq.models; import fairseq.checkpoint_utils as c; from fairseq import models;"
        "assert 'ea_transformer_lite' not in models.ARCH_MODEL_REGISTRY, 'registered';"
        "assert c.load_checkpoint_to_cpu.__module__ == c.__name__, 'patched';"
        "assert 'ea_fairseq.guard' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_registers_as_a_user_dir(tmp_path):
    folder = Path(ea_fairseq.__file__).parent
    asked = "import argparse; from fairseq import utils; import fairseq.models;"
    # Named by a link, as a folder of experiments may have it; all other tests name the folder.
    (tmp_path / "ea_fairseq").symlink_to(folder)
    link = str(tmp_path / "ea_fairseq")
    asked += f"utils.import_user_module(argparse.Namespace(user_dir={link!r}));"
    done = run(f"{asked} {KNOWS}; {SAFE}")
    assert done.returncode == 0, done.stderr
