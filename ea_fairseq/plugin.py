"""Registers the models with fairseq when it is imported: now, or as soon as fairseq is.

``--user-dir ea_fairseq`` imports it, and so does everything in this package that uses fairseq.
``import ea_fairseq.plugin`` does the same for a program of your own. Where fairseq is not yet
imported it is left to its user, so that what needs no fairseq (preparing text, ``--help``) starts
at once.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType


def register_with_fairseq() -> None:
    """Register now where fairseq is imported, and at its import where it is not."""
    if "fairseq" in sys.modules:
        with _quietly():
            _register()
    elif not any(isinstance(finder, _FairseqFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FairseqFinder())


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keeps what fairseq's modules say at their import to themselves.

    Some advertise other packages, and by the way give the root logger a handler and a level.
    Warnings and errors are still heard.
    """
    root = logging.getLogger()
    handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
    logging.disable(max(disabled, logging.INFO))
    try:
        yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
        root.setLevel(level)


def _register() -> None:
    try:
        import fairseq.models  # noqa: F401
        import fairseq.tasks  # noqa: F401
    except Exception as error:
        raise _broken(error) from None
    import torch

    from . import guard  # noqa: F401  (replaces what it replaces)
    from .models import (  # noqa: F401  (register architectures)
        ea_roberta,
        ea_transformer,
        ea_transformer_lm,
    )
    from .syntax import criterion  # noqa: F401  (registers the criterion)

    # cuDNN's default cuts the products of float32 convolutions to 10 bits, on GPUs from Ampere on:
    # one position alone, as in decoding, would differ from all at once.
    torch.backends.cudnn.allow_tf32 = False


def _broken(error: Exception) -> ImportError:
    # fairseq 0.12.2 does not fail with an ImportError on Python 3.11, but inside a dataclass.
    return ImportError(
        "ea_fairseq needs a working fairseq: pip install ve-fairseq==0.12.3 "
        f"(and remove any other package named fairseq). Importing fairseq failed with: "
        f"{type(error).__name__}: {error}"
    )


class _FairseqFinder(importlib.abc.MetaPathFinder):
    """Finds fairseq where Python would, and registers with it once it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "fairseq":
            return None
        # Asking is not importing: whoever imports it later must come by here as well.
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader = _FairseqLoader(spec.loader, self)
        return spec


class _FairseqLoader(importlib.abc.Loader):
    """Another loader, and then the registration; the finder has done its work with it."""

    def __init__(self, loader: importlib.abc.Loader, finder: _FairseqFinder):
        self.loader = loader
        self.finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        spec.loader = module.__loader__ = self.loader  # for whoever asks for fairseq's files
        with _quietly():
            try:
                self.loader.exec_module(module)
            except Exception as error:
                raise _broken(error) from None
            _register()


register_with_fairseq()
