"""Which tests are of the compiled library."""

import pytest

from ea_fairseq.kernels.cpp.build import compiler

#: Skips where there is no compiler; with one that does not make the library, the tests must fail.
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
