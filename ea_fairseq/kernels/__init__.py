"""Compiled attention maps for the CPU; optional, with results equal to torch's."""
