"""Sentences shorter than the kernel, on every path: compiled, on torch, in half precision."""

import contextlib

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from reference import REGIONS
from small_models import EOS, PAD, TINY, VOCABULARY, build_strong, dictionary, padded, sentences
from test_ea_transformer import padded_steps
from torch.testing import assert_close

from ea_fairseq.kernels.cpp.library import torch_alone

LENGTHS = range(1, 13)
SMALL = {**TINY, "encoder_layers": 2, "decoder_layers": 2}
# Type of the weights, where it runs, and how far steps may be from a full pass, whose scores are of
# the order of 10.
PATHS = {
    "compiled": (torch.float64, contextlib.nullcontext, 1e-9),
    "torch": (torch.float64, torch_alone, 1e-9),
    "half precision": (torch.bfloat16, contextlib.nullcontext, 0.25),
}
every_kernel = pytest.mark.parametrize("kernel_size", [1, 3, 5, 7, 9])
every_path = pytest.mark.parametrize("path", PATHS)


def model_of(kernel_size, dtype):
    options = {"ea_kernel_size": kernel_size, "ea_skip": ",".join(REGIONS)}
    # Without positions: fairseq counts them from the padding when it goes step by step.
    return build_strong(sizes=SMALL, no_token_positional_embeddings=True, **options).to(dtype)


@every_path
@every_kernel
def test_steps_equal_a_full_pass_for_sources_of_any_length_and_padded_targets(kernel_size, path):
    dtype, context, tolerance = PATHS[path]
    model = model_of(kernel_size, dtype)
    with context():
        for length in LENGTHS:
            sources = sentences([length, max(1, length - 2)], length, last=EOS)
            for step, full in padded_steps(model, sources, sentences([11, 4], length + 20)):
                assert_close(step, full, atol=tolerance, rtol=0)


@every_path
@every_kernel
def test_beams_larger_than_the_vocabulary_report_the_scores_of_a_full_pass(kernel_size, path):
    dtype, context, tolerance = PATHS[path]
    model = model_of(kernel_size, dtype)
    sources = sentences(LENGTHS, 3, last=EOS)
    tokens = padded(sources, left=True)
    search = SequenceGenerator([model], dictionary(), beam_size=VOCABULARY + 8, max_len_b=4)
    batch = {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1)}
    with torch.no_grad(), context():
        hypotheses = search.generate([model], {"net_input": batch})
        for source, found in zip(sources, hypotheses, strict=True):
            best = [found[0], found[-1]]
            prefixes = [torch.cat([torch.tensor([EOS]), one["tokens"][:-1]]) for one in best]
            encoder_input = source.expand(2, -1)
            scores, _ = model(encoder_input, None, padded(prefixes))
            for one, row in zip(best, scores.float().log_softmax(-1), strict=True):
                expected = row[torch.arange(len(one["tokens"])), one["tokens"]]
                atol = max(1e-4, tolerance)
                assert_close(one["positional_scores"], expected, atol=atol, rtol=1e-4)
