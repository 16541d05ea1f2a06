"""scikit-learn estimators: the way most callers meet the game."""

from fairveil.estimators.classifier import FairClassifier
from fairveil.estimators.encoder import FairEncoder
from fairveil.estimators.frontier import FairFrontier
from fairveil.estimators.quantiser import Quantiser
from fairveil.estimators.saving import load

__all__ = ["FairClassifier", "FairEncoder", "FairFrontier", "Quantiser", "load"]
