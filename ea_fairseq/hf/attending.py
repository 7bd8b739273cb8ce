"""What a model's attentions call in the place of transformers' own functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function, sdpa_mask
from transformers.utils import output_capturing

from ..attention.contract import AttentionArgs, LogitTransform, State
from ..attention.functional import Attended, attend_args, attend_step_args
from ..attention.scores import ScoreFunction
from ..errors import UserError
from .decoding import layer_of, row, widen
from .passes import CACHE, PASS, Pass

#: The attention implementation's name: in a saved folder's config.json it tells who opens it.
NAME = "ea_fairseq.hf"

#: Keywords that a model may hand to its attentions and that change nothing here: the mask has it
#: already, or it is about something else.
_WITHOUT_EFFECT = {
    *("position_ids", "cache_position", "position_embeddings", "token_type_ids", "sliding_window"),
    *("output_attentions", "output_hidden_states", "return_dict", "use_cache", "is_causal"),
    *("num_items_in_batch", "logits_to_keep", "labels", "inputs_embeds", "output_router_logits"),
}


@dataclass(frozen=True)
class Position:
    """Where in a model an attention stands.

    Attributes:
        kind: "encoder", "decoder" or "encoder-decoder"
        chain: the attentions among which carries go, from layer to layer
        layer: its index among them
    """

    kind: str
    chain: str
    layer: int


class Evolved(nn.Module):
    """What is added to one attention of a model, as its submodule ``ea``.

    Args:
        position: of the attention
        transform: what happens to its logits
        scores: what makes them, or None: scaled products
    """

    def __init__(self, position: Position, transform: LogitTransform, scores: ScoreFunction | None):
        super().__init__()
        self.position = position
        self.transform = transform
        self.scores = scores


@torch.compiler.disable
def evolved_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """An attention function of transformers' ``AttentionInterface``.

    Args:
        module: the attention that calls
        query: (batch, heads, tgt_len, head_dim)
        key, value: (batch, key heads, src_len, head_dim), key heads dividing heads
        attention_mask: bool, True = may attend, as :func:`visible_keys` makes it; or numbers, 0
            or hidden; broadcastable to (batch, 1, tgt_len, src_len). None: everything is visible
        scaling: factor of the products, 1 / sqrt(head_dim) by default
        dropout: of the probabilities
        position_bias: added to the logits, such as relative positions, before they evolve
        kwargs: the pass, the cache, and what the model hands to all attentions

    Returns:
        (batch, tgt_len, heads, head_dim); and the probabilities, (batch, heads, tgt_len, src_len),
        where the model collects them

    Raises:
        UserError: the model was not evolved, or what it hands over is not understood
    """
    ours, this_pass = getattr(module, "ea", None), kwargs.pop(PASS, None)
    cache = kwargs.pop(CACHE, None)
    if ours is None or this_pass is None:
        raise UserError(
            f"{type(module).__name__} was called outside of an evolved model: open a folder that "
            "evolve's model saved with ea_fairseq.hf.load, and call the whole model"
        )
    for name, given in kwargs.items():
        if given is not None and name not in _WITHOUT_EFFECT:
            raise UserError(f"{type(module).__name__} hands {name} to its attention, unknown here")
    position, heads = ours.position, query.size(1)
    query, key = query.to(value.dtype), key.to(value.dtype)
    if key.size(1) != heads:
        key, value = (one.repeat_interleave(heads // key.size(1), dim=1) for one in (key, value))
    scaling = query.size(-1) ** -0.5 if scaling is None else scaling
    visible, causal = _visible(position, attention_mask, query, key, this_pass)
    if ours.transform.reads_neighbours and position.kind != "encoder-decoder":
        if attention_mask is not this_pass.checked:  # once a pass: on a GPU it waits for the answer
            _refuse_other_masks(module, position.kind, visible)
        this_pass.checked = attention_mask
    need_probs = _probs_are_wanted(kwargs)
    carries = ours.transform.uses_carry
    carry = this_pass.carry(position.chain, position.layer) if carries else None
    given = query, key, value
    args = AttentionArgs(
        *(scaling, visible, carry, dropout, need_probs), bias=position_bias, causal=causal
    )
    if position.kind == "encoder" or cache is None:
        if position.kind != "encoder-decoder" and query.size(2) != key.size(2):
            raise UserError(
                f"{type(module).__name__}: {key.size(2)} keys for {query.size(2)} queries, and no "
                "cache that kept the earlier queries' maps: use_cache=False"
            )
        attended = attend_args(ours.transform, *given, args, ours.scores)
    else:
        attended = _attend_and_keep(module, cache, this_pass, given, args)
    if carries:
        this_pass.leave(position.chain, position.layer, attended.carry)
    return attended.output.transpose(1, 2).contiguous(), attended.probs


def _attend_and_keep(
    module: nn.Module,
    cache: Any,
    this_pass: Pass,
    given: tuple[Tensor, Tensor, Tensor],
    args: AttentionArgs,
) -> Attended:
    """A decoder's attention with a cache: whole maps first, then row by row."""
    ours, name = module.ea, type(module).__name__
    query, key, _ = given
    new = query.size(2)
    if ours.position.kind == "decoder":
        this_pass.past = key.size(2) - new
    layer = layer_of(cache, module.layer_idx, ours.position.kind, this_pass.past, name)
    if layer.rows == 0:
        attended = attend_args(ours.transform, *given, args, ours.scores)
        needed = ours.transform.earlier_rows()
        first = 0 if needed is None else max(0, new - needed)
        if module.training and torch.is_grad_enabled():
            layer.state = None  # a training's cache, which nobody reads
        else:
            silent = args._replace(need_probs=False)
            _, layer.state = _rows(ours, given, silent, range(first, new), {})
    else:
        if args.dropout:
            raise UserError(f"{name}: no dropout while decoding with a cache: model.eval()")
        if new > 1 and ours.position.kind == "decoder" and ours.transform.earlier_rows() == 0:
            # No row needs another: all at once, for a mask may show more than what came before,
            # the whole of a picture, say.
            visible = args.visible if args.visible is not None else _earlier(query, key)
            args = args._replace(visible=visible)
            attended = attend_args(ours.transform, *given, args, ours.scores)
        else:
            attended, layer.state = _rows(ours, given, args, range(new), layer.state)
    layer.rows += new
    return attended


def _rows(
    ours: Evolved,
    given: tuple[Tensor, Tensor, Tensor],
    args: AttentionArgs,
    indices: range,
    state: State,
) -> tuple[Attended | None, State]:
    """Some rows, one after the other."""
    query, key, value = given
    length, src_len = query.size(2), key.size(2)
    done = []
    if ours.position.kind == "decoder" and indices and length > 1 and args.visible is not None:
        if bool((args.visible & ~_earlier(query, key)).any()):
            raise UserError(
                "a mask that shows later positions, and a cache: what its variant keeps of each "
                "row depends on earlier positions alone; use_cache=False goes without a cache"
            )
    for index in indices:
        columns = src_len
        if ours.position.kind == "decoder":
            columns = src_len - length + index + 1
        maps = {
            name: row(getattr(args, name), index, columns) for name in ("visible", "carry", "bias")
        }
        attended, state = attend_step_args(
            *(ours.transform, query[:, :, index : index + 1]),
            *(key[:, :, :columns], value[:, :, :columns]),
            args._replace(**maps, dropout=0.0, causal=False),
            state,
            ours.scores,
        )
        done.append(
            (attended.output, widen(attended.carry, src_len), widen(attended.probs, src_len))
        )
    if not done:
        return None, state
    whole = (None if one[0] is None else torch.cat(one, dim=2) for one in zip(*done, strict=True))
    return Attended(*whole), state


def _earlier(query: Tensor, key: Tensor) -> Tensor:
    """Which keys are not later than each query, the queries being the last: (tgt_len, src_len),
    with two dimensions of 1 before them."""
    tgt_len, src_len = query.size(2), key.size(2)
    ones = torch.ones(1, 1, tgt_len, src_len, dtype=torch.bool, device=query.device)
    return ones.tril(src_len - tgt_len)


def _visible(
    position: Position, mask: Tensor | None, query: Tensor, key: Tensor, this_pass: Pass
) -> tuple[Tensor | None, bool]:
    """What :func:`attend` calls visible, padded queries among what is hidden; and whether all later
    keys are.

    A position of self-attention that may not attend to itself is padding. In encoder-decoder
    attention the queries' padding is that of the self-attention before it. No mask in a decoder
    hides later keys, as it does for transformers' sdpa: a model around this one may have left it
    out for that.
    """
    is_causal = mask is None and position.kind == "decoder"
    is_causal = is_causal or getattr(mask, "_ea_causal", False)
    causal = is_causal and query.size(2) == key.size(2)
    visible = as_bool(mask)
    if position.kind != "encoder-decoder":
        this_pass.real = None
        if visible is not None:
            ahead = key.size(2) - query.size(2)
            square = visible.expand(-1, -1, query.size(2), key.size(2))
            real = square[:, :1].diagonal(ahead, 2, 3)
            this_pass.real = real[:, :, :, None]
    real = this_pass.real
    if real is not None:
        visible = real if visible is None else visible & real
    return visible, causal


def _refuse_other_masks(module: nn.Module, kind: str, visible: Tensor | None) -> None:
    """Refuses a self-attention mask that hides more than padding (and, in decoders, the future).

    A convolution over the map would read what it hides: packed sequences would not stay apart.
    """
    if visible is None or visible.size(2) == 1:
        return
    tgt_len, src_len = visible.shape[2:]
    expected = visible.any(dim=3, keepdim=True) & visible.any(dim=2, keepdim=True)
    if kind == "decoder":
        expected = expected & expected.new_ones(tgt_len, src_len).tril(src_len - tgt_len)
    if not torch.equal(visible, expected):
        later = " and later positions" if kind == "decoder" else ""
        raise UserError(
            f"{type(module).__name__}: its mask hides more than padding{later}, and its "
            "convolution would read across it: a sliding window (config.sliding_window = None goes "
            "without) or packed sequences"
        )


def as_bool(mask: Tensor | None) -> Tensor | None:
    """A mask as bool, True = may attend.

    Raises:
        UserError: it holds numbers that neither show nor hide
    """
    if mask is None or mask.dtype == torch.bool:
        return mask
    visible = mask == 0
    if not bool((visible | (mask <= -1e4)).all()):
        raise UserError("attention_mask: numbers other than 0 and those that hide are unknown here")
    return visible


def _probs_are_wanted(kwargs: dict[str, Any]) -> bool:
    if kwargs.get("output_attentions"):
        return True
    collected = output_capturing._active_collector.get() or ()
    return "attentions" in collected or "cross_attentions" in collected


def visible_keys(*args: Any, **kwargs: Any) -> Tensor | None:
    """A mask function of transformers' ``AttentionMaskInterface``: bool, (batch, 1, q_length,
    kv_length), True = may attend; None where a bidirectional mask hides nothing."""
    mask = sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})
    if mask is not None and kwargs.get("mask_function") is causal_mask_function:
        mask._ea_causal = True
    return mask


def hand_over_cache(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    """Forward pre-hook of an attention: its cache travels on to :func:`evolved_attention`.

    Raises:
        UserError: the model's attention implementation was set to another one
    """
    chosen = module.config._attn_implementation
    if chosen != NAME:
        raise UserError(
            f"attn_implementation {chosen!r} would switch off what evolve did to this model; "
            f"set_attn_implementation({NAME!r}) goes back to it"
        )
    cache = kwargs.get("past_key_values")
    return args, kwargs if cache is None else {**kwargs, CACHE: cache}


AttentionInterface.register(NAME, evolved_attention)
AttentionMaskInterface.register(NAME, visible_keys)
