"""fairseq's models with transformed attention.

multihead_attention.py   fairseq's attention with a score function and a logit transform
branches.py              attention beside a convolution, each with half of the width
transformer_layer.py     encoder and decoder layers, which pass maps on
stack.py                 what the loops of encoder and decoder share
encoder.py, decoder.py   the loops
ea_transformer.py        translation models and their architectures
ea_transformer_lm.py     language models
ea_roberta.py            RoBERTa's encoder
architecture_options.py  an architecture's defaults, and what cannot be combined
checkpoints.py           what a checkpoint contains; plain fairseq checkpoints
recorded_maps.py         a decoder's probabilities, for losses on them
cost.py                  parameters and FLOPs
"""

# At its import fairseq registers all models: before a module here is half imported.
from .. import plugin  # noqa: F401  isort: skip
import fairseq  # noqa: F401  isort: skip
