"""The programs: arguments, one-line errors, exit statuses.

recipe.py          ``ea-recipe``: from raw text to scores
translate.py       ``ea-translate``
generate.py        ``ea-generate``
lines.py           what the two share: lines in, lines out
plot_and_serve.py  their ``--plot`` and ``--serve``
scripts.py         ``ea-evaluate``, ``ea-compare``, ``ea-export``, ``ea-average``, ``ea-plot``
"""

from .. import plugin  # noqa: F401  (whoever imports fairseq behind it has the models)
