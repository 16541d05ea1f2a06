"""fairveil: hide sensitive attributes in data with a randomized encoder under a hard distortion bound."""

__version__ = "0.1.0.dev0"

from typing import TYPE_CHECKING

from fairveil._utils.lazy import lazily

if TYPE_CHECKING:
    from fairveil import datasets, information, metrics, theory
    from fairveil._utils.errors import (
        BudgetNotMet,
        BudgetWarning,
        CertificateNotMet,
        ClippedWarning,
        CollapseWarning,
        DataNotFound,
        InputError,
        TrainingFailed,
        VeilFileError,
    )
    from fairveil.auditing import AuditResult, Certificate, certify
    from fairveil.auditing.audit import audit
    from fairveil.baselines import noise
    from fairveil.data.columns import Column
    from fairveil.data.schema import Schema
    from fairveil.encoders import (
        AffineTransport,
        Architecture,
        BalancedPartition,
        Custom,
        FeedForward,
        Gaussian,
        LatentCode,
        Matrix,
        NoisyAutoencoder,
        Partition,
        Transport,
        TransposedConv,
    )
    from fairveil.estimators import (
        FairClassifier,
        FairEncoder,
        FairFrontier,
        Quantiser,
        load,
    )
    from fairveil.matching import exchange
    from fairveil.objectives import AlphaLoss, AugmentedLagrangian, Penalty
    from fairveil.training import History, Training
    from fairveil.training.confidence_bound import Achieved

_ERRORS = [
    "BudgetNotMet",
    "BudgetWarning",
    "CertificateNotMet",
    "ClippedWarning",
    "CollapseWarning",
    "DataNotFound",
    "InputError",
    "TrainingFailed",
    "VeilFileError",
]

_ARCHITECTURES = [
    *("AffineTransport", "Architecture", "Custom", "FeedForward", "Gaussian", "LatentCode", "Matrix"),
    *("BalancedPartition", "NoisyAutoencoder", "Partition", "Transport", "TransposedConv"),
]

_PACKAGES = [
    *("auditing", "baselines", "datasets", "encoders", "estimators", "information"),
    *("metrics", "objectives", "theory", "training"),
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "_utils.errors": _ERRORS,
        "auditing": ["AuditResult", "Certificate", "audit", "certify"],
        "data.columns": ["Column"],
        "data.schema": ["Schema"],
        "encoders": _ARCHITECTURES,
        "estimators": ["FairClassifier", "FairEncoder", "FairFrontier", "Quantiser", "load"],
        "matching": ["exchange"],
        "objectives": ["AlphaLoss", "AugmentedLagrangian", "Penalty"],
        "training": ["History", "Training"],
        "training.confidence_bound": ["Achieved"],
    },
    modules={
        **{name: name for name in _PACKAGES},
        "noise": "baselines.noise",
    },
)

__all__ = [
    "Achieved",
    "AffineTransport",
    "AlphaLoss",
    "Architecture",
    "AuditResult",
    "AugmentedLagrangian",
    "BalancedPartition",
    "BudgetNotMet",
    "BudgetWarning",
    "Certificate",
    "CertificateNotMet",
    "ClippedWarning",
    "CollapseWarning",
    "Column",
    "Custom",
    "DataNotFound",
    "FairClassifier",
    "FairEncoder",
    "FairFrontier",
    "FeedForward",
    "Gaussian",
    "History",
    "InputError",
    "LatentCode",
    "Matrix",
    "NoisyAutoencoder",
    "Partition",
    "Penalty",
    "Quantiser",
    "Schema",
    "Training",
    "TrainingFailed",
    "Transport",
    "TransposedConv",
    "VeilFileError",
    "audit",
    "certify",
    "datasets",
    "exchange",
    "information",
    "load",
    "metrics",
    "noise",
    "theory",
]
