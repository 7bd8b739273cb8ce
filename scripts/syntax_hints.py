#!/usr/bin/env python3
"""Makes the hints that --criterion syntax_guided_cross_entropy learns from.

    python scripts/syntax_hints.py --text bpe/train.en --conllu train.conllu --output train.hints
    python scripts/syntax_hints.py --text bpe/train.en --parser spacy --model en_core_web_sm \\
        --output train.hints

--text is the target side of the training data in subwords, as it was binarized. Dependency trees
of the same text, line after line, come from a CoNLL-U file, or from a parser that is installed with
a model. What a hint is: ea_fairseq/syntax/hints.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ea_fairseq.files import check_outputs, lines_of, write_lines
from ea_fairseq.syntax.hints import hints_of_lines
from ea_fairseq.syntax.parsers import PARSERS, parse_with
from ea_fairseq.syntax.trees import read_conllu


def main(argv: list[str] | None = None) -> int:
    """Write one file of hints; the exit code is 0 unless text and trees do not fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="subwords, a sentence a line")
    parser.add_argument(
        "--subword",
        choices=("bpe", "sentencepiece"),
        default="bpe",
        help="what the subwords are (default: bpe)",
    )
    trees = parser.add_mutually_exclusive_group(required=True)
    trees.add_argument("--conllu", type=Path, help="dependency trees of the text")
    trees.add_argument("--parser", choices=sorted(PARSERS), help="what parses the text")
    parser.add_argument("--model", help="spaCy's model (en_core_web_sm), or stanza's language (en)")
    parser.add_argument("--output", type=Path, required=True, help="file for the hints")
    args = parser.parse_args(argv)
    if (args.parser is None) != (args.model is None):
        parser.error("--parser and --model go together")
    try:
        read = [path for path in (args.text, args.conllu) if path is not None]
        check_outputs({"--output": args.output}, read)
        if args.conllu is not None:
            parses = read_conllu(args.conllu)
        else:
            parses = parse_with(args.parser, args.model, lines_of(args.text), args.subword)
        hints = hints_of_lines(lines_of(args.text), parses, args.subword, args.text)
        write_lines(args.output, (" ".join(map(str, line)) for line in hints))
    except (ValueError, OSError) as error:
        print(f"syntax_hints.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
