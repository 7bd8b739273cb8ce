"""Graph attention networks whose attention over edges evolves from layer to layer (EA-GAT)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import build_transform
from ..attention.contract import at_least_float32
from ..attention.functional import check_carry
from ..errors import UserError

try:
    from torch_geometric.nn import GATConv
    from torch_geometric.typing import OptPairTensor  # noqa: F401  read by MessagePassing
    from torch_geometric.utils import add_self_loops, remove_self_loops, softmax
except ImportError as error:
    raise UserError(f"graphs need torch_geometric ({error}): pip install torch_geometric") from None

#: What happens to edges' logits: the variants that look at one edge at a time.
GRAPH_VARIANTS = ("evolving", "residual", "plain")


class EvolvingGATConv(GATConv):
    """A graph attention layer (``torch_geometric.nn.GATConv``) whose logits a variant transforms.

    Source: arXiv 2212.08330, sections 3.4 and 5.7, over graph attention (Velickovic et al., 2018,
    arXiv 1710.10903). The logits of a layer's edges, one for each head, are its attention map; the
    carry is the transformed logits of the same edges one layer below. Each edge is transformed by
    itself, heads alone are mixed (a convolution of size 1), so that a graph whose nodes or edges
    come in another order gives the same. The softmax goes over the edges into a node.

    ``GATConv``'s parameters keep their names: its state dict loads with ``strict=False``, and at
    alpha = beta = 0 both are equal, dropout included.

    Args:
        in_channels: width of the nodes, the same for sources and targets; -1: that of the first x
        out_channels: width of each head
        heads: their number
        concat: whether heads are concatenated; otherwise their mean is taken
        negative_slope: of the leaky ReLU, which stands before the transform
        dropout: of the probabilities, in training
        add_self_loops: whether every node attends to itself, instead of loops that are given
        edge_dim: width of the edges' features, where there are any
        fill_value: features of the loops that are added, as ``GATConv`` has it
        bias: whether one is added to the output
        residual: whether a linear map of the input is added to the output
        flow: "source_to_target" or "target_to_source", the way of messages along edges
        variant: one of ``GRAPH_VARIANTS``
        layer: index of the layer among those that carry, from 0; the first has no carry
        num_layers: of these
        options: the variant's own, such as ``alpha`` and ``beta``. kernel_size is 1

    Raises:
        UserError: naming the argument, its value and the choices
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        flow: str = "source_to_target",
        variant: str = "evolving",
        layer: int = 0,
        num_layers: int = 1,
        **options: Any,
    ):
        if not isinstance(in_channels, int):
            raise UserError(
                f"in_channels must be one number, not {in_channels!r}: a carry is between layers "
                "over the same nodes"
            )
        options = _graph_options(variant, options)
        super().__init__(
            *(in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops),
            *(edge_dim, fill_value, bias, residual),
            flow=flow,
        )
        self.transform = build_transform(
            variant, heads, out_channels, "encoder", layer, num_layers, **options
        )

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        carry: Tensor | None = None,
        need_probs: bool = False,
        has_loops: bool = False,
    ) -> tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, tuple[Tensor, Tensor]]:
        """Attends along edges.

        Args:
            x: (nodes, in_channels)
            edge_index: long, (2, edges), each from a source to a target
            edge_attr: (edges, edge_dim), or (edges,) where edge_dim is 1; or None
            carry: (edges, heads), that the layer below returned for the same ``edge_index``; None
                in the first layer
            need_probs: whether to return the probabilities
            has_loops: whether edges are what :meth:`with_self_loops` returned, as several layers
                may share them

        Returns:
            output (nodes, heads * out_channels, or out_channels without concat); the carry
            (edges, heads), self-loops included, None where the variant has none; and with
            need_probs the edges (2, edges), self-loops included, with the probabilities before
            dropout (edges, heads)

        Raises:
            UserError: ``edge_index`` is no such tensor, ``edge_attr`` does not fit, the carry is of
                other edges or heads, or it is missing above the first layer, or is there in it
        """
        nodes = self.lin(x).view(-1, self.heads, self.out_channels)
        if not has_loops:
            edge_index, edge_attr = self.with_self_loops(edge_index, edge_attr, len(nodes))
        if carry is not None and carry.shape != (edge_index.size(1), self.heads):
            raise UserError(
                f"carry must be of the {edge_index.size(1)} edges and {self.heads} heads here, "
                f"(edges, heads), not {tuple(carry.shape)}"
            )
        check_carry(self.transform, carry)
        carry, probs = self._attend(nodes, edge_index, edge_attr, carry)
        dropped = F.dropout(probs, self.dropout, self.training).to(nodes.dtype)
        output = self.propagate(edge_index, x=(nodes, nodes), alpha=dropped, size=None)
        output = output.flatten(1) if self.concat else output.mean(1)
        if self.res is not None:
            output = output + self.res(x)
        if self.bias is not None:
            output = output + self.bias
        return (output, carry, (edge_index, probs)) if need_probs else (output, carry)

    def with_self_loops(
        self, edge_index: Tensor, edge_attr: Tensor | None, num_nodes: int
    ) -> tuple[Tensor, Tensor | None]:
        """The edges along which this layer attends.

        Args:
            edge_index, edge_attr: as in :meth:`forward`
            num_nodes: of the graph

        Returns:
            the same with add_self_loops False; otherwise without the loops that were given, and
            with one for every node, in its order, behind the other edges

        Raises:
            UserError: ``edge_index`` is no such tensor
        """
        if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or len(edge_index) != 2:
            found = tuple(getattr(edge_index, "shape", ())) or type(edge_index).__name__
            raise UserError(f"edge_index must be a tensor (2, edges), not {found}")
        if not self.add_self_loops:
            return edge_index, edge_attr
        edge_index, edge_attr = remove_self_loops(edge_index, edge_attr)
        return add_self_loops(edge_index, edge_attr, self.fill_value, num_nodes)

    def _attend(
        self, nodes: Tensor, edge_index: Tensor, edge_attr: Tensor | None, carry: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Carry and probabilities of edges, (edges, heads) each, of nodes (nodes, heads, width)."""
        sources, targets = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
        logits = (nodes * self.att_src).sum(-1)[sources] + (nodes * self.att_dst).sum(-1)[targets]
        if edge_attr is not None:
            if self.lin_edge is None:
                raise UserError("edge_attr is given, but no edge_dim, its width, to build with")
            edge_attr = edge_attr[:, None] if edge_attr.dim() == 1 else edge_attr
            if len(edge_attr) != len(logits):
                raise UserError(
                    f"edge_attr must be a tensor ({len(logits)} edges, {self.edge_dim}), not "
                    f"{tuple(edge_attr.shape)}"
                )
            edges = self.lin_edge(edge_attr)
            edges = edges.view(-1, self.heads, self.out_channels)
            logits = logits + (edges * self.att_edge).sum(-1)
        logits = at_least_float32(F.leaky_relu(logits, self.negative_slope))
        # Edges as the pixels of one row: heads are channels, and a kernel of 1 knows no neighbours.
        carry = None if carry is None else _as_map(carry)
        logits = self.transform(_as_map(logits), None, carry)[0][0, :, 0].t()
        probs = softmax(logits, targets, num_nodes=len(nodes))
        return (logits if self.transform.uses_carry else None), probs


class EAGAT(nn.Module):
    """A graph attention network with evolving attention between its layers.

    Layers of ``torch_geometric.nn.GAT``, whose weights load with ``strict=False``: heads
    concatenated, the last layer's averaged, an activation between layers. Dropout acts on every
    layer's input and on the probabilities (Velickovic et al., 2018, section 3.3).

    Args:
        in_channels: width of the nodes' features
        hidden_channels: width between layers, divisible by ``heads``
        num_layers: at least 1
        out_channels: width of the output, such as the number of classes
        heads: of each layer
        out_heads: of the last layer; with another number than ``heads`` it begins anew, without
            a carry. The same by default
        dropout: in training
        activation: a function, such as ``torch.relu``
        variant, options: as :class:`EvolvingGATConv` has them, and its ``add_self_loops``,
            ``edge_dim``, ``fill_value``, ``negative_slope``, ``bias``, ``residual`` and ``flow``

    Raises:
        UserError: naming the argument, its value and the choices
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        heads: int = 8,
        out_heads: int | None = None,
        dropout: float = 0.6,
        activation: Any = F.elu,
        variant: str = "evolving",
        **options: Any,
    ):
        super().__init__()
        out_heads = heads if out_heads is None else out_heads
        if min(num_layers, heads, out_heads) < 1:
            raise UserError(
                f"num_layers, heads and out_heads must be at least 1, not {num_layers}, {heads}, "
                f"{out_heads}"
            )
        if not callable(activation):
            raise UserError(
                f"activation must be a function, such as torch.relu, not {activation!r}"
            )
        if hidden_channels % heads:
            raise UserError(f"hidden_channels {hidden_channels} must be divisible by heads {heads}")
        self.dropout, self.activation = dropout, activation
        carrying = num_layers if out_heads == heads else num_layers - 1
        self.convs = nn.ModuleList()
        for layer in range(num_layers):
            last = layer == num_layers - 1
            place = {"layer": layer, "num_layers": carrying}
            if last and carrying < num_layers:
                place = {"layer": 0, "num_layers": 1}
            self.convs.append(
                EvolvingGATConv(
                    in_channels if layer == 0 else hidden_channels,
                    out_channels if last else hidden_channels // heads,
                    out_heads if last else heads,
                    concat=not last,
                    dropout=dropout,
                    variant=variant,
                    **place,
                    **options,
                )
            )

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        need_probs: bool = False,
    ) -> Tensor | tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Runs all layers.

        Args:
            x: (nodes, in_channels); of several graphs, one after the other, as torch_geometric
                batches them
            edge_index: long, (2, edges)
            edge_attr: (edges, edge_dim) or None
            need_probs: whether to return the probabilities

        Returns:
            (nodes, out_channels), and with need_probs each layer's edges and probabilities, as
            :meth:`EvolvingGATConv.forward` has them
        """
        carry, attended = None, []
        edge_index, edge_attr = self.convs[0].with_self_loops(edge_index, edge_attr, len(x))
        for conv in self.convs:
            if attended:
                x = self.activation(x)
            if carry is not None and carry.size(1) != conv.heads:
                carry = None
            x = F.dropout(x, self.dropout, self.training)
            x, carry, probs = conv(x, edge_index, edge_attr, carry, True, has_loops=True)
            attended.append(probs)
        return (x, attended) if need_probs else x


def _graph_options(variant: str, options: dict[str, Any]) -> dict[str, Any]:
    """The variant's options, with a kernel of 1.

    Raises:
        UserError: a variant or kernel that would read the neighbours of an edge
    """
    if variant not in GRAPH_VARIANTS:
        raise UserError(
            f"variant {variant}: a graph's edges are transformed one by one; choices: "
            + ", ".join(GRAPH_VARIANTS)
        )
    size = options.get("kernel_size", 1)
    if size != 1:
        raise UserError(
            f"kernel_size must be 1, not {size}: the edges of a graph have no order in which one "
            "would be beside another, and what a larger kernel reads would follow the order of "
            "the nodes"
        )
    if variant == "evolving" and options.get("convolution") != "none":
        return {"kernel_size": 1, **options}
    return options


def _as_map(logits: Tensor) -> Tensor:
    """(edges, heads) as a map of one row: (1, heads, 1, edges)."""
    return torch.movedim(logits, 0, 1)[None, :, None]
