"""Raw text to a model's tokens and back, with the settings of the model's corpus."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .pieces import join_subwords
from .subwords import loaded
from .tokens import Tokenization, Tokenizer, clean_line, detokenizer

#: How text of bytes writes each of them.
_BYTES = {str(byte): byte for byte in range(256)}

SUBWORDS = ("bpe", "sentencepiece", "none", "bytes")


@dataclass(frozen=True)
class TextSettings:
    """How text became tokens when a model was trained.

    ``subword`` "none" is for a model whose text comes split already, "bytes" for one whose tokens
    are the numbers of a line's bytes in UTF-8.
    """

    source_lang: str
    target_lang: str
    tokenize: Tokenization = field(default_factory=Tokenization)
    subword: str = "bpe"

    @property
    def takes(self) -> str | None:
        """What text must be where a model does not take it as it is, or None."""
        if self.subword == "none":
            return "tokenised and split into subwords as its training text was"
        if self.subword == "bpe" and self.tokenize.tokenizer == "none":
            return "tokenised as its training text was"
        return None


class TextProcessing:
    """Makes tokens of a raw line, as preparation made them of test sets, and text of tokens.

    Args:
        settings: the corpus' settings
        codes: the BPE codes or the sentencepiece model; None where text comes split already
    """

    def __init__(self, settings: TextSettings, codes: Path | None):
        self.settings = settings
        self._tokenize = Tokenizer(
            settings.source_lang, settings.tokenize, "test", settings.subword
        )
        self._split = None if codes is None else loaded(settings.subword, codes)
        self._detokenize = None
        if settings.tokenize.tokenizer == "moses":
            self._detokenize = detokenizer(settings.target_lang)

    def tokens(self, line: str) -> list[str]:
        """A raw line's tokens, in subwords."""
        if self.settings.subword == "bytes":
            return [str(byte) for byte in line.encode()]
        tokens = self._tokenize(clean_line(line, "test" in self.settings.tokenize.nfc))
        if self._split is not None:
            tokens = self._split([tokens])[0]
        return tokens.split()

    def text(self, tokens: list[str]) -> str:
        """The text that a model's tokens stand for."""
        if self.settings.subword == "bytes":
            found = bytes(_BYTES[token] for token in tokens if token in _BYTES)
            return found.decode(errors="replace")
        words = join_subwords(tokens, self.settings.subword)
        return " ".join(words) if self._detokenize is None else self._detokenize(words)
