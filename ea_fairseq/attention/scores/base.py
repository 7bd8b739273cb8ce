"""What a score function is, and all of them by name."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from ...errors import UserError, perhaps_meant
from ..contract import AttentionArgs, Place
from ..options import ATTENTIONS, listed


class ScoreFunction(nn.Module):
    """Base class of every score function; by itself it is the scaled product (arXiv 1706.03762),
    equation (1): L_ts = q_t . k_s / sqrt(head_dim).

    Two places: what is done to each query and key alone, :meth:`map_queries` and :meth:`map_keys`,
    once, before keys are cached; and :meth:`forward`, where both meet. A function that is a
    product of what it mapped says so and leaves the second to the attention, which has faster ways.

    Attributes:
        is_product: whether the logits are the scaled products of mapped queries and keys;
            otherwise :meth:`forward` makes them
        uses_queries: whether it looks at queries; without, the attention projects none
        uses_keys: whether it looks at keys
    """

    is_product: bool = True
    uses_queries: bool = True
    uses_keys: bool = True

    def map_queries(self, queries: Tensor) -> Tensor:
        """Maps projected queries: (..., heads, head_dim), the same shape."""
        return queries

    def map_keys(self, keys: Tensor) -> Tensor:
        """Maps projected keys: (..., heads, head_dim), the same shape."""
        return keys

    def forward(
        self,
        queries: Tensor | None,
        keys: Tensor | None,
        scaling: float,
        shape: tuple[int, int, int],
        visible: Tensor | None,
    ) -> Tensor:
        """The logits of whole maps, or in self-attention of their last rows.

        Args:
            queries: (batch, heads, tgt_len, head_dim), mapped; None where none are used
            keys: (batch, heads, src_len, head_dim), mapped, or with tgt_len = 1 (sentences, ...)
                where neighbouring hypotheses share a sentence; None where none are used
            scaling: factor of products of queries and keys
            shape: (batch, tgt_len, src_len) of the map; in self-attention its last row is that of
                the last key
            visible: bool, broadcastable to (batch, 1, tgt_len, src_len), or None

        Returns:
            (batch, heads, tgt_len, src_len), float32 at least, finite in hidden entries too
        """
        raise NotImplementedError(f"{type(self).__name__} is no product and makes no logits")

    def scored(
        self,
        queries: Tensor | None,
        keys: Tensor | None,
        args: AttentionArgs,
        shape: tuple[int, int, int],
    ) -> AttentionArgs:
        """An attention's arguments with the logits of a score function that is no product."""
        return args._replace(logits=self(queries, keys, args.scaling, shape, args.visible))


@dataclass(frozen=True)
class Score:
    """All that there is to know about one score function.

    Attributes:
        name: for ``--ea-scores``
        summary: one line of help, with the source
        build: makes it for one attention, from its place and the longest sentence there, in tokens
        serves: attentions that it can serve; the others keep the product
    """

    name: str
    summary: str
    build: Callable[[Place, int], ScoreFunction]
    serves: tuple[str, ...] = ATTENTIONS


PRODUCT = "product"
SCORES: dict[str, Score] = {}


def register(score: Score) -> Score:
    """Makes a score function known to options and help.

    Raises:
        ValueError: another one has its name
    """
    if score.name in SCORES:
        raise ValueError(f"score function {score.name}: the name is taken")
    SCORES[score.name] = score
    return score


def known_score(name: str, value: str) -> str:
    """An option's value as the name of a score function."""
    if value not in SCORES:
        raise UserError(
            f"{name} must be one of {listed(SCORES)}, not {value!r}"
            + perhaps_meant(str(value), SCORES)
        )
    return value


def build_scores(name: str, place: Place, longest: int, option: str | None = None) -> ScoreFunction:
    """A new score function for one attention, the product where ``name`` cannot serve.

    Args:
        name: one of ``SCORES``
        place: the attention
        longest: its longest sentence, in tokens
        option: who asks calls that so, for messages; None: fairseq, by its command line's options
    """
    score = SCORES[name]
    if place.attention not in score.serves:
        score = SCORES[PRODUCT]
    built = score.build(place, longest)
    if option is not None:
        built.longest_option = option
    return built
