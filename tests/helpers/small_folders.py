"""Small model folders for the tests, with weights drawn at random, and commands that use them."""

import torch
from small_models import BOS, EOS, TINY, build, dictionary

from ea_fairseq.inference.build_model import unshared_weights
from ea_fairseq.inference.model_folder import Longest, ModelConfig, Search, write_model_folder
from ea_fairseq.text.processing import TextSettings
from ea_fairseq.text.tokens import Tokenization

WORDS = [f"w{number}" for number in range(20)]

#: For text that is tokenised and split already.
PLAIN = TextSettings("de", "en", Tokenization(tokenizer="none"), "none")

# With layer norms in front, random weights do not write the same word for ever.
PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}


def strong(arch, seed=1, **options):
    """A float32 model whose every source gets another answer (with seed 1), of several lengths."""
    torch.manual_seed(seed)
    options = {**PRE_NORM, **options}
    model = build(arch, **options).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_tokens" in name:
                parameter.normal_(std=0.25)
            elif "layer_norm" not in name:
                parameter.normal_(std=0.5 if "output_projection" in name else 0.3)
        # Sentences end before long.
        if options["decoder_normalize_before"]:
            model.decoder.layer_norm.bias.fill_(0.5)
        model.decoder.output_projection.weight[EOS] += 0.5
    return model


def write_folder(path, arch="ea_transformer_lite", seed=1, **settings):
    """A model folder with a model of that kind; ``settings`` are fields of `ModelConfig`, and
    ``words`` a dictionary of as many words as `WORDS` in another file."""
    options = {**PRE_NORM, **settings.pop("options", {})}
    model = strong(arch, seed, **options)
    words = settings.pop("words", None)
    if words is None:
        words = path.with_name(f"{path.name}.dict.txt")
        dictionary().save(str(words))
    config = ModelConfig(
        arch,
        {**TINY, **options},
        **{"text": PLAIN, "search": Search(max_len_b=15), "longest": Longest(12, 2), **settings},
    )
    write_model_folder(path, config, unshared_weights(model), (words, words), None)
    return path


def write_language_model(path, arch="ea_transformer_lm_lite", seed=1, **settings):
    """A language model's folder, likewise."""
    options = {"max_target_positions": 40, **settings.pop("options", {})}
    sizes = {name: value for name, value in TINY.items() if name.startswith("decoder")}
    model = strong_language_model(arch, seed, **options)
    words = path.with_name(f"{path.name}.dict.txt")
    dictionary().save(str(words))
    text = TextSettings("en", "en", Tokenization(tokenizer="none"), "none")
    search = Search(max_len_a=1.0, max_len_b=15)
    config = ModelConfig(
        arch,
        {**sizes, **options},
        **{"text": text, "search": search, "task": "language_modeling", **settings},
    )
    write_model_folder(path, config, unshared_weights(model), (words, words), None)
    return path


def strong_language_model(arch="ea_transformer_lm_lite", seed=1, **options):
    """A float32 language model whose every prefix is gone on with in another way."""
    torch.manual_seed(seed)
    model = build(arch, **options).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer_norm" not in name:
                parameter.normal_(std=0.5 if "output_projection" in name else 0.3)
        model.decoder.layer_norm.bias.fill_(0.5)
        # Lines end before long, and nothing begins within them.
        if model.decoder.output_projection is not None:
            model.decoder.output_projection.weight[EOS] += 0.8
            model.decoder.output_projection.weight[BOS] -= 0.8
    return model


def answered(main, folder, text, *options):
    """A command's exit code and lines for bytes of text, in this process, with files in the place
    of standard input and output."""
    source, target = folder.parent / "source.txt", folder.parent / "target.txt"
    source.write_bytes(text)
    arguments = [folder, "--input", source, "--output", target, *options]
    code = main([str(argument) for argument in arguments])
    return code, target.read_text(encoding="utf-8").split("\n")
