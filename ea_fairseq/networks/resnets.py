"""ResNets with attention beside convolutions, whose maps evolve: AA-ResNet and EA-AA-ResNet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import build_transform
from ..attention.contract import AttentionArgs, scaled_products
from ..errors import UserError
from .torchvision_operators import name_missing_operators

name_missing_operators()
try:
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
except ImportError as error:
    raise UserError(f"ResNets need torchvision ({error}): pip install torchvision") from None

Widths = tuple[int, int]


@dataclass(frozen=True)
class ResNetSettings:
    """What a ResNet is built with.

    Attributes:
        block: "basic" (two 3 x 3 convolutions) or "bottleneck" (one between two of 1 x 1)
        layers: blocks of each of the four stages
        classes: width of the output
        widths: channels of each stage (of a bottleneck's convolution of 3 x 3)
        strides: of each stage's first block
        small: whether the stem is a convolution of 3 x 3 with stride 1, for pictures of a few
            pixels, in the place of 7 x 7 with stride 2 and pooling
        channels: of the pictures
        size: height and width of the pictures, of which relative positions depend
        attention: for each stage (channels of keys, of values) of its augmented convolutions, both
            divisible by ``heads``, or None where it has none
        heads: of attentions
        pool_from: maps of this height and more are attended to at half of it
        variant: what happens to the attention's logits
        options: the variant's own
    """

    block: str = "bottleneck"
    layers: tuple[int, ...] = (3, 4, 6, 3)
    classes: int = 1000
    widths: tuple[int, ...] = (64, 128, 256, 512)
    strides: tuple[int, ...] = (1, 2, 2, 2)
    small: bool = False
    channels: int = 3
    size: int = 224
    attention: tuple[Widths | None, ...] = (None, None, None, None)
    heads: int = 8
    pool_from: int = 28
    variant: str = "plain"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.block not in _BLOCKS:
            raise UserError(f"block must be one of {', '.join(_BLOCKS)}, not {self.block!r}")
        for name in ("layers", "widths", "strides", "attention"):
            if len(getattr(self, name)) != 4:
                raise UserError(f"{name} must have four entries, one for each stage")
        for stage, widths in zip(self.widths, self.attention, strict=True):
            if widths is None:
                continue
            keys, values = widths
            if min(widths) < 1 or keys % self.heads or values % self.heads or values >= stage:
                raise UserError(
                    f"attention {widths}: keys and values must be divisible by heads {self.heads}, "
                    f"and values fewer than the stage's {stage} channels"
                )


# Keys and values of the last three stages, as Table 9's counts want them (docs/images.md): 0.2 and
# 0.1 of the channels, rounded up to a multiple of the heads, in -34; in the others 0.5 and 0.1,
# rounded to the nearest.
_BASIC = (None, (32, 16), (56, 32), (104, 56))
_BOTTLENECK = (None, (64, 16), (128, 24), (256, 48))
_DEPTHS: dict[int, dict[str, Any]] = {
    34: {"block": "basic", "layers": (3, 4, 6, 3), "attention": _BASIC},
    50: {"layers": (3, 4, 6, 3), "attention": _BOTTLENECK},
    101: {"layers": (3, 4, 23, 3), "attention": _BOTTLENECK},
    152: {"layers": (3, 8, 36, 3), "attention": _BOTTLENECK},
}
_BLOCKS = {"basic": BasicBlock, "bottleneck": Bottleneck}
#: Appendix A.1 of arXiv 2102.12895 (v1): alpha of each depth; beta is 1.
_ALPHAS = {34: 0.5, 50: 0.5, 101: 0.7, 152: 0.7}


def resnet_settings(depth: int, kind: str = "ea-aa", **changes: Any) -> ResNetSettings:
    """The settings of a ResNet of Table 9.

    Args:
        depth: 34, 50, 101 or 152
        kind: "plain", "aa" (attention beside convolution) or "ea-aa" (evolving attention)
        changes: of :class:`ResNetSettings`; ``options`` replaces single options of the variant

    Raises:
        UserError: naming the argument, its value and the choices
    """
    if depth not in _DEPTHS:
        raise UserError(f"depth must be one of {', '.join(map(str, _DEPTHS))}, not {depth}")
    if kind not in ("plain", "aa", "ea-aa"):
        raise UserError(f"kind must be plain, aa or ea-aa, not {kind!r}")
    settings = dict(_DEPTHS[depth])
    if kind == "plain":
        settings["attention"] = (None,) * 4
    if kind == "ea-aa" and changes.get("variant", "evolving") == "evolving":
        settings |= {"variant": "evolving", "options": {"alpha": _ALPHAS[depth], "beta": 1.0}}
        changes["options"] = settings["options"] | changes.get("options", {})
    return ResNetSettings(**settings | changes)


class RelativePositions(nn.Module):
    """Logits by how far a pixel is above and left of another (Bello et al. 2019, section 3.3.2).

    Of a query in row r and column c and a key in row r' and column c', the logit is
    q . height[r' - r] + q . width[c' - c], which all heads share. Products are of queries and
    offsets, (2 height - 1) and (2 width - 1) a query: nothing has the size of a map times a width.

    Args:
        height, width: of the map, in pixels
        head_dim: width of each head's queries
    """

    def __init__(self, height: int, width: int, head_dim: int):
        super().__init__()
        self.size = height, width
        self.height = nn.Parameter(torch.randn(2 * height - 1, head_dim) * head_dim**-0.5)
        self.width = nn.Parameter(torch.randn(2 * width - 1, head_dim) * head_dim**-0.5)
        for name, pixels in (("rows", height), ("columns", width)):
            place = torch.arange(pixels)
            # [i, j]: where the offset of key j from query i stands among the offsets.
            self.register_buffer(name, place - place[:, None] + pixels - 1, persistent=False)

    def forward(self, queries: Tensor) -> Tensor:
        """Logits of queries (batch, heads, pixels, head_dim): (batch, heads, pixels, pixels)."""
        height, width = self.size
        image = queries.unflatten(2, self.size)  # (batch, heads, height, width, head_dim)
        by_row = torch.einsum("bhrcd,od->bhrco", image, self.height)
        by_column = torch.einsum("bhrcd,od->bhrco", image, self.width)
        shape = image.shape[:4]
        rows = self.rows[:, None].expand(*shape, height)
        columns = self.columns.expand(*shape, width)
        logits = by_row.gather(-1, rows)[..., None] + by_column.gather(-1, columns)[..., None, :]
        return logits.flatten(4).flatten(2, 3)


class AugmentedConvolution(nn.Module):
    """A convolution of 3 x 3 beside attention over all pixels, their channels concatenated.

    Source: Bello et al. (2019, arXiv 1904.09925), equations 1 to 4. The attention's logits, with
    the relative positions, evolve by equation 4 of arXiv 2102.12895: the maps' rows are queries,
    their columns keys, each a picture's pixels row by row. With a stride, the attention's input is
    the mean of 3 x 3 pixels at every other place; pooled, it is so once more, and what comes out
    is interpolated.

    Args:
        in_channels, out_channels: of the picture
        keys, values: channels of the attention, divisible by ``heads``; the convolution has
            ``out_channels - values``
        heads: of the attention
        size: height and width of the output
        stride: 1 or 2
        pooled: whether to attend at half the height and width
        variant, layer, num_layers, options: as ``build_transform`` has them
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        keys: int,
        values: int,
        heads: int,
        size: tuple[int, int],
        stride: int = 1,
        pooled: bool = False,
        variant: str = "evolving",
        layer: int = 0,
        num_layers: int = 1,
        **options: Any,
    ):
        super().__init__()
        self.widths, self.heads = (keys, keys, values), heads
        self.stride, self.pooled = stride, pooled
        self.conv = nn.Conv2d(in_channels, out_channels - values, 3, stride, 1, bias=False)
        # No biases: batch norm follows, and a key's would change no softmax.
        self.qkv = nn.Conv2d(in_channels, 2 * keys + values, 1, bias=False)
        self.out = nn.Conv2d(values, values, 1, bias=False)
        self.map_size = tuple(map(_halved, size)) if pooled else size
        self.positions = RelativePositions(*self.map_size, keys // heads)
        self.transform = build_transform(
            variant, heads, keys // heads, "encoder", layer, num_layers, **options
        )

    def forward(
        self, x: Tensor, carry: Tensor | None = None, need_probs: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Convolves and attends.

        Args:
            x: (batch, in_channels, height, width)
            carry: (batch, heads, pixels, pixels), of the attention below, of maps of the same size;
                None where there is none
            need_probs: whether to return the probabilities

        Returns:
            (batch, out_channels, height, width), the carry, None where the variant has none, and
            the probabilities (batch, heads, pixels, pixels) or None

        Raises:
            UserError: the picture has another size than the relative positions
        """
        convolved = self.conv(x)
        if self.stride > 1:
            x = _pooled(x)
        if self.pooled:
            x = _pooled(x)
        if tuple(x.shape[2:]) != self.map_size:
            raise UserError(
                f"maps are {x.shape[2]} x {x.shape[3]} pixels, and were built for "
                f"{self.map_size[0]} x {self.map_size[1]}: give size of the pictures, or scale them"
            )
        projected = self.qkv(x).flatten(2).split(self.widths, dim=1)
        queries, keys, values = (
            one.unflatten(1, (self.heads, -1)).transpose(2, 3) for one in projected
        )
        scaling = queries.size(-1) ** -0.5
        logits = scaled_products(queries, keys, scaling) + self.positions(queries * scaling)
        args = AttentionArgs(scaling, carry=carry, need_probs=need_probs, logits=logits)
        output, carry, probs = self.transform.attend(queries, keys, values, args)
        attended = self.out(output.transpose(2, 3).flatten(1, 2).unflatten(2, self.map_size))
        if self.pooled:
            attended = F.interpolate(attended, convolved.shape[2:], mode="bilinear")
        return torch.cat([convolved, attended.to(convolved.dtype)], dim=1), carry, probs


class AugmentedResNet(ResNet):
    """``torchvision.models.ResNet`` whose convolutions of 3 x 3 may have attention beside them.

    Without attention it is torchvision's, whose checkpoints load, with the same parameter names.
    The carry goes from one attention to the next as long as maps have the same size (those of the
    28 x 28 stage are pooled to that of the next one), and begins anew where the size changes.

    Args:
        settings: see :class:`ResNetSettings` and :func:`resnet_settings`
    """

    def __init__(self, settings: ResNetSettings):
        block = _BLOCKS[settings.block]
        nn.Module.__init__(self)
        # What ResNet.__init__ makes with widths that are fixed there.
        self._norm_layer, self.groups, self.base_width, self.dilation = nn.BatchNorm2d, 1, 64, 1
        self.settings, self.inplanes = settings, settings.widths[0]
        stem = {"kernel_size": 7, "stride": 2, "padding": 3}
        if settings.small:
            stem = {"kernel_size": 3, "stride": 1, "padding": 1}
        self.conv1 = nn.Conv2d(settings.channels, self.inplanes, bias=False, **stem)
        self.bn1 = nn.BatchNorm2d(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if settings.small else nn.MaxPool2d(3, 2, 1)
        stages = zip(settings.widths, settings.layers, settings.strides, strict=True)
        for number, (width, blocks, stride) in enumerate(stages, 1):
            setattr(self, f"layer{number}", self._make_layer(block, width, blocks, stride))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(settings.widths[-1] * block.expansion, settings.classes)
        self._augment()
        for module in self.modules():
            if type(module) is nn.Conv2d:  # a map's convolution keeps PyTorch's initialisation
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def _augment(self) -> None:
        """Puts attention beside the stages' convolutions of 3 x 3."""
        settings = self.settings
        planned: list[tuple[nn.Module, str, dict[str, Any]]] = []
        size = settings.size if settings.small else _halved(_halved(settings.size))
        for stage, widths in enumerate(settings.attention, 1):
            for block in getattr(self, f"layer{stage}"):
                for name, conv in block.named_children():
                    if not isinstance(conv, nn.Conv2d) or conv.kernel_size != (3, 3):
                        continue
                    stride = conv.stride[0]
                    size = _halved(size) if stride == 2 else size
                    if widths is not None:
                        given = conv.in_channels, conv.out_channels, *widths, settings.heads
                        pooled = size >= settings.pool_from
                        plan = {"size": (size, size), "stride": stride, "pooled": pooled}
                        planned.append((block, name, {"given": given, **plan}))
        maps = [_halved(p["size"][0]) if p["pooled"] else p["size"][0] for *_, p in planned]
        # Attentions that carry to one another are a stack of their own.
        stacks = [list(stack) for _, stack in groupby(range(len(maps)), key=maps.__getitem__)]
        for stack in stacks:
            for layer, number in enumerate(stack):
                block, name, plan = planned[number]
                conv = AugmentedConvolution(
                    *plan.pop("given"),
                    **plan,
                    variant=settings.variant,
                    layer=layer,
                    num_layers=len(stack),
                    **settings.options,
                )
                setattr(block, name, conv)

    def forward(self, x: Tensor, need_probs: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Classifies pictures.

        Args:
            x: (batch, channels, size, size)
            need_probs: whether to return the attentions' probabilities

        Returns:
            (batch, classes), and with need_probs the probabilities of each attention in turn,
            (batch, heads, pixels, pixels)

        Raises:
            UserError: pictures have another size than the relative positions
        """
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        carry, maps = None, []
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            for block in stage:
                x, carry = self._block(block, x, carry, maps, need_probs)
        x = self.fc(self.avgpool(x).flatten(1))
        return (x, maps) if need_probs else x

    def _block(
        self,
        block: nn.Module,
        x: Tensor,
        carry: Tensor | None,
        maps: list[Tensor],
        need_probs: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """torchvision's blocks with the carry through them; appends to ``maps``."""
        shortcut = x if block.downsample is None else block.downsample(x)
        last = "3" if hasattr(block, "conv3") else "2"
        for number in "123"[: int(last)]:
            conv = getattr(block, f"conv{number}")
            if isinstance(conv, AugmentedConvolution):
                pixels = conv.map_size[0] * conv.map_size[1]
                if carry is not None and carry.size(-1) != pixels:
                    carry = None
                x, carry, probs = conv(x, carry, need_probs)
                if need_probs:
                    maps.append(probs)
            else:
                x = conv(x)
            x = getattr(block, f"bn{number}")(x)
            x = block.relu(x + shortcut if number == last else x)
        return x, carry


def resnet(depth: int, kind: str = "ea-aa", **changes: Any) -> AugmentedResNet:
    """A ResNet of Table 9: see :func:`resnet_settings`."""
    return AugmentedResNet(resnet_settings(depth, kind, **changes))


def as_json(settings: ResNetSettings) -> dict[str, Any]:
    """Settings for a file; :func:`from_json` reads them."""
    return asdict(settings)


def from_json(content: dict[str, Any]) -> ResNetSettings:
    """Settings that :func:`as_json` wrote.

    Raises:
        UserError: they are those of something else
    """
    try:
        return ResNetSettings(**{name: _tuples(value) for name, value in content.items()})
    except TypeError as error:
        raise UserError(f"settings of no ResNet: {error}") from None


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _halved(pixels: int) -> int:
    """Height after a convolution or pooling of 3 x 3 with stride 2."""
    return (pixels + 1) // 2


def _pooled(x: Tensor) -> Tensor:
    """Means of 3 x 3 pixels at every other place; what is beyond the edge does not count."""
    return F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)


def near_multiple(channels: float, heads: int) -> int:
    """The multiple of heads that is nearest, at least one channel a head."""
    return max(heads, heads * round(channels / heads))


def attention_widths(
    widths: Sequence[int], heads: int, keys: float, values: float, least: int = 0
) -> tuple[Widths | None, ...]:
    """Keys and values for each of four stages, of which the first has none.

    Args:
        widths: channels of the stages
        heads: of attentions
        keys, values: parts of the channels
        least: channels of keys that each head has at least
    """
    return (
        None,
        *(
            (
                max(near_multiple(keys * width, heads), least * heads),
                near_multiple(values * width, heads),
            )
            for width in widths[1:]
        ),
    )
