"""Evolving attention and its relatives in any model of Hugging Face's transformers.

>>> from ea_fairseq.hf import evolve, load
>>> model = evolve(AutoModelForSequenceClassification.from_pretrained(folder), alpha=0.1, beta=0.1)
>>> model.save_pretrained("evolved")
>>> model = load(AutoModelForSequenceClassification, "evolved")

In reading order:

    evolving.py     `evolve` and `load`
    finding.py      which modules of a model attend, found by running it once
    attending.py    what a model's attentions call, and the mask they are given
    passes.py       what the layers of one forward pass hand to one another
    decoding.py     what `generate` keeps from step to step, in the model's own cache
    versions.py, broken_torchaudio.py  of transformers, and what its models import

Needs transformers (``pip install ea_fairseq[transformers]``), not fairseq.
"""

from .broken_torchaudio import hide_broken_torchaudio
from .versions import check_transformers

check_transformers()
hide_broken_torchaudio()

from .evolving import evolve, load  # noqa: E402

__all__ = ["evolve", "load"]
