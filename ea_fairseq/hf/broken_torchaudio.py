"""Hides a torchaudio that cannot be loaded, without which transformers' models import."""

import importlib.util
import sys

from ..networks.torchvision_operators import name_missing_operators


def hide_broken_torchaudio() -> None:
    """Lets transformers do without a torchaudio that was built for another torch.

    fairseq brings torchaudio along; where torch is a build for CPUs, the torchaudio of a package
    registry wants CUDA's libraries, and importing it raises OSError. transformers imports it with
    nearly every model as soon as it is installed.
    """
    name_missing_operators()  # of torchvision, which is imported as early
    if "torchaudio" in sys.modules or importlib.util.find_spec("torchaudio") is None:
        return
    try:
        import torchaudio  # noqa: F401
    except (OSError, ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "torchaudio"]:
            del sys.modules[name]
        sys.modules["torchaudio"] = None  # type: ignore[assignment]
        # transformers may have looked already, and remembers what it found.
        from transformers.utils import import_utils

        import_utils.is_torchaudio_available.cache_clear()
