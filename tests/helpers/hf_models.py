"""Small models of Hugging Face's transformers with random weights, and inputs for them."""

import ea_fairseq.hf  # noqa: F401  first: models of transformers may want a torchaudio

# isort: split
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    DeiTConfig,
    DeiTModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)

EVERYWHERE = "encoder,decoder,encoder-decoder"
ALL_THREE = "encoder=evolving,decoder=evolving,encoder-decoder=evolving"
IMAGES = ("vit", "deit")
BOTH = ("t5", "bart", "marian")
DECODERS = ("gpt2", "llama")
WORDS = 60

_SIZES = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=4, intermediate_size=24)
_TEXT = dict(**_SIZES, vocab_size=WORDS, max_position_embeddings=48, initializer_range=0.4)
_BOTH = dict(
    **dict(vocab_size=WORDS, d_model=16, encoder_layers=3, decoder_layers=3),
    **dict(encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=48),
    **dict(encoder_ffn_dim=24, decoder_ffn_dim=24, init_std=0.4, pad_token_id=0),
    **dict(eos_token_id=2, bos_token_id=1, decoder_start_token_id=2, forced_eos_token_id=None),
)
_PIXELS = dict(**_SIZES, image_size=12, patch_size=4, initializer_range=0.4)

_MODELS = {
    "bert": lambda: BertModel(BertConfig(**_TEXT)),
    "roberta": lambda: RobertaModel(RobertaConfig(**_TEXT)),
    "electra": lambda: ElectraModel(ElectraConfig(**_TEXT, embedding_size=12)),
    "distilbert": lambda: DistilBertModel(
        DistilBertConfig(
            **dict(vocab_size=WORDS, dim=16, n_layers=3, n_heads=4, hidden_dim=24),
            **dict(max_position_embeddings=48, initializer_range=0.4),
        )
    ),
    "vit": lambda: ViTModel(ViTConfig(**_PIXELS)),
    "deit": lambda: DeiTModel(DeiTConfig(**_PIXELS)),
    "t5": lambda: T5ForConditionalGeneration(
        T5Config(
            **dict(vocab_size=WORDS, d_model=16, d_kv=4, d_ff=24, num_layers=3, num_heads=4),
            **dict(decoder_start_token_id=0, eos_token_id=2),
        )
    ),
    "bart": lambda: BartForConditionalGeneration(BartConfig(**_BOTH)),
    "marian": lambda: MarianMTModel(MarianConfig(**_BOTH)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            **dict(vocab_size=WORDS, n_embd=16, n_layer=3, n_head=4, n_positions=48),
            **dict(initializer_range=0.4, bos_token_id=1, eos_token_id=2, pad_token_id=0),
        )
    ),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(**_TEXT, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    ),
}
FAMILIES = tuple(_MODELS)


def make(family, dtype=torch.float32):
    """A model in evaluation, with attention in transformers' plainest form."""
    torch.manual_seed(3)
    model = _MODELS[family]().to(dtype).eval()
    model.set_attn_implementation("eager")
    return model


def settings(family, alpha, beta, **options):
    """Variant and options that evolve every attention of a family, with carries everywhere."""
    options |= {"alpha": alpha, "beta": beta}
    if family in BOTH:
        return {"variant": ALL_THREE, "skip": EVERYWHERE, **options}
    return {"variant": "evolving", "skip": "decoder", **options} if family in DECODERS else options


def enlarge(model, factor=3.0):
    """Makes convolutions matter: what is forgotten is not lost in rounding."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".ea." in name:
                parameter.mul_(factor)
    return model


def inputs(family, side="right"):
    """Keywords of a call with three sentences of 9, 6 and 4 tokens (targets of 4, 6 and 3)."""
    generator = torch.Generator().manual_seed(1)
    if family in IMAGES:
        return {"pixel_values": torch.randn(3, 3, 12, 12, generator=generator)}
    ids = torch.randint(3, WORDS, (3, 9), generator=generator)
    mask = _mask((9, 6, 4), side)
    given = {"input_ids": ids, "attention_mask": mask}
    if family in BOTH:
        targets = torch.randint(3, WORDS, (3, 6), generator=generator)
        given |= {"decoder_input_ids": targets, "decoder_attention_mask": _mask((4, 6, 3), side)}
    return given


def with_positions(family, given):
    """The same with positions that count from each sentence's first token, where padding is left.

    T5 has relative positions; BART and Marian take none for padded targets.
    """
    if family in ("t5", "bart", "marian", "distilbert", *IMAGES):
        return given
    offset = 1 if family == "roberta" else 0  # the padding's index is where it begins to count
    positions = (given["attention_mask"].cumsum(1) - 1).clamp(min=0) + offset
    return {**given, "position_ids": positions}


def one_sentence(given, index):
    """Keywords of one sentence without its padding."""
    alone = {}
    for name, tensor in given.items():
        mask = given["decoder_attention_mask" if name.startswith("decoder") else "attention_mask"]
        alone[name] = tensor[index : index + 1, mask[index].bool()]
    return alone


def kept(family, given):
    """bool mask of the positions of the output that are no padding, or None."""
    if family in IMAGES:
        return None
    name = "decoder_attention_mask" if family in BOTH else "attention_mask"
    return given[name].bool()


def first(model, given):
    """The model's first output: (batch, length, width)."""
    return model(**given)[0]


def _mask(lengths, side):
    rows = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return (rows if side == "right" else rows.flip(1)).long()
