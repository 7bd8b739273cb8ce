"""What a checkpoint of ours says, and how one of fairseq's own becomes ours."""

import logging

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

logger = logging.getLogger(__name__)

_FAIRSEQ_NAMES = {
    "EATransformerEncoder": "TransformerEncoder",
    "EATransformerDecoder": "TransformerDecoder",
    "EATransformerEncoderLayer": "TransformerEncoderLayerBase",
    "EATransformerDecoderLayer": "TransformerDecoderLayerBase",
    "TransformedAttention": "MultiheadAttention",
}


class EACheckpoints(nn.Module):
    """What all our models have: a marker in their checkpoints, and a way in for fairseq's own."""

    def mark(self) -> None:
        """Marks a model that is complete."""
        # Tells an EA checkpoint without convolutions from a plain Transformer's.
        self.register_buffer("ea_version", torch.tensor([1.0]))
        # --retain-dropout-modules goes by the names of fairseq's classes.
        for module in self.modules():
            if isinstance(module, FairseqDropout):
                module.module_name = _FAIRSEQ_NAMES.get(module.module_name, module.module_name)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Also lets a plain fairseq Transformer's checkpoint continue as an EA model.

        A checkpoint without any parameter of a transform or a score function and without the marker
        that EA models write gets this model's fresh ones; one with some of them must have them all.
        """
        super().upgrade_state_dict_named(state_dict, name)
        own = self.state_dict()
        marker = "ea_version"
        if marker in state_dict:
            return
        fresh = [key for key in own if ".transform." in key or ".scores." in key]
        state_dict[marker] = own[marker]
        if not fresh or any(key in state_dict for key in fresh):
            return
        state_dict.update({key: own[key] for key in fresh})
        logger.info(
            "loading a plain Transformer's checkpoint: %d parameters of the attentions, which it "
            "lacks, start fresh",
            len(fresh),
        )
