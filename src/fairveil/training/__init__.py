"""The constrained minimax game of `eq:generalopt`, played by Algorithm `alg:euclid` for all members at once."""

from fairveil.training.game import Outcome, play
from fairveil.training.history import History, Round
from fairveil.training.problem import Bounds, Problem, Rows, Task, Training, default_training, shortened

__all__ = [
    "Bounds",
    "History",
    "Outcome",
    "Problem",
    "Round",
    "Rows",
    "Task",
    "Training",
    "default_training",
    "play",
    "shortened",
]
