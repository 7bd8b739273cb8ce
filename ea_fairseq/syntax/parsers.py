"""Parsing with spaCy or stanza, where one is installed with a model."""

import itertools
from collections.abc import Callable, Iterable, Iterator

from .hints import words_of
from .trees import Parse, parse

#: Lines that are parsed together.
BATCH = 256


def parse_with(parser: str, model: str, lines: Iterable[str], kind: str) -> Iterator[Parse]:
    """The sentences of lines of subwords.

    BPE's words are the parser's tokens; sentencepiece splits text that is not tokenized, so the
    parser does it.

    Args:
        parser: one of `PARSERS`
        model: the name of spaCy's model, or stanza's language
        kind: "bpe" or "sentencepiece"

    Raises:
        ValueError: parser or model is not there
    """
    pretokenized = kind == "bpe"
    run = PARSERS[parser](model, pretokenized)
    texts = (words_of(line, kind) for line in lines)
    texts = (words for words in texts if words)
    while batch := list(itertools.islice(texts, BATCH)):
        yield from run(batch)


Run = Callable[[list[list[str]]], Iterator[Parse]]


def _spacy(model: str, pretokenized: bool) -> Run:
    try:
        import spacy
    except ImportError:
        raise ValueError("--parser spacy: the package spacy is not installed") from None
    try:
        nlp = spacy.load(model)
    except OSError:
        raise ValueError(f"--model {model}: spaCy has no such model installed") from None

    def run(batch: list[list[str]]) -> Iterator[Parse]:
        texts = (
            spacy.tokens.Doc(nlp.vocab, words=words) if pretokenized else " ".join(words)
            for words in batch
        )
        for doc in nlp.pipe(texts):
            if not doc.has_annotation("DEP"):
                raise ValueError(f"--model {model}: it has no dependency parser")
            # A root is its own head.
            heads = [-1 if token.head.i == token.i else token.head.i for token in doc]
            yield parse([token.text for token in doc], heads)

    return run


def _stanza(model: str, pretokenized: bool) -> Run:
    try:
        import stanza
    except ImportError:
        raise ValueError("--parser stanza: the package stanza is not installed") from None
    try:
        nlp = stanza.Pipeline(
            model,
            processors="tokenize,pos,lemma,depparse",
            tokenize_pretokenized=pretokenized,
            download_method=None,
            verbose=False,
        )
    except Exception as error:  # stanza has a class of its own for each thing that is missing
        reason = str(error).splitlines()[0]
        raise ValueError(f"--model {model}: stanza cannot load it: {reason}") from None

    def run(batch: list[list[str]]) -> Iterator[Parse]:
        if pretokenized:
            documents = [nlp(batch)]
        else:
            documents = (nlp(" ".join(words)) for words in batch)
        for document in documents:
            for sentence in document.sentences:
                heads = [word.head - 1 for word in sentence.words]
                token_of = [i for i, token in enumerate(sentence.tokens) for _ in token.words]
                yield parse([token.text for token in sentence.tokens], heads, token_of)

    return run


PARSERS: dict[str, Callable[[str, bool], Run]] = {"spacy": _spacy, "stanza": _stanza}
