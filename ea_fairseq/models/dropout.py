"""fairseq's dropout modules, read by the functions that draw for them."""

from fairseq.modules.fairseq_dropout import FairseqDropout


def rate_in_use(dropout: FairseqDropout) -> float:
    """The share of numbers that the module would drop now: 0 in evaluation, unless it is to drop
    there too."""
    return dropout.p if dropout.training or dropout.apply_during_inference else 0.0
