"""fairseq's own search with our settings: what ours is held to."""

import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from small_models import PAD, dictionary, padded


def generator(models, dictionary, search):
    """fairseq's class, with the settings of a `Search`."""
    return SequenceGenerator(
        models,
        dictionary,
        beam_size=search.beam,
        max_len_a=search.max_len_a,
        max_len_b=search.max_len_b,
        min_len=search.min_len,
        normalize_scores=not search.unnormalized,
        len_penalty=search.lenpen,
        unk_penalty=search.unkpen,
    )


def built(model, **settings):
    """What a command builds of its options, as fairseq names them."""
    words = dictionary()
    task = TranslationTask(TranslationConfig(), words, words)
    return task.build_generator([model], GenerationConfig(**settings))


def sample(sources):
    """A batch of sources, padded on the left as fairseq-generate pads them."""
    tokens = padded([torch.tensor(source) for source in sources], left=True)
    return {"net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(dim=1)}}
