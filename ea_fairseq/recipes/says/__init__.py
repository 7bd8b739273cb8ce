"""What a recipe is.

recipe.py      read a recipe and its bases, apply overrides, check sections and keys
checks.py      a recipe against fairseq's own parsers, and against its corpus
tasks.py       translation and language modelling: what differs between the two
new_corpus.py  a recipe for your own text
arguments.py   command-line options that all programs about recipes have
averaging.py   number of checkpoints that a training leaves to average
paths.py       where scripts and recipes are, in a clone and in an installed wheel
"""
