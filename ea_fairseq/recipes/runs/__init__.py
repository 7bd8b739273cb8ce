"""The runs of a recipe.

whole_recipe.py      all runs of a recipe, from the corpus to the table of scores
wanted.py            what is asked for: seeds, steps, how
recipe_run.py        the steps of one run, each done once
steps.py             one step: its settings, its stamp, what changed since
step_commands.py     the command of every step
execution.py         run a command: log, lock, end
progress.py          its progress in one line
side_by_side.py      several runs at once
folders.py           where runs are on disk, and reading them
data_folders.py      which folder holds a run's data
text_copy.py         a run's own copy of codes, dictionaries and text settings
changed_settings.py  which settings may change when training resumes
generation.py        translations from fairseq-generate's output, in corpus order
block_losses.py      fairseq-eval-lm with the loss of every block
ensembles.py         several seeds' models that translate together
export_run.py        a model folder made of a run
report.py            what a run ends with: scores, paths, the next command
leftovers.py         files that a finished run needs no more
"""
