"""The recipes in examples/: every command fits fairseq's parsers, variants differ as named."""

import fnmatch
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml
from tiny_translation import REPOSITORY, arguments, make_corpus, write_yaml

from ea_fairseq.attention.variants import VARIANTS, architectures
from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.corpus.config import load as load_corpus
from ea_fairseq.fairseq_options.checks import check_settable
from ea_fairseq.fairseq_options.table import OPTIONS, known_of
from ea_fairseq.models.cost import cost
from ea_fairseq.recipes.runs.folders import find_run
from ea_fairseq.recipes.runs.step_commands import train_command
from ea_fairseq.recipes.says.averaging import keeping_too_few
from ea_fairseq.recipes.says.checks import (
    as_arguments,
    check_options,
    check_recipe,
    known_options,
    load_plugin,
)
from ea_fairseq.recipes.says.paths import USER_DIR
from ea_fairseq.recipes.says.recipe import load_recipe, recipe_path, variants

EXAMPLES = REPOSITORY / "examples" / "translation"
CORPORA = sorted(path.parent.name for path in EXAMPLES.glob("*/common.yml"))
MULTI30K = EXAMPLES / "multi30k.de-en"

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
def test_models_of_a_corpus_differ_in_the_model_alone_and_fairseq_takes_them(corpus):
    common = load_recipe(EXAMPLES / corpus / "common.yml")
    for name, own in MODELS.items():
        recipe = load_recipe(recipe_path(EXAMPLES / corpus, name))
        expected = common.sections | {"train": common.options("train") | own}
        assert recipe.sections == expected
        assert recipe.corpus.resolve() == EXAMPLES / corpus / "corpus.yml"
        assert recipe.corpus_name == corpus and recipe.name == name
        check_options(recipe, USER_DIR)


def test_every_architecture_and_variant_has_a_recipe():
    """A new variant needs no line anywhere."""
    for name in [*architectures(), *VARIANTS]:
        if name != "plain":
            assert name in variants(MULTI30K)
            check_options(load_recipe(MULTI30K / f"{name}.yml"), USER_DIR)


@pytest.mark.parametrize("name", WIDE)
def test_wide_models_have_as_many_parameters_as_evolving_attention(name):
    options = load_recipe(MULTI30K / f"{name}_wide.yml").options("train")
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
    bases = [MULTI30K / "common.yml", EXAMPLES / "variants" / "ea_transformer_lite.yml"]
    write_yaml(tmp_path / "own.yml", {"base": [str(base) for base in bases]})
    now = load_recipe(recipe_path(MULTI30K, "ea_transformer_lite"))
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
def test_recipes_fit_their_corpora(corpus):
    recipe = load_recipe(EXAMPLES / corpus / "ea_transformer_lite.yml")
    data = load_corpus(recipe.corpus)
    check_recipe(recipe, data)
    assert recipe.options("evaluate").get("lowercase", False) == data.tokenize.lowercase
    if recipe.options("train").get("share-all-embeddings"):
        assert data.dictionary == "joint"
    split = recipe.options("evaluate").get("compound-split", False)
    assert split == (corpus == "wmt14.en-de")
    assert not keeping_too_few(recipe.options("train"), recipe.options("average"))


@pytest.mark.parametrize(
    "corpus, dropout, accumulated",
    [("iwslt14.de-en", 0.2, 1), ("wmt14.en-de", 0.3, 16), ("wmt14.en-fr", 0.1, 16)],
)
def test_recipes_of_the_papers_have_the_numbers_of_table_10(corpus, dropout, accumulated):
    recipe = load_recipe(EXAMPLES / corpus / "ea_transformer_base.yml")
    train = {"update-freq": 1} | recipe.options("train")
    numbers = {"dropout": dropout, "update-freq": accumulated, "lr-scheduler": "inverse_sqrt"}
    numbers |= {"warmup-updates": 4000, "label-smoothing": 0.1, "optimizer": "adam"}
    numbers |= {"adam-betas": "(0.9, 0.98)", "max-tokens": 4096, "patience": 5}
    assert train == train | numbers and float(train["lr"]) == 1e-3
    assert recipe.options("average") == {"num-epoch-checkpoints": 10}
    assert recipe.options("generate")["beam"] == 5


def test_later_bases_and_the_file_itself_win_and_paths_belong_to_the_file_that_names_them(tmp_path):
    (tmp_path / "one").mkdir()
    first = {"corpus": "corpus.yml", "train": {"lr": 1, "dropout": 0.1}}
    write_yaml(tmp_path / "one" / "a.yml", first)
    write_yaml(tmp_path / "b.yml", {"train": {"dropout": 0.2, "arch": "x"}})
    write_yaml(tmp_path / "c.yml", {"base": ["one/a.yml", "b.yml"], "train": {"arch": "y"}})
    recipe = load_recipe(tmp_path / "c.yml")
    assert recipe.options("train") == {"lr": 1, "dropout": 0.2, "arch": "y"}
    files = {"lr": "one/a.yml", "dropout": "b.yml", "arch": "c.yml"}
    assert recipe.origin == {("train", key): str(tmp_path / file) for key, file in files.items()}
    assert recipe.corpus.resolve() == tmp_path / "one" / "corpus.yml"


def test_overrides_name_train_or_a_section_and_keep_their_type(tmp_path):
    content = {"corpus": "c.yml", "train": {"lr": 1}, "average": {"num-epoch-checkpoints": 3}}
    write_yaml(tmp_path / "a.yml", content)
    overrides = ["lr=0.5", "generate.beam=4", "fp16=true", "average=null"]
    recipe = load_recipe(tmp_path / "a.yml", overrides)
    assert recipe.options("train") == {"lr": 0.5, "fp16": True}
    assert recipe.options("generate") == {"beam": 4}
    assert recipe.sections["average"] is None


@pytest.mark.parametrize("number", ["010", "1:30", "-007", "0:01.5"])
def test_numbers_that_yaml_reads_otherwise_are_refused(tmp_path, number):
    write_yaml(tmp_path / "a.yml", {"corpus": "c.yml", "train": {"lr": 1}})
    with pytest.raises(ValueError, match=f"^--set lr={number}: {number} would be read as another"):
        load_recipe(tmp_path / "a.yml", [f"lr={number}"])
    assert load_recipe(tmp_path / "a.yml", ["lr=0.10"]).options("train") == {"lr": 0.1}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["no-save=true"], "'train: no-save' is true: there would be no model to score"),
        (["no-epoch-checkpoints=true"], "'train: no-epoch-checkpoints' is true: 'average: num-ep"),
        (["disable-validation=true", "average=null"], "'train: disable-validation' is true: aver"),
    ],
)
def test_a_training_that_keeps_nothing_to_score_is_refused(options, named):
    recipe = load_recipe(MULTI30K / "ea_transformer_lite.yml", options)
    with pytest.raises(ValueError, match=named):
        check_recipe(recipe, load_corpus(recipe.corpus))


def test_the_last_override_wins_one_that_is_repeated_too(tmp_path):
    write_yaml(tmp_path / "a.yml", {"corpus": "c.yml", "train": {"lr": 1}})
    recipe = load_recipe(tmp_path / "a.yml", ["lr=0.001", "lr=0.002", "lr=0.001"])
    assert recipe.options("train") == {"lr": 0.001}


def test_switches_become_flags_or_nothing():
    options = {"fp16": True, "no-save": False, "patience": None, "beam": 5, "betas": "(0.9, 0.98)"}
    assert as_arguments(options) == ["--fp16", "--beam=5", "--betas=(0.9, 0.98)"]


#: What a recipe based on EA-Transformer-Lite's says, and words of the refusal, which names the file
#: and the option beside them.
TABLE = """
trian: [lr]                            | unknown section 'trian' ; train, average
average: {last: 3}                      | 'average: last' ; num-epoch-checkpoints
evaluate: {chrf: true}                  | 'evaluate: chrf' ; lowercase, compound-split
train: {seed: 3}                        | 'train: seed' ; ea-recipe
train: {train-subset: test}             | 'train: train-subset' ; set by ea-recipe itself
train: [lr]                             | 'train' ; options
base: own.yml                           | its own base
base: no.yml                            | no.yml ; no such recipe
base: 3                                 | base: ; 3
# Unknown to fairseq, or values that it refuses.
train: {leraning-rate: 1}               | 'train: leraning-rate' ; not an option
train: {max-epochs: 3}                  | 'train: max-epochs' ; nearest: max-epoch
train: {learning-rate: 1}               | nearest: lr;
train: {num_heads: 4}                   | nearest: encoder-attention-heads, decoder-attention-heads
train: {kernel-size: 3}                 | nearest: ea-kernel-size
train: {gradient-acumulation: 2}        | nearest: update-freq
train: {share-all-embeddings: 1}        | switch ; true, false
train: {dropout: true}                  | takes a value
train: {dropout: off}                   | 'train: dropout' ; takes a value, not false: write null
train: {ea-kernel-size: 4}              | --ea-kernel-size ; odd ; '4'
train: {ea-convolution: both}           | --ea-convolution ; encoder-decoder
train: {optimizer: adaam}               | 'adaam' ; adam
train: {arch: transformer_lite, ea-alpha: 0.5} | ea-alpha' is not an option
# What could import, write or connect.
train: {log-file: x}                    | train: log-file ; not allowed in a recipe ; any text
train: {wandb-project: x}               | train: wandb-project ; not allowed in a recipe
train: {distributed-init-method: "tcp://x:1"} | not allowed in a recipe
train: {azureml-logging: true}          | not allowed in a recipe ; service
train: {help: true}                     | not allowed in a recipe
train: {tensorboard-logdir: ../x}       | '../x' ; a name
train: {valid-subset: "valid,../../x"}  | expected names
train: {lr: "__import__('os')"}         | expected numbers
train: {adam-betas: print(1)}           | expected two numbers
train: {adam-betas: 0.9}                | expected two numbers
train: {arch: [x]}                      | text or a number
train: {task: audio_finetuning}         | choose from translation
train: {finetune-from-model: "http://x/y.pt"} | expected a file
generate: {model-overrides: "{}"}       | generate: model-overrides ; not allowed in a recipe
generate: {save-dir: x}                 | not allowed in a recipe
generate: {scoring: bert_score}         | choose from bleu, chrf, sacrebleu
generate: {replace-unk: words}          | not allowed in a recipe ; subwords
generate: {replace-unk: true}           | not allowed in a recipe ; subwords
generate: {bpe: gpt2}                   | not allowed in a recipe ; corpus.yml
average: {num-epoch-checkpoints: --output=x} | average: num-epoch-checkpoints ; a whole number
average: {num-epoch-checkpoints: 0}     | a whole number from 1
evaluate: {lowercase: --text=x}         | evaluate: lowercase ; true or false
# Numbers out of their range.
train: {dropout: 1.7}                   | dropout' is 1.7: expected a number from 0 to 1
train: {attention-dropout: -0.1}        | is -0.1: expected a number from 0 to 1
train: {encoder-layerdrop: 2e0}         | is 2e0: expected a number from 0 to 1
train: {label-smoothing: 1.1}           | from 0 to 1
train: {adam-betas: "(0.9, 1.98)"}      | is (0.9, 1.98): expected a number from 0 to 1
train: {lr: -1e-3}                      | is -1e-3: expected a number above 0
train: {lr: "[1e-3, -0.5]"}             | expected a number above 0
train: {lr: 0}                          | is 0: expected a number above 0
train: {weight-decay: .nan}             | is nan: expected a finite number
train: {clip-norm: .inf}                | is inf: expected a finite number
train: {max-tokens: 0}                  | is 0: expected a number from 1
train: {max-epoch: -3}                  | is -3: expected a number from 0
train: {patience: -2}                   | is -2: expected a number from -1
train: {encoder-embed-dim: 0}           | expected a number from 1
train: {decoder-attention-heads: 3}     | decoder-embed-dim is 160 ; heads 3 does not
train: {best-checkpoint-metric: bleu}   | needs eval-bleu ; maximize
train: {maximize-best-checkpoint-metric: true} | a lower loss is better
generate: {beam: 0}                     | is 0: expected a number from 1
generate: {nbest: 9}                    | nbest is 9: choose from 1 to beam, 5
generate: {beam: 1001}                  | is 1001: expected a number from 1 to 1000
generate: {lenpen: 200}                 | is 200: expected a number from -10 to 10
generate: {lenpen: -10.5}               | is -10.5: expected a number from -10 to 10
generate: {temperature: -1}             | expected a number from 0
"""


def rows(table):
    """What is given, and the words of the answer, of each line of a table."""
    lines = [line.rpartition("|")[::2] for line in table.splitlines() if "|" in line]
    return [
        (given.strip(), [word.strip() for word in words.split(" ; ")]) for given, words in lines
    ]


@pytest.mark.parametrize(("given", "words"), rows(TABLE))
def test_recipes_that_cannot_be_are_refused_by_file_and_key(tmp_path, given, words):
    file, own = tmp_path / "own.yml", yaml.safe_load(given)
    write_yaml(file, {"base": str(MULTI30K / "ea_transformer_lite.yml")} | own)
    with pytest.raises(ValueError) as error:
        check_options(load_recipe(file), USER_DIR)
    message = str(error.value)
    (content,) = own.values()
    options = list(content)[-1:] if isinstance(content, dict) else []
    assert "\n" not in message
    for word in [str(tmp_path), *options, *words]:
        assert word in message


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
    base = MULTI30K / "ea_transformer_lite.yml"
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
    common = MULTI30K / "common.yml"  # which architectures there are, torch says
    command = [sys.executable, "-c", code, str(tmp_path), str(common), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *errors, missing, empty = done.stderr.splitlines()
    for option, line in zip(options, errors, strict=True):
        assert line.startswith(f"ea-recipe: error: --set {option}: ")
    assert missing == f"ea-recipe: error: --raw is {tmp_path / 'missing'}: no such folder"
    assert empty.startswith(f"ea-recipe: error: {tmp_path}: found none of ")


BEST = (
    "--set average.num-best-checkpoints=2 --set average.num-epoch-checkpoints=null "
    "--set best-checkpoint-metric=bleu --set maximize-best-checkpoint-metric=true "
    "--set eval-bleu=true --set eval-bleu-remove-bpe=subword_nmt"
)
#: From update 50 on nothing would be learned, and the average be of equal weights.
FALLING = "--set lr-scheduler=polynomial_decay --set total-num-update=50 --set max-update=90"
#: Options of ea-recipe, and words of the refusal; none where they are taken.
COMMAND_LINES = f"""
--threads 0             | --threads 0: choose at least 1
--threads -4            | --threads -4: choose at least 1
--workers 0             | --workers 0: choose at least 1
--jobs 0                | --jobs 0: choose at least 1
--examples -3           | --examples -3: choose at least 0
--seeds -1              | --seeds -1: choose from 0 to
--seeds {2**31}         | --seeds {2**31}: choose from 0 to
--name ../x             | --name '../x' ; without slashes
--name ..               | --name '..' ; without slashes
--name ''               | --name '' ; without slashes
# A table said of a single run: mean of two, and a standard deviation of 0.
--seeds 1 2 1           | --seeds 1 2 1: give each seed once
--seeds 1 1 --ensemble  | --ensemble: give the --seeds of its models
--clean --fresh         | --clean ; give it alone
--fresh --steps generate evaluate | --fresh throws the training away
# fairseq's own default would hold: a learning rate of 0.25.
--set lr=               | --set lr=: no value: write lr=VALUE, or lr=null
--set dropout=0.1 lr=1e-3 | error: lr=1e-3: give each option its own --set: --set lr=1e-3
--set dropuot=0.1       | --set dropuot=0.1 ; dropout
--set dropout=x         | --set dropout=x ; --dropout ; 'x'
--set arch=ea_lite      | --set arch=ea_lite ; 'ea_lite' ; ea_transformer_lite
--set generate.beem=4   | --set generate.beem=4 ; beam
--set evaluate.lower=true | --set evaluate.lower=true ; lowercase, compound-split
--set save-dir=/tmp     | --set save-dir=/tmp ; ea-recipe
--set generate.post-process=null | post-process ; subword_nmt ; None
--set evaluate.lowercase=null | 'evaluate: lowercase' must be true for a corpus with tok
--set average.num-update-checkpoints=2 | 'average' has num-epoch-checkpoints and \
num-update-checkpoints: give one of
{BEST}                  | give 'train: keep-best-checkpoints'
{BEST} --set keep-best-checkpoints=2 | 'average: maximize-best-checkpoint-metric' is false ; \
the worst checkpoints would be averaged
{BEST} --set keep-best-checkpoints=2 --set average.maximize-best-checkpoint-metric=true |
{FALLING}               | is 0 from total-num-update 50 on: give that 90, too
{FALLING} --set end-learning-rate=1e-4 |
{FALLING} --set total-num-update=90 |
"""


@pytest.mark.parametrize(("given", "words"), rows(COMMAND_LINES))
def test_options_of_the_runner_are_checked_before_anything_runs(tmp_path, given, words, capsys):
    recipe = make_corpus(tmp_path) / "transformer_lite.yml"
    taken = words == [""]
    options = [*shlex.split(given), *(["--dry-run"] if taken else [])]
    assert run_recipe.main(arguments(recipe, *options)) == (0 if taken else 1)
    error = capsys.readouterr().err
    assert error.count("\n") == (0 if taken else 1)
    for word in words:
        assert word in error
    assert not (tmp_path / "work").exists()


def test_a_corpus_behind_the_variants_and_a_recipe_without_a_model_are_named(capsys):
    assert run_recipe.main(["--variant", "ea_transformer_lite", str(MULTI30K), "--dry-run"]) == 1
    assert f", before --variant: {MULTI30K}\n" in capsys.readouterr().err
    assert run_recipe.main([str(MULTI30K / "common.yml"), "--dry-run"]) == 1
    assert "common.yml: no 'train: arch'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lowercase: true", "lowercase: false", "'evaluate: lowercase' must be true"),
        ("corpus: corpus.yml", "", "have 'corpus: <corpus.yml>'"),
    ],
)
def test_the_file_that_is_named_is_there(tmp_path, capsys, old, new, words):
    """A model's name beside a corpus is no file that anybody could change."""
    shutil.copytree(MULTI30K, tmp_path / MULTI30K.name)
    common = tmp_path / MULTI30K.name / "common.yml"
    common.write_text(common.read_text().replace(old, new))
    options = ["--variant", "residual", "--dry-run", "--work-dir", str(tmp_path / "work")]
    assert run_recipe.main([str(common.parent), *options]) == 1
    assert f"error: {common}: " in (error := capsys.readouterr().err) and words in error


def test_numbers_at_the_ends_of_their_ranges_are_taken(tmp_path):
    """What fairseq takes for no limit, and plain text."""
    train = {"dropout": 0, "relu-dropout": 1, "max-epoch": 0, "patience": -1, "lr": "[1e-3, 1e-9]"}
    train |= {"keep-last-epochs": -1, "update-freq": "[1, 2]", "adam-betas": "(0, 1 - 1e-3)"}
    content = {"train": train, "generate": {"nbest": 5, "lenpen": -0.5}}
    base = str(MULTI30K / "ea_transformer_lite.yml")
    write_yaml(tmp_path / "own.yml", {"base": base, **content})
    check_options(load_recipe(tmp_path / "own.yml"), USER_DIR)


def test_every_option_that_takes_text_is_refused_or_named_with_the_form_of_its_values():
    """fairseq's parsers gone through: an option of a new fairseq does not slip in."""
    recipe = load_recipe(MULTI30K / "ea_transformer_lite.yml")
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


@pytest.mark.parametrize(
    ("change", "word"),
    [
        # Of null, which leaves the option out, there was a traceback; of false, an interval of 0.
        ("log-interval=null", "--log-interval=10"),
        ("log-interval=false", "--log-interval=10"),
        ("log-interval=4", "--log-interval=4"),
        ("log-interval=1e1", "--log-interval=10"),
        ("log-interval=200", "--log-interval=10"),
        ("tensorboard-logdir=x", "--tensorboard-logdir={run}/x"),
    ],
)
def test_a_training_logs_for_our_line_of_progress_and_into_the_runs_folder(tmp_path, change, word):
    recipe = load_recipe(EXAMPLES / "cldr.de-en" / "transformer_lite.yml", [change])
    run = find_run(recipe, load_corpus(recipe.corpus), tmp_path, None, 1)
    command = train_command(recipe, run, verbose=False)
    option = f"--{change.partition('=')[0]}"
    assert [w for w in command if option in w] == [word.format(run=run.folder)]


def test_every_option_that_a_message_proposes_is_one():
    """Of training or of generation, with some architecture of the plugin."""
    recipe = load_recipe(MULTI30K / "ea_transformer_lite.yml")
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
        recipe = load_recipe(MULTI30K / "ea_transformer_lite.yml")
        for section, options in yaml.safe_load(row).items():
            recipe.sections[section] = options and recipe.options(section) | options
            recipe.origin |= {(section, name): "README.md" for name in options or ()}
        check_options(recipe, USER_DIR)
