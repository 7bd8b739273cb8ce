"""The page's server: right answers for many at once, and nothing for those who may not ask."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from browser import browser, needs_browser
from page_server import HOSTS, ask, served
from small_folders import PLAIN, write_folder
from small_models import dictionary

import ea_fairseq.page
from ea_fairseq import Translator
from ea_fairseq.errors import UserError
from ea_fairseq.inference.build_model import build_model, unshared_weights
from ea_fairseq.inference.map_views import layer_views
from ea_fairseq.inference.model_folder import Longest, ModelConfig, Search, write_model_folder
from ea_fairseq.page.api import LONGEST_TEXT
from ea_fairseq.page.limits import Guard
from ea_fairseq.page.server import allowed_hosts, serve
from ea_fairseq.text.tokens import Tokenization

PAGE = Path(ea_fairseq.page.__file__).parent
TEXT = "w1 w5 w3 w7\n\nw8 w4 w4\n"


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    ea = write_folder(folder / "ea")
    plain = write_folder(folder / "plain", "transformer_lite", seed=2)
    return {"ea": Translator(ea), "plain": Translator(plain)}


@pytest.fixture(scope="module")
def port(translators):
    with served(translators) as port:
        yield port


def translate(port, text, **more):
    """Status, and the pieces or the error."""
    status, _, body = ask(port, "/api/translate", {"text": text, "model": "ea", **more})
    return status, [json.loads(line) for line in body.splitlines()]


def joined(pieces, rank=0):
    return "".join(
        piece["joint"] + (piece["translations"][rank]["text"] if piece["translations"] else "")
        for piece in pieces
    )


def test_translations_are_those_of_the_translator(port, translators):
    for name, translator in translators.items():
        status, pieces = translate(port, TEXT, model=name)
        assert (status, joined(pieces)) == (200, translator.translate(TEXT).removesuffix("\n"))
        (part,) = translator.translate("w8 w4 w4", details=True).parts
        best = pieces[2]["translations"][0]
        assert pieces[2]["source_tokens"] == part.source_tokens and best["tokens"] == part.tokens
        assert torch.allclose(torch.tensor(best["attention"]), part.attention, atol=1e-4)
        assert best["score"] == pytest.approx(part.score)
        assert [word["tokens"] for word in best["words"]] == [[i] for i in range(len(part.tokens))]


MOSES = replace(PLAIN, tokenize=Tokenization(lowercase=True))


@pytest.mark.parametrize(
    ("text", "sentences", "source", "joints"),
    [
        # Chinese has no spaces between sentences; other separators end no line.
        (
            replace(PLAIN, target_lang="zh"),
            1,
            "w1 w2. W3 w4 w5. W6\r\nw1\u2028w2\x0bw3\x85w4\n\nw5",
            ["", "", "", "\n", "\n", "\n"],
        ),
        (PLAIN, 2, "W1 w2. W3 w4. W5 w6.", ["", " "]),
        # Split again, a piece without capitals would have other sentences.
        (MOSES, 1, "W1. 3 w2. w3.", ["", " "]),
        (MOSES, 1, "W1 w2. W3!\n\nW4 w5, w6 w7. w8 w9?", ["", " ", "\n", "\n"]),
    ],
)
def test_pieces_are_those_of_the_translator(tmp_path, text, sentences, source, joints):
    folder = write_folder(tmp_path / "model", text=text, longest=Longest(12, sentences))
    translator = Translator(folder)
    with served({"ea": translator}) as port:
        status, pieces = translate(port, source)
    assert (status, joined(pieces)) == (200, translator.translate(source))
    assert [piece["joint"] for piece in pieces] == joints
    read = [part.source_tokens for part in translator.translate(source, details=True).parts]
    assert [piece["source_tokens"] for piece in pieces if piece["source_tokens"]] == read


def test_alternatives_are_those_of_the_translator(port, translators):
    _, pieces = translate(port, "w1 w5 w3", n_best=3)
    expected = translators["ea"].translate("w1 w5 w3", n_best=3)
    assert [joined(pieces, rank) for rank in range(3)] == expected and len(set(expected)) > 1


@pytest.mark.parametrize("head", [None, 2])
def test_maps_are_those_of_the_model(port, translators, head):
    part = translators["ea"].translate("w1 w5 w3 w7", details=True).parts[0]
    request = {"model": "ea", "source_tokens": part.source_tokens, "tokens": part.tokens}
    maps = translators["ea"].attention_maps(part)
    for attention, layers in maps.items():
        body = {**request, "attention": attention, "layer": 2, "head": head}
        status, _, answer = ask(port, "/api/maps", body)
        answer = json.loads(answer)
        names = [view["name"] for view in answer["views"]]
        assert status == 200 and names == ["fresh", "added", "evolved"]
        for view, expected in zip(answer["views"], layer_views(layers[1]), strict=True):
            values = expected.values.mean(0) if head is None else expected.values[head - 1]
            for t, row in enumerate(view["values"]):
                for s, value in enumerate(row):
                    hidden = attention == "decoder" and s > t
                    assert (value is None) == hidden
                    assert hidden or value == pytest.approx(float(values[t, s]), abs=1e-4)
        assert len(answer["rows"]) == len(answer["views"][0]["values"])
        assert len(answer["columns"]) == len(answer["views"][0]["values"][0])


def test_words_that_the_model_does_not_know_are_marked(port):
    _, (piece,) = translate(port, "w1 Haus w3")
    words = [(word["text"], word["unknown"]) for word in piece["source_words"]]
    assert words == [("w1", False), ("Haus", True), ("w3", False), ("</s>", False)]
    assert not any(word["unknown"] for word in piece["translations"][0]["words"])


def test_fifty_at_once_are_all_answered_right(port, translators):
    texts = [" ".join(f"w{(i * k) % 20}" for k in range(1, 3 + i % 5)) for i in range(50)]
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda text: translate(port, text), texts))
    expected = translators["ea"].translate(texts)
    assert [(200, text) for text in expected] == [(s, joined(pieces)) for s, pieces in answers]


class Stub:
    """A translator that does what a test says with a text, and then what the model does."""

    def __init__(self, translator, act):
        self._translator, self._act = translator, act

    def __getattr__(self, name):
        return getattr(self._translator, name)

    def translate(self, text, **options):
        self._act(text)
        return self._translator.translate(text, **options)


def test_beyond_the_queue_requests_are_refused_and_the_others_answered(translators):
    go = threading.Event()
    stub = Stub(translators["ea"], lambda text: go.wait(600))
    with served({"ea": stub}, most_waiting=3) as port, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(translate, port, text) for text in ("w1", "w2", "w3")]
        status, end = 0, time.monotonic() + 600
        while status != 429 and time.monotonic() < end:
            # Before all three have come, this one takes a place, and gives it up.
            with contextlib.suppress(TimeoutError):
                body = {"text": "w4", "model": "ea"}
                status, headers, _ = ask(port, "/api/translate", body, timeout=1)
        assert (status, headers["retry-after"]) == (429, "1")
        go.set()
        statuses = sorted(future.result()[0] for future in waiting)
        assert statuses[-1] in (200, 429) and statuses[0] == 200
        assert translate(port, "w5")[0] == 200


def test_a_crash_and_a_late_answer_leave_the_others_alone(translators):
    go = threading.Event()

    def act(text):
        if text == "w1":
            raise RuntimeError("secret")
        if text == "w2":
            go.wait(600)

    with served({"ea": Stub(translators["ea"], act)}, seconds=8.0) as port:
        status, (problem,) = translate(port, "w1")
        assert status == 500 and "secret" not in str(problem)
        status, (problem,) = translate(port, "w2")
        assert (status, problem["detail"]) == (504, "this took longer than 8 s")
        go.set()
        expected = translators["ea"].translate("w3")
        assert translate(port, "w3")[0] == 200 and joined(translate(port, "w3")[1]) == expected
        # After the first piece the status is out: a line says it.
        status, (piece, problem) = translate(port, "w3\nw1")
        assert status == 200 and joined([piece]) == expected and "error" in problem["detail"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{}", "127.0.0.1.evil:{}", ""])
def test_other_names_reach_nothing(port, host):
    """DNS rebinding: a page of that name would be of one origin with ours."""
    for path in ("/", "/page.js", "/api/models", "/openapi.json", "/nothing"):
        status, _, body = ask(port, path, headers={"host": host.format(port)})
        assert status == 400 and "not served" in body


def test_the_names_of_this_machine_reach_the_page(port):
    for host in ("127.0.0.1", "localhost", f"localhost:{port}", f"[::1]:{port}", "LOCALHOST"):
        assert ask(port, "/", headers={"host": host})[0] == 200
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: evil\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_other_sites_are_refused_and_told_nothing(port):
    body = {"text": "w1", "model": "ea"}
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}"):
        status, headers, _ = ask(port, "/api/translate", body, {"origin": origin})
        assert status == 403
    status, headers, _ = ask(port, "/api/translate", body, {"origin": f"http://127.0.0.1:{port}"})
    assert status == 200
    for method, path in [("OPTIONS", "/api/translate"), ("GET", "/"), ("GET", "/nothing")]:
        _, headers, _ = ask(port, path, method=method)
        assert not [name for name in headers if name.lower().startswith("access-control")]
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"


def test_bodies_have_a_size_and_a_time(translators):
    with served(translators, body_seconds=0.5) as port:
        large = {"text": "w" * 100_000, "model": "ea"}
        status, _, body = ask(port, "/api/translate", large)
        assert (status, json.loads(body)["detail"]) == (413, "a request may have 65,536 bytes")
        start = b"POST /api/translate HTTP/1.1\r\nhost: localhost\r\n"
        chunked = b"transfer-encoding: chunked\r\n\r\n"
        for rest, status in (
            (b"content-length: 99\r\n\r\n{", b"408"),
            (chunked + b"1\r\n{\r\n", b"408"),
            (chunked + b"11000\r\n" + b" " * 0x11000, b"413"),
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=600) as raw:
                raw.sendall(start + rest)
                assert raw.recv(100).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [({}, 413), ({"host": "evil.example"}, 400), ({"origin": "http://evil.example"}, 403)],
)
def test_who_is_refused_gets_the_answer_whatever_was_sent(port, headers, expected):
    """Closed with something unread, a connection is reset, and the answer lost."""
    for size in (100_000, 1_000_000, 3_000_000):
        assert ask(port, "/api/translate", b" " * size, headers)[0] == expected


@pytest.mark.parametrize("sent", [b" " * 1000, None])
def test_a_refused_body_is_read_up_to_a_size_and_a_time(sent):
    received, answered = [], []

    async def receive():
        if sent is None:
            await asyncio.Event().wait()
        received.append(sent)
        return {"type": "http.request", "body": sent, "more_body": True}

    async def send(message):
        answered.append((message["type"], message.get("more_body", False), len(received)))

    guard = Guard(app=None, hosts=HOSTS, largest=500, seconds=0.1)
    scope = {"type": "http", "headers": [(b"host", b"evil.example")]}
    asyncio.run(asyncio.wait_for(guard(scope, receive, send), timeout=600))
    # The answer is out before anything is read.
    assert answered[:2] == [("http.response.start", False, 0), ("http.response.body", True, 0)]
    assert answered[2:] == [("http.response.body", False, len(received))]
    assert len(received) == (0 if sent is None else 64 * 500 // 1000)


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script> & \"'",
        "w1 \0 w2",
        "\u202ew1 \u05d0\u05d1 \u0645\u0631 w2\u202c",
        "\u2028\u2029\x0b\x0c\x1c\x85\ufeff",
        "w1 " * (LONGEST_TEXT // 3),
        "\n" * LONGEST_TEXT,
        "</s> <pad> <unk>",
        "\U0001f600\u0301" * 50,
    ],
)
def test_hostile_text_is_text(port, text):
    status, pieces = translate(port, text)
    assert status == 200
    for piece in pieces:
        for words, tokens in [(piece["source_words"], piece["source_tokens"])] + [
            (found["words"], found["tokens"]) for found in piece["translations"]
        ]:
            assert [i for word in words for i in word["tokens"]] == list(range(len(tokens)))
    assert ask(port, "/api/models")[0] == 200


MAPS = {"model": "ea", "source_tokens": ["w1"], "tokens": ["w1"], "attention": "encoder"}
MAPS["layer"] = 1


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("translate", {"text": "w1", "model": "no"}, 404, "no such model: choose from ea, plain"),
        ("translate", {"text": "w" * (LONGEST_TEXT + 1), "model": "ea"}, 422, "text: "),
        ("translate", b'{"text": "\\ud800secret", "model": "ea"}', 422, "text: "),
        ("translate", {"text": "w1", "model": "ea", "secret": 1}, 422, "secret: "),
        ("translate", {"text": ["secret"], "model": "ea"}, 422, "text: "),
        ("translate", b"secret", 422, ""),
        ("translate", b"[" * 60_000, 400, ""),
        ("maps", {**MAPS, "attention": "x"}, 400, "attention is 'x': choose from encoder, decoder"),
        ("maps", {**MAPS, "layer": 4}, 400, "layer is 4: choose from 1 to 3"),
        ("maps", {**MAPS, "head": 5}, 400, "head is 5: choose from 1 to 4"),
        ("maps", {**MAPS, "tokens": ["w1"] * 301}, 422, "tokens: "),
    ],
)
def test_wrong_requests_are_told_what_is_wrong(port, path, body, status, message):
    found, _, answer = ask(port, f"/api/{path}", body)
    assert found == status
    detail = json.loads(answer)["detail"]
    assert detail.startswith(message) and len(detail) < 300
    assert detail.count("secret") == (message == "secret: ")  # nothing is sent back


def test_the_api_is_described_and_the_page_needs_no_network(port):
    status, _, schema = ask(port, "/openapi.json")
    schema = json.loads(schema)
    assert {"/api/models", "/api/translate", "/api/maps"} == set(schema["paths"])
    known = set(schema["components"]["schemas"])
    used = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema)))
    assert used <= known and {"Piece", "Alternative", "Word", "Maps", "Problem"} <= known

    for file in ("page.html", "page.css", "page.js"):
        assert not re.search(r"https?:|//\w+\.\w", (PAGE / file).read_text())
        assert ask(port, f"/{file}")[2] == (PAGE / file).read_text()


def test_which_names_may_be_asked_for():
    assert allowed_hosts("192.0.2.7") == HOSTS | {"192.0.2.7"}
    assert "[2001:db8::1]" in allowed_hosts("2001:db8::1")
    assert socket.gethostname().lower() in allowed_hosts("0.0.0.0")


@pytest.mark.parametrize(
    ("folders", "options", "message"),
    [
        (["ea"], {"port": 65536}, "--port 65536: choose from 0 to 65535"),
        (["ea"], {"port": None, "host": "127.0.0.1"}, "Address already in use"),
        (["ea"], {"port": 0, "host": "192.0.2.7"}, "--host 192.0.2.7 --port 0: "),
        (["ea"] * 3, {}, "3 models are given: one, or two to compare"),
        (["ea", "ea"], {"port": 0}, "is given twice"),
        (["none"], {"port": 0}, "none: no such folder"),
    ],
)
def test_what_cannot_be_served_is_said(port, translators, folders, options, message):
    paths = [translators["ea"].folders[0].path.with_name(name) for name in folders]
    if options.get("port", 0) is None:
        options = {**options, "port": port}
    with pytest.raises(UserError, match=re.escape(message)):
        serve(paths, **options)


def test_a_model_without_maps_is_refused(tmp_path):
    """The page came up without a model to choose."""
    layers = {f"{side}_layers": 1 for side in ("encoder", "decoder")}
    sizes = {f"{side}_{name}": 8 for side in ("encoder", "decoder") for name in
             ("embed_dim", "hidden_size")} | {"decoder_out_embed_dim": 8}  # fmt: skip
    words = tmp_path / "dict.txt"
    dictionary().save(str(words))
    model = build_model("lstm", layers | sizes, (dictionary(), dictionary()))
    config = ModelConfig("lstm", layers | sizes, PLAIN, search=Search(max_len_b=15))
    path = tmp_path / "lstm"
    write_model_folder(path, config, unshared_weights(model), (words, words), None)
    with pytest.raises(UserError, match=r"^--serve: \S+lstm: LSTMModel has no encoder attention"):
        serve([path], port=0)


def test_another_address_is_warned_of_and_ctrl_c_ends_it(translators):
    program = (
        "from pathlib import Path; from ea_fairseq.page.server import serve; "
        f"serve([Path({str(translators['ea'].folders[0].path)!r})], '0.0.0.0', 0)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"http://0\.0\.0\.0:(\d+)/ \(Ctrl-C ends\)\n", line)
        status, _, body = ask(int(found[1]), "/api/models")
        assert status == 200 and json.loads(body)[0]["name"] == "ea"
        assert ask(int(found[1]), "/", headers={"host": "evil.example"})[0] == 400
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=900) == 0
    finally:
        process.kill()
    error = process.stderr.read()
    assert "without password or encryption" in error and "Traceback" not in error


def test_in_a_browser(tmp_path, translators, port):
    """Type, read, touch a word, step through layers and heads, compare, on a narrow screen."""
    needs_browser()
    with browser(tmp_path / "profile") as page:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("document.querySelector('#model').options.length === 2")
        page.click("#translate")
        page.wait("document.querySelector('#status').textContent.includes('nothing to translate')")

        hostile = "<img src=x onerror=alert(1)> w5 </p> \u05d0\u05d1"
        page.type("#text", f"w1 w5 w3 w7\n{hostile}")
        page.click("#translate")
        page.wait("document.querySelector('#status').textContent.startsWith('Done')")
        expected = translators["ea"].translate(f"w1 w5 w3 w7\n{hostile}")
        assert page.texts(".translation") == [expected]
        assert page.run("return document.images.length") == 0
        assert page.texts(".source")[1] == hostile.replace(" ", "") + "</s>"

        assert page.texts(".source .unknown")[0] == "<img"
        assert "Unknown to the model: <img, " in page.texts(".piece:nth-child(2)")[0]

        # A word of the translation lights up what it looked at.
        part = translators["ea"].translate("w1 w5 w3 w7", details=True).parts[0]
        page.click(".target button:nth-child(2)")
        most = int(part.attention[1].argmax())
        said = page.texts(".piece p[aria-live]")[0]
        assert said.startswith(f"{part.tokens[1]} looks most at {part.source_tokens[most]} (")
        assert page.texts(".source .most") == [part.source_tokens[most]]
        weights = page.run(
            "return [...document.querySelector('.source').children]"
            ".map(e => Number(e.style.getPropertyValue('--weight')))"
        )
        assert weights == pytest.approx(part.attention[1].tolist(), abs=2e-3)

        # Layers, heads and attentions: the numbers of the maps are the model's.
        page.wait("document.querySelectorAll('#maps .map').length === 3")
        page.choose("#attention", "decoder")
        page.choose("#head", "3")
        page.click("#lower")
        page.wait(
            "document.querySelector('#inside-of').textContent"
            " === 'decoder attention, layer 2, head 3'"
        )
        shown = page.run(
            "return [...document.querySelectorAll('[data-view=evolved] tbody tr')]"
            ".map(r => [...r.querySelectorAll('td')].map(d => d.textContent))"
        )
        probs = translators["ea"].attention_maps(part)["decoder"][1].probs[2]
        for t, row in enumerate(shown):
            assert [float(cell) for cell in row[: t + 1]] == pytest.approx(
                probs[t, : t + 1].tolist(), abs=0.0051
            )
            assert not any(row[t + 1 :])
        page.click("#lower")
        page.wait("document.querySelector('#lower').disabled")

        # As many tokens as the server gives maps of: numbers, not arguments of one call.
        cells = page.run(
            "const words = Array(300).fill('w'), row = Array(300).fill(-0.5);"
            "const view = {name: 'map', in_logits: false, values: Array(300).fill(row)};"
            "const maps = {views: [view, view], rows: words, columns: words};"
            "return mapTable('ea', view, maps).querySelectorAll('td.negative').length"
        )
        assert cells == 300 * 300

        page.click(".more")
        page.wait("document.querySelectorAll('.alternatives').length === 2")
        texts = page.texts(".alternatives:first-child li span:first-child")
        assert texts == translators["ea"].translate("w1 w5 w3 w7", n_best=5)

        page.size(340, 700)
        page.click("#compare")
        page.type("#text", "\ue009\ue007")  # Ctrl+Enter
        page.wait("document.querySelectorAll('.result').length === 2")
        page.wait("document.querySelector('#status').textContent.startsWith('Done')")
        other = translators["plain"].translate(f"w1 w5 w3 w7\n{hostile}")
        assert page.texts(".translation") == [expected, other]
        page.type(".target button", "\ue004")  # the Tab key goes on to the next word
        assert page.run("return document.activeElement.getAttribute('aria-pressed')") == "true"
        page.wait("document.querySelectorAll('#maps .map').length === 4")
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")

        # Of models that cut a text in different places, maps are of the same sentence.
        page.run(
            "const piece = (...words) => ({source_words: words.map((text) => ({text})),"
            " source_tokens: words, translations: [{tokens: ['x']}]});"
            "current = [{name: 'ea', pieces: [piece('a'), piece('b', 'c')]},"
            " {name: 'plain', pieces: [piece('a'), piece('b'), piece('b', 'c')]}];"
            "chosen = {index: 1, model: 'ea'};"
            "window.shown = [];"
            "ask = async (path, body) => { window.shown.push(body.source_tokens.join(' '));"
            " return {json: async () => ({views: [], rows: [], columns: []})}; };"
            "showMaps();"
        )
        page.wait("window.shown.length === 2")
        assert page.run("return window.shown") == ["b c", "b c"]
        assert page.console() == []
