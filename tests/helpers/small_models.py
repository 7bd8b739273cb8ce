"""Small models for the tests: dictionary, task and builders."""

import argparse
from dataclasses import fields
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import ea_fairseq.plugin  # noqa: F401  (registers the architectures)
from ea_fairseq.attention.variants import VARIANTS

BOS, PAD, EOS, VOCABULARY = 0, 1, 2, 24

TINY = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {
        "embed_dim": 16,
        "ffn_embed_dim": 24,
        "attention_heads": 4,
        "layers": 3,
    }.items()
}


def as_kept(options):
    """Options of a variant as a checkpoint keeps them: all, whether used or not."""
    variant = VARIANTS.get(options.get("ea_variant", "evolving"))
    if variant is None:  # a chain of several
        return options
    kept = [item for item in fields(variant.options) if not item.metadata["later"]]
    return {**{f"ea_{item.name}": item.default for item in kept}, **options}


def settings_of(variant):
    """What a checkpoint would have for each of a variant's sets of options, by name."""
    for options in VARIANTS[variant].cases:
        name = " ".join([variant, *(f"{key}={value}" for key, value in options.items())])
        yield name, as_kept({"ea_variant": variant, **{f"ea_{k}": v for k, v in options.items()}})


def dictionary(size=VOCABULARY):
    """A dictionary of that many entries, fairseq's special ones among them."""
    result = Dictionary()
    for index in range(size - len(result)):
        result.add_symbol(f"w{index}")
    assert len(result) == size
    return result


def build(arch, sizes=TINY, **options):
    """A model of the architecture with options as the command line would give them.

    Names are those of argparse: ``ea_kernel_size=5``.
    """
    args = argparse.Namespace(arch=arch, **{**sizes, **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    words = dictionary()
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def build_strong(arch="ea_transformer_lite", seed=0, **options):
    """A model in float64 and eval mode whose every part shows in the scores.

    Large weights, beta 0.5 and large convolutions: a forgotten mask, move or reorder is not lost in
    rounding, and different prefixes give different maps.
    """
    torch.manual_seed(seed)
    if arch == "ea_transformer_lite" and options.get("ea_variant", "evolving") == "evolving":
        options = as_kept({"ea_alpha": 0.4, "ea_beta": 0.5, **options})
    model = build(arch, **options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 1.0 if ".transform." in name or ".scores." in name else 0.4
            if "layer_norm" in name:
                parameter.normal_(mean=float(name.endswith("weight")), std=0.2)
            else:
                parameter.normal_(std=scale)
            if "embed_tokens" in name:
                parameter[PAD] = 0
    return model.double().eval()


def sentences(lengths, seed, last=None):
    """Random sentences of the given lengths, without special tokens except a last one."""
    generator = torch.Generator().manual_seed(seed)
    result = []
    for length in lengths:
        tokens = torch.randint(4, VOCABULARY, (length,), generator=generator)
        if last is not None:
            tokens[-1] = last
        result.append(tokens)
    return result


def padded(sequences, left=False):
    """A batch (batch, longest) of sequences, padded on the right or the left."""
    longest = max(len(tokens) for tokens in sequences)
    batch = torch.full((len(sequences), longest), PAD)
    for row, tokens in zip(batch, sequences, strict=True):
        if left:
            row[longest - len(tokens) :] = tokens
        else:
            row[: len(tokens)] = tokens
    return batch


def scores_of(model, source, target):
    """(batch, tgt_len, vocabulary) of padded batches; a language model has no source."""
    return (model(source, None, target) if hasattr(model, "encoder") else model(target))[0]


def score(model, sources, prefixes, left_pad_source=True, left_pad_target=False):
    """Scores of each sentence in one padded batch: a list of (tgt_len, vocabulary)."""
    device = next(model.parameters()).device
    source, target = padded(sources, left_pad_source), padded(prefixes, left_pad_target)
    with torch.no_grad():
        scores = scores_of(model, source.to(device), target.to(device))
    return [
        row[-len(tokens) :] if left_pad_target else row[: len(tokens)]
        for row, tokens in zip(scores, prefixes, strict=True)
    ]


def beam_search(model, sources, prefixes, order_seed=7):
    """Decodes as beam search does: after each step hypotheses change places at random, some twice,
    some not at all, and at steps 3 and 5 a sentence leaves. Yields, per step, the scores of the
    step and those of a full pass over the same prefixes, wherever the model is."""
    generator = torch.Generator().manual_seed(order_seed)
    beam, bsz = 3, len(sources)
    device = next(model.parameters()).device
    tokens = padded(prefixes).to(device)  # (sentences * beam, steps), no padding
    encoder, encoder_out = getattr(model, "encoder", None), None
    if encoder is not None:
        encoder_out = encoder.reorder_encoder_out(
            encoder(padded(sources, left=True).to(device)),
            torch.arange(bsz, device=device).repeat_interleave(beam),
        )
    incremental_state = {}
    for t in range(tokens.size(1)):
        if t:
            kept = list(range(tokens.size(0) // beam))
            if t in (3, 5):
                kept.pop(1)
            order = torch.cat(
                [i * beam + torch.randint(beam, (beam,), generator=generator) for i in kept]
            ).to(device)
            # The prefixes move with their hypotheses; the tokens to come differ again, so that a
            # hypothesis which kept another's rows is found out.
            later = tokens[: len(order), t:]
            tokens = torch.cat([tokens[order, :t], later], dim=1)
            model.decoder.reorder_incremental_state_scripting(incremental_state, order)
            if encoder is not None:
                encoder_out = encoder.reorder_encoder_out(encoder_out, order)
        prefix = tokens[:, : t + 1]
        step, _ = model.decoder(
            prefix, encoder_out=encoder_out, incremental_state=incremental_state
        )
        full, _ = model.decoder(prefix, encoder_out=encoder_out)
        yield step[:, -1], full[:, -1]
