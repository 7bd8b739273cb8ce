"""Finds the attentions of a model: runs it once and sees who calls the attention function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.modeling_outputs import ModelOutput

from ..attention.contract import LogitTransform
from ..errors import UserError
from .attending import CACHE, NAME, Evolved, Position, as_bool, evolved_attention, visible_keys
from .passes import PASS, Pass, begin_pass

#: The implementation that is in force while a model is looked at.
_LOOKING = f"{NAME}.looking"
#: What an attention is given where its keys come from elsewhere.
_OTHER_STATES = ("key_value_states", "encoder_hidden_states")
#: How far outputs with our function may be from eager ones, relative to the largest.
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}


@dataclass(frozen=True)
class Found:
    """One attention of a model.

    Attributes:
        path: its name among the model's modules
        kind: "encoder", "decoder" or "encoder-decoder"
        chain: the path with * for numbers: attentions of the same chain are layers of one stack
        stack: path of the module whose forward runs all layers of the chain
        layer: index in the chain
        num_layers: of the chain
        num_heads, head_dim: of queries
        longest: keys that it had in the run
    """

    path: str
    kind: str
    chain: str
    stack: str
    layer: int
    num_layers: int
    num_heads: int
    head_dim: int
    longest: int


@dataclass
class _Seen:
    """What was seen of the attentions while the model ran."""

    calls: list[tuple[nn.Module, str, Tensor, int]] = field(default_factory=list)
    crossing: set[nn.Module] = field(default_factory=set)
    without_pass: list[str] = field(default_factory=list)


def find_attentions(model: PreTrainedModel, example: dict[str, Any] | None) -> list[Found]:
    """All attentions that go through transformers' attention interface, in the order of the run.

    Args:
        model: as it was loaded
        example: keywords of a call of the model, where its inputs cannot be guessed

    Raises:
        UserError: naming the model and what of it cannot be served
    """
    name = type(model).__name__
    if not type(model)._can_set_attn_implementation():
        raise UserError(
            f"{name} computes its attention itself, not through transformers' attention interface: "
            "it cannot be evolved; BERT, RoBERTa, DistilBERT, ELECTRA, ViT, DeiT, T5, BART, "
            "Marian, GPT-2 and Llama can, among others"
        )
    if any(weight.is_meta for weight in model.parameters()):
        raise UserError(f"{name}: its weights are on the device meta: load them first")
    runner = model if example is not None else model.base_model
    seen = _Seen()
    # Eager, then through our function.
    plain, ours = (_run(model, runner, example, noted, []) for noted in (None, seen))
    if not seen.calls:
        raise UserError(f"{name}: no attention goes through transformers' attention interface")
    difference = (plain - ours).abs().max() / plain.abs().max().clamp_min(1e-6)
    if not difference <= _TOLERANCE.get(plain.dtype, 5e-2):
        padded = "" if example is None else "; if example has padding, leave that out"
        raise UserError(
            f"{name}: its attention does more than scaled products, a bias and a mask (outputs "
            f"differ by {float(difference):.2g}): it cannot be evolved{padded}"
        )
    found = _in_chains(model, seen)
    again = _Seen()
    stacks = [model.get_submodule(stack) for stack in dict.fromkeys(one.stack for one in found)]
    _run(model, runner, example, again, stacks)
    if again.without_pass:
        raise UserError(
            f"{name}: the keywords of a call do not reach {again.without_pass[0]}: it cannot be "
            "evolved"
        )
    return found


def find_again(model: PreTrainedModel, known: Mapping[nn.Module, Found]) -> list[Found]:
    """The attentions of a model that was evolved and has no hooks yet.

    Args:
        model: with its weights
        known: attentions, and what was once found; of those that do not run on inputs that can be
            guessed, kind and sizes are taken from there

    Raises:
        UserError: layers differ in what they must share
    """
    seen = _Seen()
    try:
        _run(model, model.base_model, None, seen, [])
    except UserError:  # it needs an example
        seen = _Seen()
    ran = {module for module, *_ in seen.calls}
    for module, one in known.items():
        if module not in ran:
            query = torch.empty(1, one.num_heads, 1, one.head_dim, device="meta")
            seen.calls.append((module, one.kind, query, one.longest))
    return _in_chains(model, seen)


def _in_chains(model: PreTrainedModel, seen: _Seen) -> list[Found]:
    name = type(model).__name__
    paths = {module: path for path, module in model.named_modules()}
    chains: dict[str, list[tuple[str, str, Tensor, int]]] = {}
    for module, kind, query, longest in seen.calls:
        path = paths[module]
        chain = re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path)
        chains.setdefault(chain, []).append((path, kind, query, longest))
    found = []
    for chain, layers in chains.items():
        if len({path for path, *_ in layers}) < len(layers):
            raise UserError(f"{name}: its layers share one attention, {layers[0][0]}: not served")
        if len({(kind, query.shape[1], query.shape[3]) for _, kind, query, _ in layers}) > 1:
            raise UserError(f"{name}: its layers' attentions differ in heads or kind: not served")
        stack = _stack_of(model, [path for path, *_ in layers])
        for layer, (path, kind, query, longest) in enumerate(layers):
            sizes = layer, len(layers), query.shape[1], query.shape[3], longest
            found.append(Found(path, kind, chain, stack, *sizes))
    return found


def _stack_of(model: nn.Module, paths: list[str]) -> str:
    """The innermost module that is called, is no attention itself and has all of them inside."""
    parts = [path.split(".")[:-1] for path in paths]
    common = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    if len(paths) == 1:  # what has one layer inside is not that layer itself
        common = list(takewhile(lambda part: not part.isdigit(), common))
    while common:
        module = model.get_submodule(".".join(common))
        if not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            signature = inspect.signature(module.forward)
            kinds = {parameter.kind for parameter in signature.parameters.values()}
            if inspect.Parameter.VAR_KEYWORD in kinds:
                break
        common.pop()
    return ".".join(common)


def _run(
    model: PreTrainedModel,
    runner: nn.Module,
    example: dict[str, Any] | None,
    seen: _Seen | None,
    stacks: list[nn.Module],
) -> Tensor:
    """Runs the model and leaves it as it was.

    Args:
        model: whose attentions are looked at
        runner: what is called: the model, or the part of it that has no head
        example: keywords of the call, or None: some are made up
        seen: where calls of attentions are noted; None: eager attention
        stacks: which begin a pass

    Returns:
        the first output
    """
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    modes = [(module, module.training) for module in model.modules()]
    hooks: list[Any] = []

    def note(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        if any(kwargs.get(name) is not None for name in _OTHER_STATES):
            seen.crossing.add(module)

    def attention(module: nn.Module, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
        mask = args[1] if len(args) > 1 else kwargs.get("attention_mask")
        kind = "encoder"
        if module in seen.crossing or query.size(2) != key.size(2):
            kind = "encoder-decoder"
        elif _hides_later_keys(type(module).__name__, as_bool(mask), key.size(2)):
            kind = "decoder"
        seen.calls.append((module, kind, query, key.size(2)))
        if PASS not in kwargs:
            seen.without_pass.append(type(module).__name__)
        kwargs = {**kwargs, PASS: Pass(keep=True), CACHE: None}
        # What evolved_attention takes for an attention of that class.
        stand_in = type(type(module).__name__, (nn.Module,), {})()
        stand_in.ea = Evolved(Position(kind, "", 0), LogitTransform(), None)
        return evolved_attention(stand_in, query, key, *args, **kwargs)

    AttentionInterface.register(_LOOKING, attention)
    AttentionMaskInterface.register(_LOOKING, visible_keys)
    try:
        model.eval()
        if seen is not None:
            hooks += [
                module.register_forward_pre_hook(note, with_kwargs=True)
                for module in model.modules()
                if hasattr(module, "config") and not isinstance(module, PreTrainedModel)
            ]
        hooks += [one.register_forward_pre_hook(begin_pass, with_kwargs=True) for one in stacks]
        model.set_attn_implementation("eager" if seen is None else _LOOKING)
        with torch.no_grad():
            return _first_output(runner, example)
    finally:
        for hook in hooks:
            hook.remove()
        for config, implementation in before:
            config._attn_implementation_internal = implementation
        AttentionInterface._global_mapping.pop(_LOOKING, None)
        AttentionMaskInterface._global_mapping.pop(_LOOKING, None)
        for module, mode in modes:
            module.training = mode


def _hides_later_keys(name: str, visible: Tensor | None, length: int) -> bool:
    """Whether no query of self-attention sees a later key: a decoder's.

    Raises:
        UserError: there is one position, of which nobody can tell
    """
    if length < 2:
        raise UserError(
            f"example: {name} had one position to attend to, which tells no encoder from a "
            "decoder: give two or more"
        )
    return visible is not None and not bool(visible.expand(-1, -1, length, -1).triu(1).any())


def _first_output(runner: nn.Module, example: dict[str, Any] | None) -> Tensor:
    last: Exception | None = None
    for given in _examples(runner) if example is None else [example]:
        try:
            outputs = runner(**given)
        except UserError as error:
            raise UserError(f"{type(runner).__name__} cannot be evolved: {error}") from error
        except Exception as error:  # whatever a model says of inputs that it does not take
            last = error
            continue
        values = outputs.values() if isinstance(outputs, ModelOutput) else outputs
        tensors = [one for one in values if isinstance(one, Tensor) and one.is_floating_point()]
        if tensors:
            return tensors[0].detach()
    what = f"{type(last).__name__}: {last}" if last else "no output"
    if example is not None:
        raise UserError(f"{type(runner).__name__}: a run on the example failed ({what})") from last
    raise UserError(
        f"{type(runner).__name__}: a run on inputs of no meaning failed ({what}); give evolve an "
        "example of its inputs: evolve(model, example=dict(...))"
    ) from last


def _examples(runner: nn.Module) -> Iterator[dict[str, Any]]:
    """Inputs of no meaning, those that more models take first."""
    config = runner.config
    device = next(runner.parameters()).device
    names = inspect.signature(runner.forward).parameters
    if runner.main_input_name == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        generator = torch.Generator().manual_seed(1)
        shape = 1, getattr(config, "num_channels", 3), height, width
        pixels = torch.randn(shape, generator=generator)
        yield {"pixel_values": pixels.to(device, next(runner.parameters()).dtype)}
        return
    text = config.get_text_config()
    special = {getattr(text, f"{name}_token_id", None) for name in ("pad", "bos", "eos")}
    ids = [one for one in range(text.vocab_size) if one not in special][-4:]
    source = torch.tensor([ids], device=device)
    if "decoder_input_ids" in names:
        yield {"input_ids": source, "decoder_input_ids": source[:, :3]}
    yield {"input_ids": source}
