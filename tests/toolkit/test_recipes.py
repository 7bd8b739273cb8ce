"""The recipes in examples/: every command fits fairseq's parsers, variants differ as named."""

import fnmatch
import re
import subprocess
import sys

import pytest
import yaml
from tiny_translation import REPOSITORY, write_yaml

from ea_fairseq.attention.variants import VARIANTS, architectures
from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.corpus.config import load as load_corpus
from ea_fairseq.fairseq_options.checks import check_settable
from ea_fairseq.fairseq_options.table import OPTIONS, known_of
from ea_fairseq.models.cost import cost
from ea_fairseq.recipes.runs.folders import find_run
from ea_fairseq.recipes.runs.step_commands import train_command
from ea_fairseq.recipes.says.checks import (
    as_arguments,
    check_options,
    known_options,
    load_plugin,
)
from ea_fairseq.recipes.says.paths import USER_DIR
from ea_fairseq.recipes.says.recipe import load_recipe, recipe_path, variants

EXAMPLES = REPOSITORY / "examples" / "translation"
CORPORA = sorted(path.parent.name for path in EXAMPLES.glob("*/common.yml"))

#: What each model's training has beside what all models of a corpus share.
LITE = {"arch": "ea_transformer_lite"}
MODELS = {
    "transformer_lite": {"arch": "transformer_lite"},
    "ea_transformer_lite": LITE,
    "transformer_base": {"arch": "transformer"},
    "ea_transformer_base": {"arch": "ea_transformer_base"},
    "without_encoder_convolution": LITE | {"ea-convolution": "decoder,encoder-decoder"},
    "without_decoder_convolution": LITE | {"ea-convolution": "encoder,encoder-decoder"},
    "without_encoder_decoder_convolution": LITE | {"ea-convolution": "encoder,decoder"},
    "without_skip": LITE | {"ea-skip": "none"},
    "kernel_1": LITE | {"ea-kernel-size": 1},
    "kernel_5": LITE | {"ea-kernel-size": 5},
    "realformer_lite": {"arch": "realformer_lite"},
    "residual": LITE | {"ea-variant": "residual"},
    # Half of the learning rate: appendix B.2.1 of its paper.
    "pa_transformer_lite": {"arch": "pa_transformer_lite", "lr": "5e-4"},
}
WIDE = {"conv_transformer_lite": 340, "transformer_lite": 161}
for name, width in WIDE.items():
    sizes = {f"{side}-ffn-embed-dim": width for side in ("encoder", "decoder")}
    MODELS[f"{name}_wide"] = {"arch": name} | sizes


@pytest.fixture(scope="module", autouse=True)
def _plugin():
    load_plugin(USER_DIR)


def test_the_corpora_of_the_papers_and_of_the_project_are_there():
    multi30k = ["multi30k.de-en", "multi30k.en-de", "multi30k.en-fr"]
    assert CORPORA == ["cldr.de-en", "iwslt14.de-en", *multi30k, "wmt14.en-de", "wmt14.en-fr"]


@pytest.mark.parametrize("corpus", CORPORA)
def test_models_of_a_corpus_differ_in_the_model_alone(corpus):
    common = load_recipe(EXAMPLES / corpus / "common.yml")
    for name, own in MODELS.items():
        recipe = load_recipe(recipe_path(EXAMPLES / corpus, name))
        assert recipe.options("train") == common.options("train") | own
        for section in ("average", "generate", "evaluate"):
            assert recipe.sections[section] == common.sections[section]
        assert recipe.corpus.resolve() == EXAMPLES / corpus / "corpus.yml"
        assert recipe.corpus_name == corpus and recipe.name == name


def test_every_architecture_and_variant_has_a_recipe():
    """A new variant needs no line anywhere."""
    corpus = EXAMPLES / "multi30k.de-en"
    for name in [*architectures(), *VARIANTS]:
        if name != "plain":
            assert name in variants(corpus)
            check_options(load_recipe(corpus / f"{name}.yml"), USER_DIR)


@pytest.mark.parametrize("name", WIDE)
def test_wide_models_have_as_many_parameters_as_evolving_attention(name):
    options = load_recipe(EXAMPLES / "multi30k.de-en" / f"{name}_wide.yml").options("train")
    size = ("encoder-ffn-embed-dim", "decoder-ffn-embed-dim")
    wide = cost(name, {option: options[option] for option in size})["parameters"]
    assert wide == pytest.approx(cost("ea_transformer_lite")["parameters"], rel=1e-3)
    assert cost(name)["parameters"] < wide


def test_a_file_of_the_corpus_wins_over_a_name(tmp_path):
    write_yaml(tmp_path / "common.yml", {"corpus": "corpus.yml", "train": {"lr": 1}})
    assert load_recipe(tmp_path / "transformer_lite.yml").options("train")["lr"] == 1
    write_yaml(tmp_path / "transformer_lite.yml", {"base": "common.yml", "train": {"lr": 2}})
    assert load_recipe(tmp_path / "transformer_lite.yml").options("train") == {"lr": 2}


def test_recipes_of_earlier_versions_name_the_same_models(tmp_path):
    write_yaml(
        tmp_path / "own.yml",
        {
            "base": [
                str(EXAMPLES / "multi30k.de-en" / "common.yml"),
                str(EXAMPLES / "variants" / "ea_transformer_lite.yml"),
            ]
        },
    )
    now = load_recipe(recipe_path(EXAMPLES / "multi30k.de-en", "ea_transformer_lite"))
    assert load_recipe(tmp_path / "own.yml").sections == now.sections


@pytest.mark.parametrize(
    "folder, variant, words",
    [
        ("multi30k.de-en", None, ["--variant", "ea_transformer_lite", "kernel_5", "residual"]),
        ("multi30k.de-en", "ea_transformer_light", ["no variant", "ea_transformer_lite"]),
        ("multi30k.de-em", "residual", ["multi30k.de-em: no such folder", "perhaps you meant m"]),
        ("my.en-de", "residual", ["my.en-de: no such folder or corpus (choose from"]),
        ("multi30k.de-en", "ea_tranformer_lite", [": perhaps you meant ea_transformer_lite ("]),
        ("multi30k.de-en", "encoder=residual", ["--set ea-variant=encoder=residual"]),
        ("multi30k.de-en/common.yml", "residual", ["--variant residual", "folder"]),
    ],
)
def test_wrong_names_of_models_are_refused_with_the_choices(folder, variant, words):
    with pytest.raises(ValueError) as error:
        load_recipe(recipe_path(EXAMPLES / folder, variant))
    for word in words:
        assert word in str(error.value)


def test_folders_that_are_no_corpus_are_told_what_they_are(tmp_path):
    """A model folder, a run, the folder of its seeds, and any other."""
    model = tmp_path / "recipe" / "seed1" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    for folder, words in {
        model: f"is a model folder: ea-translate {model}",
        model.parent: f"of a run: ea-translate {model}",
        model.parents[1]: f"of a run: ea-translate {model}",
        tmp_path: "is no corpus' folder: it has no common.yml",
    }.items():
        with pytest.raises(ValueError) as error:
            recipe_path(folder, None)
        assert words in str(error.value) and "--variant" not in str(error.value)


@pytest.mark.parametrize("corpus", CORPORA)
def test_fairseqs_parsers_accept_every_recipe(corpus):
    for name in MODELS:
        check_options(load_recipe(EXAMPLES / corpus / f"{name}.yml"), USER_DIR)


@pytest.mark.parametrize("corpus", CORPORA)
def test_recipes_fit_their_corpora(corpus):
    recipe = load_recipe(EXAMPLES / corpus / "ea_transformer_lite.yml")
    data = load_corpus(recipe.corpus)
    assert recipe.options("evaluate").get("lowercase", False) == data.tokenize.lowercase
    marks = {"bpe": "subword_nmt", "sentencepiece": "sentencepiece"}[data.subword]
    assert recipe.options("generate")["post-process"] == marks
    assert recipe.options("train").get("eval-bleu-remove-bpe", marks) == marks
    if recipe.options("train").get("share-all-embeddings"):
        assert data.dictionary == "joint"
    split = recipe.options("evaluate").get("compound-split", False)
    assert split == (corpus == "wmt14.en-de")
    # As many checkpoints are kept as are averaged; fairseq keeps all unless told otherwise.
    limits = {
        "num-epoch-checkpoints": "keep-last-epochs",
        "num-update-checkpoints": "keep-interval-updates",
    }
    for averaged, number in recipe.options("average").items():
        assert recipe.options("train").get(limits[averaged], number) >= number


@pytest.mark.parametrize(
    "corpus, dropout, accumulated",
    [("iwslt14.de-en", 0.2, 1), ("wmt14.en-de", 0.3, 16), ("wmt14.en-fr", 0.1, 16)],
)
def test_recipes_of_the_papers_have_the_numbers_of_table_10(corpus, dropout, accumulated):
    recipe = load_recipe(EXAMPLES / corpus / "ea_transformer_base.yml")
    train = recipe.options("train")
    assert train["dropout"] == dropout
    assert train.get("update-freq", 1) == accumulated
    assert float(train["lr"]) == 1e-3 and train["lr-scheduler"] == "inverse_sqrt"
    assert train["warmup-updates"] == 4000 and train["label-smoothing"] == 0.1
    assert train["optimizer"] == "adam" and train["adam-betas"] == "(0.9, 0.98)"
    assert train["max-tokens"] == 4096 and train["patience"] == 5
    assert recipe.options("average") == {"num-epoch-checkpoints": 10}
    assert recipe.options("generate")["beam"] == 5


def test_later_bases_and_the_file_itself_win(tmp_path):
    write_yaml(tmp_path / "a.yml", {"corpus": "corpus.yml", "train": {"lr": 1, "dropout": 0.1}})
    write_yaml(tmp_path / "b.yml", {"train": {"dropout": 0.2, "arch": "x"}})
    write_yaml(tmp_path / "c.yml", {"base": ["a.yml", "b.yml"], "train": {"arch": "y"}})
    recipe = load_recipe(tmp_path / "c.yml")
    assert recipe.options("train") == {"lr": 1, "dropout": 0.2, "arch": "y"}
    files = {key: recipe.origin["train", key] for key in recipe.options("train")}
    assert files == {key: str(tmp_path / f"{key2}.yml") for key, key2 in FROM.items()}


FROM = {"lr": "a", "dropout": "b", "arch": "c"}


def test_paths_belong_to_the_file_that_names_them(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    write_yaml(tmp_path / "one" / "common.yml", {"corpus": "corpus.yml", "train": {"lr": 1}})
    write_yaml(tmp_path / "two" / "own.yml", {"base": "../one/common.yml"})
    recipe = load_recipe(tmp_path / "two" / "own.yml")
    assert recipe.corpus.resolve() == tmp_path / "one" / "corpus.yml"


def test_overrides_name_train_or_a_section_and_keep_their_type(tmp_path):
    write_yaml(
        tmp_path / "a.yml",
        {"corpus": "c.yml", "train": {"lr": 1}, "average": {"num-epoch-checkpoints": 3}},
    )
    overrides = ["lr=0.5", "generate.beam=4", "fp16=true", "average=null"]
    recipe = load_recipe(tmp_path / "a.yml", overrides)
    assert recipe.options("train") == {"lr": 0.5, "fp16": True}
    assert recipe.options("generate") == {"beam": 4}
    assert recipe.sections["average"] is None


def test_switches_become_flags_or_nothing():
    options = {"fp16": True, "no-save": False, "patience": None, "beam": 5, "betas": "(0.9, 0.98)"}
    assert as_arguments(options) == ["--fp16", "--beam=5", "--betas=(0.9, 0.98)"]


@pytest.mark.parametrize(
    "content, words",
    [
        ({"trian": {"lr": 1}}, ["unknown section 'trian'", "train, average"]),
        ({"average": {"last": 3}}, ["'average: last'", "num-epoch-checkpoints"]),
        ({"evaluate": {"chrf": True}}, ["'evaluate: chrf'", "lowercase, compound-split"]),
        ({"train": {"seed": 3}}, ["'train: seed'", "ea-recipe"]),
        ({"train": {"train-subset": "test"}}, ["'train: train-subset'", "set by ea-recipe itself"]),
        ({"train": ["lr"]}, ["'train'", "options"]),
        ({"base": "own.yml"}, ["its own base"]),
        ({"base": "no.yml"}, ["no.yml", "no such recipe"]),
        ({"base": 3}, ["base:", "3"]),
    ],
)
def test_misshapen_recipes_are_refused_by_file_and_key(tmp_path, content, words):
    file = tmp_path / "own.yml"
    write_yaml(file, {"corpus": "corpus.yml", **content})
    with pytest.raises(ValueError) as error:
        load_recipe(file)
    message = str(error.value)
    assert "\n" not in message and str(tmp_path) in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "option, value, words",
    [
        ("leraning-rate", 1, ["'train: leraning-rate'", "not an option"]),
        ("max-epochs", 3, ["'train: max-epochs'", "max-epoch"]),
        ("learning-rate", 1, ["nearest: lr; "]),
        ("num_heads", 4, ["nearest: encoder-attention-heads, decoder-attention-heads"]),
        ("kernel-size", 3, ["nearest: ea-kernel-size"]),
        ("gradient-acumulation", 2, ["nearest: update-freq"]),
        ("share-all-embeddings", 1, ["switch", "true, false"]),
        ("dropout", True, ["takes a value"]),
        ("ea-kernel-size", 4, ["--ea-kernel-size", "odd", "'4'"]),
        ("ea-convolution", "both", ["--ea-convolution", "encoder-decoder"]),
        ("optimizer", "adaam", ["'adaam'", "adam"]),
    ],
)
def test_options_unknown_to_fairseq_are_refused_by_file_and_key(tmp_path, option, value, words):
    base = EXAMPLES / "multi30k.de-en" / "ea_transformer_lite.yml"
    write_yaml(tmp_path / "own.yml", {"base": str(base), "train": {option: value}})
    with pytest.raises(ValueError) as error:
        check_options(load_recipe(tmp_path / "own.yml"), USER_DIR)
    for word in [str(tmp_path / "own.yml"), *words]:
        assert word in str(error.value)


def test_options_of_evolving_attention_are_unknown_to_other_architectures(tmp_path):
    base = EXAMPLES / "multi30k.de-en" / "transformer_lite.yml"
    write_yaml(tmp_path / "own.yml", {"base": str(base), "train": {"ea-alpha": 0.5}})
    with pytest.raises(ValueError, match="ea-alpha"):
        check_options(load_recipe(tmp_path / "own.yml"), USER_DIR)


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A package in the working folder that leaves a file where it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evilpkg").mkdir()
    (tmp_path / "evilpkg" / "__init__.py").write_text("open('imported', 'w').close()")
    return tmp_path / "imported"


@pytest.mark.parametrize("value", ["--user-dir=evilpkg", "--save-dir=elsewhere", "--help"])
def test_no_value_of_any_option_is_taken_for_an_option(tmp_path, evil, value):
    """fairseq's first parser takes any word that begins with --user-dir, wherever it stands."""
    base = EXAMPLES / "multi30k.de-en" / "ea_transformer_lite.yml"
    names = {section: list(load_recipe(base).options(section)) for section in ("train", "generate")}
    names["train"] += ["log-file", "save-interval", "eval-bleu-remove-bpe", "ea-alpha"]
    names["generate"] += ["constraints", "max-len-a", "replace-unk"]
    for section, options in names.items():
        for name in options:
            write_yaml(tmp_path / "own.yml", {"base": str(base), section: {name: value}})
            with pytest.raises(ValueError) as error:
                check_options(load_recipe(tmp_path / "own.yml"), USER_DIR)
            assert str(tmp_path / "own.yml") in str(error.value) and name in str(error.value)
    # This one may name a file, of any name.
    write_yaml(tmp_path / "own.yml", {"base": str(base), "train": {"finetune-from-model": value}})
    check_options(load_recipe(tmp_path / "own.yml"), USER_DIR)
    assert not evil.exists()


@pytest.mark.parametrize(
    "section, option, value, words",
    [
        ("train", "log-file", "x", ["not allowed in a recipe", "any text"]),
        ("train", "wandb-project", "x", ["not allowed in a recipe"]),
        ("train", "distributed-init-method", "tcp://x:1", ["not allowed in a recipe"]),
        ("train", "azureml-logging", True, ["not allowed in a recipe", "service"]),
        ("train", "help", True, ["not allowed in a recipe"]),
        ("train", "tensorboard-logdir", "../x", ["'../x'", "a name"]),
        ("train", "valid-subset", "valid,../../x", ["expected names"]),
        ("train", "lr", "__import__('os')", ["expected numbers"]),
        ("train", "adam-betas", "print(1)", ["expected two numbers"]),
        ("train", "adam-betas", 0.9, ["expected two numbers"]),
        ("train", "arch", ["x"], ["text or a number"]),
        ("train", "task", "audio_finetuning", ["choose from translation"]),
        ("train", "finetune-from-model", "http://x/y.pt", ["expected a file"]),
        ("generate", "model-overrides", "{}", ["not allowed in a recipe"]),
        ("generate", "save-dir", "x", ["not allowed in a recipe"]),
        ("generate", "scoring", "bert_score", ["choose from bleu, chrf, sacrebleu"]),
        ("generate", "replace-unk", "words", ["not allowed in a recipe", "subwords"]),
        ("generate", "replace-unk", True, ["not allowed in a recipe", "subwords"]),
        ("generate", "bpe", "gpt2", ["not allowed in a recipe", "corpus.yml"]),
        ("average", "num-epoch-checkpoints", "--output=x", ["a whole number"]),
        ("average", "num-epoch-checkpoints", 0, ["a whole number from 1"]),
        ("evaluate", "lowercase", "--text=x", ["true or false"]),
    ],
)
def test_what_could_import_write_or_connect_is_refused(tmp_path, section, option, value, words):
    base = EXAMPLES / "multi30k.de-en" / "ea_transformer_lite.yml"
    write_yaml(tmp_path / "own.yml", {"base": str(base), section: {option: value}})
    with pytest.raises(ValueError) as error:
        check_options(load_recipe(tmp_path / "own.yml"), USER_DIR)
    for word in [str(tmp_path / "own.yml"), f"{section}: {option}", *words]:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "section, option, value, words",
    [
        ("train", "dropout", 1.7, ["dropout' is 1.7: expected a number from 0 to 1"]),
        ("train", "attention-dropout", -0.1, ["is -0.1: expected a number from 0 to 1"]),
        ("train", "encoder-layerdrop", "2e0", ["is 2e0: expected a number from 0 to 1"]),
        ("train", "label-smoothing", 1.1, ["from 0 to 1"]),
        ("train", "adam-betas", "(0.9, 1.98)", ["is (0.9, 1.98): expected a number from 0 to 1"]),
        ("train", "lr", "-1e-3", ["is -1e-3: expected a number above 0"]),
        ("train", "lr", "[1e-3, -0.5]", ["expected a number above 0"]),
        ("train", "lr", 0, ["is 0: expected a number above 0"]),
        ("train", "weight-decay", float("nan"), ["is nan: expected a finite number"]),
        ("train", "clip-norm", float("inf"), ["is inf: expected a finite number"]),
        ("train", "max-tokens", 0, ["is 0: expected a number from 1"]),
        ("train", "max-epoch", -3, ["is -3: expected a number from 0"]),
        ("train", "patience", -2, ["is -2: expected a number from -1"]),
        ("train", "encoder-embed-dim", 0, ["expected a number from 1"]),
        ("train", "decoder-attention-heads", 3, ["decoder-embed-dim is 160", "heads 3 does not"]),
        ("train", "best-checkpoint-metric", "bleu", ["needs eval-bleu", "maximize"]),
        ("train", "maximize-best-checkpoint-metric", True, ["a lower loss is better"]),
        ("generate", "beam", 0, ["is 0: expected a number from 1"]),
        ("generate", "nbest", 9, ["nbest is 9: choose from 1 to beam, 5"]),
        ("generate", "beam", 1001, ["is 1001: expected a number from 1 to 1000"]),
        ("generate", "lenpen", 200, ["is 200: expected a number from -10 to 10"]),
        ("generate", "lenpen", -10.5, ["is -10.5: expected a number from -10 to 10"]),
        ("generate", "temperature", -1, ["expected a number from 0"]),
    ],
)
def test_numbers_out_of_their_range_are_refused(tmp_path, section, option, value, words):
    base = EXAMPLES / "multi30k.de-en" / "ea_transformer_lite.yml"
    write_yaml(tmp_path / "own.yml", {"base": str(base), section: {option: value}})
    with pytest.raises(ValueError) as error:
        check_options(load_recipe(tmp_path / "own.yml"), USER_DIR)
    for word in [str(tmp_path / "own.yml"), option, *words]:
        assert word in str(error.value)


def test_a_forgotten_value_is_not_taken_for_none():
    """fairseq's own default would hold: a learning rate of 0.25."""
    with pytest.raises(ValueError, match="^--set lr=: no value: write lr=VALUE, or lr=null"):
        load_recipe(EXAMPLES / "multi30k.de-en" / "ea_transformer_lite.yml", ["lr="])


def test_mistakes_that_need_no_fairseq_are_found_before_it_is_imported(tmp_path):
    """It takes seconds, and torch too."""
    code = """if True:
        import sys
        from ea_fairseq.commands.recipe import main
        folder, common, *options = sys.argv[1:]
        for option in options:
            assert main(["multi30k.de-en", "--variant", "x", "--dry-run", "--set", option]) == 1
        for raw in (folder + "/missing", folder):
            assert main([common, "--dry-run", "--raw", raw]) == 1
        assert not {"torch", "fairseq"} & set(sys.modules)
    """
    options = ["dropout=1.7", "trian.lr=1", "lr", "average.num-epoch-checkpoints=0"]
    common = EXAMPLES / "multi30k.de-en" / "common.yml"  # which architectures there are, torch says
    command = [sys.executable, "-c", code, str(tmp_path), str(common), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *errors, missing, empty = done.stderr.splitlines()
    for option, line in zip(options, errors, strict=True):
        assert line.startswith(f"ea-recipe: error: --set {option}: ")
    assert missing == f"ea-recipe: error: --raw is {tmp_path / 'missing'}: no such folder"
    assert empty.startswith(f"ea-recipe: error: {tmp_path}: found none of ")


@pytest.mark.parametrize(
    "option, value, words",
    [
        ("--threads", "0", "choose at least 1"),
        ("--threads", "-4", "choose at least 1"),
        ("--workers", "0", "choose at least 1"),
        ("--jobs", "0", "choose at least 1"),
        ("--examples", "-3", "choose at least 0"),
        ("--seeds", "-1", "choose from 0 to"),
        ("--seeds", str(2**31), "choose from 0 to"),
        ("--name", "../x", "without slashes"),
        ("--name", "..", "without slashes"),
        ("--name", "", "without slashes"),
    ],
)
def test_options_of_the_runner_are_checked_before_anything_else(option, value, words, capsys):
    arguments = ["multi30k.de-en", "--variant", "ea_transformer_lite", "--dry-run", option, value]
    assert run_recipe.main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"ea-recipe: error: {option} ") and error.count("\n") == 1
    assert words in error


def test_a_seed_that_is_given_twice_is_no_second_run(capsys):
    """A table said of a single run: mean of two, and a standard deviation of 0."""
    arguments = ["multi30k.de-en", "--variant", "ea_transformer_lite", "--dry-run", "--seeds"]
    assert run_recipe.main([*arguments, "1", "2", "1"]) == 1
    assert capsys.readouterr().err == "ea-recipe: error: --seeds 1 2 1: give each seed once\n"


def test_a_corpus_behind_the_variants_is_none_of_them(capsys):
    corpus = EXAMPLES / "multi30k.de-en"
    assert run_recipe.main(["--variant", "ea_transformer_lite", str(corpus), "--dry-run"]) == 1
    assert f", before --variant: {corpus}\n" in capsys.readouterr().err


def test_numbers_at_the_ends_of_their_ranges_are_taken(tmp_path):
    """What fairseq takes for no limit, and plain text."""
    train = {"dropout": 0, "relu-dropout": 1, "max-epoch": 0, "patience": -1, "lr": "[1e-3, 1e-9]"}
    write_yaml(
        tmp_path / "own.yml",
        {
            "base": str(EXAMPLES / "multi30k.de-en" / "ea_transformer_lite.yml"),
            "train": train
            | {"keep-last-epochs": -1, "update-freq": "[1, 2]", "adam-betas": "(0, 1 - 1e-3)"},
            "generate": {"nbest": 5, "lenpen": -0.5},
        },
    )
    check_options(load_recipe(tmp_path / "own.yml"), USER_DIR)


def test_every_option_that_takes_text_is_refused_or_named_with_the_form_of_its_values():
    """fairseq's parsers gone through: an option of a new fairseq does not slip in."""
    recipe = load_recipe(EXAMPLES / "multi30k.de-en" / "ea_transformer_lite.yml")
    found = set()
    for section in ("train", "generate"):
        for action in known_options(recipe, section, USER_DIR).values():
            names = {name.removeprefix("--") for name in action.option_strings}
            if action.nargs == 0 or action.choices or action.type in (int, float):
                continue
            if any(known_of(name).text for name in names) or any(
                name.startswith("ea-") for name in names
            ):
                found |= names
                continue
            with pytest.raises(ValueError, match="not allowed in a recipe"):
                check_settable(action, "x", "here")
    assert {"lr", "adam-betas", "post-process", "ea-alpha"} <= found
    assert not found & {"user-dir", "save-dir", "path", "log-file", "lm-path", "results-path"}


def test_tensorboard_writes_into_the_runs_folder(tmp_path):
    recipe = load_recipe(EXAMPLES / "cldr.de-en" / "transformer_lite.yml", ["tensorboard-logdir=x"])
    run = find_run(recipe, load_corpus(recipe.corpus), tmp_path, None, 1)
    assert f"--tensorboard-logdir={run.folder / 'x'}" in train_command(recipe, run)


@pytest.mark.parametrize(
    ("value", "used"), [("null", 10), ("false", 10), ("4", 4), ("1e1", 10), ("200", 10)]
)
def test_the_line_of_progress_has_records_whatever_the_recipe_logs(tmp_path, value, used):
    """Of null, which leaves the option out, there was a traceback; of false, an interval of 0."""
    changes = [f"log-interval={value}"]
    recipe = load_recipe(EXAMPLES / "cldr.de-en" / "transformer_lite.yml", changes)
    run = find_run(recipe, load_corpus(recipe.corpus), tmp_path, None, 1)
    command = train_command(recipe, run, verbose=False)
    assert [word for word in command if "--log-interval" in word] == [f"--log-interval={used}"]


def test_every_option_that_a_message_proposes_is_one():
    """Of training or of generation, with some architecture of the plugin."""
    recipe = load_recipe(EXAMPLES / "multi30k.de-en" / "ea_transformer_lite.yml")
    known = set()
    for section in ("train", "generate"):
        known |= known_options(recipe, section, USER_DIR).keys()
    for name, option in OPTIONS.items():
        if option.also:
            assert fnmatch.filter(known, f"--{name}"), name
        for word in option.also.split():
            assert f"--{word}" not in known, "an option of fairseq's needs no other name"


def test_options_that_the_page_names_are_taken():
    page = (EXAMPLES / "README.md").read_text()
    rows = re.findall(r"^\| `((?:train|average): (?:\{.*\}|null))` \|", page, re.M)
    assert len(rows) == 5
    for row in rows:
        recipe = load_recipe(EXAMPLES / "multi30k.de-en" / "ea_transformer_lite.yml")
        for section, options in yaml.safe_load(row).items():
            recipe.sections[section] = options and recipe.options(section) | options
            recipe.origin |= {(section, name): "README.md" for name in options or ()}
        check_options(recipe, USER_DIR)
