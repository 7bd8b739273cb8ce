"""Compiled attention maps and decoders; optional, with results equal to torch's."""
