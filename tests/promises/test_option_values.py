"""Refusals of fairseq's options: wrong results without a word, or hours lost, otherwise."""

import contextlib
import re
import shlex

import pytest
import yaml
from fairseq import options
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from fairseq_commands import (
    USER_DIR,
    corpus,
    generation,
    refusal,
    run,
    succeeds,
    trained,
    training,
)
from small_models import build, dictionary
from trained_language_models import training as language_training

from ea_fairseq.errors import UserError
from ea_fairseq.fairseq_options.values import check
from ea_fairseq.guard import preprocess

#: Command | what is added to its words | what the refusal names, in this order, with ... between;
#: nothing where the command goes on. "model" is a training, and the same options from Python.
TABLE = """
train       | --lr=-1                         | --lr is [-1.0]: each must be above 0
train       | --lr 0.1,0                      | --lr is [0.1, 0.0]: each must be above 0
train       | --dropout 1.5                   | --dropout is 1.5: expected a number from 0 to 1
train       | --max-tokens 0                  | --max-tokens is 0: expected a number from 1
train-lm    | --max-tokens 23                 | --max-tokens 23 takes no block of \
--tokens-per-sample 24: give --max-tokens 24
generate    | --beam 0                        | --beam is 0: expected a number from 1
generate    | --beam -2                       | --beam is -2: expected a number from 1
generate    | --lenpen 1000                   | --lenpen is 1000.0: expected a number from -10 to 10
interactive | --beam 0                        | --beam is 0: expected a number from 1
eval-lm     | --tokens-per-sample 0           | --tokens-per-sample is 0: expected a number from 1
# All sentences would be one batch.
train       | --max-tokens None               | --max-tokens is missing, or --batch-size
validate    | --max-tokens None               | --max-tokens is missing, or --batch-size
# The best checkpoint: of the first two fairseq kept the worst, and patience ended at once.
train       | --best-checkpoint-metric bleu --eval-bleu | --best-checkpoint-metric bleu needs \
--eval-bleu and --maximize-best-checkpoint-metric
train       | --best-checkpoint-metric loss --maximize-best-checkpoint-metric | \
--maximize-best-checkpoint-metric: a lower loss is better
# These failed with a traceback after the first epoch, before it was saved.
train       | --best-checkpoint-metric bleu --maximize-best-checkpoint-metric | \
--best-checkpoint-metric bleu needs --eval-bleu and
train       | --best-checkpoint-metric nll_loss | --best-checkpoint-metric nll_loss: cross_entropy \
does not measure it: choose from loss, ppl
validation  | beam=4                          | --eval-bleu-args is beam=4: expected JSON
validation  | {"max-len-b": 9}                | 'max-len-b' is no option of the search
validation  | {"beam": 0}                     | beam is 0: expected a number from 1 to 1000
validation  | {"beam": 2.5}                   | --eval-bleu-args: beam is 2.5: expected a whole \
number
validation  | {"beam": "4"}                   | beam is "4": expected a whole number
validation  | {"lenpen": true}                | lenpen is true: expected a number
validation  | {"lenpen": NaN}                 | lenpen is nan: expected a finite number
validation  | {"print_alignment": "hard", "lenpen": 0.6, "max_len_b": 9} |
validation  | {"sampling": true, "beam": 3, "max_len_a": 1, "no_repeat_ngram_size": 2} |
# It drew at random.
validation  | {"sampling": "false"}           | sampling is "false": expected true or false
# What fairseq takes without effect.
generate    | --sacrebleu                     | --sacrebleu has no effect on what is printed: give \
--scoring sacrebleu
generate    | --num-shards 2 --shard-id 1     | --num-shards 2 has no effect, all sentences would \
be translated: give --distributed-world-size 2 --distributed-rank 1
generate    | --sampling-topk 3               | --sampling-topk and --sampling-topp need --sampling
generate    | --sampling-topp 0.9             | --sampling-topk and --sampling-topp need --sampling
generate    | --lm-path lm.pt                 | --lm-path has no effect without --lm-weight
interactive | --lm-path lm.pt --lm-weight 1   | --lm-path has no effect on fairseq-interactive
generate    | --lm-path lm.pt --lm-weight 0.3 |
generate    | --sampling --sampling-topk 3 --nbest 5 |
interactive | --num-shards 2                  |
preprocess  | --bpe subword_nmt               | --bpe has no effect on fairseq-preprocess
preprocess  | --tokenizer moses               | --tokenizer has no effect on fairseq-preprocess
# It showed each line the ones before it, against what --sample-break-mode eos says.
eval-lm     | --sample-break-mode eos --context-window 8 | --context-window 8: lines apart \
(--sample-break-mode eos)
# A model's options, where its checkpoint has them.
generate    | --ea-kernel-size=5              | --ea-kernel-size: ... come from its checkpoint ... \
--model-overrides "{'ea_kernel_size': VALUE}"
interactive | --arch ea_transformer_lite --ea-kernel-size 5 | --ea-kernel-size: ... its checkpoint
validate    | --ea-kernel-size=5              | --ea-kernel-size: ... come from its checkpoint
generate    | --model-overrides dropout=0.5   | --model-overrides is dropout=0.5: ... a dictionary
generate    | --model-overrides "{'dropuot': 1}" | --model-overrides: 'dropuot' is no setting of \
the checkpoint: perhaps you meant dropout
# Of a plain Transformer.
interactive | --model-overrides "{'ea_alpha': 0.5}" | 'ea_alpha' is no setting of the checkpoint
validate    | --model-overrides "{'dropout': 0.5, 'seed': 3}" |
# A model's options, where it is built.
model       | --ea-alpha 1.5                  | --ea-alpha ... must be ... [0, 1] ... 1.5
model       | --ea-beta -0.1                  | --ea-beta ... must be ... [0, 1] ... -0.1
model       | --ea-beta nan                   | --ea-beta ... must be ... nan
model       | --ea-beta much                  | --ea-beta ... must be ... [0, 1], not 'much'
model       | --ea-kernel-size 4              | --ea-kernel-size ... odd, one of 1, 3, 5, 7, 9, not
model       | --ea-kernel-size 11             | --ea-kernel-size ... 11
model       | --ea-convolution encoder,middle | --ea-convolution ... encoder-decoder ... middle
model       | --ea-skip ''                    | --ea-skip ... ''
model       | --ea-skip encoder,encoder       | --ea-skip
model       | --ea-variant other              | --ea-variant ... must be one of ... evolving, ... \
other
model       | --ea-variant predictive --ea-prediction-layers 4 | --ea-prediction-layers ... 3, not
model       | --ea-variant bird_eye --ea-diagonal gone | --ea-diagonal ... must be ... gone
model       | --ea-variant encoder=bird_eye   | bird_eye cannot serve encoder ... only decoder
model       | --ea-learned-mixing maybe       | --ea-learned-mixing ... must be one of true, false
model       | --ea-learned-mixing true --ea-alpha 0.0 | --ea-alpha must be between 0 and 1 ... not \
0.0
model       | --ea-learned-mixing true --ea-beta 1.0 | --ea-beta must be between ... not 1.0
model       | --ea-variant multi_token --ea-head-group 3 | --ea-head-group must divide the ... \
heads of encoder attention, not 3
model       | --ea-variant talking_heads --ea-head-mixing later | --ea-head-mixing ... 'none' or \
... before,after, not 'later'
model       | --ea-branch other               | --ea-branch ... must be ... convolution ... other
train       | --ea-branch convolution --decoder-attention-heads 16 | --decoder-embed-dim 16 must \
be divisible by twice --decoder-attention-heads 16
# The target's numbers were those of words of the source's dictionary.
train       | --merge-src-tgt-embed           | --merge-src-tgt-embed ... --share-all-embeddings
train       | --cross-self-attention          | --cross-self-attention cannot be combined
train       | --base-layers 1                 | --base-layers cannot be combined
train       | --quant-noise-scalar 0.5        | --quant-noise-scalar cannot be combined
train       | --encoder-xformers-att-config {} | --encoder-xformers-att-config cannot be combined
train       | --encoder-attention-heads 3     | --encoder-attention-heads must divide ... 16, not 3
train       | --decoder-attention-heads 5     | --decoder-attention-heads must divide
python      | --ea-variant multi_token --decoder-layers-to-keep 0,2 | --decoder-layers-to-keep \
cannot be combined with --ea-head-norm true
python      | --ea-branch convolution --encoder-layers-to-keep 0,2 | --encoder-layers-to-keep 0,2 \
cannot be combined with --ea-branch convolution
train       | --arch conv_transformer_lite --ea-branch none | --arch conv_transformer_lite is \
--ea-branch convolution, not none: choose ... ea_tr
train       | --arch pa_conv_transformer_lite --ea-variant residual | --arch \
pa_conv_transformer_lite is --ea-variant predictive, not residual
# A search over these would compare equal models.
model       | --ea-skip none --ea-alpha 0.3   | --ea-alpha would have no effect: --ea-skip none
model       | --ea-convolution none --ea-beta 0.3 | --ea-beta would have no effect: --ea-convolution
model       | --ea-convolution none --ea-kernel-size 5 | --ea-kernel-size would have no effect
model       | --ea-variant encoder=plain,decoder=evolving --ea-alpha 0.3 | --ea-alpha would have \
no effect: --ea-skip encoder gives no attention of this model
model       | --ea-variant encoder=plain,decoder=evolving --ea-convolution encoder | \
--ea-convolution would have no effect
model       | --ea-skip none --ea-convolution none --ea-learned-mixing true | --ea-learned-mixing \
would have no effect: neither alpha nor beta is used
# It was the plain model, without a word.
train       | --ea-variant bird_eye --decoder-layers 0 | --ea-variant bird_eye is for ... has \
encoder alone
train       | --ea-variant predictive --encoder-layers 0 | --ea-variant predictive is for ... has \
decoder, encoder-decoder alone
train       | --ea-variant encoder-decoder=evolving --no-cross-attention | --ea-variant \
encoder-decoder=evolving is for ... has encoder, decoder alone
train       | --arch ea_transformer_base --ea-variant predictive --encoder-layers 0 | is for ... \
alone
train       | --ea-variant plain --no-cross-attention |
# Base's alpha is evolving attention's, which uses none here; Lite's is the same as predictive's.
train       | --arch ea_transformer_base --ea-variant \
encoder=predictive,decoder=evolving,encoder-decoder=evolving | alpha 0.5 by itself, and predictive \
0.1: give --ea-alpha
model       | --ea-variant encoder=predictive,decoder=evolving,encoder-decoder=evolving |
python      | --arch ea_roberta_base --ea-variant decoder=evolving | it would be the plain model
# Language models.
train-lm    | --ea-variant predictive         | predictive serves no decoder ... evolving
train-lm    | --ea-variant encoder=residual   | no encoder attention
train-lm    | --ea-alpha 0.9                  | --ea-alpha would have no effect: --ea-skip encoder
train-lm    | --ea-convolution encoder        | --ea-convolution would have no effect
train-lm    | --arch realformer_lm_lite --ea-skip encoder | --ea-skip would have no effect: \
encoder has no such connection in this model
train-lm    | --max-target-positions 8        | --tokens-per-sample 24 is more than ... 8
train-lm    | --character-embeddings          | --character-embeddings
"""
#: What a way of the table stands for, where it is not a command.
WAYS = {"model": ("train", "python")}
ROWS = [
    (way, words.strip(), names.strip())
    for command, words, names in (row.split("|") for row in TABLE.splitlines() if "|" in row)
    for way in WAYS.get(command.strip(), [command.strip()])
]
ARCH = "ea_transformer_lite"
#: Of each command, fairseq's parser and the words that stand before those of the table.
COMMANDS = {
    "train": (options.get_training_parser, training("data", "saved", "--arch", ARCH)),
    "train-lm": (options.get_training_parser, language_training("saved", data="data")),
    "generate": (options.get_generation_parser, generation("data", "model.pt")),
    "interactive": (options.get_interactive_generation_parser, generation("data", "model.pt")),
    "validate": (options.get_validation_parser, ["data", "--path", "model.pt", "--max-tokens", 9]),
    "eval-lm": (options.get_eval_lm_parser, ["data", "--path", "model.pt"]),
}


def begin(command, words):
    """What a command does before any work, in this process."""
    if command == "validation":
        return begin("train", f"--eval-bleu --eval-bleu-args {shlex.quote(words)}")
    words = shlex.split(words)
    if command == "python":
        names = [name.removeprefix("--").replace("-", "_") for name in words[::2]]
        values = [yaml.safe_load(value) if value else value for value in words[1::2]]
        return build(**{"arch": ARCH, **dict(zip(names, values, strict=True))})
    if command == "preprocess":
        parser = options.get_preprocessing_parser()
        return preprocess.check(parser.parse_args(["--only-source", *words]))
    parser, before = COMMANDS[command]
    parser, before = parser(), list(map(str, before))
    if words[-1] == "None":
        where = before.index(words[0])
        before, words = before[:where] + before[where + 2 :], []
    args = options.parse_args_and_arch(parser, [*before, *words])
    check(parser, args)
    if command.startswith("train"):
        task = object.__new__(TASK_REGISTRY[args.task])
        task.src_dict = task.tgt_dict = task.dictionary = task.output_dictionary = dictionary()
        ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
    elif "--model-overrides" in words:
        overrides = yaml.safe_load(args.model_overrides)
        load_model_ensemble_and_task([str(trained() / "checkpoint_last.pt")], overrides)


@pytest.mark.parametrize(("command", "words", "names"), ROWS)
def test_the_table(command, words, names, capsys):
    expected = pytest.raises((UserError, SystemExit)) if names else contextlib.nullcontext()
    with expected as refused:
        begin(command, words)
    if names:
        said = str(refused.value)
        if refused.type is SystemExit:  # by the parser
            said = capsys.readouterr().err.splitlines()[-1]
        assert re.search(".*".join(map(re.escape, names.split(" ... "))), said)
        assert "\n" not in said


def test_every_command_looks_before_any_work(tmp_path):
    saved = tmp_path / "saved"
    unread = ("--user-dir", USER_DIR, "--path", "unread.pt")
    for command, words, expected in (
        ("train", training(corpus(), saved, "--lr=-1"), "--lr is [-1.0]"),
        ("generate", generation(corpus(), "unread.pt", "--beam", "0"), "--beam is 0"),
        ("interactive", generation(corpus(), "unread.pt", "--beam", "0"), "--beam is 0"),
        ("validate", [corpus(), *unread], "--max-tokens is missing"),
        ("eval-lm", [corpus(), *unread, "--tokens-per-sample", "0"], "--tokens-per-sample is 0"),
    ):
        assert refusal(command, *words).startswith(expected), command
    assert not saved.exists()


def test_settings_that_a_checkpoint_has_are_overridden():
    overrides = "{'dropout': 0.5, 'encoder_embed_dim': 16, 'data': 'elsewhere', 'seed': 3}"
    more = ("--model-overrides", overrides)
    done = run("generate", *generation(corpus(), trained() / "checkpoint_last.pt", *more))
    assert done.status == 0 and done.output().count("\nH-") == 11, done.errors()


def test_the_options_that_a_refusal_names_translate_a_part_each():
    arguments = generation(corpus(), trained() / "checkpoint_last.pt")
    parts = ("--num-shards", "2", "--shard-id", "1")
    told = refusal("generate", *arguments, *parts).partition(": give ")[2].split()
    assert told == ["--distributed-world-size", "2", "--distributed-rank", "1"]
    found = []
    for rank in ("0", "1"):
        done = run("generate", *arguments, *told[:-1], rank)
        found.append(re.findall(r"^H-(\d+)", done.output(), re.M))
    assert all(found) and sorted(map(int, found[0] + found[1])) == list(range(11))


def test_alignments_of_both_kinds():
    """Of each token, its source's likeliest is where it attends to most."""
    printed = []
    for kind in ("hard", "soft"):
        more = ("--print-alignment", kind)
        done = succeeds("generate", *generation(corpus(), trained() / "checkpoint_last.pt", *more))
        printed.append(dict(re.findall(r"^A-(\d+)\t(.*)$", done.output(), re.M)))
    hard, soft = printed
    assert len(hard) == len(soft) == 11
    for number, pairs in hard.items():
        maps = [list(map(float, row.split(","))) for row in soft[number].split()]
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in maps)
        likeliest = [row.index(max(row[:-1])) for row in maps[:-1]]  # ends are not aligned
        assert pairs.split() == [f"{source}-{place}" for place, source in enumerate(likeliest)]


@pytest.mark.parametrize("lenpen", ["-10", "10"])
def test_the_ends_of_the_range_work(lenpen):
    done = succeeds(
        "generate", *generation(corpus(), trained() / "checkpoint_last.pt", "--lenpen", lenpen)
    )
    assert done.output().count("\nH-") == 11 and not re.search(r"\t-?(inf|nan)", done.output())
