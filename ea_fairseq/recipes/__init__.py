"""What turns a recipe (a short YAML file) into runs: reading, checking, commands, steps, scores.

arguments.py     command-line options that all programs about recipes have
command.py       ``ea-recipe``: its options, and what is refused before anything runs
whole_recipe.py  all runs of a recipe, from the corpus to the table of scores
tasks.py         translation and language modelling: what differs between the two
recipe.py        read a recipe and its bases, apply overrides, check sections and keys
options.py       check options against the parsers of fairseq itself
meanings.py      what others call fairseq's options
allowed.py       which of them a recipe may set, and to what
commands.py      the command of every step
recipe_run.py    the steps of one run, each done once
ensembles.py     several seeds' models that translate together
steps.py         one step: its settings, its stamp, what changed since
execution.py     run a command: its log, its lock, its end
progress.py      one line that says how far a command is
report.py        what a run ends with: scores, places, the next command
listing.py       all runs, and the recipes that there are
places.py        where scripts and recipes lie, in a clone and of a wheel
new_corpus.py    a recipe for one's own text
resuming.py      how far a training that has begun may be told to go on
averaging.py     how many checkpoints a training will leave to average
data_folders.py  which folder holds a run's data: what a trained run needs is never written over
exporting.py     a model folder made of a run
text_maps.py     maps of a run's language model while it reads a text
kept_text.py     a run's own copy of codes, dictionaries and text settings
differences.py   settings that differ, by name
side_by_side.py  several runs at once
runs.py          where runs lie on disk and what they hold
generation.py    translations out of fairseq-generate's output, in corpus order
scoring.py       every score, by sacrebleu
block_losses.py  fairseq-eval-lm, with the loss of every block
perplexity.py    what these losses come to, by words or characters
significance.py  bootstrap over seeds and sentences
systems.py       what two systems are: their runs, read from disk and checked
comparison.py    two systems beside each other, test set by test set
curves.py        learning curves out of fairseq's logs or TensorBoard
curve_pictures.py  pictures of them
milestones.py    when a training came to a perplexity, and what it had cost
tables.py        Markdown tables
"""
