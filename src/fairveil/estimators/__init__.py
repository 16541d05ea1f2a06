"""scikit-learn estimators: the main interface."""

from fairveil.estimators.classifier import FairClassifier
from fairveil.estimators.encoder import FairEncoder
from fairveil.estimators.frontier import FairFrontier
from fairveil.estimators.quantiser import Quantiser
from fairveil.estimators.saving import load

__all__ = ["FairClassifier", "FairEncoder", "FairFrontier", "Quantiser", "load"]
