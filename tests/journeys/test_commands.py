"""EA models through fairseq's commands: train, resume, average, translate, score, refuse."""

import math
import re
import shlex
from pathlib import Path

import average_checkpoints
import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq_commands import (
    USER_DIR,
    console_script,
    corpus,
    generation,
    refusal,
    shared,
    succeeds,
    trained,
    training,
)

from ea_fairseq.checkpoints.reading import read_checkpoint

ABLATION = (
    *("--ea-kernel-size", "5", "--ea-convolution", "decoder,encoder-decoder"),
    *("--ea-skip", "encoder,decoder,encoder-decoder", "--ea-alpha", "0.25", "--ea-beta", "0.5"),
)


def train(folder, *more):
    done = succeeds("train", *training(corpus(), folder, "--arch", "ea_transformer_lite", *more))
    return done


@shared
def ablation(folder):
    """A folder with the checkpoints of three epochs of an EA model."""
    train(folder, "--max-epoch", "3", *ABLATION)


def checkpoint():
    return ablation() / "checkpoint_last.pt"


def weights(path):
    return torch.load(path, weights_only=True)["model"]


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def lines(output, letter):
    """{sentence: fields} of fairseq's output lines of that letter, best hypothesis alone."""
    found = {}
    for number, rest in re.findall(rf"^{letter}-(\d+)\t(.*)$", output, re.M):
        found.setdefault(int(number), rest.split("\t"))
    return found


def test_train_resume_average_generate_and_score(tmp_path):
    for epochs in ("1", "3"):  # stopped after the first epoch, then continued
        train(tmp_path, "--max-epoch", epochs, *ABLATION)
    resumed = weights(tmp_path / "checkpoint_last.pt")
    assert equal(resumed, weights(checkpoint()))  # to the bit, dropout included

    average = tmp_path / "average.pt"
    inputs = ["--inputs", str(ablation()), "--num-epoch-checkpoints", "3"]
    arguments = [*inputs, "--output", str(average)]
    average_checkpoints.main(arguments)
    assert not equal(weights(average), resumed)
    # No --ea option: the checkpoint knows.
    done = succeeds("generate", *generation(corpus(), average, "--beam", "5"))
    assert sorted(lines(done.output(), "H")) == list(range(11))
    assert "BLEU4 = " in done.output()
    validation = ["--user-dir", USER_DIR, "--max-tokens", "99"]
    done = succeeds("validate", corpus(), "--task", "translation", "--path", average, *validation)
    assert re.search(r"valid on 'valid' subset \| loss [\d.]+", done.output() + done.errors())


def translate(*more, paths=None):
    done = succeeds("generate", *generation(corpus(), paths or checkpoint(), *more))
    return done.output()


def test_an_ensemble_averages_the_probabilities_of_its_models():
    paths = f"{trained('ea_transformer_lite')}/checkpoint_last.pt:{checkpoint()}"
    output = translate("--score-reference", paths=paths)
    members = [translate("--score-reference", paths=path) for path in paths.split(":")]
    assert len(lines(output, "P")) == 11
    for number, (scores,) in lines(output, "P").items():
        parts = [[2 ** float(x) for x in lines(m, "P")[number][0].split()] for m in members]
        for score, *probs in zip(map(float, scores.split()), *parts, strict=True):
            assert 2**score == pytest.approx(sum(probs) / 2, abs=1e-3)
    assert sorted(lines(translate(paths=paths), "H")) == list(range(11))


def test_prefixes_are_kept():
    output = translate("--prefix-size", "2")
    targets, hypotheses = lines(output, "T"), lines(output, "H")
    for number in range(11):
        assert hypotheses[number][1].split()[:2] == targets[number][0].split()[:2]


def test_scores_of_references_are_those_of_a_full_pass():
    output = translate("--score-reference")
    (model,), _ = load_model_ensemble([str(checkpoint())])
    encoder = model.encoder.layers[0].self_attn.transform
    decoder = model.decoder.layers[0].encoder_attn.transform
    assert encoder.convolution is None and decoder.convolution.weight.shape[-1] == 5
    assert decoder.uses_carry and (decoder.alpha, decoder.beta) == (0.25, 0.5)
    source_words, target_words = model.encoder.dictionary, model.decoder.dictionary
    assert len(lines(output, "P")) == 11
    for number, (scores,) in lines(output, "P").items():
        source = source_words.encode_line(lines(output, "S")[number][0], add_if_not_exist=False)
        target = target_words.encode_line(lines(output, "T")[number][0], add_if_not_exist=False)
        prefix = torch.cat([target[-1:], target[:-1]]).long()
        with torch.no_grad():
            expected, _ = model.eval()(source[None].long(), None, prefix[None])
        expected = expected[0].log_softmax(-1).gather(1, target[:, None].long())[:, 0]
        expected = expected / math.log(2)  # fairseq prints them in base 2
        assert list(map(float, scores.split())) == pytest.approx(expected.tolist(), abs=2e-4)


@pytest.mark.parametrize(
    "search",
    [
        ["--sampling", "--sampling-topk", "5", "--nbest", "3"],
        ["--sampling", "--sampling-topp", "0.8", "--nbest", "3"],
        ["--no-repeat-ngram-size", "2", "--unkpen", "1", "--lenpen", "0.6", "--min-len", "3"],
        ["--max-tokens", "40", "--nbest", "3"],
    ],
    ids=lambda search: search[0],
)
def test_every_search_translates_every_sentence(search):
    assert sorted(lines(translate(*search), "H")) == list(range(11))


def test_a_plain_transformer_continues_as_an_ea_model(tmp_path):
    plain = trained() / "checkpoint_last.pt"
    ways = {
        "finetune": ["--finetune-from-model", plain],
        "restore": [
            *("--restore-file", plain, "--reset-optimizer", "--reset-lr-scheduler"),
            *("--reset-dataloader", "--reset-meters"),
        ],
    }
    for name, way in ways.items():
        done = train(tmp_path / name, "--max-epoch", "1", "--lr", "1e-9", *way)
        assert "start fresh" in done.errors() + done.output()
        before, after = weights(plain), weights(tmp_path / name / "checkpoint_last.pt")
        for key, value in before.items():
            torch.testing.assert_close(after[key], value, atol=1e-5, rtol=0)
        assert any(".transform.convolution." in key for key in after)
    # The same command once more would begin anew, and write over what the training has come to.
    before = (tmp_path / "restore" / "checkpoint_last.pt").read_bytes()
    again = training(corpus(), tmp_path / "restore", "--arch", "ea_transformer_lite")
    assert "would begin anew, and " in refusal("train", *again, *ways["restore"])
    assert (tmp_path / "restore" / "checkpoint_last.pt").read_bytes() == before


def test_embeddings_of_two_tables_do_not_become_one(tmp_path):
    """The trained embeddings were thrown away for the output layer's."""
    train(tmp_path / "apart", "--max-epoch", "1", "--share-decoder-input-output-embed")
    path = tmp_path / "apart" / "checkpoint_last.pt"
    state = read_checkpoint(str(path))
    state["cfg"]["model"].share_decoder_input_output_embed = False
    torch.save(state, path)
    way = ["--finetune-from-model", path, "--share-decoder-input-output-embed"]
    last = refused(tmp_path / "joint", "--max-epoch", "1", *way)
    assert f"{path} was trained without --share-decoder-input-output-embed" in last


def test_batches_of_a_few_lengths(tmp_path):
    """fairseq asks numpy for a percentile as numpy 2 does not give it."""
    train(tmp_path, "--max-epoch", "1", "--num-batch-buckets", "2")
    assert (tmp_path / "checkpoint_last.pt").exists()


def test_without_its_optimizer_no_training_goes_on(tmp_path):
    """Updates and warm-up began anew, without a word."""
    train(tmp_path, "--max-epoch", "1", "--no-save-optimizer-state")
    again = training(corpus(), tmp_path, "--arch", "ea_transformer_lite", "--max-epoch", "2")
    assert re.search("after update [0-9]+ with --no-save-optimizer-state", refusal("train", *again))


def test_diverse_groups_give_a_sentence_what_it_has_alone():
    search = ["--beam", "4", "--nbest", "4", "--diverse-beam-groups", "2", "--batch-size"]
    together, alone = (
        {
            number: re.findall(rf"^H-{number}\t\S+\t(.*)$", output, re.M)
            for number in lines(output, "H")
        }
        for output in (translate(*search, size) for size in ("64", "1"))
    )
    assert len(alone) == 11 and together == alone


def refused(folder, *options):
    """The one line in which a training of these options ends before it saves anything."""
    arguments = training(corpus(), folder, "--arch", "ea_transformer_lite", *options)
    last = refusal("train", *arguments)
    assert not list(folder.glob("*.pt"))
    return last


@pytest.mark.parametrize(
    "options,named",
    [
        (["--ea-kernel-size", "4"], "argument --ea-kernel-size: .*1, 3, 5, 7, 9, not '4'"),
        (["--cross-self-attention"], "--cross-self-attention cannot be combined"),
        (["--source-lang", "fr"], "fr"),
        (["--restore-file", "/nowhere/checkpoint.pt"], "/nowhere/checkpoint.pt"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_input_to_training_ends_in_one_line_that_names_it(options, named, tmp_path):
    assert re.search(named, refused(tmp_path, "--max-epoch", "1", *options))


@pytest.mark.parametrize(
    "options,named",
    [
        (["--ea-kernel-size", "3"], r"ea_kernel_size|convolution\.weight.*5, 5.*3, 3"),
        (["--encoder-ffn-embed-dim", "24"], "fc1"),
        (["--ea-convolution", "encoder"], "convolution"),
        # All parameters keep their shapes.
        (["--decoder-attention-heads", "4"], "with --decoder-attention-heads 2, and 4 was asked"),
        (["--activation-fn", "gelu"], "with --activation-fn relu, and gelu was asked for"),
        (
            ["--decoder-normalize-before", "--no-decoder-final-norm"],
            "with --decoder-normalize-before False, and True was asked for",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_checkpoint_that_does_not_fit_is_refused_in_one_line(options, named, tmp_path):
    for way in ("--restore-file", "--finetune-from-model"):
        last = refused(tmp_path, "--max-epoch", "9", *ABLATION, *options, way, checkpoint())
        assert str(checkpoint()) in last and re.search(named, last)


def test_a_renamed_option_is_refused_where_its_value_would_be_lost(tmp_path):
    state = read_checkpoint(str(checkpoint()))
    settings = state["cfg"]["model"]
    settings.ea_mixing = settings.ea_alpha
    del settings.ea_alpha
    torch.save(state, tmp_path / "renamed.pt")
    last = refusal("generate", *generation(corpus(), tmp_path / "renamed.pt"))
    named = rf"{tmp_path}/renamed.pt: ea_mixing = .* is no option .* are ea_alpha, ea_beta"
    assert re.search(named, last)


def test_the_installed_command_works_from_the_root_as_on_the_pages():
    arguments = generation(corpus(), checkpoint())
    arguments[arguments.index(USER_DIR)] = "ea_fairseq"
    done = console_script("generate", *arguments, cwd=Path(USER_DIR).parent)
    assert done.returncode == 0, done.stderr
    assert "BLEU4 = " in done.stdout
    # Nothing that the plugin could keep quiet: fairseq itself is imported before it.
    said = [line for line in done.stderr.splitlines() if "tensorboardX" not in line]
    assert all(re.match("(DEBUG:hydra.*=UNKNOWN_NAME$|INFO:fairseq)", line) for line in said)
    assert f"options: {shlex.join(map(str, arguments))} (with" in done.stderr
    assert max(map(len, said)) < 500
