"""The transport encoder: a row takes the values of a similar record of another group, all, some or none of them.

It has two parts. The mover proposes a record for each row: one that is close to the row and plausible in another group
(`AutoregressiveColumns`, pretrained on optimal matchings). A gate per member decides how much of it is released:
nothing, the columns that reveal S most for their cost, or all of it. The gates are trained in the game, each within its
member's budget.

Towards the population, two matched rows exchange values. If x of group s is as often released as y of group t as y is
released as x, then every column keeps its distribution, whatever the gates do. Two rules give this: a row of group s
stays with probability p_s, the share of its group, before the gate is asked; and the gate sees the pair, not which of
the two records is the row's own. With all gates open every group is released with the distribution of all rows.

Where S is a number, or not seen at release, groups are made of it, or of its score (`transport.groups`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fairveil._utils.errors import InputError, must_be
from fairveil._utils.randomness import RandomSource
from fairveil.data.layout import Layout
from fairveil.encoders.architecture import Architecture, Signature, check_sizes, check_weights
from fairveil.encoders.base import Encoder
from fairveil.encoders.heads import Noise, SampledHead, draw_noise
from fairveil.encoders.layers import BatchedLinear, BatchedMLP, initialise
from fairveil.encoders.transport.autoregressive import AutoregressiveColumns
from fairveil.encoders.transport.groups import make_groups
from fairveil.encoders.transport.warm_start import warm_start
from fairveil.encoders.warm_start import WarmStart
from fairveil.objectives import Distortion
from fairveil.objectives.released import ReleasedBatch

_TOWARD = "'population', 'cheapest', or the name of a group of S"
#: Default `Training` settings towards the population, on top of those of all targets. Towards one group, they
#: left an AUC slightly above the bar of a small problem with a known answer (`tests/test_transport.py`).
_OF_EXCHANGES: Mapping[str, Any] = {"steps": 800, "pretraining_steps": 800, "batch_size": 512}
#: Hidden layer of the gate.
_GATE = (64,)
#: Limit for the initial probability of a gate's choice.
_MOST_OPEN = 0.95
#: Logits of a gate are limited to this absolute value. Early in the game, against untrained adversaries, a gate moves
#: to one choice for all rows; without a limit it took hundreds of steps to recover.
_LIMIT = 3.0


@dataclass(frozen=True)
class Transport(Architecture):
    """Moves records between groups along optimal matchings: classes of S, ranges of a number, or, if the encoder sees
    X only, rows that suggest one class or the other.

    Parameters
    ----------
    toward : str
        The distribution that all groups are moved to. "population": that of all rows; rows of every group change, and
        columns keep their distributions. The name of a group of S (for several sensitive columns, the values joined by
        " & "): that of this group, whose rows stay unchanged. "cheapest": the group, or the population, that costs
        least. A target of one group costs less distortion, but who is unchanged or missing in a release reveals S.
    levels : int
        Number of nested sets of columns that a gate chooses from; the last is all of them.
    hidden : tuple of int
        Hidden layers of the network that proposes records.
    matchings : int
        How often all rows of the moving groups are matched.
    matched_rows : int
        Number of rows matched at a time.
    shared_weight : float
        Matchings keep rows close, and also each row's rank, within its group, by what the columns have in common: a
        task that nobody named is likely to depend on it. The weight is relative to closeness; 0: only closeness.
    task_weight : float
        With the estimator's `target_weight`, matchings keep each row's rank by a cross-fitted prediction of the known
        tasks instead. The weight is what the whole range of that rank costs, in units of the distortion.
    cells : int
        Number of groups where S is a number, or has several classes that the encoder does not see.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(1.5, architecture=fv.Transport(levels=3), sees_sensitive=True)
    """

    name: ClassVar[str] = "transport"
    hides_ranges: ClassVar[bool] = True
    #: The gates have few parameters and exact losses: one adversary step on fresh rows for each of their steps is
    #: enough. More steps on the same rows only make the adversary overfit. (Chosen on validation rows of UCI Adult,
    #: `benchmarks/ablation.py`.)
    training: ClassVar[Mapping[str, Any]] = {
        "adversary_steps": 1,
        "learning_rate": 6e-3,
        "adversary_learning_rate": 1e-2,
        "adversary_hidden": ((128, 128),),
        "adversary_decay": 0.3,
        "warm_up": 0.15,
        "spending": 0.02,
    }

    toward: str = "population"
    levels: int = 2
    hidden: tuple[int, ...] = (128, 128)
    matchings: int = 4
    matched_rows: int = 2500
    shared_weight: float = 4.0
    task_weight: float = 300.0
    cells: int = 8

    def __post_init__(self) -> None:
        if not isinstance(self.toward, str):
            raise InputError(must_be("Transport", "toward", f"{_TOWARD} as text", self.toward))
        check_sizes(self, levels=1, hidden=1, matchings=1, matched_rows=2, cells=2)
        check_weights(self, "shared_weight", "task_weight")

    def reference(self, signature: Signature) -> int | str | None:
        """What `couple` calls the reference: a class of S, None for all rows, or "cheapest"."""
        named = {"population": None, "cheapest": "cheapest"}
        return named[self.toward] if self.toward in named else signature.groups.index(self.toward)

    def defaults(self, layout: Layout) -> Mapping[str, Any]:
        """Towards the population every row moves, so a step costs more: a shorter game with smaller minibatches."""
        return {**self.training, **_OF_EXCHANGES} if self.toward == "population" else self.training

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """It needs an additive distortion, and bins for all numbers."""
        layout = signature.layout
        if layout.shape is not None:
            return "moves records of tables. Use 'feedforward' or 'noisy_autoencoder' for images."
        if self.toward not in ("population", "cheapest", *signature.groups):
            return f"has toward={self.toward!r}, which must be {_TOWARD}."
        if self.toward != "population" and not signature.sees_classes:
            return f"has toward={self.toward!r}, which needs sees_sensitive=True and a discrete S. Use 'population'."
        if not signature.sampled:
            return "releases complete records, so it needs release='sampled'."
        if layout.free:
            names = ", ".join(repr(layout.numbers[i].name) for i in layout.free)
            return f"draws numbers by bins, and {names} has none. Give it bins in the schema, or use 'feedforward'."
        if distortion is not None and not distortion.is_linear:
            return ("needs a distortion that adds up over columns and numbers with bins: 'auto', 'ranks', "
                    "'squared' or 'hamming'. Use 'feedforward' with others.")  # fmt: skip
        return None

    def build(self, signature: Signature, members: int) -> "TransportEncoder":
        """Mover and gates."""
        return TransportEncoder(self, signature, members)


class TransportEncoder(Encoder):
    """Releases the row with the columns of one level taken from the mover's record; the member's gate draws the level.

    For each row only a few complete records can be released, so every loss is averaged over the gate's draw exactly
    (`ReleasedBatch.atoms`). Numbers are always redrawn within their bins: a number with its original last digits would
    reveal that its row was not moved.
    """

    shared = "mover."
    learns_chances = True

    architecture: Transport

    def __init__(self, architecture: Transport, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members)
        self.mover = Mover(architecture, signature)
        self.exchanges = architecture.toward == "population"
        seen = self.layout.group_width if self.exchanges else 2 * self.layout.group_width
        seen += 2 * self.mover.groups.balanced
        self.gate = BatchedMLP(members, seen, _GATE, 1 + architecture.levels)
        self.head = SampledHead(self.layout)

    def noise(self, rows: int, source: RandomSource) -> Noise:
        """One uniform number per numeric column, per column to be drawn, and for the gate."""
        uniform = len(self.layout.numbers) + len(self.layout.groups) + 1
        return draw_noise(rows, 0, 0, 0, uniform, source)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The mover's computation before the draw, for the rows that may move; it is shared by all members."""
        return self.mover.propose(rows[:, self.layout.grouped], sensitive)

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Draw a record for each row that may move, then the level at which it is released."""
        parts = [len(self.layout.numbers), len(self.layout.groups), 1]
        of_numbers, of_columns, of_gate = torch.split(noise.uniform, parts, dim=1)
        row, moving = rows[:, self.layout.grouped], self.mover.moving(proposal)
        own = row.index_select(0, moving)
        record = self.mover.draw(proposal, own, of_columns.index_select(0, moving))
        asked = self.mover.asked(proposal)
        moves, pair = self.mover.groups.of_pair(asked, record)
        raw = self.gate(torch.cat([*self._pair(own, record), *pair], dim=1))
        opened = torch.softmax(_LIMIT * torch.tanh(raw / _LIMIT), dim=-1)
        opened = torch.cat([1.0 - moves * (1.0 - opened[..., :1]), moves * opened[..., 1:]], dim=-1)

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

    def _pair(self, own: Tensor, record: Tensor) -> tuple[Tensor, ...]:
        """What a gate sees of two records. Their sum is the same from both sides of a pair."""
        return (own + record,) if self.exchanges else (own, record)

    def whole(self, groups: Tensor, rows: Tensor, uniform: Tensor) -> Tensor:
        """One-hot groups with their numbers, drawn within the bins; kept numbers unchanged."""
        if not self.layout.numbers:
            return groups
        numbers = self.head.binned(groups.transpose(0, 1), uniform)
        return self.head.as_kept(torch.cat([groups, numbers], dim=1), rows)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """A fresh mover, and gates that treat all rows alike."""
        initialise(self.gate, generators, last_scale=0.1)  # first, so that a member's gate is the same alone
        self.mover.columns.initialise(generators[0])

    def warm_start(self, start: WarmStart) -> None:
        """Match the groups, train the mover on the pairs, and open the gates as far as each budget allows."""
        warm_start(self, start)

    def open_gates(self, chances: Tensor) -> None:
        """Initialise member i to open the gate of every row with probability about chances[i], for all its columns."""
        whole = chances.clamp(1.0 - _MOST_OPEN, _MOST_OPEN)
        part = torch.minimum(whole, 1.0 - whole) / (2 * self.architecture.levels)
        start = torch.stack([1.0 - whole, *[part] * (self.architecture.levels - 1), whole], dim=1).log()
        last = self.gate.layers[-1]
        assert isinstance(last, BatchedLinear)
        with torch.no_grad():
            last.bias.copy_(start.unsqueeze(1))


class Mover(nn.Module):
    """Proposes records; shared by all members, and fixed when the game begins.

    stays: (groups,), the probability with which a row of a group stays unchanged before its gate is asked; 1 for a
    group that is the target. levels: (levels, group width), 1 for the slots that a level takes from the record.
    """

    def __init__(self, architecture: Transport, signature: Signature) -> None:
        super().__init__()
        width = signature.layout.group_width
        self.groups = make_groups(signature, width, architecture.cells)
        self.columns = AutoregressiveColumns(signature.layout, self.groups.width, architecture.hidden)
        self.stays = nn.Parameter(torch.zeros(0 if self.groups.balanced else self.groups.width))
        self.levels = nn.Parameter(torch.ones(architecture.levels, width))

    @torch.no_grad()
    def propose(self, row: Tensor, sensitive: Tensor | None) -> Tensor:
        """The columns' hidden layers for each row that may move; then what determines the probability that its gate is
        asked, and the index of that row.

        A float represents integers up to 2 ** 24 exactly, far more rows than pass through a network at once.
        """
        shown = self.groups(row, sensitive)
        asked = self._asked(shown)
        moving = (asked != 0.0).nonzero()
        prepared = self.columns.prepare(*(part.index_select(0, moving[:, 0]) for part in (row, shown)))
        return torch.cat([prepared, asked[moving], moving], dim=1)

    def _asked(self, shown: Tensor) -> Tensor:
        return shown[:, -1] if self.groups.balanced else 1.0 - shown @ self.stays

    @torch.no_grad()
    def moves(self, row: Tensor, sensitive: Tensor | None, record: Tensor) -> Tensor:
        """The probability with which the gates of rows are asked, if these records are offered: (rows, 1)."""
        return self.groups.of_pair(self._asked(self.groups(row, sensitive)).unsqueeze(1), record)[0]

    @staticmethod
    def asked(proposal: Tensor) -> Tensor:
        """What determines the probability that the gate of each row is asked (`Groups.of_pair`): (rows, 1)."""
        return proposal[:, -2:-1]

    @staticmethod
    def moving(proposal: Tensor) -> Tensor:
        """The indices of a proposal's rows."""
        return proposal[:, -1].long()

    def draw(self, proposal: Tensor, own: Tensor, uniform: Tensor) -> Tensor:
        """One record for each row of a proposal, as one-hot groups. own: the original rows."""
        return self.columns.draw(proposal[:, :-2], own, uniform)

    def at(self, level: Tensor, record: Tensor, row: Tensor) -> Tensor:
        """The release of each row at its level: 0 is the row itself."""
        taken = torch.cat([torch.zeros_like(self.levels[:1]), self.levels]).index_select(0, level)
        return torch.where(taken > 0.5, record, row)
