"""The course of a game: one record per round and member."""

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from fairveil.data.schema import tupled


@dataclass(frozen=True)
class Round:
    """The evaluation of one member on validation rows.

    distortion: mean over validation rows, one number per constraint; bound: its upper limit. multiplier: the
    constraint's price of distortion. training_advantage: the gain of the strongest *training* adversary over guessing,
    in units of the loss; training_accuracy: the best accuracy of these adversaries on the joint value of S. They show
    the course of the game and are not a measure of leakage.
    """

    step: int
    member: int
    distortion: tuple[float, ...]
    bound: tuple[float, ...]
    multiplier: tuple[float, ...]
    training_advantage: float
    feasible: bool
    chosen: bool
    seconds: float
    training_accuracy: float | None = None


@dataclass(frozen=True)
class History:
    """All rounds of a game, in order.

    Examples
    --------
    >>> encoder.history_.to_frame().tail(1)  # doctest: +SKIP
    """

    rounds: tuple[Round, ...] = ()

    @property
    def advantage(self) -> float:
        """For one member: its training adversaries' gain over guessing when its encoder was chosen."""
        chosen = [r for r in self.rounds if r.chosen] or list(self.rounds)
        return chosen[-1].training_advantage if chosen else float("nan")

    def to_frame(self) -> pd.DataFrame:
        """One row per round and member."""
        return pd.DataFrame([asdict(r) for r in self.rounds])

    def of_member(self, member: int) -> "History":
        """The rounds of one member."""
        return History(tuple(r for r in self.rounds if r.member == member))

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"rounds": [asdict(r) for r in self.rounds]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "History":
        """Read what `to_dict` wrote."""
        return cls(tuple(Round(**tupled(row)) for row in values["rounds"]))
