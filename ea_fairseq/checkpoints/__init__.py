"""Checkpoints of fairseq as files and as content: torch alone, nothing of fairseq is replaced.

allowed_types.py   the types that they may contain
reading.py         reads them: whole, undamaged, without running anything
writing.py         writes them: whole, or not at all
finite_weights.py  weights that no model can use
literals.py        settings read as values, not run
text_identity.py   the languages and dictionaries that they were trained with
model_identity.py  the model that they are of, and whether another is asked for
mismatch.py        one line for weights that do not fit
average.py         the mean of several, and which to take
"""
