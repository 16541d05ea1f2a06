"""The players' objectives: the adversary's loss, the distortion of a release, and the constraint that bounds it."""

from fairveil.objectives.constraint import AugmentedLagrangian, Constraint, ConstraintState, Penalty, make_constraint
from fairveil.objectives.distortion import Distortion, make_distortion
from fairveil.objectives.losses import AlphaLoss, LogLoss, Loss, Mistakes, SquaredLoss, ZeroOneLoss, make_loss
from fairveil.objectives.prediction import PredictionLoss, score_grid

__all__ = [
    "AlphaLoss",
    "AugmentedLagrangian",
    "Constraint",
    "ConstraintState",
    "Distortion",
    "LogLoss",
    "Loss",
    "Mistakes",
    "Penalty",
    "PredictionLoss",
    "SquaredLoss",
    "ZeroOneLoss",
    "make_constraint",
    "make_distortion",
    "make_loss",
    "score_grid",
]
