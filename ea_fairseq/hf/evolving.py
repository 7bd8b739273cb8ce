"""Evolves a model of transformers, and opens the folders that it saved."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto.auto_factory import _BaseAutoModelClass, _get_model_class

from ..attention.configuration import ATTENTIONS, PLAIN, parse_chain
from ..attention.contract import Place
from ..attention.functional import without_flags
from ..attention.options import VariantOptions, as_text, listed
from ..attention.scores import SCORES
from ..attention.scores.base import PRODUCT, build_scores, known_score
from ..attention.variants import VARIANTS
from ..checkpoints.finite_weights import unusable_weight
from ..errors import UserError, perhaps_meant
from ..files import read_json
from .attending import NAME, Evolved, Position, hand_over_cache
from .finding import Found, find_again, find_attentions
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
    neutral setting, alpha = beta = 0, the model computes what it computed before, at positions that
    are not padding.

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
    if example is not None and not isinstance(example, Mapping):
        raise UserError(f"example must be a dict of keywords, not {type(example).__name__}")
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
    _copy_config(model)
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
        UserError: a folder that was not evolved, lacks a file or a weight, is of another version,
            or whose config.json and weights are not those of one model
    """
    if not hasattr(model_class, "from_pretrained") or not isinstance(model_class, type):
        wrong = getattr(model_class, "__name__", type(model_class).__name__)
        raise UserError(f"load: a class of models comes first, such as AutoModel, not {wrong}")
    path = Path(folder) / "config.json"
    about = _read_about(path)
    kwargs.pop("attn_implementation", None)
    weights = _weights_of(Path(folder))

    wanted = kwargs.pop("output_loading_info", False)
    try:
        plain = _plain_class(model_class, folder)
        built = _with_attached(plain, about)
        model, info = built.from_pretrained(
            folder, attn_implementation="eager", output_loading_info=True, **kwargs
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except RecursionError:
        raise UserError(f"{path}: nested too deeply") from None
    except (OSError, RuntimeError, SafetensorError) as error:
        if "ignore_mismatched_sizes" in str(error):
            raise UserError(
                f"{weights}: some weights have other sizes than in the model of config.json and of "
                "the arguments, such as num_labels: ignore_mismatched_sizes=True begins those anew"
            ) from error
        raise UserError(f"{weights}: cannot be loaded: {' '.join(str(error).split())}") from error
    model.__class__ = plain
    _check_names(model, info, weights)
    dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
    here = {name: one for name, one in model.state_dict().items() if not one.is_meta}
    if bad := unusable_weight(here, dtype):
        raise UserError(f"{weights}: {bad}")
    _check_attentions(model, about, path)
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
    if scores == PRODUCT and "max_positions" in given:
        raise UserError("max_positions would have no effect: it is of scores: leave it out")
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
    named = [link.partition("=")[0].strip() for link in variant.split(",")]
    chain = {kind: name for kind, name in chain.items() if kind in named}
    for kind in chain:
        if kind not in kinds:
            raise UserError(f"variant {variant}: {model} has {listed(kinds)} attention, no {kind}")
    return chain


def _attach(model: PreTrainedModel, about: Mapping[str, Any]) -> None:
    """Adds to each attention what is its own, as submodule ``ea``."""
    chain = dict(link.split("=") for link in about["variant"].split(","))
    read, scores, longest = read_options(chain, about["options"])
    attached: list[tuple[nn.Module, Evolved]] = []
    for item in about["attentions"]:
        one = Found(**item)
        attention = _module(model, one.path)
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
        attached.append((attention, ours))
    for attention, ours in attached:
        attention.ea = ours
        # Else the post_init() of a model that this one is put into would draw them anew.
        for one in (*ours.modules(), *ours.parameters()):
            one._is_hf_initialized = True


def _bare(model: PreTrainedModel, name: str) -> str:
    """The name of a module or weight in the model without its head."""
    return f"{name}.".removeprefix(f"{model.base_model_prefix}.").removesuffix(".")


def _module(model: PreTrainedModel, path: str) -> nn.Module:
    """A module of a model, or of one with another head."""
    prefix = f"{model.base_model_prefix}."
    for candidate in (path, _bare(model, path), prefix + path):
        try:
            return model.get_submodule(candidate)
        except AttributeError:
            continue
    raise UserError(f"{type(model).__name__} has no {path}: it was saved from another architecture")


def _copy_config(model: PreTrainedModel) -> None:
    """Gives the model a configuration of its own: another one, made of the same, stays plain."""
    copies: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(getattr(module, "config", None), PretrainedConfig):
            module.config = copy.deepcopy(module.config, copies)


def _declare(model: PreTrainedModel, about: Mapping[str, Any]) -> None:
    """Adds the hooks, sets the attention implementation, and has config.json say so.

    Whoever opens the folder as a plain model is told by transformers that this implementation is
    not there; weights that nobody reads would be mentioned at most.
    """
    for item in about["attentions"]:
        _module(model, item["path"]).register_forward_pre_hook(hand_over_cache, with_kwargs=True)
    for stack in dict.fromkeys(item["stack"] for item in about["attentions"]):
        _module(model, stack).register_forward_pre_hook(begin_pass, with_kwargs=True)
    setattr(model.config, _KEY, dict(about))
    model.config.attn_implementation = NAME
    model.set_attn_implementation(NAME)
    model.register_state_dict_pre_hook(_check_layers)


def _check_layers(model: PreTrainedModel, *_: Any) -> None:
    """Refuses to save a model whose layers were changed since it was evolved: `load` would build
    what config.json says."""
    attentions = getattr(model.config, _KEY)["attentions"]
    written = {_bare(model, item["path"]): item["layer"] for item in attentions}
    found = {
        _bare(model, path): module.ea.position.layer
        for path, module in model.named_modules()
        if isinstance(getattr(module, "ea", None), Evolved)
    }
    if found != written:
        raise UserError(
            f"{type(model).__name__}: its layers were exchanged, added or removed since it was "
            "evolved, and could not be loaded again: change them before evolve"
        )


def _with_attached(plain: type[PreTrainedModel], about: Mapping[str, Any]) -> Any:
    """The class whose models have what is attached before their weights are read."""

    def build(self: PreTrainedModel, config: PretrainedConfig, *args: Any, **given: Any) -> None:
        plain.__init__(self, config, *args, **given)
        _attach(self, about)

    return type(plain.__name__, (plain,), {"__init__": build, "__module__": plain.__module__})


def _read_about(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path.parent}: no config.json there: not a folder of save_pretrained")
    about = read_json(path).get(_KEY)
    if about is None:
        raise UserError(f"{path.parent}: saved from a plain model; open it as one, then evolve it")
    if not isinstance(about, dict) or about.get("form") != _FORM:
        raise UserError(f"{path}: evolved by another version of ea_fairseq, whose form is unknown")
    for name, kind in (("variant", str), ("options", dict), ("attentions", list)):
        if not isinstance(about.get(name), kind) or about[name] == []:
            raise UserError(
                f"{path}: {_KEY}: {name} must be what evolve wrote, not {about.get(name)!r:.60}"
            )
    types = {field.name: field.type for field in fields(Found)}
    for item in about["attentions"]:
        if (
            not isinstance(item, dict)
            or {name: type(value).__name__ for name, value in item.items()} != types
            or item["kind"] not in ATTENTIONS
            or min(item["num_heads"], item["head_dim"]) < 1
        ):
            raise UserError(f"{path}: {_KEY}: an attention must be what evolve wrote: {item!r:.99}")
    kinds = list(dict.fromkeys(item["kind"] for item in about["attentions"]))
    try:
        chain = _chain_of(about["variant"], kinds, "the model")
        if about["variant"] != ",".join(f"{kind}={name}" for kind, name in chain.items()):
            raise UserError(f"variant {about['variant']!r} must be written as KIND=NAME,...")
        read_options(chain, about["options"])
    except ValueError as error:
        raise UserError(f"{path}: {_KEY}: {error}") from error
    except TypeError as error:  # a list where a name is expected
        raise UserError(f"{path}: {_KEY}: options must be what evolve wrote: {error}") from error
    return about


def _weights_of(folder: Path) -> Path:
    """The file of a folder's weights, or the one that tells which there are.

    Raises:
        UserError: there is none, or one of them cannot be read
    """
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt"):
                pass
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: cut short or damaged: {error}") from error
    index = folder / "model.safetensors.index.json"
    return index if index.is_file() else folder / "model.safetensors"


def _check_names(model: PreTrainedModel, info: Mapping[str, Any], path: Path) -> None:
    """Refuses weights that are missing and those that nobody takes, but those of another head."""
    if not (info["missing_keys"] or info["unexpected_keys"]):
        return
    name, saved = (model.config.architectures or [type(model).__name__])[0], type(model)
    if name != saved.__name__:
        saved = getattr(transformers, name, None)
    names = {_bare(model, key) for key in model.base_model.state_dict()}
    if saved is not None:
        with torch.device("meta"):
            names = {_bare(model, key) for key in saved(copy.deepcopy(model.config)).state_dict()}
    for key in sorted(info["missing_keys"]):
        if ".ea." in key or _bare(model, key) in names:
            raise UserError(f"{path}: {key} is missing among its weights")
    for key in sorted(info["unexpected_keys"]):
        if ".ea." in key or (saved is not None and _bare(model, key) not in names):
            raise UserError(f"{path}: {key} is among its weights; {name} has none of that name")


def _check_attentions(model: PreTrainedModel, about: Mapping[str, Any], path: Path) -> None:
    """Refuses attentions in config.json that are not those of the model."""
    written = [Found(**item) for item in about["attentions"]]
    known = {_module(model, one.path): one for one in written}
    try:
        found = find_again(model, known)
    except UserError as error:
        raise UserError(f"{path}: {_KEY}: {error}") from error
    ours, theirs = ({one.path: one for one in _named(model, all_)} for all_ in (written, found))
    if len(ours) < len(written) or ours.keys() != theirs.keys():
        raise UserError(f"{path}: {_KEY}: {len(written)} attentions, not the model's {len(found)}")
    for name, one in ours.items():
        for item, value in asdict(theirs[name]).items():
            if item != "longest" and getattr(one, item) != value:
                raise UserError(
                    f"{path}: {_KEY}: {item} of attention {name} must be {value!r}, as in the "
                    f"model, not {getattr(one, item)!r}"
                )


def _named(model: PreTrainedModel, attentions: list[Found]) -> list[Found]:
    """Attentions by their names in the model without its head."""
    return [
        replace(one, **{key: _bare(model, getattr(one, key)) for key in ("path", "chain", "stack")})
        for one in attentions
    ]


def _plain_class(model_class: Any, folder: str | Path) -> type[PreTrainedModel]:
    """The class of a model that from_pretrained would choose."""
    if not (isinstance(model_class, type) and issubclass(model_class, _BaseAutoModelClass)):
        return model_class
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    if type(config) not in model_class._model_mapping:
        raise UserError(f"{folder}: {config.model_type} is no model for {model_class.__name__}")
    return _get_model_class(config, model_class._model_mapping)
