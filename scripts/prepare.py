#!/usr/bin/env python3
"""Turns a corpus.yml into data that fairseq-train reads.

    python scripts/prepare.py examples/translation/multi30k.de-en/corpus.yml \\
        --output work/data/multi30k.de-en

The output folder then holds

    raw/    clean sentences before tokenisation: the references of detokenised BLEU
            (in Unicode's form NFC, if the corpus says so)
    tok/    the same, tokenised (and lower-cased, if the corpus says so)
    codes   BPE merges, or the sentencepiece model
    bpe/    tok/ split into subwords
    bin/    dictionaries and binary data: train, valid, test, test1, ... in the test sets' order
    prepared.json   written last: settings, checksums of the inputs, number of pairs, those that
                    were dropped and why, dictionary sizes, and `test_sets`, which maps fairseq's
                    test, test1, ... to the names

raw/, tok/ and bpe/ hold one file for each of train, valid and the test sets, and each language:
raw/train.de. The lines of all three are the same pairs, except for bpe/train where pairs are
dropped by their length in subwords. Valid and test sets keep every line, empty ones as well.

A second run does nothing; a stopped one goes on at the step where it was stopped.
What a corpus.yml may say is explained in ea_fairseq/corpus/config.py.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from ea_fairseq.corpus.config import load
from ea_fairseq.corpus.pipeline import prepare


def parser() -> argparse.ArgumentParser:
    """The command line."""
    description, _, details = __doc__.partition("\n")
    result = argparse.ArgumentParser(
        description=description,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("corpus", type=Path, help="a corpus.yml")
    result.add_argument("--output", type=Path, required=True, help="folder to write")
    result.add_argument(
        "--raw", type=Path, help="folder of the original files; nothing is downloaded then"
    )
    result.add_argument(
        "--downloads",
        type=Path,
        help="folder where downloads are kept (default: `downloads` beside the output folder)",
    )
    result.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="processes (default: %(default)s)"
    )
    result.add_argument("--source-lang", help="instead of the one in the corpus.yml")
    result.add_argument("--target-lang", help="instead of the one in the corpus.yml")
    return result


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing half-written stays
    try:
        if args.workers < 1:
            raise ValueError(f"--workers is {args.workers}: expected a whole number from 1")
        corpus = load(args.corpus, source_lang=args.source_lang, target_lang=args.target_lang)
        output = args.output.resolve()
        prepare(
            corpus,
            folder=args.corpus.resolve().parent,
            output=output,
            raw=args.raw,
            downloads=args.downloads or output.parent / "downloads",
            workers=args.workers,
        )
    except (ValueError, OSError, RuntimeError) as error:
        print(f"prepare.py: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("prepare.py: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
