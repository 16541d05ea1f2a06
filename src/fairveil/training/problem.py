"""The definition of a game: the players' objectives and the bounds."""

from dataclasses import dataclass

from fairveil.encoders import Architecture, Signature
from fairveil.objectives import Constraint, Distortion, Loss, PredictionLoss
from fairveil.objectives.bounds import Bounds
from fairveil.training.panel import Opponent
from fairveil.training.settings import Training


@dataclass(frozen=True)
class Target:
    """A target that adversaries predict.

    outputs: the number of outputs of an adversary. chance: the loss of the best guess that ignores the release. loss:
    of its adversaries, if not the game's.
    """

    outputs: int
    chance: float
    loss: Loss | None = None


@dataclass(frozen=True)
class Task:
    """A known task: the weight lambda of its loss, and the number of outputs of its predictor."""

    weight: float
    loss: Loss
    outputs: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The definition of a game: its players, objectives and bounds.

    targets: what adversaries predict, the joint value of S first. seeds: the seed number of each member; members with
    the same number start from the same weights. training: with every field set.
    given: the number of values of what adversaries know in addition to a release, 0 if they know nothing.
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
    given: int = 0

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The loss of the adversaries of each target."""
        return tuple(target.loss or self.loss for target in self.targets)

    @property
    def opponents(self) -> tuple[Opponent, ...]:
        """The adversaries: for each target of S, one of each configured network."""
        return tuple(
            Opponent(hidden, target.outputs, number)
            for number, target in enumerate(self.targets)
            for hidden in self.training.adversary_hidden
        )

    @property
    def members(self) -> int:
        """How many encoders are trained at once."""
        return len(self.seeds)
