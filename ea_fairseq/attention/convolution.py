"""Convolutions over attention maps, one class per kind of attention.

Source: "Evolving Attention with Residual Convolutions" (arXiv 2102.12895), sections 3.3 and 3.5:
the maps of all heads are the channels of one image. A map's rows are target positions (queries),
its columns source positions (keys). The paper draws the target on the horizontal axis, so its
"shift right" of the encoder-decoder convolution is a move along the rows here.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .contract import State, zero_hidden

#: Sizes of a kernel: odd, so that it has a middle.
KERNEL_SIZES = (1, 3, 5, 7, 9)


class MapConvolution(nn.Conv2d):
    """relu(conv(image)), moved so that it reads permitted positions only.

    With p = (kernel_size - 1) / 2, pixel (t, s) of the result reads rows t - move[0] - p to
    t - move[0] + p and the columns likewise with move[1]. Rows and columns vacated by the move are
    0; so are hidden pixels, before and after the move.

    Args:
        num_heads: channels of the image, in and out
        kernel_size: odd
        module: what makes the weights, in the place of one parameter for each: a module with
            ``kernel()``, (heads, heads, kernel_size, kernel_size), and ``bias``, (heads,). What
            this convolution may not read of the kernel is cut off here

    Parameters have PyTorch's default initialisation of ``nn.Conv2d``.

    Raises:
        UserError: the module's kernel or bias has another shape; ``kernel_size`` is even
    """

    # Whether the kernel is cut to its diagonal and below, and moved along (target, source) by p.
    lower_triangular = False
    moves_target = False
    moves_source = False

    def __init__(self, num_heads: int, kernel_size: int, module: nn.Module | None = None):
        if kernel_size % 2 == 0:
            raise UserError(f"kernel_size must be odd, not {kernel_size}")
        super().__init__(num_heads, num_heads, kernel_size)
        self.reach = (kernel_size - 1) // 2  # p
        self.move = (self.reach * self.moves_target, self.reach * self.moves_source)
        self.module = module
        if module is not None:
            self.weight = self.bias = None
            _check_made(module, num_heads, kernel_size)

    def all_weights(self) -> Tensor:
        """The weights, those that are not in use included."""
        return self.weight if self.module is None else self.module.kernel()

    def kernel(self) -> Tensor:
        """The weights in use, (heads, heads, kernel_size, kernel_size)."""
        weights = self.all_weights()
        return torch.tril(weights) if self.lower_triangular else weights

    def offsets(self) -> Tensor:
        """What is added before the ReLU, the bias: (heads,)."""
        return self.bias if self.module is None else self.module.bias

    def forward(self, image: Tensor, visible: Tensor | None) -> Tensor:
        """Convolves whole maps.

        Args:
            image: (batch, heads, tgt_len, src_len), 0 in hidden entries
            visible: bool, broadcastable to (batch, 1, tgt_len, src_len), or None

        Returns:
            the convolution's term of the map, same shape as ``image``
        """
        p, (down, right) = self.reach, self.move
        if image.size(-2) <= down or image.size(-1) <= right:
            # The parameters stay in the graph, with gradients of 0: torch's DDP waits for them.
            nothing = 0 * (self.all_weights().sum() + self.offsets().sum())
            return torch.zeros_like(image) + nothing.to(image.dtype)
        # Without bottom and right padding, rows and columns that the move would push out of the
        # map are never computed.
        padded = F.pad(image, (p, p - right, p, p - down))
        kernel, bias = self.kernel().to(image.dtype), self.offsets().to(image.dtype)
        term = convolve(padded, kernel, bias).relu()
        term = F.pad(term, (right, 0, down, 0))
        if visible is not None:
            term = zero_hidden(term, visible & _moved(visible, down, right))
        return term

    def step(self, row: Tensor, visible: Tensor | None, state: State) -> tuple[Tensor, State]:
        """One new row of :meth:`forward`, for convolutions that read no later rows.

        Each row is convolved once, with all rows of the kernel. What it adds to the rows to come is
        kept: state["pending"][:, j] is the sum so far, before bias, of the row j + 1 steps ahead.

        Args:
            row: (batch, heads, 1, src_len), 0 in hidden entries
            visible: bool, broadcastable to (batch, 1, 1, src_len), or None
            state: empty before the first row, then as returned
                pending: (batch, 2 p, heads, columns), columns = src_len, or src_len + 2 p where
                    the map grows by a key with every row
                rows_visible: bool, (batch, p), whether each of the last p rows was visible

        Returns:
            the term's row (batch, heads, 1, src_len) and the new state
        """
        assert self.moves_target, "only a convolution over earlier rows can go row by row"
        for hook in self._forward_pre_hooks.values():  # of pruning, say, which makes the weights
            hook(self, (row,))
        p, right = self.reach, self.move[1]
        bsz, heads, _, src_len = row.shape
        k = 2 * p + 1
        # Kernel row i of this map row belongs to the row 2p - i steps ahead: i = 2p is this one's.
        kernel = (
            self.kernel().to(row.dtype).flip(2).permute(2, 0, 1, 3).reshape(k * heads, heads, 1, k)
        )
        ahead = 2 * right  # columns that later rows have and this one lacks
        added = convolve(F.pad(row, (p + right, p - right + ahead)), kernel)
        added = added.view(bsz, k, heads, src_len + ahead)
        if state:
            pending, rows_visible = state["pending"], state["rows_visible"]
            sums = added + F.pad(
                pending, (0, added.size(-1) - pending.size(-1), 0, 0, 0, k - pending.size(1))
            )
        else:
            sums = added
            rows_visible = torch.zeros(bsz, p, dtype=torch.bool, device=row.device)
        term = sums[:, :1, :, right:src_len].transpose(1, 2)
        term = (term + self.offsets().to(row.dtype).view(-1, 1, 1)).relu()
        term = F.pad(term, (src_len - term.size(-1), 0))

        row_visible = _row_visible(visible, bsz, row.device)
        rows_visible = torch.cat([rows_visible, row_visible], dim=1)
        keep = rows_visible[:, :1, None, None]  # the row that the move puts here
        if visible is not None:
            keep = keep & visible & _moved(visible, 0, right)
        return zero_hidden(term, keep), {
            "pending": sums[:, 1:],
            "rows_visible": rows_visible[:, 1:],
        }


class EncoderConvolution(MapConvolution):
    """Encoder self-attention: the whole kernel, "same" padding, no move (section 3.3)."""


class DecoderConvolution(MapConvolution):
    """Decoder self-attention: the kernel's diagonal and below, moved p down and p right.

    Pixel (t, s) reads the lower-left triangle of rows t - 2p..t and columns s - 2p..s, none of them
    in the future of t (section 3.5).
    """

    lower_triangular = True
    moves_target = True
    moves_source = True


class EncoderDecoderConvolution(MapConvolution):
    """Encoder-decoder attention: the whole kernel over earlier target positions.

    Pixel (t, s) reads rows t - 2p..t and columns s - p..s + p (section 3.5).
    """

    moves_target = True


MAP_CONVOLUTIONS: dict[str, type[MapConvolution]] = {
    "encoder": EncoderConvolution,
    "decoder": DecoderConvolution,
    "encoder-decoder": EncoderDecoderConvolution,
}


def _check_made(module: nn.Module, num_heads: int, kernel_size: int) -> None:
    """Raises UserError where what a module makes is not the kernel and bias of such an image."""
    name = type(module).__name__
    for what, shape in (
        ("kernel()", (num_heads,) * 2 + (kernel_size,) * 2),
        ("bias", (num_heads,)),
    ):
        made = getattr(module, what.removesuffix("()"), None)
        made = made() if what == "kernel()" and callable(made) else made
        if not isinstance(made, Tensor) or tuple(made.shape) != shape:
            found = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise UserError(f"convolution {name}: its {what} must be a tensor {shape}, not {found}")


def convolve(image: Tensor, kernel: Tensor, bias: Tensor | None = None, groups: int = 1) -> Tensor:
    """``F.conv2d`` in the image's own precision, which automatic mixed precision would halve."""
    if image.device.type == "cpu":
        image = image.contiguous(memory_format=torch.channels_last)  # twice as fast
    with torch.autocast(image.device.type, enabled=False):
        return F.conv2d(image, kernel, bias, groups=groups)


def _moved(visible: Tensor, down: int, right: int) -> Tensor:
    """``visible`` moved down and right; what is vacated is False.

    A dimension of size 1 stands for equal rows or columns and stays as it is: what the move
    vacates there, the caller sets to 0 by itself.
    """
    rows, columns = visible.shape[-2:]
    # Cut after the move, not before: a map may be smaller than the move.
    if down and rows > 1:
        visible = F.pad(visible, (0, 0, down, 0))[..., :rows, :]
    if right and columns > 1:
        visible = F.pad(visible, (right, 0))[..., :columns]
    return visible


def _row_visible(visible: Tensor | None, bsz: int, device: torch.device) -> Tensor:
    """Whether the one row has any visible key: bool, (batch, 1)."""
    if visible is None:
        return torch.ones(bsz, 1, dtype=torch.bool, device=device)
    return visible.any(dim=-1).view(-1, 1).expand(bsz, 1)
