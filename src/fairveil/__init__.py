"""fairveil: hide sensitive attributes in data with a randomized encoder under a hard distortion bound."""

__version__ = "0.1.0.dev0"

from typing import TYPE_CHECKING

from fairveil.lazy import lazily

if TYPE_CHECKING:
    from fairveil import datasets, information, metrics, noise, theory
    from fairveil.auditing import AuditResult, Certificate, certify
    from fairveil.auditing.audit import audit
    from fairveil.bound import Achieved
    from fairveil.columns import Column
    from fairveil.errors import (
        BudgetNotMet,
        BudgetWarning,
        ClippedWarning,
        DataNotFound,
        InputError,
        TrainingFailed,
        VeilFileError,
    )
    from fairveil.estimators import (
        FairClassifier,
        FairClassifierFrontier,
        FairEncoder,
        FairFrontier,
        Quantiser,
        load,
    )
    from fairveil.game import History, Training
    from fairveil.objectives import AlphaLoss, AugmentedLagrangian, Penalty
    from fairveil.schema import Schema

__getattr__, __dir__ = lazily(
    __name__,
    {
        **dict.fromkeys(
            ("baselines", "datasets", "encoders", "information", "metrics", "noise", "pictures", "theory"), ()
        ),
        "auditing": ["AuditResult", "Certificate", "audit", "certify"],
        "bound": ["Achieved"],
        "columns": ["Column"],
        "errors": [
            "BudgetNotMet",
            "BudgetWarning",
            "ClippedWarning",
            "DataNotFound",
            "InputError",
            "TrainingFailed",
            "VeilFileError",
        ],
        "estimators": ["FairClassifier", "FairClassifierFrontier", "FairEncoder", "FairFrontier", "Quantiser", "load"],
        "game": ["History", "Training"],
        "objectives": ["AlphaLoss", "AugmentedLagrangian", "Penalty"],
        "schema": ["Schema"],
    },
)

__all__ = [
    "Achieved",
    "AlphaLoss",
    "AuditResult",
    "AugmentedLagrangian",
    "BudgetNotMet",
    "BudgetWarning",
    "Certificate",
    "ClippedWarning",
    "Column",
    "DataNotFound",
    "FairClassifier",
    "FairClassifierFrontier",
    "FairEncoder",
    "FairFrontier",
    "History",
    "InputError",
    "Penalty",
    "Quantiser",
    "Schema",
    "Training",
    "TrainingFailed",
    "VeilFileError",
    "audit",
    "certify",
    "datasets",
    "information",
    "load",
    "metrics",
    "noise",
    "theory",
]
