"""The contract of a variant, to hold one of your own to.

>>> import my_variants                           # registers "scaled"
>>> from ea_fairseq.testing import check_variant
>>> check_variant("scaled")                      # AssertionError says what is wrong, and where

In every attention that the variant serves, with each of its ``cases``: in decoder and encoder-
decoder attention no row reads a later row (in decoder attention no later column either), in
training as in evaluation; there row by row equals whole maps, while hypotheses are reordered and
leave, and where they share a sentence; a sentence is the same alone and in a padded batch; a bias
is added to the logits, and masks may be broadcast; ``earlier_rows`` and ``reads_neighbours`` tell
the truth; inputs stay as they are; every parameter gets a gradient; the neutral setting is plain
attention. Everything goes through ``attend`` and ``attend_step``, as in a model, three layers deep,
so that a carry exists and work after the softmax counts. Maps are of a few rows and, once, of 33.
Parameters are drawn large: what is forgotten in one of two paths is not lost in rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .attention.cached_heads import CachedHeads, append, keep_source, read, reorder
from .attention.contract import AttentionArgs, Place, Projected, scaled_products
from .attention.options import ATTENTIONS, as_text, listed
from .attention.variants import VARIANTS
from .errors import perhaps_meant

#: No two of these are equal, and none is a length: what confuses dimensions is seen.
BATCH, HEADS, HEAD_DIM, LAYERS = 7, 4, 2, 3
CAUSAL = ("decoder", "encoder-decoder")
SCALING = 0.7
#: A larger map, on which fast code may take other ways, and the rows whose future is changed.
LARGE, LARGE_CUTS = (33, 34), (1, 17, 32)

#: Output, probabilities and carry (or None) of a layer.
Result = tuple[Tensor, Tensor | None, Tensor | None]
Inputs = Sequence[tuple[Tensor, Tensor, Tensor]]
Oracle = Callable[..., tuple[Any, Any, Any]]


def check_variant(variant: str, oracle: Oracle | None = None) -> None:
    """Holds a registered variant to the whole contract, in every attention that it serves.

    Args:
        variant: its name
        oracle: see :func:`check_loops_agree`; none by default

    Raises:
        AssertionError: naming variant, options, attention, padding and layer, and what differs by
            how much
    """
    if variant not in VARIANTS:
        near = perhaps_meant(variant, VARIANTS)
        raise AssertionError(f"{variant}: no such variant{near} (register it first)")
    found = list(cases(variants=[variant]))
    assert found, (
        f"{variant}: nothing to check: it serves {listed(VARIANTS[variant].serves) or 'nothing'} "
        f"with {len(VARIANTS[variant].cases)} cases"
    )
    for _, kind, options in found:
        check(variant, kind, options, oracle)
    check_neutral(variant)


def cases(
    attentions: Sequence[str] = ATTENTIONS, variants: Sequence[str] | None = None
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Variants (all of them by default) in every attention that they serve, with each of their
    sets of options."""
    for name in VARIANTS if variants is None else variants:
        for kind in attentions:
            if kind in VARIANTS[name].serves:
                yield from ((name, kind, dict(case)) for case in VARIANTS[name].cases)


def check(
    variant: str, kind: str, options: Mapping[str, Any], oracle: Oracle | None = None
) -> None:
    """Holds one case to the contract; see :func:`check_variant`."""
    for padding in ("left", "right", "none"):
        stack = Stack(variant, kind, options, padding=padding)
        with _named(stack):
            _check_stack(stack, oracle)
    large = Stack(variant, kind, options, LARGE)
    with _named(large):
        if kind in CAUSAL:
            for size in ((1, 1), (2, 1), (3, 2), (9, 3)):
                check_rows_equal_maps(Stack(variant, kind, options, size))
            for training in (False, True):
                check_no_row_reads_a_later_one(large, LARGE_CUTS, training)
            check_rows_equal_maps(large)
        check_sentences_equal_those_alone(large)


@contextmanager
def _named(stack: Stack) -> Iterator[None]:
    """What a variant raises by itself says where, too."""
    try:
        yield
    except AssertionError as error:
        if stack.variant.name in str(error):
            raise
        raise AssertionError(f"{stack.name}: {error}") from error
    except Exception as error:
        raise AssertionError(f"{stack.name}: {type(error).__name__}: {error}") from error


def _check_stack(stack: Stack, oracle: Oracle | None) -> None:
    if stack.kind in CAUSAL:
        for training in (False, True):
            check_no_row_reads_a_later_one(stack, training=training)
        check_rows_equal_maps(stack)
        check_rows_follow_their_hypotheses(stack)
    check_who_asks_changes_nothing(stack)
    check_dropout_is_of_what_weighs_the_values_alone(stack)
    check_sentences_equal_those_alone(stack)
    check_hidden_entries_are_zeros(stack)
    check_every_parameter_gets_a_gradient(stack)
    check_inputs_stay_as_they_are(stack)
    check_masks_may_be_broadcast(stack)
    check_a_bias_is_added(stack)
    check_neighbours_are_told_of(stack)
    if stack.kind in CAUSAL:
        check_earlier_rows_are_enough(stack)
    if oracle is not None:
        check_loops_agree(stack, oracle)


class Stack:
    """The attentions of one kind in a model of three layers, with inputs of their own.

    Args:
        variant: its name
        kind: of attention
        options: of the variant
        size: (tgt_len, src_len)
        padding: "none", "left" or "right"
        strong: whether parameters are drawn large; otherwise they are as built
    """

    def __init__(
        self,
        variant: str,
        kind: str,
        options: Mapping[str, Any],
        size: tuple[int, int] = (5, 6),
        padding: str = "left",
        strong: bool = True,
    ):
        self.variant, self.kind = VARIANTS[variant], kind
        self.options = self.variant.options(**options)
        tgt_len, src_len = size if kind == "encoder-decoder" else (size[0], size[0])
        given = "".join(f", {name}={as_text(value)}" for name, value in options.items())
        self.name = f"{variant}{given}: {kind} attention, {tgt_len} x {src_len}, padding {padding}"
        self.places = [Place(kind, HEADS, HEAD_DIM, layer, LAYERS) for layer in range(LAYERS)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(tgt_len * 100 + src_len)
            built = [self.variant.build(self.options, place) for place in self.places]
            self.transforms = [transform.double().eval() for transform in built]
            with torch.no_grad():
                for transform in self.transforms:
                    for parameter in transform.parameters() if strong else ():
                        parameter.normal_()
        self.tgt_lengths, self.src_lengths = [tgt_len] * BATCH, [src_len] * BATCH
        if padding != "none":
            shorter = (0, 2, 3, 0, 1, 4, 2)
            self.tgt_lengths = [max(1, tgt_len - less) for less in shorter]
            self.src_lengths = [max(1, src_len - less) for less in reversed(shorter)]
            if kind != "encoder-decoder":
                self.src_lengths = self.tgt_lengths
        self.padding = padding
        self.visible = self._visible(tgt_len, src_len)
        generator = torch.Generator().manual_seed(1)
        self.inputs = [
            tuple(
                torch.randn(
                    BATCH, HEADS, length, HEAD_DIM, dtype=torch.float64, generator=generator
                )
                for length in (tgt_len, src_len, src_len)
            )
            for _ in range(LAYERS)
        ]

    def _visible(self, tgt_len: int, src_len: int) -> Tensor | None:
        """Bool (batch, 1, tgt_len, src_len), or None where nothing is hidden."""
        rows = self._real(self.tgt_lengths, tgt_len)
        visible = rows[:, None, :, None] & self._real(self.src_lengths, src_len)[:, None, None]
        if self.kind == "decoder":
            visible = visible & torch.ones(tgt_len, src_len, dtype=torch.bool).tril()
        return None if self.padding == "none" and self.kind != "decoder" else visible

    def _real(self, lengths: Sequence[int], longest: int) -> Tensor:
        places = torch.arange(longest)
        if self.padding == "left":
            return places >= longest - torch.tensor(lengths)[:, None]
        return places < torch.tensor(lengths)[:, None]

    def spans(self) -> Iterator[tuple[slice, slice]]:
        """Of each sentence, where its real rows and columns lie."""
        tgt_len, src_len = self.inputs[0][0].size(2), self.inputs[0][1].size(2)
        for tgt, src in zip(self.tgt_lengths, self.src_lengths, strict=True):
            left = self.padding == "left"
            yield (
                slice(tgt_len - tgt if left else 0, tgt_len if left else tgt),
                slice(src_len - src if left else 0, src_len if left else src),
            )

    def full(
        self,
        inputs: Inputs | None = None,
        visible: Tensor | None | str = "own",
        need_probs: bool = True,
        bias: Tensor | None = None,
        as_logits: bool = False,
    ) -> list[Result]:
        """Whole maps. Returns, per layer, output, probabilities and carry.

        Args:
            inputs: others than the stack's own
            visible: another mask than its own
            need_probs: whether probabilities are asked for
            bias: added to the logits
            as_logits: whether products and bias are given as logits
        """
        seen = self.visible if isinstance(visible, str) else visible
        results, carry = [], None
        for transform, (queries, keys, values) in zip(
            self.transforms, inputs or self.inputs, strict=True
        ):
            args = AttentionArgs(SCALING, seen, carry, need_probs=need_probs, bias=bias)
            args = args._replace(causal=self.kind == "decoder")  # as models have it
            if as_logits:
                args = args._replace(logits=args.all_logits(queries, keys), bias=None)
            output, carry, probs = transform.attend(queries, keys, values, args)
            results.append((output, probs, carry))
        return results

    def steps(
        self,
        reorders: Mapping[int, Sequence[int]] | None = None,
        bias: Tensor | None = None,
        together: int = 1,
    ) -> Iterator[tuple[int, Tensor, list[Result]]]:
        """Row by row. Yields the row's number, the sentence of each hypothesis and per layer what
        ``full`` returns, of that row alone.

        Args:
            reorders: row -> old place of each new hypothesis, before that row
            bias: of the whole maps, added to the logits
            together: so many hypotheses of each sentence, which in encoder-decoder attention share
                its keys and values
        """
        states: list[dict[str, Tensor]] = [{} for _ in range(LAYERS)]
        caches: list[dict[str, Tensor]] = [{} for _ in range(LAYERS)]
        sentences = torch.arange(BATCH).repeat_interleave(together)
        for t in range(self.inputs[0][0].size(2)):
            if t in (reorders or {}):
                order = torch.tensor(reorders[t])
                sentences = sentences[order]
                caches = [reorder(cache, order) for cache in caches]
                states = [
                    {name: kept.index_select(0, order) for name, kept in state.items()}
                    for state in states
                ]
            carry, results = None, []
            for layer, transform in enumerate(self.transforms):
                queries, keys, values = (one[sentences] for one in self.inputs[layer])
                seen = None if self.visible is None else self.visible[sentences, :, t : t + 1]
                if self.kind == "decoder":
                    new = (_flat(one[:, :, t : t + 1]) for one in (keys, values))
                    caches[layer] = append(caches[layer], *new)
                    seen = None if self.padding == "none" else seen[..., : t + 1]
                elif not caches[layer]:
                    once = (_flat(one) for one in self.inputs[layer][1:])
                    caches[layer] = keep_source(*once, len(sentences))
                args = AttentionArgs(SCALING, seen, carry, need_probs=True)
                if bias is not None:
                    here = t + 1 if self.kind == "decoder" else bias.size(3)
                    args = args._replace(bias=bias[:, :, t : t + 1, :here])
                output, carry, probs, states[layer] = transform.attend_step(
                    queries[:, :, t : t + 1], read(caches[layer], HEADS), args, states[layer]
                )
                where = f"{self.name}: layer {layer}: the state"
                assert isinstance(states[layer], dict), f"{where} is no dict: {states[layer]!r}"
                for name, kept in states[layer].items():
                    assert isinstance(kept, Tensor), f"{where} {name!r} is no tensor: {kept!r}"
                    assert kept.dim() and kept.size(0) == len(sentences), (
                        f"{where} {name!r} is {tuple(kept.shape)} "
                        f"for {len(sentences)} hypotheses: the batch must come first"
                    )
                results.append((output, probs, carry))
            yield t, sentences, results


def _flat(heads: Tensor) -> Tensor:
    """(batch, heads, positions, head_dim) to (positions, batch, embed_dim)."""
    return heads.permute(2, 0, 1, 3).flatten(2)


def close(one: Tensor, other: Tensor, what: str) -> None:
    """Equal to rounding; otherwise says what differs by how much."""
    assert one.shape == other.shape, f"{what}: {tuple(one.shape)}, not {tuple(other.shape)}"
    if not torch.allclose(one, other, atol=1e-10, rtol=1e-10):
        raise AssertionError(f"{what} differs by up to {(one - other).abs().max().item():.2g}")


def _close_outputs(
    stack: Stack, found: Sequence[Result], expected: Sequence[Result], what: str
) -> None:
    for layer, (one, other) in enumerate(zip(found, expected, strict=True)):
        close(one[0], other[0], f"{stack.name}: layer {layer}: {what}")


def check_no_row_reads_a_later_one(
    stack: Stack, cuts: Sequence[int] | None = None, training: bool = False
) -> None:
    """Later queries (and in decoder attention later keys and values) never change earlier rows: to
    the bit, since the arithmetic is the same.

    Args:
        stack: what is checked
        cuts: rows from which on inputs are changed; every row by default
        training: whether of modules in training mode, called as a model trains: without
            probabilities
    """

    def run(inputs: Inputs) -> list[Result]:
        with torch.random.fork_rng(devices=[]):  # a variant may have dropout of its own
            torch.manual_seed(3)
            return stack.full(inputs, need_probs=not training)

    for transform in stack.transforms:
        transform.train(training)
    before = run(stack.inputs)
    parts = {"rows (queries)": (0,)}
    if stack.kind == "decoder":
        parts["columns (keys and values)"] = (1, 2)
    for t in cuts or range(1, stack.inputs[0][0].size(2)):
        for what, places in parts.items():
            changed = []
            for inputs in stack.inputs:
                new = [one.clone() for one in inputs]
                for place in places:
                    new[place][:, :, t:] = new[place][:, :, t:] * -2 + 3
                changed.append(tuple(new))
            for layer, (one, other) in enumerate(zip(run(changed), before, strict=True)):
                for ours, theirs in zip(one, other, strict=True):
                    if ours is None or torch.equal(ours[:, :, :t], theirs[:, :, :t]):
                        continue
                    apart = (ours[:, :, :t] - theirs[:, :, :t]).abs().amax(dim=(0, 1, 3))
                    when = " in training" if training else ""
                    raise AssertionError(
                        f"{stack.name}: layer {layer}: row {int(apart.nonzero()[0])} reads later "
                        f"{what}{when}: those from {t} on change it by up to "
                        f"{apart.max().item():.2g}"
                    )
    for transform in stack.transforms:
        transform.eval()


def check_rows_equal_maps(stack: Stack) -> None:
    """Step by step equals the full pass: outputs, probabilities and carry."""
    _compare_rows(stack, stack.steps(), "of whole maps")
    if stack.kind == "encoder-decoder":
        shared = stack.steps(together=2)
        _compare_rows(stack, shared, "of whole maps, where two hypotheses share a sentence")


def check_rows_follow_their_hypotheses(stack: Stack) -> None:
    """The same where beam search goes on with some hypotheses, twice with one, in another order,
    and with fewer: what is kept must be in the state, which moves with them."""
    reorders = {1: (2, 0, 0, 5, 6, 1, 3), 2: (6, 2, 1, 4, 0), 3: (3, 1, 1, 0), 4: (2, 0)}
    _compare_rows(stack, stack.steps(reorders), "of whole maps, with hypotheses reordered")


@torch.no_grad()
def check_earlier_rows_are_enough(stack: Stack) -> None:
    """Stepping through as many rows as ``earlier_rows`` says, from an empty state, is enough for
    the next row: Hugging Face's models go on so behind a prompt."""
    full, last = stack.full(), stack.inputs[0][0].size(2) - 1
    for layer, transform in enumerate(stack.transforms):
        needed = transform.earlier_rows()
        first = 0 if needed is None else max(0, last - needed)
        queries, keys, values = stack.inputs[layer]
        state: dict[str, Tensor] = {}
        for t in range(first, last + 1):
            here = t + 1 if stack.kind == "decoder" else keys.size(2)
            carry = full[layer - 1][2] if layer else None
            args = AttentionArgs(
                SCALING,
                None if stack.visible is None else stack.visible[:, :, t : t + 1, :here],
                None if carry is None else carry[:, :, t : t + 1, :here],
            )
            cached = (_flat(one[:, :, :here]) for one in (keys, values))
            row = queries[:, :, t : t + 1]
            output, *_, state = transform.attend_step(row, CachedHeads(*cached, HEADS), args, state)
        what = f"output of row {last}, stepped to through {needed} earlier rows (earlier_rows()),"
        close(output, full[layer][0][:, :, last:], f"{stack.name}: layer {layer}: {what}")


def check_inputs_stay_as_they_are(stack: Stack) -> None:
    """A mask serves all layers, a carry may be asked for: neither is changed in its place."""
    before = None if stack.visible is None else stack.visible.clone()
    results = stack.full()
    carries = [None if one[2] is None else one[2].detach().clone() for one in results]
    again = stack.full()
    assert before is None or torch.equal(stack.visible, before), f"{stack.name}: visible changed"
    for layer, (carry, (_, _, other)) in enumerate(zip(carries, again, strict=True)):
        if carry is not None:
            close(other, carry, f"{stack.name}: layer {layer}: the carry of a second call")
            close(results[layer][2], carry, f"{stack.name}: layer {layer}: the carry afterwards")


def check_masks_may_be_broadcast(stack: Stack) -> None:
    """A mask of one row for all, or of one sentence for all, means what a whole one means."""
    tgt_len, src_len = stack.inputs[0][0].size(2), stack.inputs[0][1].size(2)
    if stack.kind == "decoder":
        mask = torch.ones(tgt_len, src_len, dtype=torch.bool).tril()[None, None]
    else:
        mask = stack._real(stack.src_lengths, src_len)[:, None, None]
    whole = mask.expand(BATCH, 1, tgt_len, src_len).contiguous()
    what = f"output with visible {tuple(mask.shape)} and with {tuple(whole.shape)}"
    _close_outputs(stack, stack.full(visible=mask), stack.full(visible=whole), what)


def check_a_bias_is_added(stack: Stack) -> None:
    """To the products, before anything else; the sum may come as ``logits``, too."""
    sizes = HEADS, stack.inputs[0][0].size(2), stack.inputs[0][1].size(2)
    generator = torch.Generator().manual_seed(4)
    bias = 2 * torch.randn(1, *sizes, dtype=torch.float64, generator=generator)
    with_bias, without = stack.full(bias=bias), stack.full()
    given = stack.full(bias=bias, as_logits=True)
    for need_probs in (True, False):
        asked = stack.full(bias=bias, need_probs=need_probs)
        _close_outputs(stack, asked, given, "output with a bias, and with both as logits,")
    if sizes[2] > 1:
        for layer, (one, other) in enumerate(zip(with_bias, without, strict=True)):
            same = torch.allclose(one[0], other[0], rtol=1e-6, atol=1e-6)
            assert not same, f"{stack.name}: layer {layer}: a bias has no effect (args.bias)"
    if stack.kind in CAUSAL:
        _compare_rows(stack, stack.steps(bias=bias), "of whole maps, with a bias", with_bias)


@torch.no_grad()
def check_neighbours_are_told_of(stack: Stack) -> None:
    """Of two sequences in one row, hidden from each other, neither reads the other's part of the
    map, unless ``reads_neighbours`` says so: Hugging Face's models refuse such rows by it."""
    tgt_len, src_len = stack.inputs[0][0].size(2), stack.inputs[0][1].size(2)
    visible = (torch.arange(tgt_len) < 2)[:, None] == (torch.arange(src_len) < 2)
    if stack.kind == "decoder":
        visible = visible.tril()
    visible = visible[None, None]
    for layer, (transform, inputs) in enumerate(zip(stack.transforms, stack.inputs, strict=True)):
        if transform.reads_neighbours:
            continue
        logits = scaled_products(*inputs[:2], SCALING).masked_fill(~visible, 0)
        other = logits.clone()
        other[..., :2, :2] += 3 * visible[..., :2, :2]
        found, expected = (
            transform(one, visible, None, Projected(*inputs))[0] for one in (other, logits)
        )
        what = "a second sequence reads the first one's map: reads_neighbours must be True; its own"
        close(found[..., 2:, 2:], expected[..., 2:, 2:], f"{stack.name}: layer {layer}: {what}")


@torch.no_grad()  # as one decodes: faster ways are taken where nobody wants gradients
def _compare_rows(
    stack: Stack,
    rows: Iterator[tuple[int, Tensor, list[Result]]],
    whole: str,
    full: list[Result] | None = None,
) -> None:
    full = stack.full() if full is None else full
    for t, sentences, results in rows:
        for layer, (row, maps) in enumerate(zip(results, full, strict=True)):
            for what, ours, theirs in zip(
                ("output", "probabilities", "carry"), row, maps, strict=True
            ):
                name = f"{stack.name}: layer {layer}: {what} of row {t}"
                assert (ours is None) == (theirs is None), f"{name}: there only one way"
                if ours is not None:
                    expected = theirs[sentences, :, t : t + 1, : ours.size(3)]
                    close(ours, expected, f"{name}, by a step and {whole},")


def check_who_asks_changes_nothing(stack: Stack) -> None:
    """Faster ways are taken where nobody asks for probabilities or gradients."""
    asked = stack.full()
    for gradients, what in ((True, "without need_probs"), (False, "without gradients")):
        with torch.set_grad_enabled(gradients):
            results = stack.full(need_probs=False)
        _close_outputs(stack, results, asked, f"output {what}")


def check_dropout_is_of_what_weighs_the_values_alone(stack: Stack) -> None:
    """Where all is dropped no value is left; the probabilities returned are those before it."""
    transform, inputs = stack.transforms[0], stack.inputs[0]
    args = AttentionArgs(SCALING, stack.visible, need_probs=True)
    _, _, expected = transform.attend(*inputs, args)
    for need_probs in (True, False):
        args = args._replace(dropout=1.0, need_probs=need_probs)
        output, _, probs = transform.attend(*inputs, args)
        assert output.eq(0).all(), f"{stack.name}: dropout 1 leaves values"
        if need_probs:
            close(probs, expected, f"{stack.name}: probabilities, which are those before dropout,")


def check_sentences_equal_those_alone(stack: Stack) -> None:
    """Padding changes nothing, whatever stands in it; hidden entries are 0 in what is carried."""
    dirty = []
    for inputs in stack.inputs:
        new = [one.clone() for one in inputs]
        for sentence, (rows, columns) in enumerate(stack.spans()):
            for one, real in zip(new, (rows, columns, columns), strict=True):
                hidden = torch.ones(one.size(2), dtype=torch.bool)
                hidden[real] = False
                one[sentence, :, hidden] = 1e3
        dirty.append(tuple(new))
    batch = stack.full(dirty)
    for sentence, (rows, columns) in enumerate(stack.spans()):
        alone = [
            tuple(
                one[sentence : sentence + 1, :, real]
                for one, real in zip(inputs, (rows, columns, columns), strict=True)
            )
            for inputs in stack.inputs
        ]
        seen = None
        if stack.kind == "decoder":
            length = rows.stop - rows.start
            seen = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
        for layer, (one, many) in enumerate(zip(stack.full(alone, seen), batch, strict=True)):
            name = f"{stack.name}: layer {layer}: sentence {sentence} alone and in the batch:"
            close(many[0][sentence, :, rows], one[0][0], f"{name} output")
            close(many[1][sentence, :, rows, columns], one[1][0], f"{name} probabilities")
            if one[2] is not None:
                close(many[2][sentence, :, rows, columns], one[2][0], f"{name} carry")
    if stack.visible is not None:
        hidden = (~stack.visible).expand(-1, HEADS, -1, -1)
        for layer, (_, probs, carry) in enumerate(batch):
            for what, maps in (("probabilities", probs), ("carry", carry)):
                assert maps is None or (maps[hidden] == 0).all(), (
                    f"{stack.name}: layer {layer}: {what} in hidden entries: up to "
                    f"{maps[hidden].abs().max().item():.2g} instead of 0"
                )


def check_hidden_entries_are_zeros(stack: Stack) -> None:
    """In what ``forward`` returns, whether or not a layer above reads it: what draws, counts or
    mixes maps relies on it."""
    if stack.visible is None:
        return
    hidden = (~stack.visible).expand(-1, HEADS, -1, -1)
    carry = None
    for layer, (transform, inputs) in enumerate(zip(stack.transforms, stack.inputs, strict=True)):
        logits = scaled_products(*inputs[:2], SCALING)
        logits, _ = transform(logits, stack.visible, carry, Projected(*inputs))
        assert (logits[hidden] == 0).all(), (
            f"{stack.name}: layer {layer}: forward returns up to "
            f"{logits[hidden].abs().max().item():.2g} instead of 0 in hidden entries"
        )
        carry = logits if transform.uses_carry else None


def check_every_parameter_gets_a_gradient(stack: Stack) -> None:
    """Of a loss over all layers' outputs; a parameter without one stops torch's DDP."""
    generator = torch.Generator().manual_seed(2)
    loss = torch.zeros((), dtype=torch.float64)
    for output, _, _ in stack.full():
        weight = torch.randn(output.shape, dtype=torch.float64, generator=generator)
        loss = loss + (output * weight).sum()
    parameters = [
        (f"{stack.name}: layer {layer}: {name}", parameter)
        for layer, transform in enumerate(stack.transforms)
        for name, parameter in transform.named_parameters()
    ]
    if not parameters:
        return
    assert loss.requires_grad, f"{parameters[0][0]} gets no gradient"
    grads = torch.autograd.grad(loss, [p for _, p in parameters], allow_unused=True)
    for (name, _), grad in zip(parameters, grads, strict=True):
        assert grad is not None and grad.ne(0).any(), f"{name} gets no gradient"


def check_loops_agree(stack: Stack, oracle: Oracle) -> None:
    """A slow oracle of the variant's equations, on every sentence alone.

    Args:
        stack: what is checked
        oracle: called with the variant's name, logits (heads, tgt_len, src_len), the carry or None,
            visible (tgt_len, src_len), parameters by name, place, options and (queries, keys,
            values), all numpy; returns carry, probabilities and each head's output
    """
    results = stack.full()
    for sentence, (rows, columns) in enumerate(stack.spans()):
        tgt_len, src_len = rows.stop - rows.start, columns.stop - columns.start
        visible = torch.ones(tgt_len, src_len, dtype=torch.bool)
        if stack.kind == "decoder":
            visible = visible.tril()
        carry = None
        for layer, transform in enumerate(stack.transforms):
            q, k, v = (
                one[sentence, :, real]
                for one, real in zip(stack.inputs[layer], (rows, columns, columns), strict=True)
            )
            params = {name: p.detach().numpy() for name, p in transform.named_parameters()}
            carry, probs, output = oracle(
                stack.variant.name,
                (SCALING * q @ k.transpose(1, 2)).numpy(),
                carry,
                visible.numpy(),
                params,
                stack.places[layer],
                stack.options,
                (q.numpy(), k.numpy(), v.numpy()),
            )
            ours, maps, z = (
                None if one is None else one[sentence].detach() for one in results[layer]
            )
            name = f"{stack.name}: layer {layer}: sentence {sentence} and the oracle:"
            close(maps[:, rows, columns], torch.from_numpy(probs), f"{name} probabilities")
            close(ours[:, rows], torch.from_numpy(output), f"{name} output")
            if z is not None:
                close(z[:, rows, columns], torch.from_numpy(carry), f"{name} carry")


def check_neutral(variant: str) -> None:
    """The neutral setting, at the parameters that it starts with, equals plain attention."""
    neutral = VARIANTS[variant].neutral
    for kind in VARIANTS[variant].serves if neutral is not None else ():
        ours = Stack(variant, kind, neutral, strong=False)
        both = zip(ours.full(), Stack("plain", kind, {}).full(), strict=True)
        for layer, (one, plain) in enumerate(both):
            for what, found, expected in zip(("output", "probabilities"), one, plain, strict=False):
                close(found, expected, f"{ours.name}: layer {layer}: {what}, which are plain,")
