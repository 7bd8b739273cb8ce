"""Evolves a model of transformers, and opens the folders that it saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto.auto_factory import _BaseAutoModelClass, _get_model_class

from ..attention.configuration import PLAIN, parse_chain
from ..attention.contract import Place
from ..attention.functional import without_flags
from ..attention.options import VariantOptions, as_text, listed
from ..attention.scores import SCORES
from ..attention.scores.base import PRODUCT, build_scores, known_score
from ..attention.variants import VARIANTS
from ..errors import UserError, perhaps_meant
from .attending import NAME, Evolved, Position, hand_over_cache
from .finding import Found, find_attentions
from .passes import begin_pass

#: Where a model's config.json says that it is evolved, and of what form.
_KEY, _FORM = "ea_fairseq", 1


def evolve(
    model: PreTrainedModel,
    variant: str = "evolving",
    *,
    example: dict[str, Any] | None = None,
    **options: Any,
) -> PreTrainedModel:
    """Puts a variant's transform on the attentions of a model, which is changed in place.

    Evolving attention (arXiv 2102.12895, section 3.4) by default. All weights of the model stay as
    they are; what the variant adds is new, drawn from torch's random numbers. At the variant's
    neutral setting, alpha = beta = 0, the model computes what it computed before.

    Args:
        model: of transformers, with its weights; it is changed itself, so keep a
            ``copy.deepcopy`` of what shall stay plain
        variant: a name: serves the self-attention of the encoder, or of the decoder where there is
            no encoder. Or a chain: "encoder=evolving,decoder=evolving,encoder-decoder=evolving"
        example: keywords of one call of the model, to run it once with; only for models whose
            inputs are neither tokens nor pixels
        options: the variants' own, such as alpha=0.1 (docs/architectures.md has them all); scores,
            what makes the logits, such as "dense_synthesizer"; and max_positions, the longest
            sequence of scores that have weights by position (512 or the model's own by default)

    Returns:
        the model; ``save_pretrained`` saves it whole, :func:`load` opens what was saved

    Raises:
        UserError: naming what of the model, the variant or the options cannot be served
    """
    if not isinstance(model, PreTrainedModel):
        raise UserError(f"evolve: a model of transformers is wanted, not {type(model).__name__}")
    if getattr(model.config, _KEY, None):
        raise UserError(f"{type(model).__name__} is evolved already: evolve one as it was loaded")
    if getattr(model.config, "output_attentions", False):
        raise UserError("output_attentions is for a call, not for the configuration: set it False")
    found = find_attentions(model, example)
    kinds = list(dict.fromkeys(one.kind for one in found))
    chain = _chain_of(variant, kinds, type(model).__name__)
    read_options(chain, options)
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 512
    if options.get("scores", PRODUCT) != PRODUCT:
        options.setdefault("max_positions", max(longest, *(one.longest for one in found)))
    about = {
        "form": _FORM,
        "variant": ",".join(f"{kind}={name}" for kind, name in chain.items()),
        "options": {name: as_text(value) for name, value in options.items()},
        "attentions": [asdict(one) for one in found],
    }
    _attach(model, about)
    _declare(model, about)
    return model


def load(model_class: Any, folder: str | Path, **kwargs: Any) -> PreTrainedModel:
    """Opens a folder that an evolved model's ``save_pretrained`` made.

    Args:
        model_class: as for the plain model: ``AutoModelForSequenceClassification``,
            ``BertForMaskedLM``, ...; a model with another head gets a new head
        folder: which was saved
        kwargs: of ``from_pretrained``

    Returns:
        the evolved model, every number as it was saved

    Raises:
        UserError: a folder that was not evolved, lacks a file or a weight, or is of another version
    """
    about = _read_about(Path(folder))
    kwargs.pop("attn_implementation", None)
    plain = _plain_class(model_class, folder)

    def build(self: PreTrainedModel, config: PretrainedConfig, *args: Any, **given: Any) -> None:
        plain.__init__(self, config, *args, **given)
        _attach(self, about)

    built = type(plain.__name__, (plain,), {"__init__": build, "__module__": plain.__module__})
    wanted = kwargs.pop("output_loading_info", False)
    model, info = built.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True, **kwargs
    )
    model.__class__ = plain
    lost = sorted(key for key in info["missing_keys"] if ".ea." in f".{key}")
    if lost:
        raise UserError(f"{folder}: {lost[0]} is missing among its weights")
    _declare(model, about)
    return (model, info) if wanted else model


def read_options(
    chain: Mapping[str, str], given: Mapping[str, Any]
) -> tuple[dict[str, VariantOptions], str, int]:
    """The options of the variants of a chain, as a program gives them.

    Args:
        chain: variant of each kind of attention
        given: options of any of them, scores and max_positions

    Returns:
        options by variant, the name of the score function, and max_positions

    Raises:
        UserError: unknown, a bad value, or without effect on any attention
    """
    given = dict(given)
    scores = given.pop("scores", PRODUCT)
    known_score("scores", scores)
    if scores != PRODUCT and not set(SCORES[scores].serves) & set(chain):
        raise UserError(f"scores {scores} serves {listed(SCORES[scores].serves)} attention alone")
    longest = given.pop("max_positions", 512)
    if not isinstance(longest, int) or longest < 1:
        raise UserError(f"max_positions must be a whole number from 1, not {longest!r}")
    names = dict.fromkeys(chain.values())
    owned = {name: [item.name for item in fields(VARIANTS[name].options)] for name in names}
    known = sorted({option for options in owned.values() for option in options})
    for option in given:
        if option not in known:
            raise UserError(
                f"{option} is no option of {listed(names)} (options: {listed(known) or 'none'})"
                + perhaps_meant(option, known)
            )
        if not isinstance(given[option], str | int | float | tuple | list):
            kind = type(given[option]).__name__
            raise UserError(
                f"{option} must be text or a number, as config.json keeps it, not {kind}"
            )
    read, idle = {}, {}
    for name in names:
        own = {option: given[option] for option in owned[name] if option in given}
        with without_flags():
            read[name] = VARIANTS[name].options(**own)
        reasons = read[name].without_effect([kind for kind in chain if chain[kind] == name])
        for option in own:
            if VARIANTS[name].is_neutral(option, read[name]):
                reasons.pop(option, None)
            idle.setdefault(option, []).append(reasons.get(option))
    for option, reasons in idle.items():
        if all(reasons):
            with without_flags():
                raise UserError(f"{option} would have no effect: {reasons[0]}: leave it out")
    return read, scores, longest


def _chain_of(variant: str, kinds: list[str], model: str) -> dict[str, str]:
    """The variant of each kind of attention that gets one."""
    with without_flags():
        chain = parse_chain(variant)
    if "=" not in str(variant):
        kind = "encoder" if "encoder" in kinds else "decoder"
        if kind not in VARIANTS[variant].serves:
            serves = listed(VARIANTS[variant].serves)
            raise UserError(f"{variant} serves {serves} attention; {model} has {listed(kinds)}")
        return {kind: variant}
    chain = {kind: name for kind, name in chain.items() if f"{kind}=" in _links(variant)}
    for kind in chain:
        if kind not in kinds:
            raise UserError(f"variant {variant}: {model} has {listed(kinds)} attention, no {kind}")
    return chain


def _links(variant: str) -> list[str]:
    return [link.partition("=")[0].strip() + "=" for link in variant.split(",")]


def _attach(model: PreTrainedModel, about: Mapping[str, Any]) -> None:
    """Adds to each attention what is its own, as submodule ``ea``, and the hooks."""
    chain = dict(link.split("=") for link in about["variant"].split(","))
    read, scores, longest = read_options(chain, about["options"])
    stacks: dict[str, nn.Module] = {}
    attached: list[tuple[nn.Module, Evolved]] = []
    for item in about["attentions"]:
        one = Found(**item)
        attention, stack = (_module(model, path) for path in (one.path, one.stack))
        name = chain.get(one.kind, PLAIN)
        place = Place(one.kind, one.num_heads, one.head_dim, one.layer, one.num_layers)
        options = read[name] if name in read else VARIANTS[name].options()
        score = None
        if scores != PRODUCT and one.kind in chain and one.kind in SCORES[scores].serves:
            score = build_scores(scores, place, longest, "max_positions")
        with without_flags():
            transform = VARIANTS[name].build(options, place)
        position = Position(one.kind, one.chain, one.layer)
        ours = Evolved(position, transform, score).train(attention.training)
        weight = next(attention.parameters(), None)
        if weight is not None:
            dtype = weight.dtype if weight.is_floating_point() else torch.float32
            ours = ours.to(weight.device, dtype)
        stacks[one.stack] = stack
        attached.append((attention, ours))
    for attention, ours in attached:
        attention.ea = ours
        attention.register_forward_pre_hook(hand_over_cache, with_kwargs=True)
    for stack in stacks.values():
        stack.register_forward_pre_hook(begin_pass, with_kwargs=True)


def _module(model: PreTrainedModel, path: str) -> nn.Module:
    """A module of a model, or of one with another head."""
    prefix = f"{model.base_model_prefix}."
    for candidate in (path, path.removeprefix(prefix), prefix + path):
        try:
            return model.get_submodule(candidate)
        except AttributeError:
            continue
    raise UserError(f"{type(model).__name__} has no {path}: it was saved from another architecture")


def _declare(model: PreTrainedModel, about: Mapping[str, Any]) -> None:
    """Sets the attention implementation, and has config.json say so.

    Whoever opens the folder as a plain model is told by transformers that this implementation is
    not there; weights that nobody reads would be mentioned at most.
    """
    setattr(model.config, _KEY, dict(about))
    model.config.attn_implementation = NAME
    model.set_attn_implementation(NAME)


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{folder}: no config.json there: not a folder of save_pretrained")
    try:
        about = json.loads(path.read_text(encoding="utf-8")).get(_KEY)
    except (ValueError, AttributeError):
        raise UserError(f"{path}: not a configuration of transformers") from None
    if about is None:
        raise UserError(f"{folder}: saved from a plain model; open it as one, then evolve it")
    if not isinstance(about, dict) or about.get("form") != _FORM:
        raise UserError(f"{path}: evolved by another version of ea_fairseq, whose form is unknown")
    return about


def _plain_class(model_class: Any, folder: str | Path) -> type[PreTrainedModel]:
    """The class of a model that from_pretrained would choose."""
    if not (isinstance(model_class, type) and issubclass(model_class, _BaseAutoModelClass)):
        return model_class
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    if type(config) not in model_class._model_mapping:
        raise UserError(f"{folder}: {config.model_type} is no model for {model_class.__name__}")
    return _get_model_class(config, model_class._model_mapping)
