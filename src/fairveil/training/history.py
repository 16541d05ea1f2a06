"""What happened during a game, one typed record a round and member."""

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from fairveil.data.schema import tupled


@dataclass(frozen=True)
class Round:
    """One member judged on the validation rows.

    distortion: mean over validation rows, one number a constraint; bound: what it must not exceed.
    multiplier: the constraint's price of distortion. training_advantage: what the strongest *training* adversary
    gains over guessing, in units of the loss; training_accuracy: how often the best of them names the joint value of S.
    They show how the game went and are not a measure of leakage.
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
    """All rounds of a game, in order."""

    rounds: tuple[Round, ...] = ()

    @property
    def advantage(self) -> float:
        """Of one member: what its training adversaries gained over guessing when its encoder was chosen."""
        chosen = [r for r in self.rounds if r.chosen] or list(self.rounds)
        return chosen[-1].training_advantage if chosen else float("nan")

    def to_frame(self) -> pd.DataFrame:
        """One row a round and member."""
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
