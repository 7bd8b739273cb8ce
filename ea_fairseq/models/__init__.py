"""Models: the loops that carry maps from layer to layer, and the architectures."""

# At its import fairseq registers all models (see plugin.py): before a module here is half imported.
import fairseq  # noqa: F401
