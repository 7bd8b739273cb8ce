"""Recipes: a short YAML file, and the runs, scores and comparisons that come of it.

    says/     what a recipe is: reading, merging, its two tasks, a new one for your own text
    runs/     its runs: steps planned, run once, resumed, exported
    results/  scores, statistics, learning curves, tables

``ea-recipe`` itself is ../commands/recipe.py.
"""

from .. import plugin  # noqa: F401  (whoever imports fairseq behind it has the models)
