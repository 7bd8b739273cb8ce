"""hydra, without what it would do again in every fork that runs one of fairseq's commands.

Of a command's second before it begins, hydra takes the most: it reads some 250 settings one by one,
with a parser in Python, and copies all that it knows. Here what a setting says is kept by its text,
and the copy is of the outermost object alone, the only one that hydra goes on to change. Commands
that are started as they are installed have hydra as it is.
"""

import copy
import functools

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.override_parser.overrides_parser import OverridesParser


def _by_text(parse_rule):
    known = {}

    @functools.wraps(parse_rule)
    def parse(self, text, rule):
        if (text, rule) not in known:
            known[text, rule] = parse_rule(self, text, rule)
        return copy.copy(known[text, rule])

    return parse


def _copy_outermost(self, delegate):
    self.delegate = copy.copy(delegate)
    self.cache = {}


def warm():
    """Does once, before any fork, what all of them need."""
    OverridesParser.parse_rule = _by_text(OverridesParser.parse_rule)
    CachingConfigRepository.__init__ = _copy_outermost
    for parser, more in (
        (options.get_training_parser(), ["--arch", "transformer"]),
        (options.get_generation_parser(), ["--path", "x"]),
        (options.get_generation_parser(interactive=True), ["--path", "x"]),
        (options.get_eval_lm_parser(), ["--path", "x"]),
    ):
        convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, ["data", *more]))
