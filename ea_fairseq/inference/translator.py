"""Text in, text out."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from ..errors import UserError
from ..text.sentences import split_sentences
from ..text.tokens import plain_language
from ..text.usual_form import UsualForm
from .attention_maps import LayerMaps, attention_maps
from .model_folder import TRANSLATION, Longest, Search
from .search import Hypothesis
from .text_model import (
    EOS,
    MAX_TOKENS,
    NO_NUMBERS,
    TextModel,
    as_list,
    check_whole_number,
    in_buffers,
)

logger = logging.getLogger(__name__)

#: What happens to text longer than what a model was trained on.
LONG = ("split", "refuse", "whole")

_WITHOUT_SPACES = ("zh", "ja", "th")  # languages that write none between sentences
# Not within 3,5 or 12:30; the space stays with the clause behind it. Chinese and Japanese may have
# none there.
_CLAUSE = re.compile(r"(?<=[,;:،])(?=[\s\u3040-\u30ff\u3400-\u9fff])|(?<=[、，；])")


@dataclass(frozen=True)
class Part:
    """A sentence, or what was translated at once, and one translation of it.

    The end of sentence, ``</s>``, is the last of the tokens on both sides.

    Attributes:
        source_tokens: what the model read
        tokens: what it wrote
        token_scores: log-probability of each token, to base 2, as fairseq-generate prints them
        score: their sum divided by their number to the power of the length penalty
        attention: (tokens, source tokens), encoder-decoder attention, the mean of the last layer's
            heads; None where the model has none, or it was not asked for
        unknown_tokens: those of the source's tokens that the model read as the unknown word
    """

    source_tokens: list[str]
    tokens: list[str]
    token_scores: list[float]
    score: float
    attention: Tensor | None
    unknown_tokens: tuple[str, ...] = ()


@dataclass(frozen=True)
class Translation:
    """A text and one of its translations.

    Attributes:
        source: the text that was given
        text: its translation
        parts: what was translated at once, in order: one for most texts, none for an empty one
        problem: why the text, or a part of it, could not be translated as it should; or None
    """

    source: str
    text: str
    parts: tuple[Part, ...] = ()
    problem: str | None = None

    @property
    def tokens(self) -> list[str]:
        """The translation's tokens, over all parts."""
        return [token for part in self.parts for token in part.tokens]

    @property
    def token_scores(self) -> list[float]:
        """Their log-probabilities, to base 2."""
        return [score for part in self.parts for score in part.token_scores]

    @property
    def source_tokens(self) -> list[str]:
        """The source's tokens, over all parts."""
        return [token for part in self.parts for token in part.source_tokens]

    @property
    def unknown_tokens(self) -> list[str]:
        """The source's tokens that the model read as the unknown word, over all parts."""
        return [token for part in self.parts for token in part.unknown_tokens]

    @property
    def score(self) -> float:
        """The part's score; of several, their mean by number of tokens; 0 for an empty text."""
        count = len(self.tokens)
        return sum(part.score * len(part.tokens) for part in self.parts) / count if count else 0.0

    @cached_property
    def attention(self) -> Tensor | None:
        """(tokens, source tokens), 0 between parts; None where a part has none."""
        maps = [part.attention for part in self.parts]
        return None if not maps or any(map_ is None for map_ in maps) else torch.block_diag(*maps)


class _Options(TypedDict, total=False):
    """Options of `Translator.translate` that its result's type does not depend on."""

    beam: int | None
    lenpen: float | None
    max_tokens: int
    long: str
    attention: bool
    progress: bool


class _StreamOptions(_Options, total=False):
    """Those of `Translator.stream`."""

    buffer: int


class Translator(TextModel):
    """Translates text with a model folder, or with several that decide together.

    Nothing changes by its use: threads may share one. Other arguments, and errors, are those of
    `TextModel`.

    Args:
        beam: hypotheses that a search goes on with; default: what the model was tested with
        lenpen: length penalty: more than 1 favours longer translations; default: as `beam`
    """

    TASK = TRANSLATION

    def __init__(
        self,
        model: str | Path | Sequence[str | Path],
        *,
        beam: int | None = None,
        lenpen: float | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        threads: int | None = None,
    ):
        super().__init__(model, device=device, dtype=dtype, threads=threads)
        self.config = replace(self.config, search=_changed(self.config.search, beam, lenpen))

    def tokens(self, text: str) -> list[str]:
        """A text's tokens as the model reads them, without the end of sentence: accents joined, and
        invisible characters left out, as in the text that it was trained on (see `UsualForm`)."""
        return super().tokens(self._usual_form(text))

    @cached_property
    def _usual_form(self) -> UsualForm:
        words = self.source_dictionary
        return UsualForm(zip(words.symbols, words.count, strict=True), self.config.text)

    @overload
    def translate(
        self,
        text: str,
        *,
        n_best: Literal[1] = 1,
        details: Literal[False] = False,
        **options: Unpack[_Options],
    ) -> str: ...

    @overload
    def translate(
        self,
        text: str,
        *,
        n_best: int,
        details: Literal[False] = False,
        **options: Unpack[_Options],
    ) -> list[str]: ...

    @overload
    def translate(
        self,
        text: str,
        *,
        n_best: Literal[1] = 1,
        details: Literal[True],
        **options: Unpack[_Options],
    ) -> Translation: ...

    @overload
    def translate(
        self, text: str, *, n_best: int, details: Literal[True], **options: Unpack[_Options]
    ) -> list[Translation]: ...

    @overload
    def translate(
        self,
        text: Sequence[str],
        *,
        n_best: Literal[1] = 1,
        details: Literal[False] = False,
        **options: Unpack[_Options],
    ) -> list[str]: ...

    @overload
    def translate(
        self,
        text: Sequence[str],
        *,
        n_best: int,
        details: Literal[False] = False,
        **options: Unpack[_Options],
    ) -> list[list[str]]: ...

    @overload
    def translate(
        self,
        text: Sequence[str],
        *,
        n_best: Literal[1] = 1,
        details: Literal[True],
        **options: Unpack[_Options],
    ) -> list[Translation]: ...

    @overload
    def translate(
        self,
        text: Sequence[str],
        *,
        n_best: int,
        details: Literal[True],
        **options: Unpack[_Options],
    ) -> list[list[Translation]]: ...

    def translate(
        self,
        text: str | Sequence[str],
        *,
        beam: int | None = None,
        n_best: int = 1,
        lenpen: float | None = None,
        max_tokens: int = MAX_TOKENS,
        long: str = "split",
        details: bool = False,
        attention: bool = True,
        progress: bool = False,
    ) -> Any:
        """Translates a text, or each of a list.

        Args:
            text: any text; an empty one has an empty translation
            beam: hypotheses that the search goes on with; default: the translator's
            n_best: translations of each text, at most `beam`
            lenpen: length penalty: more than 1 favours longer translations; default: as `beam`
            max_tokens: source tokens of a batch, padding included
            long: what happens to text with more subwords or sentences than the model was trained
                on: "split" at the ends of its sentences; "refuse"; "whole", as far as it can go
            details: whether to return `Translation`s, which have scores, tokens and attention
            attention: whether they have it: what is compiled needs another pass for that
            progress: whether to show a progress bar on standard error

        Returns:
            of a text its translation, of a list a list; with `n_best` above 1 a list of
            translations, the best first, in the place of each

        Raises:
            UserError: for bad options; and without `details`, naming the texts, where some cannot
                be translated. `Translation.problem` tells with `details`, also of translations that
                were cut at the limit of their length; of these there is a warning without.
        """
        texts, one = as_list("text", text)
        request = self._request(beam, n_best, lenpen, max_tokens, long, details, attention)
        results = list(self._translate(texts, request, 0, progress))
        return results[0] if one else results

    @overload
    def stream(
        self,
        texts: Iterable[str],
        *,
        n_best: Literal[1] = 1,
        details: Literal[False] = False,
        **options: Unpack[_StreamOptions],
    ) -> Iterator[str]: ...

    @overload
    def stream(
        self,
        texts: Iterable[str],
        *,
        n_best: int,
        details: Literal[False] = False,
        **options: Unpack[_StreamOptions],
    ) -> Iterator[list[str]]: ...

    @overload
    def stream(
        self,
        texts: Iterable[str],
        *,
        n_best: Literal[1] = 1,
        details: Literal[True],
        **options: Unpack[_StreamOptions],
    ) -> Iterator[Translation]: ...

    @overload
    def stream(
        self,
        texts: Iterable[str],
        *,
        n_best: int,
        details: Literal[True],
        **options: Unpack[_StreamOptions],
    ) -> Iterator[list[Translation]]: ...

    def stream(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        n_best: int = 1,
        lenpen: float | None = None,
        max_tokens: int = MAX_TOKENS,
        long: str = "split",
        details: bool = False,
        attention: bool = True,
        progress: bool = False,
        buffer: int = 2000,
    ) -> Iterator[Any]:
        """Translates texts as they come, in their order, in memory that does not grow.

        Args:
            texts: any number of them
            buffer: texts that are read, sorted by length and translated together
            beam, n_best, lenpen, max_tokens, long, details, attention, progress: as for
                `translate`

        Yields:
            what `translate` returns for each of a list
        """
        request = self._request(beam, n_best, lenpen, max_tokens, long, details, attention)

        def translate(chunk: list[str], number: int) -> Iterator[Any]:
            return self._translate(chunk, request, number)

        yield from in_buffers("texts", texts, buffer, translate, progress)

    def attention_maps(self, part: Part, model: int = 0) -> dict[str, list[LayerMaps]]:
        """What each attention looked at while the model read and wrote a part of a translation.

        The maps' axes are the part's ``source_tokens`` and ``tokens``; row t of the decoder's is of
        the step that wrote ``tokens[t]``, and its column s of what that step had read there: the
        end of sentence for s = 0, then ``tokens[s - 1]``.

        Args:
            part: of a `Translation`; one made by hand may hold any tokens: padding, which no model
                reads or writes, is unknown
            model: which of an ensemble

        Returns:
            see :func:`~.attention_maps.attention_maps`
        """
        source = self.numbers(part.source_tokens[:-1])
        words = self.target_dictionary
        written = (words.index(token) for token in part.tokens[:-1])
        target = [*(words.unk() if n == words.pad() else n for n in written), words.eos()]
        return attention_maps(self.models[model], source, target)

    @cached_property
    def _most(self) -> int:
        """Tokens that every model can read at once, the end of sentence among them."""
        return min(model.encoder.max_positions() for model in self.models)

    @cached_property
    def _longest(self) -> Longest:
        """The longest text that every model was trained on."""
        found = [folder.config.longest for folder in self.folders]
        tokens = [longest.tokens for longest in found if longest.tokens is not None]
        sentences = [longest.sentences for longest in found if longest.sentences is not None]
        return Longest(min(tokens, default=None), min(sentences, default=None))

    @property
    def _usual(self) -> int:
        """Subwords of the longest text that the models were trained on and can read."""
        readable = self._most - 1  # the end of sentence takes one
        return min(self._longest.tokens or readable, readable)

    def _request(
        self,
        beam: int | None,
        n_best: int,
        lenpen: float | None,
        max_tokens: int,
        long: str,
        details: bool = False,
        attention: bool = False,
    ) -> _Request:
        search = _changed(self.config.search, beam, lenpen)
        if type(n_best) is not int or not 1 <= n_best <= search.beam:
            raise UserError(f"n_best is {n_best!r}: choose from 1 to beam, {search.beam}")
        check_whole_number("max_tokens", max_tokens)
        if long not in LONG:
            raise UserError(f"long is {long!r}: choose from {', '.join(LONG)}")
        return _Request(search, n_best, max_tokens, long, details, details and attention)

    def _translate(
        self, texts: list[str], request: _Request, first: int, progress: bool = False
    ) -> Iterator[Any]:
        """The results for some texts; ``first`` is the number of the first, for messages."""
        pieces = [self._pieces(text, request.long) for text in texts]
        if not request.details:
            refused = [first + i + 1 for i, found in enumerate(pieces) if found.problem]
            if refused:
                more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
                raise UserError(
                    f"text {refused[0]}{more}: {pieces[refused[0] - first - 1].problem}"
                )
        sources = [source for found in pieces for source in found.tokens if source]
        self._tell_of_unknown(sources)
        hypotheses = iter(self._search(sources, request, progress))
        for number, (text, found) in enumerate(zip(texts, pieces, strict=True), start=first + 1):
            alternatives = [next(hypotheses) if tokens else [] for tokens in found.tokens]
            results = self._results(text, found, alternatives, request)
            if not request.details:
                if results[0].problem == NO_NUMBERS:
                    raise UserError(f"text {number}: {NO_NUMBERS}")
                if problem := first_problem(results):
                    logger.warning("text %d: %s", number, problem)
                results = [result.text for result in results]
            yield results if request.n_best > 1 else results[0]

    def _search(
        self, sources: list[list[str]], request: _Request, progress: bool
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of token sequences."""

        def search(batch: list[int]) -> list[list[Hypothesis]]:
            numbers = [self.numbers(sources[i]) for i in batch]
            return self._beam_search(numbers, request.search, request.attention, request.n_best)

        return self._in_batches(search, sources, request.max_tokens, progress, " sentences")

    def search(self, sources: list[list[str]], beam: int | None = None) -> list[list[Hypothesis]]:
        """The hypotheses of token sequences, without text around them."""
        request = self._request(beam, 1, None, MAX_TOKENS, "whole")
        return self._search(sources, request, progress=False)

    def _results(
        self,
        text: str,
        found: _Pieces,
        alternatives: list[list[Hypothesis]],
        request: _Request,
    ) -> list[Translation]:
        """The translations of one text, the best first, out of those of its pieces."""
        pieces = zip(found.tokens, alternatives, strict=True)
        if any(tokens and not hypotheses for tokens, hypotheses in pieces):
            return [Translation(text, "", (), NO_NUMBERS)] * request.n_best
        results = []
        for rank in range(request.n_best):
            written, parts, problem = [], [], found.problem
            for tokens, joint, hypotheses in zip(
                found.tokens, found.joints, alternatives, strict=True
            ):
                written.append(joint)
                if not hypotheses:  # an empty line
                    continue
                hypothesis = hypotheses[min(rank, len(hypotheses) - 1)]
                part = self._part(tokens, hypothesis)
                parts.append(part)
                written.append(self.text(part.tokens[:-1]))
                if hypothesis.cut:
                    count = len(part.tokens) - 1
                    problem = f"the translation was cut at {count} tokens, the limit of its length"
            results.append(Translation(text, "".join(written), tuple(parts), problem))
        return results

    def _part(self, source_tokens: list[str], hypothesis: Hypothesis) -> Part:
        words = self.target_dictionary
        return Part(
            [*source_tokens, EOS],
            [*(words[number] for number in hypothesis.tokens[:-1]), EOS],
            [score / math.log(2) for score in hypothesis.token_scores],
            hypothesis.score / math.log(2),
            hypothesis.attention,
            tuple(self.unknown(source_tokens)),
        )

    def _pieces(self, text: str, long: str) -> _Pieces:
        """What of a text is translated at once, and what stands in front of each piece."""
        if not isinstance(text, str):
            raise UserError(f"{text!r} is no text")
        pieces = _Pieces([], [])
        for number, paragraph in enumerate(re.split("\r?\n", text)):
            try:
                found = self._split(paragraph, long)
            except _TooLong as error:
                return _Pieces([], [], str(error))
            pieces.tokens += found
            joint = "\n" if number else ""
            between = space(self.config.text.target_lang)
            pieces.joints += [joint] + [between] * (len(found) - 1)
        return pieces

    def _split(self, line: str, long: str) -> list[list[str]]:
        """The tokens of a line, in as few pieces as the model was trained on; one empty piece for
        an empty line.

        Raises:
            _TooLong: saying why, where that cannot be
        """
        line = self._usual_form(line)
        tokens = self.tokens(line)
        readable = self._most - 1  # the end of sentence takes one
        if long == "whole" or not tokens:
            _check_length(tokens, readable, "takes")
            return [tokens]
        if long == "refuse":
            _check_length(tokens, self._usual, "was trained on")
            count = len(split_sentences(line, self.config.text.source_lang))
            most = self._longest.sentences
            if most is not None and count > most:
                raise _TooLong(f"{count} sentences; the model was trained on {most}")
            return [tokens]
        parts = self.parts(line, len(tokens))
        pieces = [tokens] if parts == [line] else [self.tokens(part) for part in parts]
        for piece in pieces:
            _check_length(piece, readable, "takes")
        return [piece for piece in pieces if piece]

    def parts(self, line: str, tokens: int | None = None) -> list[str]:
        """What of a line is translated at once: the line, or groups of its sentences, as few as
        have no more subwords and sentences than the model was trained on.

        A sentence of more than twice as many subwords counts as the clauses that it has.

        Args:
            line: text
            tokens: how many subwords it has, where that is known
        """
        line = self._usual_form(line)
        readable, most = self._most - 1, self._usual
        sentences = split_sentences(line, self.config.text.source_lang)
        most_sentences = self._longest.sentences or len(sentences)
        tokens = len(self.tokens(line)) if tokens is None else tokens
        if tokens <= most and len(sentences) <= most_sentences:
            return [line]
        groups: list[str] = []
        between = space(self.config.text.source_lang)
        count = in_group = 0
        for sentence in sentences:
            units = [sentence]
            # A little longer than usual, a sentence is still better off whole.
            if len(self.tokens(sentence)) > min(2 * most, readable):
                units = [clause for clause in _CLAUSE.split(sentence) if clause]
            for place, unit in enumerate(units):
                length = len(self.tokens(unit))
                new_sentence = place == 0
                fits = count + length <= most and in_group + new_sentence <= most_sentences
                if groups and fits:
                    groups[-1] += between + unit if new_sentence else unit
                    count += length
                    in_group += new_sentence
                else:  # the rest of a sentence counts as one
                    groups.append(unit.strip())
                    count, in_group = length, 1
        return groups


@dataclass(frozen=True)
class _Request:
    """What a call of `Translator.translate` asks for."""

    search: Search
    n_best: int
    max_tokens: int
    long: str
    details: bool
    attention: bool


@dataclass
class _Pieces:
    """What of a text is translated at once.

    Attributes:
        tokens: of each piece, none for an empty line
        joints: what stands in front of each piece's translation
        problem: why the text cannot be translated, or None
    """

    tokens: list[list[str]]
    joints: list[str]
    problem: str | None = None


class _TooLong(Exception):
    """A text that the model cannot take."""


def _changed(search: Search, beam: int | None, lenpen: float | None) -> Search:
    """A search with another beam or length penalty, where one is given."""
    changes = {"beam": beam, "lenpen": lenpen}
    return replace(search, **{name: v for name, v in changes.items() if v is not None})


def first_problem(results: Iterable[Translation]) -> str | None:
    """What is wrong with the best of a text's translations that has a problem, or None."""
    return next((result.problem for result in results if result.problem), None)


def space(language: str) -> str:
    """What stands between sentences of a language."""
    return "" if plain_language(language) in _WITHOUT_SPACES else " "


def _check_length(tokens: list[str], most: int, verb: str) -> None:
    if len(tokens) > most:
        raise _TooLong(f"{len(tokens):,} subwords in one piece; the model {verb} {most:,}")
