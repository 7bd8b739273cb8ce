"""Bird-eye attention guided by syntax, BET(SG): from dependency trees to a loss.

trees.py      CoNLL-U, and each token's nearest ancestor to its left
parsers.py    the same from spaCy or stanza
hints.py      ancestors of tokens -> hints for subwords; the file of hints
criterion.py  the loss
"""

from .. import plugin  # noqa: F401  (whoever imports fairseq behind it has the models)
