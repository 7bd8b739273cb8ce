"""Every test starts from the same random state and uses one thread per process."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # what fixtures train must equal what the tests train
# On a GPU: what is compared with must not have its convolutions' products cut to 10 bits.
torch.backends.cudnn.allow_tf32 = False


#: The files that take longest, the longest first: begun last, they would leave all processes but
#: one without work at the end (see scripts/test.sh).
LONGEST = (
    *("test_run_recipe", "test_readme", "test_language_model_recipes", "test_prepare"),
    *("test_commands", "test_atomic_saving", "test_sanitize", "test_same_result"),
    *("test_dirty_input", "test_triton_compilation", "test_every_architecture", "test_docs"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the folder of what all processes of the tests share (see `fairseq_commands.shared`)."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="ea_fairseq_tests_", ignore_cleanup_errors=True)
        os.environ["EA_FAIRSEQ_TESTS"] = folder.name
        config.add_cleanup(folder.cleanup)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; in a file, and of the others, nothing changes its place. All of
    tests/thorough is marked so."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))
    for item in items:
        if item.path.parent.name == "thorough":
            item.add_marker("thorough")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    # Commands that a test called may have asked for more; a fork that wants the threads of its
    # parent waits for them for ever.
    torch.set_num_threads(1)


@pytest.fixture
def process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A context in which this process is alone in a group, as with torchrun --nproc-per-node 1."""

    @contextmanager
    def alone() -> Iterator[None]:
        # torch replaces the hook by one that says "[rank0]:", which forks would keep.
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)
        store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            yield
        finally:
            torch.distributed.destroy_process_group()

    return alone
