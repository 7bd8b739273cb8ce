"""What is replaced in fairseq, so that it is safe with files and complete with inputs.

fairseq itself stays as installed; the plugin imports this folder, and that puts functions of ours
around some of fairseq's. Each module lists them at its top, with the reason.

around.py          the one way to replace a function
loading.py         checkpoints: read safely, of the right model and text
stopping.py        Ctrl-C, SIGTERM, numbers that blow up
saving.py          checkpoints: written whole, the best ones kept, one training a folder
resuming.py        patience and limits of a training that goes on
batches.py         the same batches after a restart, with every sentence
precision.py       mixed precision, averaged weights
processes.py       torchrun, the end of a job
binarized_data.py  damaged data is refused
preprocess.py      text of fairseq-preprocess: every line counted
interactive.py     lines of fairseq-interactive: every one answered
search.py          empty sources, limits by sentence
perplexity.py      of the whole text
command_line.py    options: help, values, overrides
subwords.py        pieces of words joined by their own marks
quiet.py           fewer messages at the start
"""

from .. import errors
from . import (  # noqa: F401
    batches,
    binarized_data,
    command_line,
    interactive,
    loading,
    perplexity,
    precision,
    preprocess,
    processes,
    quiet,
    resuming,
    saving,
    search,
    stopping,
    subwords,
)

errors.install()
