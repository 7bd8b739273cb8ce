"""Kernels for GPUs, in Triton: whole maps (`attention`) and one row of decoding (`step`)."""
