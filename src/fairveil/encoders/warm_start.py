"""The inputs for pretraining an encoder before the game, without an adversary."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fairveil._utils.randomness import Seeds
from fairveil.data.rows import Rows
from fairveil.objectives import Distortion, PredictionLoss
from fairveil.objectives.bounds import Bounds


@dataclass(frozen=True)
class WarmStart:
    """Rows and settings of a warm start.

    bounds: one row per member. steps, batch_size, final_rate: for pretraining; see `Training`. margin: how far inside
    its bounds the mean of validation rows should be so that held-out rows confirm it, as a function of the standard
    deviation of a row's distortion: (members, constraints) both. draws: how many draws of a row are averaged when its
    distortion is measured.
    """

    train: Rows
    validation: Rows
    distortion: Distortion | PredictionLoss
    bounds: Bounds
    steps: int
    batch_size: int
    final_rate: float
    margin: Callable[[Tensor], Tensor]
    draws: int
    seeds: Seeds
    show_progress: bool = False
