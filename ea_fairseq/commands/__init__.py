"""The programs: arguments, one-line errors, exit statuses.

recipe.py          ``ea-recipe``: from raw text to scores
translate.py       ``ea-translate``
generate.py        ``ea-generate``
lines.py           what these two share: lines in, lines out
plot_and_serve.py  their ``--plot`` and ``--serve``
evaluate.py        ``ea-evaluate``: scores of translations
compare.py         ``ea-compare``: two systems, with intervals
export.py          ``ea-export``: model folders of runs and checkpoints
average.py         ``ea-average``: the mean of checkpoints
plot.py            ``ea-plot``: curves of trainings
program.py         what these five do around their work: signals, errors, exit status
"""

from .. import plugin  # noqa: F401  (whoever imports fairseq behind it has the models)
