"""Which tests are of the compiled library, and what they share with those of Triton's kernels."""

import pytest
import torch

from ea_fairseq.attention.contract import AttentionArgs
from ea_fairseq.errors import UserError
from ea_fairseq.kernels.cpp.build import compiler

#: Skips where there is no compiler; with one that does not make the library, the tests must fail.
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def assert_second_derivatives_are_refused(transform, tensors, visible):
    """In a line that says what has them."""
    output = transform.attend(*tensors[:3], AttentionArgs(0.7, visible, tensors[3]))[0]
    with pytest.raises(UserError, match="no second derivatives.*EA_FAIRSEQ_NATIVE=0"):
        torch.autograd.grad(output.sum(), tensors[:1], create_graph=True)
