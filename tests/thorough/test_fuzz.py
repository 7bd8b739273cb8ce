"""Whatever bytes a file holds: read, or refused in one line that names it."""

import functools
import tempfile

import fuzz
import pytest
import yaml
from fairseq_commands import corpus, trained
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

MORE = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EXAMPLES = fuzz.ROOT / "examples" / "translation"


@functools.cache
def real(target):
    """Files that are as they should be."""
    if target == "recipe":
        files = sorted(EXAMPLES.glob("*/common.yml"))
        return [path.read_bytes() for path in files if b"base:" not in path.read_bytes()]
    if target == "corpus":
        files = sorted(EXAMPLES.glob("*/corpus.yml"))
        return [path.read_bytes() for path in files if b"base:" not in path.read_bytes()]
    if target == "text":
        return ["Ein Haus\n\nzwei @@ Häuser\r\n\u2028 \u2581 \x00\n".encode()]
    if target == "segments":
        return [b'<doc docid="1">\n<seg id="1"> A &amp; B </seg>\n<seg>C &#x41; &#0;</seg>\n</doc>']
    if target == "checkpoint":
        return [(trained() / "checkpoint_last.pt").read_bytes()]
    index, data = ((corpus() / f"test.de-en.de.{end}").read_bytes() for end in ("idx", "bin"))
    return [len(index).to_bytes(2, "little") + index + data]


@st.composite
def damaged(draw, target):
    """A real file with a few places cut out, written over or put in."""
    data = draw(st.sampled_from(real(target)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from([0, 1, 2, 8, 100, len(data)]))
        data = data[:at] + draw(st.binary(max_size=8)) + data[at + length :]
    return data


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_any_bytes_and_any_damage(target, tmp_path):
    @MORE
    @given(st.one_of(st.binary(max_size=200), damaged(target)))
    def check(data):
        fuzz.TARGETS[target](data, tmp_path)

    for data in real(target):
        fuzz.TARGETS[target](data, tmp_path)
    check()


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.binary(),
)
NODES = st.recursive(
    SCALARS,
    lambda node: st.lists(node, max_size=3) | st.dictionaries(SCALARS, node, max_size=3),
    max_leaves=6,
)


@st.composite
def altered(draw, target):
    """The settings of a real file with one of them, at any depth, replaced by something."""
    content = yaml.safe_load(draw(st.sampled_from(real(target))))
    content.pop("base", None)
    node = content
    while True:
        key = draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if node[key] and isinstance(node[key], dict | list) and draw(st.booleans()):
            node = node[key]
            continue
        node[key] = draw(NODES)
        break
    if draw(st.booleans()):
        content[draw(st.sampled_from(["base", "corpus", "train", "average", "x"]) | SCALARS)] = (
            draw(NODES)
        )
    return yaml.safe_dump(content).encode()


@pytest.mark.parametrize("target", ["recipe", "corpus"])
def test_settings_of_any_type(target, tmp_path):
    @MORE
    @given(altered(target))
    def check(data):
        fuzz.TARGETS[target](data, tmp_path)

    check()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=30))
@example(b"average=[")
@example(b"train.dropout={")
@example(b"lr=2020-13-45")
def test_any_override(text):
    with tempfile.TemporaryDirectory() as folder:
        fuzz.recipe(text, folder)
