"""Whole models through Triton's kernels: on a GPU, or tiny ones interpreted on the CPU."""

import copy
import importlib
import multiprocessing
import time

import pytest
import torch
from small_models import EOS, beam_search, build_strong, padded, score, sentences
from triton_device import DEVICE, ON_GPU, exact_interpreter, on_triton  # noqa: F401

from ea_fairseq.kernels import backend

pytestmark = [on_triton, pytest.mark.usefixtures("exact_interpreter")]
TYPES = [torch.float32, torch.float16, torch.bfloat16]
every_type = pytest.mark.parametrize("dtype", TYPES)
# The interpreter takes its time: fewer types and sizes there.
some_types = pytest.mark.parametrize("dtype", TYPES if ON_GPU else TYPES[:1])
SIZES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {
        "embed_dim": 64 if ON_GPU else 8,
        "ffn_embed_dim": 96 if ON_GPU else 12,
        "attention_heads": 4 if ON_GPU else 2,
        "layers": 3 if ON_GPU else 2,
    }.items()
}
LENGTHS = (9, 70, 33, 1) if ON_GPU else (2, 3)


def epsilons(dtype, number):
    """So many roundings of the type; float32's products on tensor cores round a little more."""
    return number * max(torch.finfo(dtype).eps, 1e-6)


ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}


def exact_model(**options):
    """In float64 on the CPU, which runs torch alone; weights that stay the same in any type.

    On a GPU the model is eight times as wide: with weights as large, each attention would be all or
    nothing, and rounding would choose which.
    """
    skip = "encoder,decoder,encoder-decoder"
    model = build_strong(sizes={**SIZES, **options}, ea_skip=skip)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ON_GPU and ".transform." not in name and "layer_norm" not in name:
                parameter.mul_(0.25)
            parameter.copy_(parameter.bfloat16())
    return model


def on_device(model, dtype):
    return copy.deepcopy(model).to(DEVICE, dtype)


def case(seed=0):
    return sentences(LENGTHS, seed, last=EOS), sentences(LENGTHS[::-1], seed + 1)


@pytest.fixture(autouse=True)
def taken(monkeypatch):
    """The backends that attentions were computed by."""
    found, way = [], backend.chosen_backend

    def noted(*args):
        found.append((args[0].dtype, way(*args)))
        return found[-1][1]

    monkeypatch.setattr("ea_fairseq.attention.variants.evolving.chosen_backend", noted)
    monkeypatch.setattr("ea_fairseq.kernels.fused_attention.chosen_backend", noted)
    return found


def batch():
    sources, prefixes = case()
    return padded(sources, True).to(DEVICE), None, padded(prefixes).to(DEVICE)


def scores_and_gradients(model):
    """Scores of a padded batch, and the gradients that weights of their own give each of them."""
    scores, _ = model(*batch())
    weights = torch.randn(scores.shape, generator=torch.Generator().manual_seed(4))
    model.zero_grad()
    (scores.double() * weights.to(DEVICE)).sum().backward()
    return scores, {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_close(found, expected, tolerance, smallest=1.0):
    scale = smallest + expected.abs().max().item()
    found = found.detach().double().cpu()
    torch.testing.assert_close(found, expected.detach().cpu(), rtol=0, atol=scale * tolerance)


@every_type
def test_scores_and_gradients_are_those_of_the_equations_in_float64(dtype, taken):
    exact = exact_model()
    model = on_device(exact, dtype)
    exact = exact.to(DEVICE)
    expected_scores, expected = scores_and_gradients(exact)
    assert {way for _, way in taken} == {"torch"}
    taken.clear()
    scores, gradients = scores_and_gradients(model)
    assert set(taken) == {(dtype, "triton")}
    assert_close(scores, expected_scores, epsilons(dtype, 10))
    for name, gradient in gradients.items():
        assert gradient.any(), name
        # Of halves, rounding decides which of some units of the feed-forward networks are 0.
        tolerance = epsilons(dtype, 150 if dtype == torch.float16 else 50)
        assert_close(gradient, expected[name], tolerance, smallest=0.1)


@some_types
def test_later_tokens_leave_earlier_scores_alone_to_the_bit(dtype):
    model = on_device(exact_model(), dtype)
    source, prefix = sentences([2], 1, last=EOS), sentences([4], 2)
    changed = [torch.cat([prefix[0][:2], (prefix[0][2:] + 3) % 20 + 4])]
    (one,), (other,) = (score(model, source, tokens) for tokens in (prefix, changed))
    assert torch.equal(one[:2], other[:2]) and not torch.equal(one[2:], other[2:])


@pytest.mark.parametrize("full", [False, True])
def test_the_decoder_leaves_out_later_tokens_but_where_it_sees_them(full, monkeypatch):
    """With full_context_alignment no map is causal."""
    from ea_fairseq.attention.variants import evolving

    told, attention = [], evolving.fused_attention

    def noted(queries, keys, values, args, *others, **more):
        told.append(args.causal)
        return attention(queries, keys, values, args, *others, **more)

    monkeypatch.setattr(evolving, "fused_attention", noted)
    exact = exact_model(**ONE_LAYER)
    model = on_device(exact, torch.float32)
    source, _, prefix = batch()
    features = []
    for each in (model, exact.to(DEVICE)):
        with torch.no_grad():
            encoded = each.encoder(source)
            features.append(each.decoder(prefix, encoded, full_context_alignment=full)[0])
    assert told == [False, not full, False]  # of encoder, decoder and encoder-decoder attention
    assert_close(*features, epsilons(torch.float32, 10))


@some_types
@pytest.mark.parametrize("shared_keys", [False, True] if ON_GPU else [True])
def test_steps_equal_a_full_pass_while_hypotheses_change_places(dtype, shared_keys, taken):
    model = on_device(exact_model(), dtype)
    if shared_keys:
        model.decoder.set_beam_size(3)
    lengths, steps = ([3, 40, 5], 9) if ON_GPU else ([2], 3)
    hypotheses = sentences([steps] * 3 * len(lengths), 2)
    with torch.no_grad():
        for step, full in beam_search(model, sentences(lengths, 1, last=EOS), hypotheses):
            assert_close(step, full.double(), epsilons(dtype, 10))
    assert set(taken) == {(dtype, "triton")}


def test_automatic_mixed_precision_reaches_the_kernels_in_half(taken):
    exact = exact_model(**ONE_LAYER)
    model = on_device(exact, torch.float32)
    expected, _ = scores_and_gradients(exact.to(DEVICE))
    taken.clear()
    with torch.autocast(DEVICE, torch.bfloat16):
        scores, gradients = scores_and_gradients(model)
    assert set(taken) == {(torch.bfloat16, "triton")}
    assert_close(scores, expected, epsilons(torch.bfloat16, 10))
    for name, gradient in gradients.items():
        assert gradient.dtype == torch.float32 and gradient.any(), name


def test_checkpointed_layers_give_the_same_gradients():
    """--checkpoint-activations computes a layer again, carry and dropout included."""
    found = []
    for again in (False, True):
        options = {"decoder_layers": 1, "attention_dropout": 0.2, "checkpoint_activations": again}
        model = on_device(exact_model(**options), torch.float32).train()
        torch.manual_seed(3)
        found.append(scores_and_gradients(model))
    (scores, gradients), (same_scores, same) = found
    assert torch.equal(scores, same_scores)
    for name, gradient in gradients.items():  # sums over layers, in another order
        assert_close(gradient, same[name].double(), epsilons(torch.float32, 3))


def one_of_two(rank, backend, store, results):
    """A process that has one of the sentences; the first says what gradients it has in the end."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=2
    )
    device = f"cuda:{rank if backend == 'nccl' else 0}" if ON_GPU else "cpu"
    model = exact_model(**ONE_LAYER).to(device, torch.float32)
    model = torch.nn.parallel.DistributedDataParallel(model)
    sources, _, prefixes = (x if x is None else x[rank : rank + 1].to(device) for x in batch())
    model(sources, None, prefixes)[0].square().sum().backward()
    if rank == 0:
        gradients = [parameter.grad.cpu() for parameter in model.parameters()]
        torch.save(gradients, results)
    del model  # the last to hold the group, it may hang
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_two_processes_have_the_gradients_of_both_sentences(backend, tmp_path):
    if backend == "nccl" and torch.cuda.device_count() < 2:
        pytest.skip("nccl needs two devices")
    how = multiprocessing.get_context("spawn" if ON_GPU else "fork")
    if not ON_GPU:
        importlib.import_module("torch._dynamo")  # which each process would import for itself
    store, results = str(tmp_path / "store"), str(tmp_path / "gradients")
    processes = [
        how.Process(target=one_of_two, args=(rank, backend, store, results)) for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    try:
        deadline = time.monotonic() + 800  # on a GPU both compile first
        for process in processes:
            process.join(max(0, deadline - time.monotonic()))
        assert [process.exitcode for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    model = exact_model(**ONE_LAYER)
    sources, _, prefixes = (x if x is None else x.cpu() for x in batch())
    for row in range(2):
        (
            model(sources[row : row + 1], None, prefixes[row : row + 1])[0].square().sum() / 2
        ).backward()
    found = torch.load(results)
    for ours, parameter in zip(found, model.parameters(), strict=True):
        assert_close(ours, parameter.grad, epsilons(torch.float32, 50))


def test_compiled_the_model_has_no_break_at_the_operators():
    """torch.compile breaks the graph where the model looks for padding, nowhere else."""
    from torch._dynamo.utils import counters

    model = on_device(exact_model(**ONE_LAYER), torch.float32)
    operators = []

    def backend(graph, inputs):
        operators.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch.compiler.reset()
    counters.clear()
    with torch.no_grad():
        found = torch.compile(model, backend=backend)(*batch())[0]
        assert torch.equal(found, model(*batch())[0])
    # One each for encoder, decoder and encoder-decoder attention.
    assert operators.count("ea_fairseq.evolving_attention.default") == 3
    breaks = list(counters["graph_break"])
    assert all(reason.startswith("Data-dependent branching") for reason in breaks), breaks
