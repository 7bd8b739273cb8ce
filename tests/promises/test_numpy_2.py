"""Blocks of a text in fairseq, with the numpy of today."""

import warnings

import torch
from fairseq.data import ListDataset, TokenBlockDataset
from small_models import EOS, PAD

import ea_fairseq.plugin  # noqa: F401  (replaces what fairseq lacks)


def test_a_text_that_begins_with_an_empty_line_is_read_without_a_warning():
    lines = [[EOS], [5, 6, EOS], [EOS]]
    dataset = ListDataset([torch.tensor(line) for line in lines], [len(line) for line in lines])
    blocks = TokenBlockDataset(dataset, dataset.sizes, None, PAD, EOS, "eos", include_targets=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = [blocks[number][:2] for number in range(len(lines))]
    for line, (source, target) in zip(lines, read, strict=True):
        assert target.tolist() == line and source.tolist() == [EOS, *line[:-1]]
