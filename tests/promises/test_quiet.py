"""What fairseq's commands leave unsaid, and that it can be had."""

import argparse
import logging
import sys
import warnings

import pytest
import torch
from fairseq.data import Dictionary, ListDataset, TokenBlockDataset
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from small_models import EOS, PAD

from ea_fairseq.guard import quiet


@pytest.fixture
def say(monkeypatch, caplog):
    """Logs as fairseq does, in a command or in a program of one's own; returns what is shown."""

    def call(name, message, program="/usr/bin/fairseq-train", level=logging.INFO, shown="INFO"):
        monkeypatch.setattr(sys, "argv", [program, "bin", "--lr", "1e-3"])
        monkeypatch.setenv("LOGLEVEL", shown)
        caplog.clear()
        with caplog.at_level("DEBUG"):  # as one of fairseq's modules has it
            logging.getLogger(name).log(level, message)
        return [record.getMessage() for record in caplog.records]

    return call


SETTINGS = argparse.Namespace(lr=1e-3, dropout=0.1)
WORKINGS = "fairseq.tasks.fairseq_task"


def test_the_options_given_are_shown_and_all_of_them_on_demand(say):
    short = ["options: bin --lr 1e-3 (with fairseq's defaults: LOGLEVEL=DEBUG)"]
    for command in ("preprocess", "train", "generate", "interactive", "validate", "eval_lm"):
        assert say(f"fairseq_cli.{command}", SETTINGS) == short
    assert say("fairseq_cli.train", SETTINGS, shown="DEBUG") == [str(SETTINGS)]
    assert say("fairseq_cli.train", SETTINGS, program="/home/me/mine.py") == [str(SETTINGS)]
    assert say("fairseq_cli.train", "training on 1 devices") == ["training on 1 devices"]


def test_inner_workings_are_left_out_but_no_warning_is(say):
    assert say(WORKINGS, "reuse_dataloader = True") == []
    assert say("hydra.core.utils", "Setting JobRuntime", level=logging.DEBUG) == []
    assert say(WORKINGS, "reuse_dataloader = True", shown="DEBUG") != []
    assert say(WORKINGS, "reuse_dataloader = True", program="/home/me/mine.py") != []
    assert say(WORKINGS, "no sentence fits", level=logging.WARNING) == ["no sentence fits"]


def test_warnings_are_left_out_unless_python_was_told_about_them(monkeypatch):
    known = [
        "hydra.experimental.compose() is no longer experimental. Use hydra.compose()",
        "\n'config' is validated against ConfigStore schema with the same name.\n",
        "'pin_memory' argument is set as true but no accelerator is found, then",
    ]

    def heard(*options):
        monkeypatch.setattr(sys, "warnoptions", list(options))
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            quiet.leave_out_warnings()
            for message in [*known, "the learning rate is odd"]:
                warnings.warn(message, stacklevel=1)
        return [str(warning.message) for warning in found]

    assert heard() == ["the learning rate is odd"]
    assert heard("always") == [*known, "the learning rate is odd"]


class Copying(TranslationTask):
    """Translates each sentence as its reference."""

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        return [[{"tokens": tokens}] for tokens in sample["target"]]


@pytest.mark.parametrize("on_purpose", [True, False])
def test_tokens_are_no_mistake_where_bleu_of_tokens_is_asked_for(on_purpose, caplog):
    dictionary = Dictionary()
    words = [dictionary.add_symbol(word) for word in ["a", "man", "with", "his", "dog", "."]]
    settings = TranslationConfig(eval_bleu=True, eval_tokenized_bleu=on_purpose)
    task = Copying(settings, dictionary, dictionary)
    task.tokenizer = None
    hundred = {"target": torch.tensor([[*words, dictionary.eos()]] * 100)}

    bleu = task._inference_with_bleu(None, hundred, None)

    assert bleu.score == pytest.approx(100)
    said = [message for message in caplog.messages if "tokenized period" in message]
    assert said == ([] if on_purpose else ["That's 100 lines that end in a tokenized period ('.')"])
    assert on_purpose == (not caplog.messages)
    logging.getLogger("sacrebleu").warning("It looks like you forgot to detokenize")
    assert caplog.messages[-1:] == ["It looks like you forgot to detokenize"]  # heard again


def test_a_text_that_begins_with_an_empty_line_is_read_without_a_warning():
    lines = [[EOS], [5, 6, EOS], [EOS]]
    dataset = ListDataset([torch.tensor(line) for line in lines], [len(line) for line in lines])
    blocks = TokenBlockDataset(dataset, dataset.sizes, None, PAD, EOS, "eos", include_targets=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = [blocks[number][:2] for number in range(len(lines))]
    for line, (source, target) in zip(lines, read, strict=True):
        assert target.tolist() == line and source.tolist() == [EOS, *line[:-1]]
