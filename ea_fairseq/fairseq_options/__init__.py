"""What is known of fairseq's options, beyond fairseq's own parsers.

ranges.py       the ranges of their numbers
settable.py     which of them a recipe may set, and to what
other_names.py  what other toolkits call them
checks.py       a recipe's options against fairseq's own parsers
values.py       values of a command that give wrong results without a word
"""

from .. import plugin  # noqa: F401  (whoever imports fairseq behind it has the models)
