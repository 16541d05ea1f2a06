"""The constrained minimax game of `eq:generalopt`, played by Algorithm `alg:euclid` for all members at once."""

from fairveil.game.history import History, Round
from fairveil.game.loop import Outcome, play
from fairveil.game.problem import Bounds, Problem, Rows, Task, Training, default_training, shortened

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
