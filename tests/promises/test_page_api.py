"""The JSON API keeps to its own description, whatever is asked: generated from openapi.json."""

import json
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from page_server import ask, served
from small_folders import write_folder

from ea_fairseq import Translator

SOME = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
# Words of the model, which make translations longer than those of letters that it does not know.
LETTERS = st.one_of(st.text(), st.sampled_from(["ea", "encoder", "w1 w5 w3", "w8\n\nw4 w4."]))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | LETTERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LETTERS, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    translator = Translator(write_folder(tmp_path_factory.mktemp("models") / "ea"), threads=1)
    with served({"ea": translator}) as port:
        yield port


@pytest.fixture(scope="module")
def description(port):
    return json.loads(ask(port, "/openapi.json")[2])


def resolved(schema, description):
    """A schema, or the one that it refers to."""
    if "$ref" not in schema:
        return schema
    return description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]


def values(schema, description):
    """Values that a schema allows."""
    schema = resolved(schema, description)
    if "anyOf" in schema:
        return st.one_of([values(one, description) for one in schema["anyOf"]])
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    match schema["type"]:
        case "string":
            return LETTERS.filter(lambda text: len(text) >= least and len(text) <= (most or 999))
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "null":
            return st.none()
        case "array":
            inner = values(schema["items"], description)
            return st.lists(inner, min_size=schema.get("minItems", 0), max_size=8)
        case "object":
            parts = {k: values(v, description) for k, v in schema["properties"].items()}
            asked = {k: parts.pop(k) for k in schema.get("required", [])}
            return st.fixed_dictionaries(asked, optional=parts)
    raise AssertionError(f"a kind of schema that this test does not know: {schema}")


KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}


def allows(schema, value, description):
    """Whether a schema allows a value (what this API's schemas use of JSON Schema)."""
    schema = resolved(schema, description)
    if not schema:
        return True
    if "anyOf" in schema:
        return any(allows(one, value, description) for one in schema["anyOf"])
    kind = schema["type"]
    if kind == "object":
        parts, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        return (
            isinstance(value, dict)
            and set(schema.get("required", [])) <= set(value)
            and (others is not False or set(value) <= set(parts))
            and all(allows(parts.get(k, others), v, description) for k, v in value.items())
        )
    if kind == "array":
        return (
            isinstance(value, list)
            and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
            and all(allows(schema["items"], item, description) for item in value)
        )
    if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if kind == "string":
        return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    if kind in ("integer", "number"):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return True


def operation(description, path, method="post"):
    """An operation, and the schema of its body."""
    found = description["paths"][path][method]
    content = found["requestBody"]["content"]["application/json"] if method == "post" else {}
    return found, content.get("schema")


def check(answer, found, description):
    """That an answer is one of those described; returns its status."""
    status, headers, body = answer
    assert str(status) in found["responses"], (status, body)
    content = found["responses"][str(status)]["content"]
    kind = headers["content-type"].partition(";")[0]
    assert kind in content, (kind, content)
    lines = body.splitlines() if kind == "application/x-ndjson" else [body]
    problem = {"$ref": "#/components/schemas/Problem"}
    for number, line in enumerate(lines):
        value = json.loads(line)
        fits = allows(content[kind]["schema"], value, description)
        # As the description says: a later line of a stream may tell that the rest failed.
        assert fits or (number and allows(problem, value, description)), value
    return status


ANSWERED = {
    "/api/translate": {"model": "ea", "text": "w1 w5 w3"},
    "/api/maps": {
        **{"model": "ea", "source_tokens": ["w1", "</s>"], "tokens": ["w5", "</s>"]},
        **{"attention": "encoder-decoder", "layer": 1},
    },
}


@pytest.mark.parametrize("path", ANSWERED)
def test_what_the_description_allows_is_answered_as_it_says(port, description, path):
    found, schema = operation(description, path)
    seen = set()

    @SOME
    @example(ANSWERED[path])
    @given(values(schema, description))
    def ask_for(body):
        status = check(ask(port, path, body), found, description)
        # What is right by its form may name what is not there.
        assert status in (200, 400, 404), (status, body)
        seen.add(status)

    ask_for()
    assert seen >= {200, 404}


@pytest.mark.parametrize("path", ["/api/translate", "/api/maps"])
def test_what_it_does_not_allow_is_refused_as_it_says(port, description, path):
    found, schema = operation(description, path)
    right = values(schema, description)

    def spoil(body, name, value):
        return {**body, name: value}

    names = st.sampled_from(list(resolved(schema, description)["properties"])) | LETTERS
    spoilt = ANYTHING | st.builds(spoil, right, names, ANYTHING)

    @SOME
    @given(spoilt.filter(lambda body: not allows(schema, body, description)))
    def ask_for(body):
        assert check(ask(port, path, json.dumps(body).encode()), found, description) == 422

    @SOME
    @given(st.binary())
    def send(body):
        # 400 for what is no UTF-8, or nested too deeply.
        assert check(ask(port, path, body, method="POST"), found, description) in (400, 422)

    ask_for()
    send()


def test_maps_of_every_described_kind_are_answered(port, description):
    """Random names hit no attention: here the rest of a right request is random."""
    found, schema = operation(description, "/api/maps")
    tokens = st.lists(
        st.sampled_from(["w1", "w5", "</s>", "<pad>", "<s>", "<unk>", "x", "\x00", "<b>"]),
        min_size=1,
        max_size=4,
    )
    seen = set()

    @SOME
    @example(["w1", "<pad>", "</s>"], ["<pad>", "w5", "</s>"], "decoder", 1, None)
    @given(
        tokens,
        tokens,
        st.sampled_from(["encoder", "decoder", "encoder-decoder"]),
        st.integers(1, 4),
        st.none() | st.integers(1, 5),
    )
    def ask_for(source, target, attention, layer, head):
        body = {"model": "ea", "source_tokens": source, "tokens": target}
        body |= {"attention": attention, "layer": layer, "head": head}
        assert allows(schema, body, description)
        status = check(ask(port, "/api/maps", body), found, description)
        assert status == (200 if layer <= 3 and (head or 1) <= 4 else 400)
        seen.add(status)

    ask_for()
    assert seen == {200, 400}


def test_other_addresses_and_methods_are_answered_in_json(port, description):
    @SOME
    @given(
        st.from_regex(r"[A-Za-z0-9._~%/-]{0,20}", fullmatch=True), st.sampled_from(["GET", "PUT"])
    )
    def ask_for(name, method):
        path = f"/api/{name}"
        status, _, body = ask(port, path, method=method)
        if path == "/api/models" and method == "GET":
            return
        assert status in (404, 405, 307) and (status == 307 or "detail" in json.loads(body))

    ask_for()
    found, _ = operation(description, "/api/models", "get")
    answer = ask(port, "/api/models")
    schema = found["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer[0] == 200 and allows(schema, json.loads(answer[2]), description)
    assert re.match(r"3\.", description["openapi"])
