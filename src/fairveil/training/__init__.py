"""The constrained minimax game of `eq:generalopt`, played by Algorithm `alg:euclid` for all members at once."""

from fairveil.training.history import History, Round
from fairveil.training.play import Outcome, play, play_together
from fairveil.training.problem import Problem, Target, Task
from fairveil.training.settings import Training

__all__ = ["History", "Outcome", "Problem", "Round", "Target", "Task", "Training", "play", "play_together"]
