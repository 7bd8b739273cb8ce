"""Attention of given queries, keys and values, for models with projections of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import UserError, perhaps_meant
from .cached_heads import CachedHeads
from .contract import AttentionArgs, LogitTransform, Place, State
from .convolution import MapConvolution
from .options import ATTENTIONS, VariantOptions, listed
from .scores import ScoreFunction
from .variants import VARIANTS


class Attended(NamedTuple):
    """What an attention returns.

    Attributes:
        output: (batch, heads, tgt_len, head_dim)
        carry: (batch, heads, tgt_len, src_len), for the same attention one layer above: the
            transformed logits, 0 in hidden entries; None where the variant carries nothing
        probs: (batch, heads, tgt_len, src_len), before dropout; None unless asked for
    """

    output: Tensor
    carry: Tensor | None
    probs: Tensor | None


def build_transform(
    variant: str,
    num_heads: int,
    head_dim: int,
    kind: str = "encoder",
    layer: int = 0,
    num_layers: int = 1,
    convolution: Any = None,
    **options: Any,
) -> LogitTransform:
    """What a variant does to the logits of one attention of a model: a module with its parameters.

    Args:
        variant: its name, such as "evolving"
        num_heads: of the attention
        head_dim: width of each head
        kind: "encoder" (sees both sides), "decoder" (causal) or "encoder-decoder"
        layer: index of the layer in its stack, from 0; the first has no carry
        num_layers: of that stack
        convolution: what makes the weights of the map's convolution: a module as
            :class:`~ea_fairseq.attention.convolution.MapConvolution` takes it, or a function of
            (num_heads, kernel_size) that makes one. Text is the variant's option of that name
        options: the variant's own, such as ``alpha=0.1``; docs/architectures.md has them all

    Raises:
        UserError: naming what is unknown or has a bad value, with the choices; or an option that
            would have no effect
    """
    check_variant(variant, kind)
    check_sizes(num_heads=num_heads, head_dim=head_dim, num_layers=num_layers)
    if not 0 <= layer < num_layers:
        raise UserError(f"layer must be from 0 to {num_layers - 1} (num_layers - 1), not {layer}")
    if convolution is None or isinstance(convolution, str | tuple | list):
        options |= {} if convolution is None else {"convolution": convolution}
        convolution = None
    place = Place(kind, num_heads, head_dim, layer, num_layers)
    with without_flags():
        transform = VARIANTS[variant].build(read_options(variant, kind, options), place)
    transform.kind, transform.layer, transform.num_heads = kind, layer, num_heads
    if convolution is not None:
        _replace_convolution(transform, variant, num_heads, convolution)
    return transform


def check_variant(variant: str, kind: str) -> None:
    """Refuses what is no variant or no kind of attention, or a variant that does not serve it.

    Raises:
        UserError: with the choices
    """
    if kind not in ATTENTIONS:
        raise UserError(f"kind must be one of {listed(ATTENTIONS)}, not {kind!r}")
    if variant not in VARIANTS:
        raise UserError(
            f"variant must be one of {listed(VARIANTS)}, not {variant!r}"
            + perhaps_meant(str(variant), VARIANTS)
        )
    serves = VARIANTS[variant].serves
    if kind not in serves:
        raise UserError(f"{variant} serves {listed(serves)} attention, not kind={kind!r}")


def check_sizes(**sizes: int) -> None:
    """Refuses what is no whole number from 1 on.

    Raises:
        UserError: naming it
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UserError(f"{name} must be a whole number from 1 on, not {size!r}")


def read_options(variant: str, kind: str, given: dict[str, Any]) -> VariantOptions:
    """A variant's options as a program gives them.

    Raises:
        UserError: see :func:`build_transform`
    """
    chosen = VARIANTS[variant]
    known = [item.name for item in fields(chosen.options)]
    for name in given:
        if name not in known:
            raise UserError(
                f"{name} is no option of {variant} (its options: {listed(known) or 'none'})"
                + perhaps_meant(name, known)
            )
    with without_flags():
        options = chosen.options(**given)
        for name, reason in options.without_effect([kind]).items():
            if name in given and not chosen.is_neutral(name, options):
                raise UserError(f"{name} would have no effect: {reason}: leave it out")
    return options


@contextmanager
def without_flags() -> Iterator[None]:
    """Messages name options as a program has them, not as the command line has: kernel_size."""
    try:
        yield
    except UserError as error:
        named = re.sub(r"--ea-([a-z-]+)", lambda flag: flag[1].replace("-", "_"), str(error))
        raise UserError(named) from None


def check_carry(transform: LogitTransform, carry: Tensor | None) -> None:
    """Refuses a carry where there is no layer below, and a layer above the first without one: its
    maps would not evolve, and nobody would see it.

    Args:
        transform: of :func:`build_transform`, which knows its layer; others may be of any layer
        carry: what its attention was given

    Raises:
        UserError: naming the layer
    """
    layer = getattr(transform, "layer", None)
    if layer is None or not transform.uses_carry or (layer > 0) == (carry is not None):
        return
    if layer == 0:
        raise UserError(
            "carry is of the layer below, and this attention is layer=0 of its stack: build each "
            "with layer= and num_layers="
        )
    raise UserError(
        f"carry is missing: this attention is layer={layer} and goes on from what layer "
        f"{layer - 1} returned beside its output"
    )


def check_state(state: State, batch: int) -> None:
    """Refuses a transform's state that is not of this batch.

    Raises:
        UserError: naming the tensor
    """
    for name, kept in state.items():
        if not isinstance(kept, Tensor) or kept.dim() == 0 or len(kept) != batch:
            found = tuple(kept.shape) if isinstance(kept, Tensor) else type(kept).__name__
            raise UserError(
                f"state: {name} must be a tensor of {batch} rows, one of each hypothesis, as the "
                f"step before returned it, not {found}"
            )


def _replace_convolution(
    transform: LogitTransform,
    variant: str,
    num_heads: int,
    convolution: nn.Module | Callable[[int, int], nn.Module],
) -> None:
    own = getattr(transform, "convolution", None)
    if not isinstance(own, MapConvolution):
        raise UserError(f"convolution: {variant} has none here that could be replaced")
    if not isinstance(convolution, nn.Module):
        convolution = convolution(num_heads, own.kernel_size[0])
        if not isinstance(convolution, nn.Module):
            raise UserError(
                f"convolution must make a module, not {type(convolution).__name__}, of "
                "(num_heads, kernel_size)"
            )
    transform.convolution = type(own)(num_heads, own.kernel_size[0], convolution)


def attend(
    transform: LogitTransform,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    visible: Tensor | None = None,
    carry: Tensor | None = None,
    bias: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    need_probs: bool = False,
    causal: bool = False,
    scores: ScoreFunction | None = None,
) -> Attended:
    """Attends: softmax(Z) V with Z what the transform makes of the scaled products.

    Compiled where that is possible, otherwise by torch, with equal results.

    Args:
        transform: from :func:`build_transform`
        queries: (batch, heads, tgt_len, head_dim), not scaled
        keys: (batch, heads, src_len, head_dim)
        values: (batch, heads, src_len, head_dim)
        visible: bool, broadcastable to (batch, 1, tgt_len, src_len), True = may attend; it
            excludes padded keys *and padded queries* (:func:`visible_pairs`). None = everything
        carry: (batch, heads, tgt_len, src_len), of the layer below; None in the first layer
        bias: broadcastable to (batch, heads, tgt_len, src_len), added to the scaled products before
            the transform, such as relative positions; finite, for hiding is ``visible``'s
        scaling: factor of the products of queries and keys; 1 / sqrt(head_dim) by default
        dropout: of the probabilities, in [0, 1]; 0 in evaluation
        need_probs: whether to return the probabilities
        causal: hides all later keys; tgt_len = src_len. A decoder's attention needs it
        scores: what makes the logits, in the place of scaled products

    Raises:
        UserError: naming the argument whose type, shape or device does not fit, or a carry in
            the first layer or none in another
    """
    scaling = queries.size(-1) ** -0.5 if scaling is None else scaling
    args = AttentionArgs(scaling, visible, carry, dropout, need_probs, bias=bias, causal=causal)
    return attend_args(transform, queries, keys, values, args, scores)


def attend_args(
    transform: LogitTransform,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    args: AttentionArgs,
    scores: ScoreFunction | None = None,
) -> Attended:
    """:func:`attend` with its keywords as one object, and its errors."""
    _check(transform, queries, keys, values, args)
    if not 0.0 <= args.dropout <= 1.0:
        raise UserError(f"attend: dropout must be in [0, 1], not {args.dropout}")
    kind = getattr(transform, "kind", None)
    if args.causal and kind != "decoder" and kind is not None:
        raise UserError(
            f"attend: causal=True wants a transform of kind='decoder': what {kind!r} reads of the "
            "map is not hidden from earlier rows"
        )
    if kind == "decoder" and not args.causal and args.visible is None and queries.size(2) > 1:
        raise UserError("attend: a transform of kind='decoder' wants causal=True, or visible")
    check_carry(transform, args.carry)
    if args.causal:
        args = args._replace(visible=_causal(queries, keys, args.visible))
    queries, keys, values = map(_without_overlap, (queries, keys, values))
    if args.carry is not None:
        args = args._replace(carry=_without_overlap(args.carry))
    if scores is not None:
        queries, keys, args = _scored(scores, queries, keys, args)
    return Attended(*transform.attend(queries, keys, values, args))


def attend_step(
    transform: LogitTransform,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    state: State,
    *,
    visible: Tensor | None = None,
    carry: Tensor | None = None,
    bias: Tensor | None = None,
    scaling: float | None = None,
    need_probs: bool = False,
    scores: ScoreFunction | None = None,
) -> tuple[Attended, State]:
    """Attends with one new query: that row of :func:`attend`, for decoding.

    Args:
        transform: of kind "decoder" or "encoder-decoder"
        queries: (batch, heads, 1, head_dim), not scaled
        keys, values: (batch, heads, src_len, head_dim): in a decoder those of all rows so far, this
            row's own last; in encoder-decoder attention the same in every step. The state counts
            them from the first: cropped ones give other numbers
        state: empty at the first row, then as returned; batch-first tensors, which beam search
            reorders by ``index_select(0, order)``
        visible: bool, broadcastable to (batch, 1, 1, src_len), or None. Rows are those of
            :func:`attend` where it hides padding alone; under a sliding window, or a mask that
            grows with the rows, a convolution's term is kept in other places
        carry, bias: as in :func:`attend`, with tgt_len = 1
        scaling, need_probs, scores: as in :func:`attend`

    Returns:
        this row, and the state for the next one

    Raises:
        UserError: as :func:`attend`, and where there is more than one query
    """
    scaling = queries.size(-1) ** -0.5 if scaling is None else scaling
    args = AttentionArgs(scaling, visible, carry, need_probs=need_probs, bias=bias)
    return attend_step_args(transform, queries, keys, values, args, state, scores)


def attend_step_args(
    transform: LogitTransform,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    args: AttentionArgs,
    state: State,
    scores: ScoreFunction | None = None,
) -> tuple[Attended, State]:
    """:func:`attend_step` with its keywords as one object, and its errors."""
    _check(transform, queries, keys, values, args)
    if queries.size(2) != 1:
        raise UserError(f"attend_step: queries must have one row, not {queries.size(2)}")
    if getattr(transform, "kind", None) == "encoder":
        raise UserError(
            "attend_step: transform must be of kind='decoder' or 'encoder-decoder', not 'encoder', "
            "whose rows depend on later ones"
        )
    check_carry(transform, args.carry)
    check_state(state, queries.size(0))
    if scores is not None:
        queries, keys, args = _scored(scores, queries, keys, args)
    kept = (one.permute(2, 0, 1, 3).flatten(2) for one in (keys, values))
    cached = CachedHeads(*kept, queries.size(1))
    *attended, state = transform.attend_step(queries, cached, args, state)
    return Attended(*attended), state


def _scored(
    scores: ScoreFunction, queries: Tensor, keys: Tensor, args: AttentionArgs
) -> tuple[Tensor, Tensor, AttentionArgs]:
    """Queries and keys as a score function maps them, and its logits where it is no product."""
    queries = scores.map_queries(queries.transpose(1, 2)).transpose(1, 2)
    keys = scores.map_keys(keys.transpose(1, 2)).transpose(1, 2)
    if not scores.is_product:
        shape = queries.size(0), queries.size(2), keys.size(2)
        args = scores.scored(queries, keys, args, shape)
    return queries, keys, args


def visible_pairs(
    padding: Tensor | None,
    query_padding: Tensor | None,
    causal: int = 0,
    device: torch.device | None = None,
) -> Tensor | None:
    """Which queries may attend to which keys, as :func:`attend` wants it.

    Args:
        padding: bool, (batch, src_len), True where a key is padding, as torch's
            ``key_padding_mask``; or None
        query_padding: bool, (batch, tgt_len), likewise of queries; in self-attention the same
            tensor once more: what stands in padded rows would reach the rows beside them
        causal: length of a square map whose later keys are hidden; 0 = none are
        device: of the result, where there is no padding; the CPU by default

    Returns:
        bool, broadcastable to (batch, 1, tgt_len, src_len), or None where everything is visible

    Raises:
        UserError: causal is no length
    """
    if isinstance(causal, bool):  # as a length True would be 1, which hides nothing
        raise UserError(f"visible_pairs: causal is the length of the map, not {causal}")
    for name, one in (("padding", padding), ("query_padding", query_padding)):
        if one is not None and (one.dtype != torch.bool or one.dim() != 2):
            raise UserError(
                f"visible_pairs: {name} must be bool, (batch, length), True where a token is "
                f"padding, not {one.dtype} {tuple(one.shape)}"
            )
    visible = None
    if padding is not None:
        visible = ~padding[:, None, None, :]
    if query_padding is not None:
        rows = ~query_padding[:, None, :, None]
        visible = rows if visible is None else rows & visible
    if causal:
        visible = _without_later(visible, causal, device if visible is None else visible.device)
    return visible


def _without_later(visible: Tensor | None, length: int, device: torch.device | None) -> Tensor:
    """What is visible of a square map without what lies behind its diagonal."""
    earlier = torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
    return earlier if visible is None else visible & earlier


def _causal(queries: Tensor, keys: Tensor, visible: Tensor | None) -> Tensor:
    length = queries.size(2)
    if keys.size(2) != length:
        raise UserError(
            f"attend: causal=True wants as many keys as queries, not {keys.size(2)} for {length}"
        )
    return _without_later(visible, length, queries.device)


def _check(
    transform: LogitTransform, queries: Tensor, keys: Tensor, values: Tensor, args: AttentionArgs
) -> None:
    """Refuses what compiled code would read beyond its tensors."""
    if queries.dim() != 4 or 0 in (queries.size(1), queries.size(3)):
        raise UserError(
            "attend: queries must be (batch, heads, tgt_len, head_dim), heads and head_dim not 0, "
            f"not {tuple(queries.shape)}"
        )
    if not queries.is_floating_point():
        raise UserError(f"attend: queries must be floating-point numbers, not {queries.dtype}")
    batch, heads, tgt_len, head_dim = queries.shape
    built = getattr(transform, "num_heads", heads)
    if heads != built:
        raise UserError(f"attend: queries have {heads} heads, the transform is built for {built}")
    if keys.dim() != 4 or keys.shape != (batch, heads, keys.size(2), head_dim):
        raise UserError(
            f"attend: keys must be ({batch}, {heads}, src_len, {head_dim}) for queries "
            f"{tuple(queries.shape)}, not {tuple(keys.shape)}"
        )
    if values.shape != keys.shape:
        raise UserError(
            f"attend: values must be as keys, {tuple(keys.shape)}, not {tuple(values.shape)}"
        )
    whole = batch, heads, tgt_len, keys.size(2)
    maps = queries.dtype if queries.dtype == torch.float64 else torch.float32
    _check_one("keys", keys, queries, queries.dtype)
    _check_one("values", values, queries, queries.dtype)
    if args.carry is not None:
        _check_one("carry", args.carry, queries, maps)
        if args.carry.shape != whole:
            raise UserError(f"attend: carry must be {whole}, not {tuple(args.carry.shape)}")
    if args.visible is not None:
        _check_one("visible", args.visible, queries, torch.bool)
        check_broadcast("visible", args.visible, (batch, 1, *whole[2:]))
    if args.bias is not None:
        check_bias(args.bias, whole)
        _check_one("bias", args.bias, queries, args.bias.dtype)


def _check_one(name: str, tensor: Tensor, queries: Tensor, dtype: torch.dtype) -> None:
    if tensor.dtype != dtype:
        raise UserError(f"attend: {name} must be {dtype}, not {tensor.dtype}")
    if tensor.device != queries.device:
        raise UserError(f"attend: {name} is on {tensor.device}, queries on {queries.device}")


def check_bias(bias: Tensor, shape: tuple[int, ...]) -> None:
    """Refuses what cannot be added to logits of a shape.

    Raises:
        UserError: naming type or shape
    """
    if not bias.is_floating_point():
        raise UserError(
            f"bias must be floating-point numbers, added to the logits, not {bias.dtype}; "
            "padding or visible hide"
        )
    check_broadcast("bias", bias, shape)


def check_broadcast(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Refuses what cannot be broadcast to maps, or has not their four dimensions.

    Raises:
        UserError: naming it and both shapes
    """
    if tensor.dim() != 4 or any(
        have not in (1, size) for have, size in zip(tensor.shape, shape, strict=True)
    ):
        raise UserError(
            f"{name} must be broadcastable to {shape}, in four dimensions, "
            f"not {tuple(tensor.shape)}"
        )


def _without_overlap(tensor: Tensor) -> Tensor:
    """The tensor, copied where some of its places are the same memory, as ``unfold`` makes them."""
    if tensor.is_contiguous() or tensor.transpose(1, 2).is_contiguous():
        return tensor  # at once: so are heads as projections make them
    reach = 0
    places = zip(tensor.stride(), tensor.shape, strict=True)
    for stride, size in sorted(place for place in places if place[1] > 1):
        if stride <= reach:
            return tensor.contiguous()
        reach += stride * (size - 1)
    return tensor
