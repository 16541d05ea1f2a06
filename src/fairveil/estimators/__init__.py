"""scikit-learn estimators: the way most callers meet the game."""

from fairveil.estimators.encoder import FairEncoder, load
from fairveil.estimators.frontier import FairFrontier
from fairveil.estimators.quantiser import Quantiser

__all__ = ["FairEncoder", "FairFrontier", "Quantiser", "load"]
