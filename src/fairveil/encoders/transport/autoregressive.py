"""An autoregressive distribution over records: each column is drawn given the previous ones.

Drawing columns independently produces records that nobody has (a young widower with three jobs), and if this happens
in one group only, it reveals the group. Here each column is drawn given the original row, S, and all columns drawn
before it, so that any joint distribution can be learned by maximum likelihood.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairveil.data.layout import Layout
from fairveil.encoders.heads import start_logit

#: Hidden units per column.
_UNITS = 64


class AutoregressiveColumns(nn.Module):
    """P(record | row, S) as a product over columns.

    A trunk takes the row and S; each column has a small hidden layer, which depends on the trunk and on the columns
    drawn before, and produces the column's logits. Kept columns are not drawn.
    """

    earlier: Tensor

    def __init__(self, layout: Layout, sensitive_width: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.slices = [slice(group.start, group.stop) for group in layout.groups]
        self.drawn = [group.column.role == "encode" for group in layout.groups]
        columns = len(layout.groups)
        sizes = [layout.group_width + sensitive_width, *hidden, columns * _UNITS]
        self.trunk = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.before = nn.Parameter(torch.zeros(layout.group_width, columns * _UNITS))
        self.out = nn.Parameter(torch.zeros(_UNITS, layout.group_width))
        self.bias = nn.Parameter(torch.zeros(layout.group_width))
        self.preference = nn.Parameter(torch.zeros(layout.group_width))
        of_slot = torch.tensor([i for i, group in enumerate(layout.groups) for _ in range(group.width)])
        of_unit = torch.arange(columns).repeat_interleave(_UNITS)
        self.register_buffer("earlier", (of_slot[:, None] < of_unit[None]).float(), persistent=False)
        self.start = [start_logit(group.width) for group in layout.groups]

    def initialise(self, generator: torch.Generator) -> None:
        """Close to the identity."""
        with torch.no_grad():
            for layer in self.trunk:
                assert isinstance(layer, nn.Linear)
                layer.weight.normal_(0.0, math.sqrt(2.0 / layer.in_features), generator=generator)
                layer.bias.zero_()
            self.before.normal_(0.0, 0.1, generator=generator)
            self.out.normal_(0.0, 0.1 / math.sqrt(_UNITS), generator=generator)
            self.bias.zero_()
            for inside, logit in zip(self.slices, self.start, strict=True):
                self.preference[inside] = logit

    def prepare(self, row: Tensor, sensitive: Tensor) -> Tensor:
        """The contribution of the row and S to every column's hidden layer: (rows, columns x units)."""
        x = torch.cat([row, sensitive], dim=-1)
        for layer in self.trunk[:-1]:
            x = F.leaky_relu(layer(x), 0.01)
        out: Tensor = self.trunk[-1](x)
        return out

    def logits(self, hidden: Tensor, column: int, row: Tensor) -> Tensor:
        """Logits of one column from its hidden pre-activations; the row's own value is preferred."""
        inside = self.slices[column]
        raw = torch.addmm(self.bias[inside], F.leaky_relu(hidden, 0.01), self.out[:, inside])
        return torch.addcmul(raw, self.preference[inside], row[:, inside])

    def nats(self, row: Tensor, sensitive: Tensor, record: Tensor, seen: Tensor | None = None) -> Tensor:
        """Minus the log-likelihood of each record given its row and S: (rows,).

        seen: the trunk's view of the row, if part of it is masked.
        """
        prepared = self.prepare(row if seen is None else seen, sensitive)
        hidden = torch.addmm(prepared, record, self.before * self.earlier)
        total = hidden.new_zeros(len(row))
        for column, inside in enumerate(self.slices):
            if self.drawn[column]:
                logits = self.logits(hidden[:, column * _UNITS : (column + 1) * _UNITS], column, row)
                total = total + F.cross_entropy(logits, record[:, inside].argmax(dim=1), reduction="none")
        return total

    @torch.no_grad()
    def draw(self, prepared: Tensor, row: Tensor, uniform: Tensor) -> Tensor:
        """Records as one-hot groups, from the result of `prepare` and one uniform number per row and column."""
        record = torch.zeros_like(row)
        for column, inside in enumerate(self.slices):
            if not self.drawn[column]:
                record[:, inside] = row[:, inside]
                continue
            units, earlier = slice(column * _UNITS, (column + 1) * _UNITS), slice(0, inside.start)
            # A product with one-hot columns: on a CPU faster than gathering, which moves far more memory.
            hidden = torch.addmm(prepared[:, units], record[:, earlier], self.before[earlier, units])
            chances = self.logits(hidden, column, row).softmax(dim=1).cumsum_(dim=1)
            chosen = torch.searchsorted(chances, uniform[:, column, None].contiguous(), right=True)
            # The last cumulative sum may be slightly below 1, with the uniform number in between.
            record[:, inside].scatter_(1, chosen.clamp_max_(chances.shape[1] - 1), 1.0)
        return record
