"""``ea-recipe``: from raw text to scores."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import fields, replace
from pathlib import Path

from ..corpus import config as corpus_config
from ..errors import CommandParser, check_package
from ..recipes.results.listing import list_recipes, list_runs
from ..recipes.runs.folders import find_run
from ..recipes.runs.leftovers import clean
from ..recipes.runs.report import program, shown
from ..recipes.runs.wanted import Wanted
from ..recipes.runs.whole_recipe import original_files, run_all, run_recipe
from ..recipes.says import paths as places
from ..recipes.says.arguments import add_arguments
from ..recipes.says.checks import check_recipe, load_plugin
from ..recipes.says.new_corpus import FEW_PAIRS, write_recipe
from ..recipes.says.recipe import SECTIONS, load_recipe, recipe_path
from ..recipes.says.tasks import TRANSLATION
from ..user_dir import import_user_dir
from .program import end_in_order

_DESCRIPTION = """From raw text to scores: prepare, train, average, generate and evaluate.

    ea-recipe multi30k.de-en --variant ea_transformer_lite
    ea-recipe my.de-en --variant transformer_lite ea_transformer_lite --seeds 1 2 3
    fairseq-train bin --user-dir "$(ea-recipe --user-dir)" --arch ea_transformer_lite ...

Each step is shown in one line, and all that its commands print is kept in a log; --verbose shows
both. Steps that are done are skipped, a stopped training goes on from its last checkpoint: after
any interruption, give the same command again."""

STEPS = ("prepare", *SECTIONS)

#: ``--user-dir`` without a folder.
PRINT = ""

#: The largest seed: fairseq adds numbers of epochs and updates, and numpy takes 32 bits.
MOST_SEED = 2**31 - 1


def run() -> int:
    """The console script."""
    end_in_order()
    return main()


def main(argv: list[str] | None = None) -> int:
    """Run the recipes; the exit code is 0 when all is done."""
    parser = make_parser()
    args, more = parser.parse_known_args(argv)
    if more and ("=" not in more[0] or more[0].startswith("-")):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    try:
        if more:
            raise ValueError(f"{more[0]}: give each option its own --set: --set {more[0]}")
        if args.user_dir == PRINT:
            print(places.USER_DIR)
            return 0
        own = Path(args.user_dir).absolute() if args.user_dir else None
        import_user_dir(own)  # before its variants are asked for
        if args.list_recipes:
            print(list_recipes())
            return 0
        if args.list:
            print(list_runs(args.work_dir))
            return 0
        if args.new or args.files:
            check_alone(args, parser)
            return new_recipe(args)
        if not args.recipe:
            taken = (args.variant or [])[-1:]  # it takes all that follows it
            found = f", before --variant: {taken[0]}" if taken and Path(taken[0]).exists() else ""
            raise ValueError(
                f"recipe: give a corpus with --variant (see --list-recipes), or a file{found}"
            )
        check_installed()
        paths = [
            recipe_path(path, variant) for path in args.recipe for variant in args.variant or [None]
        ]
        recipes = [
            replace(load_recipe(path, args.set), user_dir=own or places.USER_DIR) for path in paths
        ]
        check_numbers(args)
        if args.name is not None and (args.name in ("", "..") or Path(args.name).name != args.name):
            raise ValueError(f"--name {args.name!r}: choose the name of a folder, without slashes")
        if args.name and "{recipe}" not in args.name and len(recipes) > 1:
            raise ValueError(f"--name {args.name}: choose one recipe, or a name with {{recipe}}")
        if args.ensemble and len(set(args.seeds)) < 2:
            raise ValueError("--ensemble: give the --seeds of its models, two or more")
        if len(set(args.seeds)) < len(args.seeds):  # one run would count as several in the means
            raise ValueError(f"--seeds {' '.join(map(str, args.seeds))}: give each seed once")
        if args.clean and (args.fresh or args.dry_run):
            raise ValueError("--clean removes checkpoints and does nothing else: give it alone")
        if args.fresh and "train" not in args.steps:
            raise ValueError("--fresh throws the training away: give it with the step train")
        corpora = [corpus_config.load(recipe.corpus) for recipe in recipes]
        wanted = wanted_of(args)
        inputs = [original_files(*pair, wanted) for pair in zip(recipes, corpora, strict=True)]
        load_plugin(places.USER_DIR)  # takes seconds
        for recipe, corpus in zip(recipes, corpora, strict=True):
            check_recipe(recipe, corpus)
            for option in ("examples", "ensemble"):
                if getattr(args, option) and recipe.task is not TRANSLATION:
                    raise ValueError(f"--{option}: the task {recipe.task.name} translates nothing")
        if args.clean:
            for recipe, corpus in zip(recipes, corpora, strict=True):
                for seed in args.seeds:
                    print(clean(recipe, find_run(recipe, corpus, args.work_dir, args.name, seed)))
            return 0
        if args.jobs > 1 and not args.dry_run:
            return run_all(recipes, corpora, wanted)
        for recipe, corpus, files in zip(recipes, corpora, inputs, strict=True):
            run_recipe(recipe, corpus, files, wanted)
    except (ValueError, OSError) as error:
        print(f"ea-recipe: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        again = "without --fresh it goes on" if args.fresh else "the same command goes on"
        print(f"\nstopped; {again} from here", file=sys.stderr)
        return 130
    return 0


def wanted_of(args: argparse.Namespace) -> Wanted:
    """The part of a command line that is about runs."""
    return Wanted(**{item.name: getattr(args, item.name) for item in fields(Wanted)})


def check_installed() -> None:
    """Refuse to begin what would fail for want of a package that preparing and scoring take.

    Raises:
        ValueError: naming the package and the extra that has it.
    """
    for name in ("babel", "num2words", "sacrebleu"):
        check_package(name)


def check_numbers(args: argparse.Namespace) -> None:
    """Refuse numbers that no run could have.

    Raises:
        ValueError: naming the option, its value and the least or most.
    """
    for option, least in (("jobs", 1), ("threads", 1), ("workers", 1), ("examples", 0)):
        value = getattr(args, option)
        if value is not None and value < least:
            raise ValueError(f"--{option} {value}: choose at least {least}")
    for seed in args.seeds:
        if not 0 <= seed <= MOST_SEED:
            raise ValueError(f"--seeds {seed}: choose from 0 to {MOST_SEED}")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = CommandParser(
        prog="ea-recipe",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "recipe",
        nargs="*",
        type=Path,
        help="with --variant: a corpus' folder, or the name of one that comes with the project; or "
        "a recipe file (.yml)",
    )
    parser.add_argument(
        "--variant",
        nargs="+",
        metavar="NAME",
        help="models to run on the corpus: architectures (transformer_lite, ea_transformer_lite, "
        "...; of language models transformer_lm_lite, ea_transformer_lm_lite, ...), variants, or "
        "files in the folder or in variants/ beside it",
    )
    add_arguments(parser)
    parser.add_argument(
        "--new",
        type=Path,
        metavar="FOLDER",
        help="write a recipe for two --files of your own into a new folder, anywhere",
    )
    parser.add_argument(
        "--files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="source and target, such as my.de my.en, or both in one .tsv",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="show all runs, with what differs in their settings, and a score",
    )
    parser.add_argument(
        "--list-recipes", action="store_true", help="show the corpora and models that there are"
    )
    parser.add_argument(
        "--user-dir",
        nargs="?",
        const=PRINT,
        metavar="DIR",
        help="a folder with variants of your own, for --variant; without DIR: print the folder "
        "that fairseq's --user-dir takes",
    )
    parser.add_argument("--raw", type=Path, help="local folder with the corpus as downloaded")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="one run for each")
    parser.add_argument(
        "--ensemble",
        action="store_true",
        help="translate and score with the models of all --seeds together, too",
    )
    parser.add_argument(
        "--name", help="name of the runs' folder (default: {recipe}, the recipe's own name)"
    )
    parser.add_argument(
        "--steps", nargs="+", choices=STEPS, default=STEPS, help="do these steps only"
    )
    parser.add_argument("--threads", type=int, help="threads of each command (OMP_NUM_THREADS)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="runs side by side, which share the cores unless --threads is given",
    )
    parser.add_argument("--workers", type=int, help="processes that prepare the corpus")
    parser.add_argument(
        "--fresh", action="store_true", help="throw away what the runs hold, and begin anew"
    )
    parser.add_argument(
        "--clean",
        action="store_true",
        help="of finished runs, remove the checkpoints that only a longer training would need",
    )
    parser.add_argument(
        "--examples", type=int, default=0, metavar="N", help="show N translations at the end"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show every command and all that it prints"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands of every step, run none"
    )
    return parser


def check_alone(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse options that ``--new`` would not heed.

    Raises:
        ValueError: naming the first of them.
    """
    for action in parser._actions:
        given = getattr(args, action.dest, action.default)
        if action.dest not in ("new", "files", "recipe") and given != action.default:
            raise ValueError(f"{action.option_strings[0]}: --new runs nothing: leave it out")


def new_recipe(args: argparse.Namespace) -> int:
    """Write a recipe for text of one's own, and say how to go on."""
    if not (args.new and args.files) or args.recipe:
        raise ValueError("--new FOLDER --files SOURCE TARGET: give both, and no recipe")
    if len(args.files) > 2:
        raise ValueError(f"--files: source and target are two files, not {len(args.files)}")
    new = write_recipe(args.new, args.files)
    print(f"{shown(args.new)}: corpus.yml and common.yml, for {new.pairs:,} pairs of sentences")
    for number, source, target in new.examples:
        print(f"\n{number:>9,}  {_shortened(source)}\n{'':9}  {_shortened(target)}")
    print("\nIf these do not say the same in both languages, the files do not fit.")
    if new.pairs < FEW_PAIRS:
        print(
            f"warning: {new.pairs:,} pairs are few: they show how everything works; a model of use "
            "takes some ten thousand of one kind of text",
            file=sys.stderr,
        )
    command = [program("ea-recipe"), shown(args.new)]
    print(f"\nnext:  {shlex.join([*command, '--variant', 'ea_transformer_lite'])}")
    return 0


def _shortened(line: str) -> str:
    """A sentence as it fits into a line of a terminal; control characters show as escapes."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    return shown if len(shown) <= 100 else f"{shown[:99]}…"


if __name__ == "__main__":
    sys.exit(run())
