"""Parameters of an estimator as plain values, for a file that holds no code."""

import math
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fairveil.game import Training
from fairveil.objectives import AlphaLoss, AugmentedLagrangian, LogLoss, Penalty, SquaredLoss, ZeroOneLoss

#: Not kept: what belongs to the machine or the run of the fit. (The schema is kept with the veil.)
_NOT_KEPT = ("schema", "checkpoint", "progress", "device", "random_state")
_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Training, AlphaLoss, LogLoss, ZeroOneLoss, SquaredLoss, AugmentedLagrangian, Penalty)
}


def plain_parameters(estimator: BaseEstimator) -> dict[str, Any]:
    """Parameters as JSON; a function of the caller's own is left out."""
    kept = {name: value for name, value in estimator.get_params(deep=False).items() if name not in _NOT_KEPT}
    return {name: _to_plain(value) for name, value in kept.items() if is_dataclass(value) or not callable(value)}


def from_plain(value: Any) -> Any:
    """Read what `plain_parameters` wrote for one parameter."""
    if not isinstance(value, dict) or "type" not in value:
        return value
    fields = {name: math.inf if v == "inf" else _nested_tuples(v) for name, v in value.items() if name != "type"}
    return _KINDS[value["type"]](**fields)


def _to_plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__, **_to_plain(asdict(value))}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, dict):
        return {name: _to_plain(v) for name, v in value.items()}
    return [_to_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _nested_tuples(value: Any) -> Any:
    return tuple(map(_nested_tuples, value)) if isinstance(value, list) else value
