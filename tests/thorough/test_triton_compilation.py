"""Triton's kernels compile for chips that need not be here, and fit them."""

import pytest
import torch
from triton_forms import HALF_AND_SINGLE, SHARED, compiling, launch_all

from ea_fairseq.kernels.backend import interprets

pytest.importorskip("triton", reason="comes with torch's builds for GPUs")
pytestmark = pytest.mark.skipif(interprets(), reason="interpreted, Triton compiles nothing")
KERNELS = {
    *("mix", "evolve", "attend", "attend_gradient", "evolve_gradient", "products_gradient"),
    *("mix_step", "evolve_step", "attend_step"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("capability", [80, 90])
def test_the_largest_forms_spill_no_registers_and_fit_shared_memory(capability):
    """Most heads, wide heads, largest kernel, all that is optional, causal maps too. Heads of 40
    numbers take the blocks of 64, and registers to know where they end.

    tests/thorough/triton_forms.py compiles every form, which takes minutes.
    """
    with compiling("cuda", capability) as forms:
        for dtype in HALF_AND_SINGLE[1:]:
            launch_all(16, 40, dtype, 5, lower=False)
        launch_all(16, 40, torch.float32, 5, lower=True)
    assert {form.kernel for form in forms} == KERNELS
    assert [form for form in forms if form.spilled] == []
    assert [form for form in forms if form.shared > SHARED[capability]] == []


@pytest.mark.thorough
def test_small_forms_spill_no_registers():
    """Capability 8.0: the assembler does, for one program more on a multiprocessor, where nobody
    says what a thread may have. Narrow heads did, of causal maps and of float32."""
    with compiling("cuda", 80) as forms:
        launch_all(1, 8, torch.float32, 5, lower=False)
        launch_all(1, 16, torch.bfloat16, 1, lower=True)
    assert {form.kernel for form in forms} == KERNELS
    assert [form for form in forms if form.spilled] == []


@pytest.mark.parametrize("capability", [80, pytest.param(120, marks=pytest.mark.thorough)])
def test_what_has_nothing_optional_compiles(capability):
    """Triton compiles what stands behind a return, which the interpreter never sees: a step of
    hypotheses that share their keys did not compile. For the newest chips, which take their own
    way through the compiler."""
    with compiling("cuda", capability) as forms:
        launch_all(1, 16, torch.bfloat16, 3, lower=False, optional=False)
    assert {form.kernel for form in forms} == KERNELS
    assert [form for form in forms if form.spilled or form.shared > SHARED[capability]] == []


@pytest.mark.thorough
def test_amd_compiles():
    with compiling("hip", "gfx942", 64) as forms:
        launch_all(4, 40, torch.bfloat16, 3, lower=False)
    assert {form.kernel for form in forms} == KERNELS
