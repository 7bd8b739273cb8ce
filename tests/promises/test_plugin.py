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


ASKED = "import importlib.util; importlib.util.find_spec('fairseq')"  # which imports nothing
AS_USER_DIR = (
    "import argparse; from fairseq import utils; import fairseq.models;"
    "utils.import_user_module(argparse.Namespace(user_dir={link!r}))"
)


@pytest.mark.parametrize(
    "begin",
    [
        f"import ea_fairseq.plugin; {ASKED}; import fairseq",
        f"import fairseq; {ASKED}; import ea_fairseq.plugin",
        AS_USER_DIR,
    ],
    ids=["before fairseq", "after fairseq", "user_dir"],
)
def test_registers_wherever_it_is_asked_for(begin, tmp_path):
    # Named by a link, as a folder of experiments may have it; all other tests name the folder.
    (tmp_path / "ea_fairseq").symlink_to(Path(ea_fairseq.__file__).parent)
    begin = begin.format(link=str(tmp_path / "ea_fairseq"))
    done = run(f"{begin}; {KNOWS}; {SAFE}")
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
