"""The inputs for pretraining an encoder before the game, without an adversary."""

from dataclasses import dataclass

from fairveil._utils.randomness import Seeds
from fairveil.data.rows import Rows
from fairveil.objectives import Distortion, PredictionLoss
from fairveil.objectives.bounds import Bounds


@dataclass(frozen=True)
class WarmStart:
    """Rows and settings of a warm start.

    bounds: one row per member. steps, batch_size, final_rate: for pretraining; see `Training`.
    """

    train: Rows
    validation: Rows
    distortion: Distortion | PredictionLoss
    bounds: Bounds
    steps: int
    batch_size: int
    final_rate: float
    seeds: Seeds
    show_progress: bool = False
