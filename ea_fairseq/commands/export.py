"""``ea-export``: model folders of runs and checkpoints."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import program_name
from ..files import check_folder_of, read_json_or_none
from ..recipes.results.differences import differences, listed
from ..user_dir import add_user_dir, import_user_dir
from .program import described, run_program

_DESCRIPTION = """Make a model folder of what was trained: all that using it needs, to be handed on.

    ea-export work/runs/multi30k.de-en/ea_transformer_lite/seed1 model
    ea-export checkpoints/averaged.pt model --data bin --codes codes \\
        --tokenizer moses
    ea-export model for_fairseq --to-fairseq

The first takes a recipe's run, with its text settings and scores; the second any checkpoint of
fairseq's tasks translation and language_modeling, plain Transformers included; the third writes a
model folder as a checkpoint (model.pt) with dictionaries, for fairseq-generate and
--finetune-from-model."""


def main(argv: list[str] | None = None) -> int:
    """Export; the exit code is 0 when the folder is there."""
    return run_program(make_parser(), argv, _export)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = described(_DESCRIPTION, "export_model.py")
    parser.add_argument(
        "model", type=Path, help="a recipe's run, a checkpoint, or (--to-fairseq) a model folder"
    )
    parser.add_argument("output", type=Path, help="the folder to write")
    add_user_dir(parser)
    parser.add_argument("--to-fairseq", action="store_true", help="from a model folder to fairseq")
    checkpoint = parser.add_argument_group("of a checkpoint")
    checkpoint.add_argument(
        "--data", type=Path, help="folder of the dictionaries (default: the one trained on)"
    )
    checkpoint.add_argument("--source-lang", "-s", help="(default: the checkpoint's)")
    checkpoint.add_argument("--target-lang", "-t", help="(default: the checkpoint's)")
    checkpoint.add_argument(
        "--language", help="of a language model's text, for --tokenizer (default: not known)"
    )
    checkpoint.add_argument(
        "--codes",
        type=Path,
        help="BPE codes or sentencepiece model (default: text comes split into subwords)",
    )
    checkpoint.add_argument(
        "--tokenizer",
        choices=("moses", "none"),
        help="what text was tokenised with (default: none, text comes tokenised)",
    )
    checkpoint.add_argument("--lowercase", action="store_true", help="text was lower-cased")
    return parser


def _export(args: argparse.Namespace) -> None:
    of_checkpoint = ("data", "source_lang", "target_lang", "language", "codes")
    of_checkpoint += ("tokenizer", "lowercase")
    is_folder = args.model.is_dir()
    for name in of_checkpoint:
        if is_folder and getattr(args, name):
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} is for a checkpoint; {args.model} is a folder")
    if not args.model.exists():
        raise ValueError(f"{args.model}: no such file or folder")
    # A recipe makes its own model folder anew; what somebody named may be another model.
    if args.output.exists() and not (args.output.is_dir() and not any(args.output.iterdir())):
        raise ValueError(f"{args.output}: is there already; choose another name")
    check_folder_of(args.output)
    import_user_dir(args.user_dir)
    if args.to_fairseq:
        from ..inference.fairseq_checkpoint import write_fairseq_folder
        from ..inference.model_folder import read_model_folder

        write_fairseq_folder(read_model_folder(args.model), args.output)
    elif is_folder:
        from ..recipes.runs.export_run import export_run

        for lack in export_run(args.model, args.output):
            print(f"warning: {lack}", file=sys.stderr)
    else:
        _export_checkpoint(args)
    print(f"wrote {args.output}")


def _export_checkpoint(args: argparse.Namespace) -> None:
    from ..inference.export_checkpoint import export_checkpoint
    from ..inference.model_folder import read_model_folder

    tokenize = {"tokenizer": args.tokenizer or "none", "lowercase": args.lowercase}
    languages = (args.source_lang, args.target_lang)
    export_checkpoint(
        *(args.model, args.output, args.data, languages, tokenize, args.codes, args.language)
    )
    folders = (args.model.parent, args.model.absolute().parent.parent)  # averaged, checkpoints/
    run = next((folder for folder in folders if (folder / "text" / "codes").exists()), None)
    split = run is not None and (run / "text" / "codes").stat().st_size  # empty: into words alone
    kept = None if run is None else read_json_or_none(run / "text" / "corpus.json")
    warning, recipes = "", f"{program_name('export_model.py')} {run} FOLDER"
    if args.codes is not None and kept is not None:
        takes = read_model_folder(args.output).config.text.tokenize
        if changes := differences(kept["tokenize"], takes.as_json()):
            warning = (
                f"{args.output} takes text otherwise than the model's recipe made it "
                f"({listed(changes)}): {recipes} knows how it was made"
            )
    elif args.codes is None and split:
        warning = (
            f"{args.output} takes text that is split into subwords; for a model that takes text as "
            f"it is: {recipes}"
        )
    elif kept is None and (takes := read_model_folder(args.output).config.text.takes):
        missing = [name for name in ("codes", "tokenizer") if getattr(args, name) is None]
        warning = (
            f"for {args.output}, text must be {takes}; raw text would be read as unknown words "
            f"({' and '.join(f'--{name}' for name in missing)} make a folder that takes it)"
        )
    if warning:
        print(f"warning: {warning}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
