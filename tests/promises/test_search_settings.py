"""Translations as long as their sources, and language models whose words are the target's."""

import functools
import math
import re
import shutil

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq_commands import corpus, generation, last_line, run, temporary_folder, trained
from trained_language_models import corpus as text
from trained_language_models import trained as trained_language_model

from ea_fairseq.checkpoints import text_identity
from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.checkpoints.writing import save_checkpoint_file


def translate(data, *more):
    return run("generate", *generation(data, trained() / "checkpoint_last.pt", *more))


def refused(done):
    return last_line(done).removeprefix("error: ")


def test_translations_are_as_long_as_their_sources():
    """fairseq's are longer by one token."""
    output = translate(corpus(), "--match-source-len").output()
    sources = dict(re.findall(r"^S-(\d+)\t(.*)$", output, re.M))
    found = dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", output, re.M))
    assert len(sources) == 11 and len({len(line.split()) for line in sources.values()}) > 2
    assert {n: len(line.split()) for n, line in found.items()} == {
        n: len(line.split()) for n, line in sources.items()
    }


@functools.cache
def beside_a_text():
    """The parallel corpus with the dictionary of the language model, of the same words."""
    folder = shutil.copytree(corpus(), temporary_folder() / "bin")
    shutil.copyfile(text() / "dict.txt", folder / "dict.txt")
    entries = [set((folder / f"dict{end}.txt").read_text().split()[::2]) for end in ("", ".en")]
    assert entries[0] == entries[1]
    return folder


def fusion(*more):
    return ["--lm-path", trained_language_model() / "checkpoint_last.pt", *more]


def test_a_language_model_of_other_numbers_is_refused():
    error = refused(translate(beside_a_text(), *fusion("--lm-weight", "0.3")))
    assert error.startswith(
        "--lm-path: the language model's 24 entries are not those of the target"
    )


@torch.no_grad()
def log_probabilities(net, tokens, *source):
    """Of each of a hypothesis' tokens, by one pass over all of them."""
    read = torch.tensor([[tokens[-1], *tokens[:-1]]])
    scores = net.get_normalized_probs(net(*source, read), log_probs=True)[0]
    return scores[range(len(tokens)), tokens]


def test_scores_are_the_models_and_the_weighted_language_models(tmp_path):
    data, weight = shutil.copytree(corpus(), tmp_path / "bin"), 0.7
    shutil.copyfile(data / "dict.en.txt", data / "dict.txt")
    # Of the same numbers, whatever it was trained on.
    state = read_checkpoint(str(trained_language_model() / "checkpoint_last.pt"))
    del state["extra_state"][text_identity.KEY]
    save_checkpoint_file(state, str(tmp_path / "lm.pt"))
    fused = ("--lm-path", tmp_path / "lm.pt", "--lm-weight", weight)
    done = translate(data, *fused, "--batch-size", "4")
    assert done.status == 0, done.errors()
    printed = dict(re.findall(r"^([SHP]-\d+)\t(.*)$", done.output(), re.M))
    plain = dict(re.findall(r"^(H-\d+)\t\S+\t(.*)$", translate(data).output(), re.M))
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(trained() / "checkpoint_last.pt")], {"data": str(data)}
    )
    (language_model,), _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(tmp_path / "lm.pt")], {"data": str(data)}
    )
    others = 0
    for number in range(11):
        source = task.source_dictionary.encode_line(printed[f"S-{number}"], add_if_not_exist=False)
        score, text = printed[f"H-{number}"].split("\t")
        tokens = task.target_dictionary.encode_line(text, add_if_not_exist=False).tolist()
        ours = log_probabilities(
            model.eval(), tokens, source[None].long(), torch.tensor([len(source)])
        )
        expected = ours + weight * log_probabilities(language_model.eval(), tokens)
        expected = (expected / math.log(2)).tolist()
        found = [float(one) for one in printed[f"P-{number}"].split()]
        assert found == pytest.approx(expected, abs=2e-4)
        assert float(score) == pytest.approx(sum(expected) / len(expected), abs=2e-4)
        others += text != plain[f"H-{number}"]
    assert others > 0
