"""EA-GAT: its equations as loops, GATConv where nothing evolves, no order of nodes or edges."""

import math

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
    """One layer, number by number; edges are (source, target), carry a list over edges and heads.

    Velickovic et al. (2018), equations 1 to 6; equation 4 of arXiv 2102.12895 over its logits.
    """
    heads, width = layer.heads, layer.out_channels
    theta = layer.lin.weight.tolist()
    rows = x.tolist()
    nodes = [[sum(w * v for w, v in zip(row, node, strict=True)) for row in theta] for node in rows]

    def at(node, head, channel):
        return nodes[node][head * width + channel]

    source, target = layer.att_src[0].tolist(), layer.att_dst[0].tolist()
    maps = []
    for j, i in edges:
        logits = []
        for h in range(heads):
            score = sum(
                source[h][c] * at(j, h, c) + target[h][c] * at(i, h, c) for c in range(width)
            )
            logits.append(score if score > 0 else layer.negative_slope * score)
        maps.append(logits)
    if carry is not None:
        maps = [
            [alpha * below + (1 - alpha) * here for below, here in zip(*pair, strict=True)]
            for pair in zip(carry, maps, strict=True)
        ]
    kernel = layer.transform.convolution.weight[:, :, 0, 0].tolist()
    offset = layer.transform.convolution.bias.tolist()
    evolved = []
    for logits in maps:
        mixed = [
            max(0.0, offset[h] + sum(w * z for w, z in zip(kernel[h], logits, strict=True)))
            for h in range(heads)
        ]
        evolved.append([beta * m + (1 - beta) * z for m, z in zip(mixed, logits, strict=True)])
    output = []
    for i in range(len(rows)):
        into = [e for e, (_, to) in enumerate(edges) if to == i]
        heads_of = []
        for h in range(heads):
            total = sum(math.exp(evolved[e][h]) for e in into)
            heads_of.append(
                [
                    sum(math.exp(evolved[e][h]) / total * at(edges[e][0], h, c) for e in into)
                    for c in range(width)
                ]
            )
        if layer.concat:
            joined = [value for one in heads_of for value in one]
        else:
            joined = [sum(one[c] for one in heads_of) / heads for c in range(width)]
        output.append([v + b for v, b in zip(joined, layer.bias.tolist(), strict=True)])
    return output, evolved


@pytest.mark.parametrize("loops", [True, False])
def test_network_equals_loops(loops):
    alpha, beta = 0.4, 0.3
    network = (
        EAGAT(5, 6, 3, 4, heads=2, alpha=alpha, beta=beta, add_self_loops=loops).double().eval()
    )
    for conv in network.convs:
        torch.nn.init.normal_(conv.bias)
    x = graph().double()
    edges = EDGES.t().tolist()
    if loops:
        edges = [pair for pair in edges if pair[0] != pair[1]] + [[i, i] for i in range(NODES)]
    values, output, carry = x, [], None
    for layer, conv in enumerate(network.convs):
        if layer:
            rows = [[v if v > 0 else math.exp(v) - 1 for v in row] for row in output]
            values = torch.tensor(rows, dtype=torch.float64)
        output, carry = looped_layer(values, edges, conv, carry, alpha, beta)
    expected = torch.tensor(output, dtype=torch.float64)
    torch.testing.assert_close(network(x, EDGES), expected)


def test_carries_are_mixed_as_the_equation_has_it():
    options = {"heads": 2, "alpha": 0.25, "convolution": "none", "num_layers": 2}
    first, layer = (EvolvingGATConv(5, 3, layer=index, **options) for index in range(2))
    first.load_state_dict(layer.state_dict())
    x, below = graph(), torch.randn(EDGES.size(1) - 1 + NODES, 2)
    _, alone = first(x, EDGES)
    _, mixed = layer(x, EDGES, carry=below)
    torch.testing.assert_close(mixed, 0.25 * below + 0.75 * alone)


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


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kernel_size": 3}, "kernel_size must be 1, not 3: the edges of a graph have no order"),
        ({"variant": "predictive"}, "variant predictive: .*choices: evolving, residual, plain"),
        ({"in_channels": (5, 6)}, r"in_channels must be one number, not \(5, 6\)"),
        ({"alpha": 2.0}, "alpha must be .*not 2"),
        ({"alfa": 0.2}, "alfa is no option of evolving.*perhaps you meant alpha"),
    ],
)
def test_what_cannot_be_is_refused(options, reason):
    with pytest.raises(UserError, match=reason):
        EvolvingGATConv(**{"in_channels": 5, "out_channels": 4, "heads": 2, **options})


def test_a_carry_of_other_edges_is_refused():
    layer = EvolvingGATConv(5, 3, heads=2, layer=1, num_layers=2)
    with pytest.raises(UserError, match=r"carry must be of the 14 edges and 2 heads.*not \(9, 2\)"):
        layer(graph(), EDGES, carry=torch.zeros(9, 2))
    with pytest.raises(UserError, match="^activation must be a function, .* not 'relu'"):
        EAGAT(5, hidden_channels=8, num_layers=2, out_channels=3, activation="relu")
    with pytest.raises(UserError, match="carry is missing: this attention is layer=1"):
        layer(graph(), EDGES)
    with pytest.raises(UserError, match=r"edge_index must be a tensor \(2, edges\), not \(9, 2\)"):
        layer(graph(), EDGES.t())
    with pytest.raises(UserError, match="hidden_channels 9 must be divisible by heads 2"):
        EAGAT(5, 9, 2, 4, heads=2)
