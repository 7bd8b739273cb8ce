"""EA-GAT: its equations as loops, GATConv where nothing evolves, no order of nodes or edges."""

import math

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GAT, GATConv

from ea_fairseq.errors import UserError
from ea_fairseq.networks.graphs import EAGAT, EvolvingGATConv

# Node 4 has no edges; 2 -> 1 is there twice, 3 has a loop of its own.
EDGES = torch.tensor([[0, 1, 2, 2, 3, 3, 5, 0, 1], [1, 0, 1, 1, 3, 0, 2, 5, 3]])
NODES = 6


def graph(features=5):
    return torch.randn(NODES, features)


def looped_layer(x, edges, layer, carry, alpha, beta):
    """One layer, edge by edge and head by head; edges are (source, target), carry (edges, heads).

    Velickovic et al. (2018), equations 1 to 6; equation 4 of arXiv 2102.12895 over its logits.
    """
    named = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    nodes = (x @ named["lin.weight"].T).reshape(len(x), layer.heads, -1)
    maps = np.zeros((len(edges), layer.heads))
    for e, (j, i) in enumerate(edges):
        for h in range(layer.heads):
            score = named["att_src"][0, h] @ nodes[j, h] + named["att_dst"][0, h] @ nodes[i, h]
            maps[e, h] = score if score > 0 else layer.negative_slope * score
    if carry is not None:
        maps = alpha * carry + (1 - alpha) * maps
    kernel = named["transform.convolution.weight"][:, :, 0, 0]
    offset = named["transform.convolution.bias"]
    for e, logits in enumerate(maps):
        maps[e] = beta * np.maximum(kernel @ logits + offset, 0) + (1 - beta) * logits
    output = np.zeros(nodes.shape)
    for i in range(len(x)):
        into = [e for e, (_, to) in enumerate(edges) if to == i]
        for h in range(layer.heads):
            total = sum(math.exp(maps[e, h]) for e in into)
            for e in into:
                output[i, h] += math.exp(maps[e, h]) / total * nodes[edges[e][0], h]
    joined = output.reshape(len(x), -1) if layer.concat else output.mean(1)
    return joined + named["bias"], maps


@pytest.mark.parametrize("loops", [True, False])
def test_network_equals_loops(loops):
    mixing = {"alpha": 0.4, "beta": 0.3}
    network = EAGAT(5, 6, 3, 4, heads=2, add_self_loops=loops, **mixing).double().eval()
    for conv in network.convs:
        torch.nn.init.normal_(conv.bias)
    x = graph().double()
    edges = EDGES.t().tolist()
    if loops:
        edges = [pair for pair in edges if pair[0] != pair[1]] + [[i, i] for i in range(NODES)]
    values, carry = x.numpy(), None
    for layer, conv in enumerate(network.convs):
        if layer:
            values = np.where(values > 0, values, np.exp(values) - 1)
        values, carry = looped_layer(values, edges, conv, carry, **mixing)
    np.testing.assert_allclose(network(x, EDGES).detach().numpy(), values, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_self_loops": False},
        {"concat": False, "bias": False},
        {"residual": True, "flow": "target_to_source"},
        {"edge_dim": 2, "fill_value": 0.5},
        {"edge_dim": 2, "negative_slope": 0.1},
    ],
)
def test_without_evolution_it_is_gatconv_dropout_included(options):
    heads = {"heads": 3, "dropout": 0.4, **options}
    plain = GATConv(5, 4, **heads)
    evolving = EvolvingGATConv(5, 4, alpha=0.0, beta=0.0, layer=1, num_layers=2, **heads)
    edges = EDGES.size(1) + (NODES - 1 if options.get("add_self_loops", True) else 0)
    missing = evolving.load_state_dict(plain.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert all(name.startswith("transform.") for name in missing.missing_keys)
    x = graph()
    features = torch.randn(EDGES.size(1), 2) if "edge_dim" in options else None
    for training in (True, False):
        torch.manual_seed(3)
        expected = plain.train(training)(x, EDGES, features)
        torch.manual_seed(3)
        # A carry that is not mixed in changes nothing either.
        found, _ = evolving.train(training)(x, EDGES, features, torch.ones(edges, 3))
        torch.testing.assert_close(found, expected)


def test_without_evolution_the_network_is_that_of_torch_geometric():
    plain = GAT(5, 8, 3, 4, heads=2, act="elu").eval()
    x = graph()
    for options in ({"alpha": 0.0, "beta": 0.0}, {"variant": "plain"}):
        network = EAGAT(5, 8, 3, 4, heads=2, **options).eval()
        assert not network.load_state_dict(plain.state_dict(), strict=False).unexpected_keys
        torch.testing.assert_close(network(x, EDGES), plain(x, EDGES))


def test_edge_features_without_their_width_are_refused():
    """They were ignored."""
    with pytest.raises(UserError, match="edge_attr is given, but no edge_dim"):
        EvolvingGATConv(5, 4)(graph(), EDGES, torch.randn(EDGES.size(1), 2))


def test_edge_features_of_another_layout_are_refused():
    layer = EvolvingGATConv(5, 4, alpha=0.5, beta=0.5, edge_dim=2, add_self_loops=False)
    features = torch.randn(2, EDGES.size(1))
    layer(graph(), EDGES, features.t())
    with pytest.raises(UserError, match=r"edge_attr must be a tensor \(\d+ edges, 2\), not \(2,"):
        layer(graph(), EDGES, features)


def test_a_permuted_graph_gives_the_permuted_result():
    network = EAGAT(5, 8, 3, 4, heads=2, alpha=0.5, beta=0.5).eval()
    x = graph()
    order, edge_order = torch.randperm(NODES), torch.randperm(EDGES.size(1))
    place = order.argsort()  # where each node went
    expected = network(x, EDGES)
    moved = network(x[order], place[EDGES][:, edge_order])
    torch.testing.assert_close(moved, expected[order])


def test_a_graph_alone_is_that_graph_in_a_batch():
    network = EAGAT(5, 8, 2, 4, heads=2, alpha=0.5, beta=0.5).eval()
    graphs = [Data(x=graph(), edge_index=EDGES), Data(x=graph(), edge_index=EDGES[:, :4])]
    batch = Batch.from_data_list(graphs)
    together = network(batch.x, batch.edge_index).split(NODES)
    for one, found in zip(graphs, together, strict=True):
        torch.testing.assert_close(found, network(one.x, one.edge_index))


def test_nodes_without_edges_give_the_bias_and_no_nan():
    layer = EvolvingGATConv(5, 3, heads=2, alpha=0.5, beta=0.5, add_self_loops=False)
    torch.nn.init.normal_(layer.bias)
    nothing = torch.empty(2, 0, dtype=torch.long)
    for edges in (nothing, EDGES):
        output, carry = layer(graph(), edges)
        torch.testing.assert_close(output[4], layer.bias)
        assert output.isfinite().all() and carry.shape == (edges.size(1), 2)


def test_every_parameter_gets_a_gradient():
    network = EAGAT(5, 16, 3, 4, heads=4, alpha=0.5, beta=0.5, edge_dim=2, residual=True)
    x, features = graph(), torch.randn(EDGES.size(1), 2)
    network(x, EDGES, features).pow(2).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_probabilities_are_of_the_edges_into_each_node():
    network = EAGAT(5, 8, 2, 4, heads=2, alpha=0.5, beta=0.5).eval()
    output, attended = network(graph(), EDGES, need_probs=True)
    assert output.shape == (NODES, 4) and len(attended) == 2
    for edges, probs in attended:
        sums = torch.zeros(NODES, 2).index_add(0, edges[1], probs)
        torch.testing.assert_close(sums, torch.ones(NODES, 2))


def test_a_last_layer_with_other_heads_begins_anew():
    network = EAGAT(5, 8, 3, 4, heads=2, out_heads=1, alpha=1.0, convolution="none").eval()
    x = graph()
    carries = []
    for conv in network.convs:
        conv.register_forward_pre_hook(lambda _, inputs: carries.append(inputs[3]))
    network(x, EDGES)
    assert carries[0] is None and carries[1] is not None and carries[2] is None


@pytest.mark.thorough
def test_compiled_whole_it_gives_the_same():
    network = EAGAT(5, 8, 3, 4, heads=2, alpha=0.5, beta=0.5).eval()
    x = graph()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, EDGES), network(x, EDGES))


def conv(**options):
    return EvolvingGATConv(**{"in_channels": 5, "out_channels": 4, "heads": 2, **options})


SECOND = {"layer": 1, "num_layers": 2}
CARRY = torch.zeros(9, 2)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: conv(kernel_size=3), "kernel_size must be 1, not 3: the edges .* have no order"),
        (lambda: conv(variant="predictive"), "variant predictive: .*choices: evolving, residual"),
        (lambda: conv(in_channels=(5, 6)), r"in_channels must be one number, not \(5, 6\)"),
        (lambda: conv(alpha=2.0), "alpha must be .*not 2"),
        (lambda: conv(alfa=0.2), "alfa is no option of evolving.*perhaps you meant alpha"),
        (
            lambda: conv(**SECOND)(graph(), EDGES, carry=CARRY),
            r"carry must be of the 14 edges and 2 heads.*not \(9, 2\)",
        ),
        (lambda: conv(**SECOND)(graph(), EDGES), "carry is missing: this attention is layer=1"),
        (lambda: conv()(graph(), EDGES.t()), r"edge_index must be a tensor \(2, edges\), not \(9,"),
        (lambda: EAGAT(5, 8, 2, 3, activation="relu"), "^activation must be a func.* not 'relu'"),
        (lambda: EAGAT(5, 9, 2, 4, heads=2), "hidden_channels 9 must be divisible by heads 2"),
    ],
)
def test_what_cannot_be_is_refused(made, reason):
    with pytest.raises(UserError, match=reason):
        made()
