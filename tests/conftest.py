"""Every test starts from the same random state and uses one thread per process."""

import pytest
import torch

torch.set_num_threads(1)  # what fixtures train must equal what the tests train
# On a GPU: what is compared with must not have its convolutions' products cut to 10 bits.
torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    # Commands that a test called may have asked for more; a fork that wants the threads of its
    # parent waits for them for ever.
    torch.set_num_threads(1)
