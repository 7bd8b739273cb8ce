"""Compiled attention maps and whole models; optional, with results equal to torch's.

In reading order: `backend` decides which of torch, C++ and Triton serves a call; `fused_attention`,
`fused_step`, `fused_encoder`, `fused_decoder` and `dropout` are what the rest of the package calls;
`cpp/` holds the sources, builds them and loads the library; `triton/` the kernels for GPUs.
"""
