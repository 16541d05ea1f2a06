"""Softmax and draws within groups of unequal width, for all groups and members at once.

Tensors here are slot-major, (..., slots, rows), with rows contiguous in memory: a group is then a few long contiguous
runs, and reducing over its slots is plain vector arithmetic. With (..., rows, slots) each reduction would run over a
handful of adjacent values (`benchmarks/frontier_speed.py ragged` compares the two).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class GroupSoftmax(Function):
    """Softmax over the slots of each group."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, widths: Sequence[int]) -> Tensor:
        """Probabilities, in the shape of `logits`."""
        out = _softmax(logits, widths)
        ctx.save_for_backward(out)
        ctx.widths = widths
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """p (g - sum of p g over the group)."""
        return _pull_back(gradients[0], ctx.saved_tensors[0], ctx.widths), None


class GroupDraw(Function):
    """One slot per group: the one with the largest perturbed logit (Gumbel-max trick), as a one-hot vector.

    The gradient is that of the softmax of the perturbed logits (straight-through, temperature 1).
    """

    @staticmethod
    def forward(ctx: Any, perturbed: Tensor, widths: Sequence[int]) -> Tensor:
        """Hard draws, in the shape of `perturbed`."""
        ctx.save_for_backward(perturbed)
        ctx.widths = widths
        hard = torch.empty_like(perturbed)
        for part, out in _groups(widths, perturbed, hard):
            torch.eq(part, part.amax(dim=-2, keepdim=True), out=out)
        drawn = perturbed.numel() // max(perturbed.shape[-2], 1) * len(widths)
        if int(torch.count_nonzero(hard)) != drawn:  # exact ties: the first one wins
            for part, out in _groups(widths, perturbed, hard):
                out.zero_().scatter_(-2, part.argmax(dim=-2, keepdim=True), 1.0)
        return hard

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient of the relaxed draw."""
        relaxed = _softmax(ctx.saved_tensors[0], ctx.widths)
        return _pull_back(gradients[0], relaxed, ctx.widths), None


def group_softmax(logits: Tensor, widths: Sequence[int]) -> Tensor:
    """Softmax over the slots of each group; the shape (..., slots, rows) is preserved."""
    out: Tensor = GroupSoftmax.apply(logits, widths)  # type: ignore[no-untyped-call]
    return out


def group_draw(perturbed: Tensor, widths: Sequence[int]) -> Tensor:
    """One-hot draws, one per group; the shape (..., slots, rows) is preserved."""
    out: Tensor = GroupDraw.apply(perturbed, widths)  # type: ignore[no-untyped-call]
    return out


def _softmax(logits: Tensor, widths: Sequence[int]) -> Tensor:
    result = torch.empty_like(logits)
    for part, out in _groups(widths, logits, result):
        torch.sub(part, part.amax(dim=-2, keepdim=True), out=out)
    result.exp_()
    for (out,) in _groups(widths, result):
        out.div_(out.sum(dim=-2, keepdim=True))
    return result


def _pull_back(gradient: Tensor, probabilities: Tensor, widths: Sequence[int]) -> Tensor:
    pulled = gradient * probabilities
    for p, out in _groups(widths, probabilities, pulled):
        out.addcmul_(p, out.sum(dim=-2, keepdim=True), value=-1.0)
    return pulled


def _groups(widths: Sequence[int], *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The slots of each group, from every tensor."""
    return zip(*(torch.split(tensor, list(widths), dim=-2) for tensor in tensors), strict=True)
