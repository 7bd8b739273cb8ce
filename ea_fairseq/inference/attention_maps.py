"""What every attention of a model looked at, while it read a source and wrote a target."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel, FairseqLanguageModel
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from ..attention.variants import zero_hidden
from ..errors import UserError
from ..kernels.cpp.library import torch_alone
from ..models.branches import BranchedAttention
from ..models.multihead_attention import TransformedAttention

#: Kind of attention -> where it lies in a model: encoder or decoder, and the layers' attribute.
_PLACES = {
    "encoder": ("encoder", "self_attn"),
    "decoder": ("decoder", "self_attn"),
    "encoder-decoder": ("decoder", "encoder_attn"),
}


@dataclass(frozen=True)
class LayerMaps:
    """The maps of one attention in one layer, each (heads, tgt_len, src_len), 0 where hidden.

    Attributes:
        fresh: L, the scaled products of queries and keys
        carry: Z of the layer below, where it is mixed in, else None
        mixed: A_in, to which a convolution adds: L and the carry, weighed by alpha (in predictive
            attention L alone); None without a convolution
        evolved: Z, of which the probabilities are the softmax; equal to ``fresh`` in a plain
            Transformer
        probs: the probabilities; a row sums to 1, unless they are mixed after the softmax
        visible: bool, (tgt_len, src_len), what could be attended to
    """

    fresh: Tensor
    carry: Tensor | None
    mixed: Tensor | None
    evolved: Tensor
    probs: Tensor
    visible: Tensor

    @property
    def added(self) -> Tensor:
        """What is added to the logits: Z - A_in, in evolving attention beta * (relu(conv(A_in)) -
        A_in); without a convolution Z - L."""
        return self.evolved - (self.fresh if self.mixed is None else self.mixed)


@torch.no_grad()
def attention_maps(
    model: FairseqEncoderDecoderModel, source: list[int], target: list[int]
) -> dict[str, list[LayerMaps]]:
    """The maps of every layer's attentions for one pair of sentences.

    Args:
        model: fairseq's Transformer, or one of this project's, in evaluation mode
        source: numbers of its tokens, the end of sentence last
        target: likewise; row t of the decoder's maps is of the step that writes target[t]

    Returns:
        "encoder" (src_len x src_len), "decoder" (tgt_len x tgt_len) and "encoder-decoder"
        (tgt_len x src_len): a list over the layers, the lowest first

    Raises:
        UserError: for another kind of model.
    """
    device = next(model.parameters()).device
    read = torch.tensor([source], device=device)
    length = torch.tensor([len(source)], device=device)
    return _recorded(model, tuple(_PLACES), read, length, _behind(target, device))


@torch.no_grad()
def language_model_maps(
    model: FairseqLanguageModel, text: list[int], before: int | None = None
) -> dict[str, list[LayerMaps]]:
    """The maps of every layer of a language model for one text.

    Args:
        model: fairseq's ``transformer_lm``, or one of this project's, in evaluation mode
        text: numbers of its tokens
        before: number of the token read before them; None where the text ends with the end of a
            sentence, after which it is read

    Returns:
        "decoder": a list over the layers, the lowest first, each len(text) x len(text); row t is of
        the step that predicts text[t]

    Raises:
        UserError: for another kind of model.
    """
    device = next(model.parameters()).device
    return _recorded(model, ("decoder",), _behind(text, device, before))


def check_attentions(model: BaseFairseqModel, kinds: Iterable[str] = tuple(_PLACES)) -> None:
    """Refuse a model that has no maps.

    Args:
        model: any of fairseq's
        kinds: of "encoder", "decoder" and "encoder-decoder", those that it must have

    Raises:
        UserError: naming the kind that it does not have in each of its layers.
    """
    for kind in kinds:
        _modules(model, kind)


def _behind(tokens: list[int], device: torch.device, before: int | None = None) -> Tensor:
    """What a decoder reads: one token behind what it writes, ``before`` or the last one first."""
    first = tokens[-1] if before is None else before
    return torch.tensor([[first, *tokens[:-1]]], device=device)


def _recorded(
    model: BaseFairseqModel, kinds: tuple[str, ...], *inputs: Tensor
) -> dict[str, list[LayerMaps]]:
    """The maps of attentions of some kinds in one pass."""
    check_attentions(model, kinds)  # some other models cannot be copied
    model = _private(model)
    records = {kind: [_Record(module) for module in _modules(model, kind)] for kind in kinds}
    with torch_alone():
        model(*inputs)
    return {kind: [record.maps() for record in layers] for kind, layers in records.items()}


def _private(model: BaseFairseqModel) -> BaseFairseqModel:
    """The model again, with the same weights: what is hooked on it no other thread meets, and goes
    with it."""
    sides = [getattr(model, name, None) for name in ("encoder", "decoder")]
    kept = [*model.parameters(), *model.buffers()]
    kept += [side.dictionary for side in sides if side is not None]
    return copy.deepcopy(model, {id(thing): thing for thing in kept})


def _modules(model: BaseFairseqModel, kind: str) -> list[nn.Module]:
    side, name = _PLACES[kind]
    layers = getattr(getattr(model, side, None), "layers", [])
    modules = [getattr(layer, name, None) for layer in layers]
    modules = [one.attention if isinstance(one, BranchedAttention) else one for one in modules]
    if not modules or not all(isinstance(module, MultiheadAttention) for module in modules):
        raise UserError(f"{type(model).__name__} has no {kind} attention in each of its layers")
    return modules


class _Record:
    """What one attention does in one pass: tensors with a batch of one in front."""

    def __init__(self, attention: MultiheadAttention) -> None:
        self.kept: dict[str, Tensor | None] = {"carry": None, "mixed": None}
        self.visible: Tensor | None = None
        hook = _hook_transformed if isinstance(attention, TransformedAttention) else _hook_plain
        hook(attention, self)

    def maps(self) -> LayerMaps:
        """Without the batch, in float32, on the CPU."""
        maps = {
            name: None if value is None else value.detach().squeeze(0).float().cpu()
            for name, value in self.kept.items()
        }
        shape, visible = maps["probs"].shape[1:], torch.ones(1, dtype=torch.bool)
        if self.visible is not None:
            visible = self.visible.cpu().reshape(-1, shape[1])
        return LayerMaps(**maps, visible=visible.expand(shape))


def _hook_transformed(attention: TransformedAttention, record: _Record) -> None:
    """Hooks on an attention of this project's: on its transform, and on what it returns."""
    # Predictive attention's convolutions read the carry.
    predicts = bool(getattr(attention.transform, "convolutions", False))

    def ask_for_probs(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "need_weights": True}

    def keep_probs(module: nn.Module, args: tuple, output: tuple) -> None:
        record.kept["probs"] = output[1].transpose(0, 1)

    def keep_logits(module: nn.Module, args: tuple, output: tuple) -> None:
        logits, visible, carry = args[:3]
        record.kept["fresh"] = zero_hidden(logits, visible)
        record.kept["carry"] = carry if module.uses_carry else None
        record.kept["evolved"] = zero_hidden(*output)
        record.visible = output[1]
        if predicts and carry is not None:
            record.kept["mixed"] = record.kept["fresh"]

    def keep_mixed(module: nn.Module, args: tuple) -> None:
        record.kept["mixed"] = args[0]

    attention.register_forward_pre_hook(ask_for_probs, with_kwargs=True)
    attention.register_forward_hook(keep_probs)
    attention.transform.register_forward_hook(keep_logits)
    # Evolving attention's convolution reads A_in.
    if (convolution := getattr(attention.transform, "convolution", None)) is not None:
        convolution.register_forward_pre_hook(keep_mixed)


def _hook_plain(attention: MultiheadAttention, record: _Record) -> None:
    """A hook on fairseq's attention, which says of its maps no more than the probabilities: they
    are computed once more, from what it is given."""

    def compute(module: MultiheadAttention, args: tuple, kwargs: dict[str, Any]) -> None:
        query, key = kwargs["query"], kwargs["key"]
        queries = _heads(module.q_proj(query) * module.scaling, module.num_heads)
        logits = queries @ _heads(module.k_proj(key), module.num_heads).transpose(2, 3)
        hidden = kwargs.get("attn_mask")
        visible = None if hidden is None else hidden > -torch.inf
        masked = logits if visible is None else logits.masked_fill(~visible, -torch.inf)
        record.kept["fresh"] = record.kept["evolved"] = zero_hidden(logits, visible)
        record.kept["probs"] = masked.softmax(dim=-1)
        record.visible = visible

    attention.register_forward_pre_hook(compute, with_kwargs=True)


def _heads(projected: Tensor, num_heads: int) -> Tensor:
    """(length, 1, embed_dim) to (1, heads, length, head_dim)."""
    return projected.unflatten(2, (num_heads, -1)).permute(1, 2, 0, 3)
