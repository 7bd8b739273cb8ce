"""fairseq's own beam search with our settings: what ours is held to."""

from fairseq.sequence_generator import SequenceGenerator


def generator(models, dictionary, search):
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
