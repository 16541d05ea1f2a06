"""The transport encoder: a row is moved towards where the reference group is, as a whole, in part, or not at all.

Two parts. The mover proposes a record for each row: one that the row can look like and that the reference group could
have (`AutoregressiveColumns`, taught by optimal matchings before the game). A gate, one for each member, decides how
much of it is released: nothing, the columns that betray S most for what they cost, or all of it. The gate is what a
budget buys, and what the game is about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fairveil._utils.randomness import RandomSource
from fairveil.encoders.architecture import Architecture, Signature, check_sizes
from fairveil.encoders.base import Encoder
from fairveil.encoders.heads import Noise, SampledHead, draw_noise
from fairveil.encoders.layers import BatchedLinear, BatchedMLP, initialise
from fairveil.encoders.transport.autoregressive import AutoregressiveColumns
from fairveil.encoders.transport.warm_start import warm_start
from fairveil.encoders.warm_start import WarmStart
from fairveil.objectives import Distortion
from fairveil.objectives.released import ReleasedBatch

#: Hidden layer of the gate.
_GATE = (64,)
#: A gate never starts more open, or more closed, than this.
_MOST_OPEN = 0.95
#: Logits of a gate stay within this of 0. Early in the game, against young adversaries, a gate runs to one choice for
#: all rows; without a limit it took hundreds of steps to come back.
_LIMIT = 3.0


@dataclass(frozen=True)
class Transport(Architecture):
    """Moves records towards one group of S along optimal matchings: the best choice where two large groups are seen.

    Parameters
    ----------
    levels : int
        How many nested sets of columns a gate chooses from; the last is all of them.
    hidden : tuple of int
        Hidden layers of the network that proposes records.
    matchings : int
        How often all rows are matched with the reference group.
    matched_rows : int
        Rows that are matched at a time.
    """

    name: ClassVar[str] = "transport"
    #: The gates have little to learn, and exact losses to learn it from: one adversary step on fresh rows for each of
    #: theirs. More steps on the same rows only make the adversary overfit them. (Chosen on validation rows of UCI
    #: Adult, `benchmarks/ablation.py`.)
    training: ClassVar[Mapping[str, Any]] = {
        "adversary_steps": 1,
        "learning_rate": 6e-3,
        "adversary_learning_rate": 1e-2,
        "adversary_hidden": ((128, 128),),
        "adversary_decay": 0.3,
        "warm_up": 0.15,
        "spending": 0.02,
    }

    levels: int = 3
    hidden: tuple[int, ...] = (128, 128)
    matchings: int = 8
    matched_rows: int = 1000

    def __post_init__(self) -> None:
        check_sizes(self, levels=1, hidden=1, matchings=1, matched_rows=2)

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """It moves groups that it sees, by a distortion that adds up, between bins."""
        layout = signature.layout
        if layout.shape is not None:
            return "moves records of tables. Use 'feedforward' or 'noisy_autoencoder' for images."
        if not signature.sees_classes:
            return "moves each group of S in its own way, so it needs sees_sensitive=True and an S of classes."
        if not signature.sampled:
            return "releases whole records, so it needs release='sampled'."
        if layout.free:
            names = ", ".join(repr(layout.numbers[i].name) for i in layout.free)
            return f"draws numbers by bins, and {names} has none. Give it bins in the schema, or use 'feedforward'."
        if distortion is not None and not distortion.is_linear:
            return ("needs a distortion that adds up over columns and numbers with bins: 'auto', 'hamming' or "
                    "'squared'. Use 'feedforward' with others.")  # fmt: skip
        return None

    def build(self, signature: Signature, members: int) -> "TransportEncoder":
        """Mover and gates."""
        return TransportEncoder(self, signature, members)


class TransportEncoder(Encoder):
    """Releases the row with the columns of one level taken from the mover's record; the member's gate draws the level.

    All that can be released of a row are a few whole records, so every loss is averaged over the gate's draw exactly
    (`ReleasedBatch.atoms`). Rows of the reference class always stay. Numbers are drawn anew within their bins in any
    case: a number that kept its last digits would tell that its row was not moved.
    """

    shared = "mover."
    learns_chances = True

    architecture: Transport

    def __init__(self, architecture: Transport, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members)
        self.mover = Mover(architecture, signature)
        self.gate = BatchedMLP(members, 2 * self.layout.group_width, _GATE, 1 + architecture.levels)
        self.head = SampledHead(self.layout)

    def noise(self, rows: int, source: RandomSource) -> Noise:
        """A uniform number for each number of a row, each column to be drawn, and the gate."""
        uniform = len(self.layout.numbers) + len(self.layout.groups) + 1
        return draw_noise(rows, 0, 0, 0, uniform, source)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """What the mover makes of the rows that may move, before it draws. No member has a part in it."""
        assert sensitive is not None
        return self.mover.propose(rows[:, self.layout.grouped], sensitive)

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
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

        closed = torch.eye(1, 1 + self.architecture.levels, dtype=opened.dtype, device=opened.device)
        weights = closed.expand(len(opened), len(rows), -1).index_copy(1, moving, opened)
        return ReleasedBatch(drawn, chances, atoms, weights)

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

    def warm_start(self, start: WarmStart) -> None:
        """Match the groups, let the mover learn from the pairs, and open the gates as far as each budget allows."""
        warm_start(self, start)

    def open_gates(self, chances: Tensor) -> None:
        """Let member i start by moving a row as a whole with about the chance chances[i], whatever the row."""
        whole = chances.clamp(1.0 - _MOST_OPEN, _MOST_OPEN)
        part = torch.minimum(whole, 1.0 - whole) / (2 * self.architecture.levels)
        start = torch.stack([1.0 - whole, *[part] * (self.architecture.levels - 1), whole], dim=1).log()
        last = self.gate.layers[-1]
        assert isinstance(last, BatchedLinear)
        with torch.no_grad():
            last.bias.copy_(start.unsqueeze(1))


class Mover(nn.Module):
    """Proposes records; the same for all members, and fixed when the game begins.

    stays: (classes of S,), 1 for the reference class, whose rows stay as they are. levels: (levels, group
    width), 1 for the slots that a level takes from the record.
    """

    def __init__(self, architecture: Transport, signature: Signature) -> None:
        super().__init__()
        self.columns = AutoregressiveColumns(signature.layout, signature.sensitive_width, architecture.hidden)
        self.stays = nn.Parameter(torch.zeros(signature.sensitive_width))
        self.levels = nn.Parameter(torch.ones(architecture.levels, signature.layout.group_width))

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
