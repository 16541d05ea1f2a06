"""What a game is about: the players' aims and the bounds they keep."""

from dataclasses import dataclass

from fairveil.encoders import Architecture, Signature
from fairveil.objectives import Constraint, Distortion, Loss, PredictionLoss
from fairveil.objectives.bounds import Bounds
from fairveil.training.panel import Opponent
from fairveil.training.settings import Training


@dataclass(frozen=True)
class Target:
    """What adversaries guess.

    outputs: that an adversary needs. chance: the loss of the best guess that ignores the release.
    """

    outputs: int
    chance: float


@dataclass(frozen=True)
class Task:
    """A known task: the weight lambda of its loss, and the outputs its predictor needs."""

    weight: float
    loss: Loss
    outputs: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The game itself: who plays, for what, under which bounds.

    targets: of adversaries, the joint value of S first. seeds: for each member the number of its seed; members of one
    seed start from the same weights. training: with every field set.
    """

    architecture: Architecture
    signature: Signature
    loss: Loss
    distortion: Distortion | PredictionLoss
    constraint: Constraint
    bounds: Bounds
    targets: tuple[Target, ...]
    seeds: tuple[int, ...]
    training: Training
    tasks: tuple[Task, ...] = ()

    @property
    def opponents(self) -> tuple[Opponent, ...]:
        """The adversaries: for each target of S one of each shape."""
        return tuple(
            Opponent(hidden, target.outputs, number)
            for number, target in enumerate(self.targets)
            for hidden in self.training.adversary_hidden
        )

    @property
    def members(self) -> int:
        """How many encoders train at once."""
        return len(self.seeds)
