#!/usr/bin/env python3
"""Pre-trains a small BERT on text of one's own: masked words, and WordPiece learned there.

    python examples/language_understanding/pretrain.py small_bert \
        --text brown.en.gz --glue glue/SST-2 glue/CoLA

--text takes files with one sentence a line, whose neighbours belong together: they are packed into
blocks. --glue takes folders in GLUE's layout, whose training sentences stand alone. The result is a
folder as the hub would give it (config.json, model.safetensors, tokenizer.json), which glue.py and
everything else of transformers opens. Interrupted, the same command goes on at its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from ea_fairseq.errors import UserError
from ea_fairseq.hf.broken_torchaudio import hide_broken_torchaudio

hide_broken_torchaudio()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from tasks import read_lines, read_sentences  # noqa: E402
from tokenizers import BertWordPieceTokenizer  # noqa: E402
from transformers import (  # noqa: E402
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Learns the pieces, trains, saves; 0, or 1 and one line where the input is bad."""
    args = make_parser().parse_args(argv)
    try:
        pretrain(args)
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("output", type=Path, help="folder to be made")
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="files of running text")
    parser.add_argument("--glue", type=Path, nargs="*", default=[], help="folders of GLUE's tasks")
    parser.add_argument("--vocabulary", type=int, default=8000, help="WordPiece's pieces")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--positions", type=int, default=256, help="longest sequence of the model")
    parser.add_argument("--block", type=int, default=128, help="pieces of a block of running text")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=96, help="sequences of one update")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    return parser


def pretrain(args: argparse.Namespace) -> None:
    """All steps; leaves ``args.output`` whole or not there at all."""
    if (args.output / "config.json").exists():
        raise UserError(f"{args.output}: is there already; choose another folder")
    if not args.text and not args.glue:
        raise UserError("nothing to train on: give --text or --glue")
    lines = [line.strip() for path in args.text for line in read_lines(path)]
    running = [line for line in lines if line]
    alone = [
        sentence
        for folder in args.glue
        for group in read_sentences(folder, "train")
        for sentence in group
    ]
    unfinished = args.output.with_name(f"{args.output.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    tokenizer = learn_pieces(running + alone, unfinished, args)
    sequences = make_sequences(running, alone, tokenizer, args.block)
    print(f"{len(sequences)} sequences, {sum(map(len, sequences))} pieces", flush=True)

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        intermediate_size=4 * args.width,
        max_position_embeddings=args.positions,
    )
    torch.manual_seed(args.seed)
    trainer = MaskedWords(
        model=BertForMaskedLM(config),
        args=TrainingArguments(
            output_dir=str(unfinished),
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            learning_rate=args.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=args.steps // 10,
            weight_decay=0.01,
            adam_beta2=0.98,
            bf16=args.bf16,
            use_cpu=not torch.cuda.is_available(),
            seed=args.seed,
            train_sampling_strategy="group_by_length",
            save_steps=50,
            save_total_limit=1,
            logging_steps=20,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=[{"input_ids": sequence} for sequence in sequences],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(unfinished)))
    shutil.rmtree(unfinished)
    finished = args.output.with_name(f"{args.output.name}.finished")
    trainer.model.save_pretrained(finished)
    tokenizer.save_pretrained(finished)
    losses = [entry for entry in trainer.state.log_history if "loss" in entry]
    settings = {name: str(value) for name, value in vars(args).items() if name != "output"}
    (finished / "pretraining.json").write_text(json.dumps({"args": settings, "losses": losses}))
    finished.rename(args.output)


class MaskedWords(Trainer):
    """Trainer that computes scores of words for masked positions alone, a seventh of them."""

    def compute_loss(
        self, model: Any, inputs: dict[str, torch.Tensor], *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """The mean cross-entropy over masked positions."""
        labels = inputs["labels"]
        hidden = model.bert(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state
        masked = labels != -100
        return F.cross_entropy(model.cls(hidden[masked]).float(), labels[masked])


def learn_pieces(sentences: list[str], folder: Path, args: argparse.Namespace) -> BertTokenizerFast:
    """WordPiece of the text, as BERT's uncased tokenizer has it; learned once."""
    if not (folder / "tokenizer.json").exists():
        learner = BertWordPieceTokenizer(lowercase=True)
        learner.train_from_iterator(sentences, args.vocabulary, show_progress=False)
        BertTokenizerFast(
            tokenizer_object=learner._tokenizer, model_max_length=args.positions
        ).save_pretrained(folder)
    return BertTokenizerFast.from_pretrained(folder)


def make_sequences(
    running: list[str], alone: list[str], tokenizer: BertTokenizerFast, block: int
) -> list[list[int]]:
    """[CLS] ... [SEP] of pieces: neighbouring sentences packed into blocks, others alone."""
    start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    sequences, current = [], []
    for pieces in _pieces(running, tokenizer):
        if current and len(current) + len(pieces) + 2 > block:
            sequences.append([start, *current, end])
            current = []
        current += pieces[: block - 2]
    if current:
        sequences.append([start, *current, end])
    return sequences + [
        [start, *pieces[: block - 2], end] for pieces in _pieces(alone, tokenizer) if pieces
    ]


def _pieces(sentences: list[str], tokenizer: BertTokenizerFast) -> list[list[int]]:
    if not sentences:
        return []
    return tokenizer(sentences, add_special_tokens=False, verbose=False)["input_ids"]


if __name__ == "__main__":
    sys.exit(main())
