"""Attention and layers: fairseq's, with a place for what a variant does to the maps."""

# At its import fairseq registers all models (see plugin.py): before a module here is half imported.
import fairseq  # noqa: F401
