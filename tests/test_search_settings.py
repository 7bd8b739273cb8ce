"""Translations as long as their sources, and language models whose words are the target's."""

import functools
import re
import shutil

from fairseq_commands import corpus, generation, run, temporary_folder, trained
from trained_language_models import corpus as text
from trained_language_models import trained as trained_language_model


def translate(data, *more):
    return run("generate", *generation(data, trained() / "checkpoint_last.pt", *more))


def refused(done):
    assert done.status == 1 and "Traceback" not in done.errors(), done.errors()
    return done.errors().strip().splitlines()[-1].removeprefix("error: ")


def test_translations_are_as_long_as_their_sources():
    """fairseq's are longer by one token."""
    output = translate(corpus(), "--match-source-len").output()
    sources = dict(re.findall(r"^S-(\d+)\t(.*)$", output, re.M))
    found = dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", output, re.M))
    assert len(sources) == 11 and len({len(line.split()) for line in sources.values()}) > 2
    assert {n: len(line.split()) for n, line in found.items()} == {
        n: len(line.split()) for n, line in sources.items()
    }


@functools.cache
def beside_a_text():
    """The parallel corpus with the dictionary of the language model, of the same words."""
    folder = shutil.copytree(corpus(), temporary_folder() / "bin")
    shutil.copyfile(text() / "dict.txt", folder / "dict.txt")
    entries = [set((folder / f"dict{end}.txt").read_text().split()[::2]) for end in ("", ".en")]
    assert entries[0] == entries[1]
    return folder


def fusion(*more):
    return ["--lm-path", trained_language_model() / "checkpoint_last.pt", *more]


def test_a_language_model_of_other_numbers_is_refused():
    error = refused(translate(beside_a_text(), *fusion("--lm-weight", "0.3")))
    assert error.startswith(
        "--lm-path: the language model's 24 entries are not those of the target"
    )


def test_a_language_model_without_a_weight_or_a_use_is_named():
    assert "--lm-weight" in refused(translate(beside_a_text(), *fusion()))
    arguments = generation(corpus(), trained() / "checkpoint_last.pt")
    for option in (fusion("--lm-weight", "0.3"), ["--prefix-size", "2"]):
        error = refused(run("interactive", *arguments, *option))
        assert error.startswith(f"{option[0]} has no effect on fairseq-interactive")
