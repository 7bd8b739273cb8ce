"""The contract of a variant, as functions that raise AssertionError where it is broken.

Everything goes through ``attend`` and ``attend_step``, as in a model, three layers deep, so that a
carry exists and work after the softmax counts. Parameters are drawn large: what is forgotten in one
of two paths is not lost in rounding.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from reference import attention as reference_attention

from ea_fairseq.variants import ATTENTIONS, VARIANTS, Place
from ea_fairseq.variants.cached_heads import CachedHeads, append

HEADS, HEAD_DIM, LAYERS, BATCH = 4, 3, 3, 3
CAUSAL = ("decoder", "encoder-decoder")


def cases(attentions=ATTENTIONS) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every variant in every attention that it serves, with each of its sets of options."""
    for name, variant in VARIANTS.items():
        for kind in attentions:
            if kind in variant.serves:
                yield from ((name, kind, dict(case)) for case in variant.cases)


def case_id(case) -> str:
    """How a test names a case."""
    name, kind, options = case
    return "-".join([name, kind, *(f"{key}={value}" for key, value in options.items())])


class Stack:
    """The attentions of one kind in a model of three layers, with inputs of their own.

    Args:
        variant: its name
        kind: of attention
        options: of the variant
        size: (tgt_len, src_len)
        padding: "none", "left" or "right"
    """

    def __init__(self, variant, kind, options, size=(5, 6), padding="left"):
        self.variant, self.kind = VARIANTS[variant], kind
        self.options = self.variant.options(**options)
        tgt_len, src_len = size if kind == "encoder-decoder" else (size[0], size[0])
        torch.manual_seed(tgt_len * 100 + src_len)
        self.places = [Place(kind, HEADS, HEAD_DIM, layer, LAYERS) for layer in range(LAYERS)]
        built = [self.variant.build(self.options, place) for place in self.places]
        self.transforms = [transform.double().eval() for transform in built]
        with torch.no_grad():
            for transform in self.transforms:
                for parameter in transform.parameters():
                    parameter.normal_()
        self.tgt_lengths, self.src_lengths = [tgt_len] * BATCH, [src_len] * BATCH
        if padding != "none":
            self.tgt_lengths = [tgt_len, max(1, tgt_len - 2), max(1, tgt_len // 2)]
            self.src_lengths = [max(1, src_len - 3), src_len, max(1, src_len // 2)]
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

    def _visible(self, tgt_len, src_len):
        """Bool (batch, 1, tgt_len, src_len), or None where nothing is hidden."""
        rows = self._real(self.tgt_lengths, tgt_len)
        visible = rows[:, None, :, None] & self._real(self.src_lengths, src_len)[:, None, None]
        if self.kind == "decoder":
            visible = visible & torch.ones(tgt_len, src_len, dtype=torch.bool).tril()
        return None if self.padding == "none" and self.kind != "decoder" else visible

    def _real(self, lengths, longest):
        places = torch.arange(longest)
        if self.padding == "left":
            return places >= longest - torch.tensor(lengths)[:, None]
        return places < torch.tensor(lengths)[:, None]

    def spans(self):
        """Of each sentence, where its real rows and columns lie."""
        tgt_len, src_len = self.inputs[0][0].size(2), self.inputs[0][1].size(2)
        for tgt, src in zip(self.tgt_lengths, self.src_lengths, strict=True):
            left = self.padding == "left"
            yield (
                slice(tgt_len - tgt if left else 0, tgt_len if left else tgt),
                slice(src_len - src if left else 0, src_len if left else src),
            )

    def full(self, inputs=None, visible="own", need_probs=True):
        """Whole maps. Returns, per layer, output, probabilities and carry."""
        visible = self.visible if isinstance(visible, str) else visible
        results, carry = [], None
        for transform, (queries, keys, values) in zip(
            self.transforms, inputs or self.inputs, strict=True
        ):
            output, carry, probs = transform.attend(
                queries, keys, values, 0.7, visible, carry, need_probs=need_probs
            )
            results.append((output, probs, carry))
        return results

    def steps(self, order=None):
        """Row by row. Yields per row what ``full`` returns, of that row alone.

        Args:
            order: called before each row but the first; where it returns one, hypotheses move so
        """
        states, caches = [{} for _ in range(LAYERS)], [{} for _ in range(LAYERS)]
        for t in range(self.inputs[0][0].size(2)):
            carry, results = None, []
            for layer, transform in enumerate(self.transforms):
                queries, keys, values = self.inputs[layer]
                seen = self.visible
                if self.kind == "decoder":
                    new = (one[:, :, t].reshape(1, BATCH, -1) for one in (keys, values))
                    caches[layer] = append(caches[layer], *new)
                    cache = caches[layer]
                    cached = CachedHeads(
                        cache["prev_key"], cache["prev_value"], HEADS, cache["rows"]
                    )
                    seen = seen[:, :, t : t + 1, : t + 1]
                    if self.padding == "none":
                        seen = None
                else:
                    flat = (
                        one.permute(2, 0, 1, 3).reshape(one.size(2), BATCH, -1)
                        for one in (keys, values)
                    )
                    cached = CachedHeads(*flat, HEADS)
                    seen = None if seen is None else seen[:, :, t : t + 1]
                output, carry, probs, states[layer] = transform.attend_step(
                    queries[:, :, t : t + 1], cached, 0.7, seen, carry, states[layer],
                    need_probs=True,
                )  # fmt: skip
                assert all(kept.size(0) == BATCH for kept in states[layer].values())
                results.append((output, probs, carry))
            yield t, results


def close(one, other, what):
    """Equal to rounding."""
    torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10, msg=lambda m: f"{what}: {m}")


def check_rows_equal_maps(stack):
    """Step by step equals the full pass: outputs, probabilities and carry."""
    full = stack.full()
    for t, results in stack.steps():
        for (output, probs, carry), (outputs, maps, carries) in zip(results, full, strict=True):
            columns = probs.size(3)
            close(output, outputs[:, :, t : t + 1], f"output of row {t}")
            close(probs, maps[:, :, t : t + 1, :columns], f"probabilities of row {t}")
            assert (carry is None) == (carries is None)
            if carry is not None:
                close(carry, carries[:, :, t : t + 1, :columns], f"carry of row {t}")


def check_who_asks_for_probabilities_changes_nothing(stack):
    """Faster ways are taken where nobody asks."""
    for (output, _, _), (expected, _, _) in zip(
        stack.full(need_probs=False), stack.full(), strict=True
    ):
        close(output, expected, "output")


def check_dropout_is_of_what_weighs_the_values_alone(stack):
    """Where all is dropped no value is left; the probabilities returned are those before it."""
    transform, inputs = stack.transforms[0], stack.inputs[0]
    _, _, expected = transform.attend(*inputs, 0.7, stack.visible, None, need_probs=True)
    for need_probs in (True, False):
        output, _, probs = transform.attend(*inputs, 0.7, stack.visible, None, 1.0, need_probs)
        assert output.eq(0).all(), "values that were dropped"
        if need_probs:
            close(probs, expected, "probabilities before dropout")


def check_no_row_reads_a_later_one(stack):
    """Later queries (and in self-attention keys and values) never change earlier rows: to the
    bit, since the arithmetic is the same."""
    before = stack.full()
    for t in range(1, stack.inputs[0][0].size(2)):
        changed = []
        for queries, keys, values in stack.inputs:
            new = [queries.clone(), keys.clone(), values.clone()]
            for one in new[: 3 if stack.kind == "decoder" else 1]:
                one[:, :, t:] = one[:, :, t:] * -2 + 3
            changed.append(tuple(new))
        for one, other in zip(stack.full(changed), before, strict=True):
            for ours, theirs in zip(one, other, strict=True):
                if ours is not None:
                    assert torch.equal(ours[:, :, :t], theirs[:, :, :t]), f"row {t} is read before"


def check_sentences_equal_those_alone(stack):
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
        for (output, probs, carry), (outputs, maps, carries) in zip(
            stack.full(alone, seen), batch, strict=True
        ):
            close(outputs[sentence, :, rows], output[0], "output")
            close(maps[sentence, :, rows, columns], probs[0], "probabilities")
            if carry is not None:
                close(carries[sentence, :, rows, columns], carry[0], "carry")
    if stack.visible is not None:
        hidden = (~stack.visible).expand(-1, HEADS, -1, -1)
        for _, probs, carry in batch:
            assert (probs[hidden] == 0).all(), "probabilities in hidden entries"
            assert carry is None or (carry[hidden] == 0).all(), "carry in hidden entries"


def check_every_parameter_gets_a_gradient(stack):
    """Of a loss over all layers' outputs; a parameter without one stops torch's DDP."""
    loss = sum((output * torch.randn_like(output)).sum() for output, _, _ in stack.full())
    parameters = [
        (f"layer {layer}: {name}", parameter)
        for layer, transform in enumerate(stack.transforms)
        for name, parameter in transform.named_parameters()
    ]
    if not parameters:
        return
    assert loss.requires_grad, f"{parameters[0][0]} gets no gradient"
    grads = torch.autograd.grad(loss, [p for _, p in parameters], allow_unused=True)
    for (name, _), grad in zip(parameters, grads, strict=True):
        assert grad is not None and grad.ne(0).any(), f"{name} gets no gradient"


def check_loops_agree(stack):
    """The variant's slow oracle, in tests/references/, on every sentence alone."""
    results = stack.full()
    for sentence, (rows, columns) in enumerate(stack.spans()):
        tgt_len, src_len = rows.stop - rows.start, columns.stop - columns.start
        visible = np.ones((tgt_len, src_len), dtype=bool)
        if stack.kind == "decoder":
            visible = np.tril(visible)
        carry = None
        for layer, transform in enumerate(stack.transforms):
            q, k, v = (
                one[sentence, :, real].numpy()
                for one, real in zip(stack.inputs[layer], (rows, columns, columns), strict=True)
            )
            logits = 0.7 * np.einsum("htd,hsd->hts", q, k)
            params = {name: p.detach().numpy() for name, p in transform.named_parameters()}
            carry, probs, output = reference_attention(
                stack.variant.name, logits, carry, visible, params, stack.places[layer],
                stack.options, (q, k, v),
            )  # fmt: skip
            ours, maps, z = (
                None if one is None else one[sentence].detach() for one in results[layer]
            )
            np.testing.assert_allclose(maps[:, rows, columns], probs, atol=1e-10, rtol=1e-9)
            np.testing.assert_allclose(ours[:, rows], output, atol=1e-10, rtol=1e-9)
            if z is not None:
                np.testing.assert_allclose(z[:, rows, columns], carry, atol=1e-9, rtol=1e-9)


def check(variant, kind, options, oracle=True):
    """The whole contract of one case."""
    for padding in ("left", "right", "none"):
        stack = Stack(variant, kind, options, padding=padding)
        if kind in CAUSAL:
            check_rows_equal_maps(stack)
            check_no_row_reads_a_later_one(stack)
        check_who_asks_for_probabilities_changes_nothing(stack)
        check_dropout_is_of_what_weighs_the_values_alone(stack)
        check_sentences_equal_those_alone(stack)
        check_every_parameter_gets_a_gradient(stack)
        if oracle:
            check_loops_agree(stack)
    if kind in CAUSAL:
        for size in ((1, 1), (2, 1), (3, 2), (9, 3)):
            check_rows_equal_maps(Stack(variant, kind, options, size))
