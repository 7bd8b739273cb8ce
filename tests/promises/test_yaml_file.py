"""Settings in YAML: small texts of huge content and files that are no files end in one line."""

import os
import time

import pytest
from time_limit import in_time
from tiny_translation import write_yaml

from ea_fairseq import yaml_file
from ea_fairseq.corpus import config
from ea_fairseq.recipes.says.recipe import load_recipe


@pytest.fixture(autouse=True)
def seconds():
    """A test that hangs ends."""
    with in_time(600):
        yield


def bomb(of):
    """Twenty levels, each of which holds the one before nine times."""
    lines = [of("a0", "x")] + [of(f"a{n}", f"*a{n - 1}") for n in range(1, 20)]
    return "".join(lines)


BOMBS = {
    "lists": bomb(lambda name, part: f"{name}: &{name} [{', '.join([part] * 9)}]\n"),
    "mappings": bomb(
        lambda name, part: f"{name}: &{name} {{{', '.join(f'k{n}: {part}' for n in range(9))}}}\n"
    ),
    "merged": "a0: &a0 {x: 1}\n"
    + bomb(lambda name, part: f"{name}: &{name} {{<<: [{', '.join([part] * 9)}]}}\n").partition(
        "\n"
    )[2],
    "long texts": f"a: &a {'x' * 20_000}\nb: [{', '.join(['*a'] * 200)}]\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_references_that_multiply_are_refused_at_once(name):
    began = time.process_time()
    with pytest.raises(ValueError, match="^here: too large") as error:
        yaml_file.parse(BOMBS[name], "here")
    assert "\n" not in str(error.value) and time.process_time() - began < 5


def test_references_within_reason_are_read():
    text = "a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}\nd:\n"
    x = {"x": 1}
    assert yaml_file.parse(text, "here") == {"a": x, "b": [x, x], "c": {"x": 1, "y": 2}, "d": None}
    assert yaml_file.parse("", "here") is None
    with pytest.raises(ValueError, match="^here: .*holds itself"):
        yaml_file.parse("a: &a [*a]\n", "here")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("files:\n  train: a\n  train: b\n", "train is given in line 2 and in line 3"),
        ("train: {x: 1}\nother:\ntrain: {y: 2}\n", "train is given in line 1 and in line 3"),
        ("a: {x: 1, x: 2}\n", "x is given in line 1 and in line 1"),
        ("&k dropout: 0.1\n*k : 0.9\n", "dropout is given in line 1 and in line 2"),
        ("a: &k x\nb:\n  *k :\n    1\n  y: 3\n  x: 2\n", "x is given in line 3 and in line 6"),
    ],
)
def test_a_key_given_twice_is_refused(text, words):
    """The first was dropped: half of a corpus was trained on, or half of the settings."""
    with pytest.raises(ValueError, match=f"^here: {words}$"):
        yaml_file.parse(text, "here")
    assert yaml_file.parse("a: {x: 1}\nb: {x: 2}\nx: 3\n", "here")["x"] == 3


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 400, "9" * 5000, "-0x" + "f" * 5000])
def test_numbers_of_hundreds_of_digits_are_refused(tmp_path, digits):
    """Python takes them, and what they meet (floats, torch's sizes) does not."""
    path = tmp_path / "a.yml"
    path.write_text(f"train: {{max-tokens: {digits}}}\n")
    for load in (yaml_file.read, load_recipe, config.load):
        with pytest.raises(ValueError) as refusal:
            load(path)
        assert str(refusal.value).startswith(f"{path}: ") and len(str(refusal.value)) < 300
    assert yaml_file.parse(f"a: {2**63 - 1}", "here") == {"a": 2**63 - 1}


@pytest.mark.parametrize("load", [yaml_file.read, load_recipe, config.load])
def test_a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for(tmp_path, load):
    os.mkfifo(tmp_path / "pipe.yml")
    write_yaml(tmp_path / "own.yml", {"base": "pipe.yml"})
    for path in (tmp_path / "pipe.yml", tmp_path / "own.yml"):
        if load is yaml_file.read and path.name == "own.yml":
            continue
        with pytest.raises(ValueError, match=f"{tmp_path / 'pipe.yml'}: is no file but a pipe"):
            load(path)


def test_bases_that_multiply_are_refused_at_once(tmp_path):
    for n in range(12):
        write_yaml(tmp_path / f"{n}.yml", {"base": [f"{n + 1}.yml"] * 9})
    write_yaml(tmp_path / "12.yml", {"train": {"lr": 1}})
    with pytest.raises(ValueError, match="0.yml: has more than 100 bases"):
        load_recipe(tmp_path / "0.yml")
    for n in range(200):
        write_yaml(tmp_path / f"corpus{n}.yml", {"base": f"corpus{n + 1}.yml"})
    with pytest.raises(ValueError, match="corpus0.yml: has more than 100 bases"):
        config.load(tmp_path / "corpus0.yml")
