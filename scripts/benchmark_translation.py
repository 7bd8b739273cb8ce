#!/usr/bin/env python3
"""Sentences a second of this project's search, of fairseq's and, where installed, of CTranslate2.

    python scripts/benchmark_translation.py EA_MODEL PLAIN_MODEL --input test.de
    python scripts/benchmark_translation.py EA_MODEL PLAIN_MODEL --input test.de --int8

Every engine translates the same sentences, whose tokens are made beforehand, with the same beam, in
turn, several times; what is printed is the median. fairseq's search runs over the batches that ours
makes. CTranslate2 (``pip install ctranslate2``) takes plain Transformers alone, through its own
converter. Start-up is not counted. Close other programs first, or count the processor's time
(--cpu-time), which they disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.isa import CHOICES, instruction_sets, processor, restart_limited

Engine = Callable[[list[list[str]], int], Any]


def main(argv: list[str] | None = None) -> int:
    """Measure and print a table."""
    args = make_parser().parse_args(argv)
    restart_limited(args.isa, sys.argv[1:])
    try:
        measure(args)
    except ValueError as error:
        print(f"benchmark_translation.py: error: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="model folders")
    parser.add_argument("--input", type=Path, required=True, metavar="FILE", help="raw sentences")
    parser.add_argument("--sentences", type=int, default=1000, metavar="N", help="(default: 1000)")
    parser.add_argument("--beam", type=int, nargs="+", default=[5, 1], help="(default: 5 1)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="(default: 1)")
    parser.add_argument("--int8", action="store_true", help="ours and CTranslate2's with bytes too")
    parser.add_argument(
        "--isa", choices=CHOICES, default="native", help="limit all to it (default: native)"
    )
    parser.add_argument("--cpu-time", action="store_true", help="count the processor's time")
    return parser


def measure(args: argparse.Namespace) -> None:
    """Times every engine with every model and beam, in turn."""
    for name in ("sentences", "rounds", "threads"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} {getattr(args, name)}: give 1 or more")
    from ea_fairseq import Translator
    from ea_fairseq.files import read_lines

    lines = read_lines(args.input)[: args.sentences]
    clock = time.process_time if args.cpu_time else time.perf_counter
    with tempfile.TemporaryDirectory() as scratch:
        engines: list[tuple[str, Engine, list[list[str]]]] = []
        translators = [Translator(model, threads=args.threads) for model in args.models]
        archs = Counter(translator.config.arch for translator in translators)
        for number, (model, translator) in enumerate(zip(args.models, translators, strict=True)):
            sources = [tokens for tokens in map(translator.tokens, lines) if tokens]
            arch = translator.config.arch
            if archs[arch] > 1:  # with other seeds, say
                arch += f" ({model})"
            engines.append((f"fairseq, {arch}", _fairseq(translator), sources))
            engines.append((f"Translator, {arch}", _ours(translator), sources))
            if args.int8:
                int8 = Translator(model, threads=args.threads, dtype="int8")
                engines.append((f"Translator int8, {arch}", _ours(int8), sources))
            converted = _ctranslate2(translator, args.threads, Path(scratch) / str(number))
            for name, engine in converted.items():
                if name == "float32" or args.int8:
                    name = "CTranslate2" if name == "float32" else f"CTranslate2 {name}"
                    engines.append((f"{name}, {arch}", engine, sources))
        print(f"| engine, model | {' | '.join(f'beam {beam}' for beam in args.beam)} |")
        print("|---" * (1 + len(args.beam)) + "|")
        rates: dict[str, list[float]] = {name: [] for name, _, _ in engines}
        for beam in args.beam:
            seconds: dict[str, list[float]] = {name: [] for name, _, _ in engines}
            for _, engine, sources in engines:
                engine(sources[:20], beam)  # warm
            for _ in range(args.rounds):
                for name, engine, sources in engines:
                    began = clock()
                    engine(sources, beam)
                    seconds[name].append(clock() - began)
            for name, _, sources in engines:
                rates[name].append(len(sources) / statistics.median(seconds[name]))
        for name, found in rates.items():
            print(f"| {name} | {' | '.join(f'{rate:.1f}' for rate in found)} |")
    unit = "second of the processor's time" if args.cpu_time else "second"
    print(f"\nsentences a {unit}; {len(lines)} sentences, {args.rounds} rounds", end="")
    print(f", threads: {args.threads}; {processor()}; {instruction_sets()}")


def _ours(translator: Any) -> Engine:
    def run(sources: list[list[str]], beam: int) -> Any:
        return translator.search(sources, beam=beam)

    return run


def _fairseq(translator: Any) -> Engine:
    """fairseq's search over the batches of ours."""
    import torch
    from fairseq.data import data_utils
    from fairseq.sequence_generator import SequenceGenerator

    dictionary = translator.target_dictionary

    def run(sources: list[list[str]], beam: int) -> None:
        generator = SequenceGenerator(translator.models, dictionary, beam_size=beam)
        for batch in translator.batches(sources):
            rows = [torch.tensor(translator.numbers(sources[i])) for i in batch]
            tokens = data_utils.collate_tokens(rows, dictionary.pad(), left_pad=True)
            lengths = torch.tensor([len(row) for row in rows])
            sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
            generator.generate(translator.models, sample)

    return run


def _ctranslate2(translator: Any, threads: int, folder: Path) -> dict[str, Engine]:
    """CTranslate2 in float32 and int8; none where it is not installed or does not know the
    model."""
    try:
        from ctranslate2.converters import FairseqConverter
    except ImportError:
        return {}
    from ea_fairseq.inference.fairseq_checkpoint import CHECKPOINT, write_fairseq_folder

    if translator.config.arch.startswith("ea_"):
        return {}
    write_fairseq_folder(translator.folders[0], folder)
    text = translator.config.text
    converter = FairseqConverter(
        str(folder / CHECKPOINT),
        str(folder),
        source_lang=text.source_lang,
        target_lang=text.target_lang,
    )
    converter.convert(str(folder / "ctranslate2"))
    return {name: _engine(folder / "ctranslate2", name, threads) for name in ("float32", "int8")}


def _engine(folder: Path, kind: str, threads: int) -> Engine:
    import ctranslate2

    engine = ctranslate2.Translator(str(folder), compute_type=kind, intra_threads=threads)

    def run(sources: list[list[str]], beam: int) -> None:
        engine.translate_batch(sources, beam_size=beam, max_batch_size=1000, batch_type="tokens")

    return run


if __name__ == "__main__":
    sys.exit(main())
