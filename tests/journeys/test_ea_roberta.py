"""EA-RoBERTa on fairseq's tasks: masked words, and sentences to classify."""

import random

import small_models
import torch
from fairseq_commands import USER_DIR, succeeds, temporary_folder
from small_models import TINY, dictionary
from trained_language_models import corpus

SIZES = {name: size for name, size in TINY.items() if name.startswith("encoder")}
SIZES["max_positions"] = 20


def build(arch, **options):
    torch.manual_seed(1)
    model = small_models.build(arch, SIZES, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.double().eval()


def batch():
    """Three sentences of 7, 5 and 2 tokens, padded right."""
    words = dictionary()
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(words.nspecial, len(words), (3, 7), generator=generator)
    tokens[1, 5:], tokens[2, 2:] = words.pad(), words.pad()
    return tokens


def test_a_plain_checkpoint_begins_it_and_neutral_options_leave_it_as_it_was():
    plain, model = build("roberta"), build("ea_roberta_base", ea_alpha=0.0, ea_beta=0.0)
    state = plain.state_dict()
    model.upgrade_state_dict(state)
    model.load_state_dict(state)
    tokens, real = batch(), batch().ne(dictionary().pad())
    expected, found = plain(tokens)[0][real], model(tokens)[0][real]
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    evolved = build("ea_roberta_base", ea_alpha=0.4, ea_beta=0.5)
    state = plain.state_dict()
    evolved.upgrade_state_dict(state)
    evolved.load_state_dict(state)
    assert (evolved(tokens)[0][real] - expected).abs().max() > 1e-3


def test_a_sentence_is_the_same_alone_and_in_a_batch():
    model, tokens = build("ea_roberta_base", ea_alpha=0.4, ea_beta=0.5), batch()
    together = model(tokens, features_only=True)[0]
    for index, length in enumerate((7, 5, 2)):
        alone = model(tokens[index : index + 1, :length], features_only=True)[0][0]
        torch.testing.assert_close(together[index, :length], alone, atol=1e-10, rtol=0)


def training(data, save_dir, arch, task, *more):
    sizes = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    return [
        *(data, "--user-dir", USER_DIR, "--arch", arch, "--task", task, *sizes),
        *("--optimizer", "adam", "--lr", "0.005", "--num-workers", "0", "--no-progress-bar"),
        *("--save-dir", save_dir, "--required-batch-size-multiple", "1", *more),
    ]


def classified():
    """Sentences and whether they have more than five words, for sentence_prediction."""
    folder, generator = temporary_folder(), random.Random(3)
    words = (corpus() / "dict.txt").read_text().split()[::2]
    for split, count in (("train", 40), ("valid", 10)):
        sentences = [generator.choices(words, k=generator.randint(2, 9)) for _ in range(count)]
        texts = "".join(" ".join(sentence) + "\n" for sentence in sentences)
        (folder / split).write_text(texts)
        (folder / f"{split}.label").write_text(
            "".join(f"{int(len(sentence) > 5)}\n" for sentence in sentences)
        )
    for name, suffix, more in (
        ("input0", "", ["--srcdict", corpus() / "dict.txt"]),
        ("label", ".label", []),
    ):
        prefixes = [f"--{split}pref={folder / split}{suffix}" for split in ("train", "valid")]
        arguments = ["--only-source", "--workers", "1", "--destdir", folder / "bin" / name]
        succeeds("preprocess", *arguments, *prefixes, *more)
    return folder / "bin"


def test_it_trains_on_masked_words_goes_on_and_classifies(tmp_path):
    masked = ("--criterion", "masked_lm", "--tokens-per-sample", "20", "--batch-size", "8")
    plain, evolved, classes = (tmp_path / name for name in ("plain", "evolved", "classes"))
    done = succeeds(
        "train", *training(corpus(), plain, "roberta", "masked_lm", *masked, "--max-epoch=1")
    )
    begin = ("--finetune-from-model", plain / "checkpoint_last.pt", "--max-epoch=1")
    arguments = (corpus(), evolved, "ea_roberta_base", "masked_lm", *masked)
    done = succeeds("train", *training(*arguments, *begin))
    assert "start fresh" in done.output()
    done = succeeds("train", *training(*arguments, "--max-epoch=2"))
    state = torch.load(evolved / "checkpoint_last.pt", weights_only=False)
    assert state["extra_state"]["train_iterator"]["epoch"] == 3
    kernels = [name for name in state["model"] if name.endswith("transform.convolution.weight")]
    assert len(kernels) == 3
    done = succeeds(
        "train",
        *training(
            *(classified(), classes, "ea_roberta_base", "sentence_prediction"),
            *("--criterion", "sentence_prediction", "--num-classes", "2", "--init-token", "0"),
            *("--batch-size", "8", "--max-epoch=2", "--best-checkpoint-metric", "accuracy"),
            *("--finetune-from-model", evolved / "checkpoint_last.pt"),
            "--maximize-best-checkpoint-metric",
        ),
    )
    assert "| accuracy " in done.output()
