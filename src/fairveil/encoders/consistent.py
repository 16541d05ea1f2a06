"""Releases that respect dependencies between columns: the tensor form of `fairveil.data.dependencies`.

The codec enforces every dependency in the table that is written. Here it is enforced in the tensor, so that encoders
are trained on, and adversaries see, what will be written. A determined group is a linear map of the determining group,
for drawn slots and for probabilities alike.
"""

import torch
from torch import Tensor, nn

from fairveil.data.dependencies import Link
from fairveil.data.layout import Layout
from fairveil.objectives.released import ReleasedBatch


class Consistent(nn.Module):
    """Enforces the links of a layout on rows (..., rows, width), or on their groups alone (..., rows, group width)."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        # A number without bins determines others by intervals, which is not a linear map: that is left to the codec.
        self.links = [link for link in layout.links if link.source is not None]
        for i, link in enumerate(self.links):
            for name, matrix in _matrices(link).items():
                self.register_buffer(f"{name}{i}", matrix, persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows made consistent with all links. Large tensors are slot-major in memory, here as elsewhere."""
        if not self.links:
            return rows
        slots = rows.transpose(-1, -2)
        parts = {group.start: slots[..., group.start : group.stop, :] for group in self.layout.groups}
        numbers = [slots[..., i : i + 1, :] for i in range(self.layout.group_width, slots.shape[-2])]  # may be none
        for i, link in enumerate(self.links):
            self._follow(i, link, parts, numbers)
        return torch.cat([*parts.values(), *numbers], dim=-2).transpose(-1, -2)

    def _follow(self, i: int, link: Link, parts: dict[int, Tensor], numbers: list[Tensor]) -> None:
        assert link.source is not None
        source = parts[link.source[0]]
        with_numbers = len(numbers) == len(self.layout.numbers)
        if link.repeated and link.target is not None:
            target = parts[link.target[0]]
            # Source slots that agree with the target stay; if none does, the target's default source slot is used.
            agreeing = source * (getattr(self, f"to{i}").transpose(0, 1) @ target)
            lost = 1.0 - agreeing.sum(dim=-2, keepdim=True)
            parts[link.source[0]] = agreeing + lost * (getattr(self, f"back{i}") @ target)
            if link.source_number is not None and with_numbers:
                usual = getattr(self, f"usual{i}") @ target
                numbers[link.source_number] = torch.lerp(numbers[link.source_number], usual, lost)
            return
        if link.target is not None:
            parts[link.target[0]] = getattr(self, f"to{i}") @ source
        if link.number is not None and with_numbers:
            numbers[link.number] = getattr(self, f"number{i}") @ source

    def release(self, drawn: ReleasedBatch) -> ReleasedBatch:
        """The same release, with all its views consistent."""
        possible = None if drawn.possible is None else lambda: self(_atoms(drawn))
        return ReleasedBatch(
            lambda: self(drawn.values), lambda: self(drawn.probabilities), possible, drawn.weights, drawn.squares
        )


def _atoms(drawn: ReleasedBatch) -> Tensor:
    assert drawn.atoms is not None
    return drawn.atoms


def _matrices(link: Link) -> dict[str, Tensor]:
    """to: (target, source) slots. back: (source, target) slots. number: (1, source slots). usual: (1, target slots)."""
    assert link.source is not None
    out = {}
    width = link.source[1] - link.source[0]
    if link.target is not None:
        out["to"] = torch.zeros(link.target[1] - link.target[0], width)
        out["to"][list(link.slots), range(width)] = 1.0
        out["back"] = torch.zeros(width, len(link.defaults))
        out["back"][list(link.defaults), range(len(link.defaults))] = 1.0
        if link.source_number is not None:
            out["usual"] = torch.tensor([link.default_values], dtype=torch.float32)
    if link.number is not None:
        out["number"] = torch.tensor([link.values], dtype=torch.float32)
    return out
