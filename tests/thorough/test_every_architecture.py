"""Every architecture and score function trains, saves and decodes through fairseq's commands."""

import re

import pytest
from fairseq_commands import corpus, generation, run, training

from ea_fairseq.attention.scores import SCORES
from ea_fairseq.attention.variants import VARIANTS, architectures
from ea_fairseq.checkpoints.reading import read_checkpoint

pytestmark = pytest.mark.thorough
SMALL = ["--encoder-attention-heads", "4", "--decoder-attention-heads", "4", "--max-epoch", "1"]
MODELS = {
    **{name: ["--arch", name] for name in architectures()},
    **{f"variant {name}": ["--arch", "ea_transformer_lite", "--ea-variant", name]
       for name, variant in VARIANTS.items() if not variant.architectures},
    **{f"scores {name}": ["--arch", "ea_transformer_lite", "--ea-scores", name]
       for name in SCORES if name != "product"},
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_trains_and_decodes(model, tmp_path):
    done = run("train", *training(corpus(), tmp_path), *model, *SMALL)
    assert done.status == 0, done.errors()
    checkpoint = tmp_path / "checkpoint_last.pt"
    assert read_checkpoint(str(checkpoint))["cfg"]["model"].ea_variant
    done = run("generate", *generation(corpus(), checkpoint, "--beam", "5"))
    assert done.status == 0, done.errors()
    assert len(re.findall(r"^H-", done.output(), re.M)) == 11
