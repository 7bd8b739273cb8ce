"""Scores of runs, and whether they differ.

scoring.py         every score of a translation, by sacrebleu
perplexity.py      a language model's losses, by words or characters
systems.py         systems read from disk and checked
kept.py            finished runs kept small: translations and results, no model
several.py         several systems, each beside one or two of them
independence.py    copies among runs
comparison.py      two systems beside each other, test set by test set
significance.py    bootstrap over seeds and sentences
differences.py     settings that differ, by name
curves.py          learning curves from fairseq's logs or TensorBoard
curve_pictures.py  pictures of them
milestones.py      when a training reached a perplexity, and what it had cost
text_maps.py       attention maps of a run's language model while it reads a text
listing.py         all runs, and the recipes that there are
tables.py          Markdown tables
"""
