"""What turns a recipe (a short YAML file) into runs: reading, checking, commands, steps, scores.

recipe.py        read a recipe and its bases, apply overrides, check sections and keys
options.py       check options against the parsers of fairseq itself
allowed.py       which of them a recipe may set, and to what
commands.py      the command of every step
steps.py         run a step: lock, log file, stamp, what changed since
runs.py          where runs lie on disk and what they hold
generation.py    translations out of fairseq-generate's output, in corpus order
scoring.py       every score, by sacrebleu
significance.py  bootstrap over seeds and sentences
comparison.py    two systems beside each other, test set by test set
curves.py        learning curves out of fairseq's logs or TensorBoard
milestones.py    when a training came to a perplexity, and what it had cost
tables.py        Markdown tables
"""
