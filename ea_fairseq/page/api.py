"""The JSON API of the page, and the page's own files."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from ..attention.options import ATTENTIONS
from ..errors import UserError
from ..inference.map_views import axis_tokens, layer_views, of_head, of_number
from ..inference.translator import Part, Translation, Translator, first_problem, space
from .limits import Guard
from .work import Busy, Late, Worker

LONGEST_TEXT = 10_000
_LONGEST_SIDE = 300  # tokens
_MOST_ALTERNATIVES = 10

_FILES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_FOLDER = Path(__file__).parent

logger = logging.getLogger(__name__)


Token = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TranslateRequest(_Body):
    """A text, and how to translate it."""

    text: str = Field(max_length=LONGEST_TEXT)
    model: str = Field(description="of /api/models")
    n_best: int = Field(1, ge=1, le=_MOST_ALTERNATIVES, description="translations of each piece")


class MapsRequest(_Body):
    """A piece of a translation, and which maps of it."""

    model: str = Field(description="of /api/models")
    source_tokens: list[Token] = Field(min_length=1, max_length=_LONGEST_SIDE)
    tokens: list[Token] = Field(min_length=1, max_length=_LONGEST_SIDE)
    attention: str = Field(description="encoder, decoder or encoder-decoder")
    layer: int = Field(ge=1, description="from 1")
    head: int | None = Field(None, ge=1, description="from 1; null: the mean of all")


class ModelInfo(BaseModel):
    """A model that can be asked."""

    name: str
    arch: str
    source_lang: str
    target_lang: str
    layers: dict[str, int] = Field(description="by attention")
    heads: dict[str, int] = Field(description="by attention")
    n_best: int = Field(description="most translations of a piece")


class Word(BaseModel):
    """A word of a piece, and which of its tokens are its subwords."""

    text: str
    tokens: list[int]
    unknown: bool = Field(False, description="whether the model cannot read it, or a part of it")


class Alternative(BaseModel):
    """One translation of a piece of text."""

    text: str
    score: float = Field(
        description="log-probability to base 2, divided by the number of tokens (to the power of "
        "the model's length penalty)"
    )
    tokens: list[str]
    words: list[Word]
    attention: list[list[float]] | None = Field(
        description="(tokens, source tokens): last layer, mean of the heads"
    )


class Piece(BaseModel):
    """A line of the answer to /api/translate: what was translated at once."""

    joint: str = Field(description="what stands in front of its translation")
    source_tokens: list[str]
    source_words: list[Word]
    translations: list[Alternative] = Field(description="the best first")
    problem: str | None = None


class ViewValues(BaseModel):
    """One map of one layer."""

    name: str = Field(description="fresh, added, evolved; map in a plain Transformer")
    in_logits: bool = Field(description="logits, or else probabilities")
    values: list[list[float | None]] = Field(description="a row for each token; null: hidden")


class Maps(BaseModel):
    """What an attention looked at in one layer."""

    rows: list[str]
    columns: list[str]
    views: list[ViewValues]


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str


class _Failed(Exception):
    def __init__(self, status: int, detail: str):
        self.status, self.detail = status, detail


_PROBLEMS = {
    400: "the host name is not served, the body cannot be read, or the model does not have what "
    "was asked for",
    403: "a request of another site",
    404: "no such model",
    408: "the request did not come in time",
    413: "the request is too large",
    422: "the request is not as described",
    429: "too many requests wait; ask again later",
    500: "an error of the server; other requests go on",
    504: "the answer took too long",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in _PROBLEMS.items()
}


def make_app(
    translators: Mapping[str, Translator],
    hosts: frozenset[str],
    *,
    most_waiting: int = 64,
    seconds: float = 60.0,
    largest_body: int = 65_536,
    body_seconds: float = 10.0,
) -> Guard:
    """The application.

    Args:
        translators: by the names that people choose from
        hosts: names and addresses, without port, that the Host header may have
        most_waiting: requests that wait or run at once; the next one is answered with 429
        seconds: that a request may take, waiting included
        largest_body: bytes of a request
        body_seconds: until a request has come
    """
    worker = Worker(most_waiting, seconds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        worker.stop()

    app = FastAPI(
        title="ea_fairseq",
        version="1",
        description="Translations, and what the model attended to. Every answer is for this "
        "page's own address: requests of other sites are refused.",
        docs_url=None,  # FastAPI's own would load scripts from the network
        redoc_url=None,
        lifespan=lifespan,
    )

    @app.exception_handler(_Failed)
    async def failed(_: Request, error: _Failed) -> JSONResponse:
        headers = {"retry-after": "1"} if error.status == 429 else None
        return JSONResponse({"detail": error.detail}, error.status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # What was sent is not sent back.
        found = [
            f"{'.'.join(map(str, e['loc'][1:])) or 'body'}: {e['msg']}" for e in error.errors()
        ]
        return JSONResponse({"detail": "; ".join(found[:3])}, 422)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "the server made an error; its terminal tells more"}, 500)

    def translator_of(name: str) -> Translator:
        if name not in translators:
            raise _Failed(404, f"no such model: choose from {', '.join(translators)}")
        return translators[name]

    async def results(job: Callable[[], Iterator[Any]]) -> AsyncIterator[Any]:
        """What a job gives, as it comes; its errors as answers."""
        try:
            async for item in worker.start(job):
                yield item
        except Busy:
            raise _Failed(429, "too many requests wait; ask again in a moment") from None
        except Late:
            raise _Failed(504, f"this took longer than {seconds:g} s") from None
        except UserError as error:
            raise _Failed(400, str(error)) from None

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_FOLDER / "page.html", media_type="text/html; charset=utf-8")

    @app.get("/{name}", include_in_schema=False)
    async def file(name: str) -> Any:
        if name not in _FILES:
            return JSONResponse({"detail": "no such page"}, 404)
        return FileResponse(_FOLDER / name, media_type=f"{_FILES[name]}; charset=utf-8")

    @app.get("/api/models")
    async def models() -> list[ModelInfo]:
        """The models that can be asked."""
        return [_info(name, translator) for name, translator in translators.items()]

    @app.post(
        "/api/translate",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "a piece of the text a line, as they are translated: JSON objects, "
                "each a Piece or, where a later one fails, a Problem",
                "content": {
                    "application/x-ndjson": {"schema": {"$ref": "#/components/schemas/Piece"}}
                },
            },
            **_RESPONSES,
        },
    )
    async def translate(request: TranslateRequest) -> StreamingResponse:
        """Translates a text, piece by piece."""
        translator = translator_of(request.model)
        pieces = results(lambda: _pieces(translator, request))
        # Before the answer begins: an error still has a status of its own.
        first = await anext(pieces, None)

        async def lines() -> AsyncIterator[str]:
            try:
                if first is not None:
                    yield first.model_dump_json() + "\n"
                async for piece in pieces:
                    yield piece.model_dump_json() + "\n"
            except _Failed as error:
                yield json.dumps({"detail": error.detail}) + "\n"
            except Exception:
                logger.exception("a translation failed")
                yield json.dumps({"detail": "the server made an error"}) + "\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    @app.post("/api/maps", responses=_RESPONSES)
    async def maps(request: MapsRequest) -> Maps:
        """What one attention looked at in one layer, for a piece of a translation."""
        translator = translator_of(request.model)
        return await anext(results(lambda: iter([_maps(translator, request)])))

    @app.get("/api/{name}", include_in_schema=False)
    async def unknown(name: str) -> JSONResponse:
        return JSONResponse({"detail": "no such address; see /openapi.json"}, 404)

    describe = app.openapi

    def openapi() -> dict[str, Any]:
        schema = describe()
        schemas = schema["components"]["schemas"]
        # Of the lines of a stream, FastAPI knows nothing.
        for cls in (Piece, Alternative, Word):
            model = cls.model_json_schema(ref_template="#/components/schemas/{model}")
            model.pop("$defs", None)
            schemas.setdefault(cls.__name__, model)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    return Guard(app, hosts, largest_body, body_seconds)


def _info(name: str, translator: Translator) -> ModelInfo:
    model = translator.models[0]
    encoder = [layer.self_attn.num_heads for layer in model.encoder.layers]
    decoder = [layer.self_attn.num_heads for layer in model.decoder.layers]
    by_attention = dict(zip(ATTENTIONS, (encoder, decoder, decoder), strict=True))
    return ModelInfo(
        name=name,
        arch=translator.config.arch,
        source_lang=translator.config.text.source_lang,
        target_lang=translator.config.text.target_lang,
        layers={attention: len(heads) for attention, heads in by_attention.items()},
        heads={attention: heads[0] for attention, heads in by_attention.items()},
        n_best=min(translator.config.search.beam, _MOST_ALTERNATIVES),
    )


def _pieces(translator: Translator, request: TranslateRequest) -> Iterator[Piece]:
    """Translates line by line, each in the parts that ``ea-translate`` takes."""
    n_best = min(request.n_best, translator.config.search.beam)
    lines = re.split("\r?\n", request.text)  # as Translator.translate does
    if not lines[-1]:  # behind the end of the last line
        lines.pop()
    for number, line in enumerate(lines):
        for place, unit in enumerate(translator.parts(line)):
            joint = ("\n" if number else "") if place == 0 else _between(translator)
            # Split again, a part without capitals would end in other places.
            found = translator.translate(unit, n_best=n_best, long="whole", details=True)
            yield from _as_pieces(translator, joint, found if n_best > 1 else [found])


def _between(translator: Translator) -> str:
    """What stands between the translations of sentences."""
    return space(translator.config.text.target_lang)


def _as_pieces(translator: Translator, joint: str, found: list[Translation]) -> Iterator[Piece]:
    best = found[0]
    if not best.parts:
        yield Piece(
            joint=joint, source_tokens=[], source_words=[], translations=[], problem=best.problem
        )
    for place, part in enumerate(best.parts):
        parts = [translation.parts[place] for translation in found]
        yield Piece(
            joint=joint if place == 0 else _between(translator),
            source_tokens=part.source_tokens,
            source_words=_words(translator, part.source_tokens, part.unknown_tokens),
            translations=[_alternative(translator, part) for part in parts],
            problem=first_problem(found),
        )


def _alternative(translator: Translator, part: Part) -> Alternative:
    attention = part.attention
    return Alternative(
        text=translator.text(part.tokens[:-1]),
        score=part.score,
        tokens=part.tokens,
        words=_words(translator, part.tokens),
        attention=None if attention is None else _rounded(attention.tolist()),
    )


def _words(translator: Translator, tokens: list[str], unknown: Collection[str] = ()) -> list[Word]:
    """The words that subwords make, and the end of sentence."""
    subword = translator.config.text.subword
    words: list[Word] = []
    joins = False
    for number, token in enumerate(tokens):
        text = token
        if subword == "bpe":
            text = token.removesuffix("@@")
        elif subword == "sentencepiece":
            joins = joins and not token.startswith("\u2581")
            text = token.replace("\u2581", "")
        if joins and number < len(tokens) - 1:
            words[-1].text += text
            words[-1].tokens.append(number)
            words[-1].unknown |= token in unknown
        else:
            words.append(Word(text=text, tokens=[number], unknown=token in unknown))
        joins = subword == "sentencepiece" or text != token
    return words


def _maps(translator: Translator, request: MapsRequest) -> Maps:
    part = Part(request.source_tokens, request.tokens, [], 0.0, None)
    if request.attention not in ATTENTIONS:
        choices = ", ".join(ATTENTIONS)
        raise UserError(f"attention is {request.attention!r}: choose from {choices}")
    layers = translator.attention_maps(part)[request.attention]
    found = of_number(layers, request.layer, "layer")
    views = []
    for view in layer_views(found):
        values = of_head(view.values, request.head)
        shown = [
            [value if seen else None for value, seen in zip(*row, strict=True)]
            for row in zip(_rounded(values.tolist()), found.visible.tolist(), strict=True)
        ]
        views.append(ViewValues(name=view.name, in_logits=view.in_logits, values=shown))
    rows, columns = axis_tokens(part, request.attention)
    return Maps(rows=rows, columns=columns, views=views)


def _rounded(rows: list[list[float]]) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in rows]
