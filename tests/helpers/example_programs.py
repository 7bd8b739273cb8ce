"""The programs of examples/, imported as they find one another, and what all of them keep."""

import importlib
import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from pages import ROOT, commands

EXAMPLES = ROOT / "examples"


@contextmanager
def programs(example, *names):
    """Modules of an example by their names, which those of other examples may have as well."""
    before = {name: sys.modules.pop(name, None) for name in names}
    sys.path.insert(0, str(EXAMPLES / example))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(EXAMPLES / example))
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


def assert_ends_in_one_line(main, words, reason, capsys):
    """With status 1, a line that says so and nothing else."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(list(map(str, words)))
    printed = capsys.readouterr().err
    assert end.value.code == 1
    assert printed.count("\n") == 1 and re.search(reason, printed), printed


def assert_commands_are_taken(found, least, *pages):
    """The programs' parsers take what pages show, which is so many commands at least."""
    shown = [shlex.split(line) for page in pages for line in commands(page)]
    assert len(shown) >= least
    for _, script, *words in shown:
        getattr(found, Path(script).stem).make_parser().parse_args(words)
