"""The transport encoder: a row is moved towards where the reference group is, as a whole, in part, or not at all.

Two parts. The mover proposes a record for each row: one that the row can look like and that the reference group could
have (`ColumnsInTurn`, taught by optimal matchings before the game). A gate, one for each member, decides how much of it
is released: nothing, the columns that betray S most for what they cost, or all of it. The gate is what a budget buys,
and what the game is about.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fairveil._utils.errors import InputError
from fairveil._utils.randomness import RandomSource
from fairveil.data.schema import Layout
from fairveil.encoders.base import Encoder, EncoderSpec
from fairveil.encoders.heads import Noise, SampledHead, draw_noise
from fairveil.encoders.layers import BatchedLinear, BatchedMLP, initialise
from fairveil.encoders.transport.autoregressive import ColumnsInTurn
from fairveil.objectives.distortion import Release

#: Hidden layer of the gate.
_GATE = (64,)
#: A gate never starts more open, or more closed, than this.
_MOST_OPEN = 0.95
#: Logits of a gate stay within this of 0. Early in the game, against young adversaries, a gate runs to one choice for
#: all rows; without a limit it took hundreds of steps to come back.
_LIMIT = 3.0


class Transport(Encoder):
    """Releases the row with the columns of one level taken from the mover's record; the member's gate draws the level.

    All that can be released of a row are a few whole records, so every loss is averaged over the gate's draw exactly
    (`Release.atoms`). Rows of the reference class always stay. Numbers are drawn anew within their bins in any case: a
    number that kept its last digits would tell that its row was not moved.
    """

    shared = "mover."
    learns_chances = True

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        problem = why_no_transport(layout, spec)
        if problem:
            raise InputError(f"architecture='transport' {problem}")
        self.mover = Mover(layout, spec)
        self.gate = BatchedMLP(members, 2 * layout.group_width, _GATE, 1 + spec.levels)
        self.head = SampledHead(layout)

    def noise(self, rows: int, source: RandomSource) -> Noise:
        """A uniform number for each number of a row, each column to be drawn, and the gate."""
        uniform = len(self.layout.numbers) + len(self.layout.groups) + 1
        return draw_noise(rows, 0, 0, 0, uniform, source)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """What the mover makes of the rows that may move, before it draws. No member has a part in it."""
        assert sensitive is not None
        return self.mover.propose(rows[:, self.layout.grouped], sensitive)

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> Release:
        """Draw a record for each row that may move, then how much of it is released. No gate looks at the others."""
        parts = [len(self.layout.numbers), len(self.layout.groups), 1]
        of_numbers, of_columns, of_gate = torch.split(noise.uniform, parts, dim=1)
        row, moving = rows[:, self.layout.grouped], self.mover.moving(proposal)
        own = row.index_select(0, moving)
        record = self.mover.draw(proposal, own, of_columns.index_select(0, moving))
        raw = self.gate(torch.cat([own, record], dim=1))
        opened = torch.softmax(_LIMIT * torch.tanh(raw / _LIMIT), dim=-1)

        def placed(moved: Tensor) -> Tensor:
            return row.index_copy(0, moving, moved)

        def choices() -> list[Tensor]:
            return [row, *(placed(torch.where(level > 0.5, record, own)) for level in self.mover.levels)]

        def drawn() -> Tensor:
            level = (opened.detach().cumsum(dim=-1)[..., :-1] <= of_gate.index_select(0, moving)).sum(dim=-1)
            taken = (placed(self.mover.at(chosen, record, own)) for chosen in level)
            released = [self.whole(groups, rows, of_numbers) for groups in taken]
            return torch.stack(released) if len(released) > 1 else released[0].unsqueeze(0)  # one needs no copy

        def chances() -> Tensor:
            return torch.einsum("arg,mra->mrg", torch.stack(choices()), weights)

        def atoms() -> Tensor:
            return torch.stack([self.whole(groups, rows, of_numbers) for groups in choices()])

        closed = torch.eye(1, 1 + self.spec.levels, dtype=opened.dtype, device=opened.device)
        weights = closed.expand(len(opened), len(rows), -1).index_copy(1, moving, opened)
        return Release(drawn, chances, atoms, weights)

    def whole(self, groups: Tensor, rows: Tensor, uniform: Tensor) -> Tensor:
        """One-hot groups with their numbers, drawn within the bins; kept numbers as they are."""
        if not self.layout.numbers:
            return groups
        numbers = self.head.binned(groups.transpose(0, 1), uniform)
        return self.head.as_kept(torch.cat([groups, numbers], dim=1), rows)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """A fresh mover, and gates to which all rows are alike."""
        self.mover.columns.initialise(generators[0])
        initialise(self.gate, generators, last_scale=0.1)

    def open_gates(self, chances: Tensor) -> None:
        """Let member i start by moving a row as a whole with about the chance chances[i], whatever the row."""
        whole = chances.clamp(1.0 - _MOST_OPEN, _MOST_OPEN)
        part = torch.minimum(whole, 1.0 - whole) / (2 * self.spec.levels)
        start = torch.stack([1.0 - whole, *[part] * (self.spec.levels - 1), whole], dim=1).log()
        last = self.gate.layers[-1]
        assert isinstance(last, BatchedLinear)
        with torch.no_grad():
            last.bias.copy_(start.unsqueeze(1))


class Mover(nn.Module):
    """Proposes records; the same for all members, and fixed when the game begins.

    stays: (classes of S,), 1 for the reference class, whose rows stay as they are. levels: (levels, group
    width), 1 for the slots that a level takes from the record.
    """

    def __init__(self, layout: Layout, spec: EncoderSpec) -> None:
        super().__init__()
        self.columns = ColumnsInTurn(layout, spec.sensitive_width, spec.hidden)
        self.stays = nn.Parameter(torch.zeros(spec.sensitive_width))
        self.levels = nn.Parameter(torch.ones(spec.levels, layout.group_width))

    @torch.no_grad()
    def propose(self, row: Tensor, sensitive: Tensor) -> Tensor:
        """The columns' hidden layers for each row that may move; in the last place where that row stands.

        A float tells whole numbers apart up to 2 ** 24, far more rows than go through a network at once.
        """
        moving = (sensitive @ self.stays <= 0.5).nonzero()
        shown = (part.index_select(0, moving[:, 0]) for part in (row, sensitive))
        return torch.cat([self.columns.prepare(*shown), moving], dim=1)

    @staticmethod
    def moving(proposal: Tensor) -> Tensor:
        """Where the rows of a proposal stand."""
        return proposal[:, -1].long()

    def draw(self, proposal: Tensor, own: Tensor, uniform: Tensor) -> Tensor:
        """One record for each row of a proposal, as one-hot groups. own: these rows as they are."""
        return self.columns.draw(proposal[:, :-1], own, uniform)

    def at(self, level: Tensor, record: Tensor, row: Tensor) -> Tensor:
        """What each row releases at its level: 0 is the row itself."""
        taken = torch.cat([torch.zeros_like(self.levels[:1]), self.levels]).index_select(0, level)
        return torch.where(taken > 0.5, record, row)


def why_no_transport(layout: Layout, spec: EncoderSpec) -> str | None:
    """Why rows of this table cannot be moved, and what to do; None if they can."""
    if spec.sensitive_width == 0 or not spec.sensitive_discrete:
        return "moves each group of S in its own way, so it needs sees_sensitive=True and an S of classes."
    if spec.release != "sampled":
        return "releases whole records, so it needs release='sampled'."
    if layout.free:
        names = ", ".join(repr(layout.numbers[i].name) for i in layout.free)
        return f"draws numbers by bins, and {names} has none. Give it bins in the schema, or use 'feedforward'."
    return None
