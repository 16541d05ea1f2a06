"""Parameters of an estimator as plain values, for a file without code."""

import math
from collections.abc import Callable
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fairveil.encoders import ARCHITECTURES, Architecture, read_architecture
from fairveil.objectives import AlphaLoss, AugmentedLagrangian, LogLoss, Penalty, SquaredLoss, ZeroOneLoss
from fairveil.objectives.distortion import KINDS
from fairveil.training import Training

#: The stored name of a custom distortion function: it is code, so it is not stored itself.
CUSTOM = "custom"
#: Not stored, as they belong to the machine or to the run. (The schema is stored with the veil.)
_NOT_KEPT = ("schema", "verbose", "random_state")
_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Training, AlphaLoss, LogLoss, ZeroOneLoss, SquaredLoss, AugmentedLagrangian, Penalty)
}


def plain_parameters(estimator: BaseEstimator) -> dict[str, Any]:
    """Parameters as JSON values; functions are left out."""
    kept = {name: value for name, value in estimator.get_params(deep=False).items() if name not in _NOT_KEPT}
    if isinstance(kept.get("training"), Training):  # paths and devices are private
        kept["training"] = replace(kept["training"], device="auto", checkpoint=None)
    plain = {name: _to_plain(value) for name, value in kept.items() if is_dataclass(value) or not callable(value)}
    return {**plain, "distortion": CUSTOM} if callable(kept.get("distortion")) else plain


def checked_parameters(kind: type[BaseEstimator], values: dict[str, Any]) -> dict[str, Any]:
    """Read what `plain_parameters` wrote. Accepts only known parameters of valid type: the file may be crafted."""
    known = {name: _nested_tuples(value) if name == "hidden" else _from_plain(value) for name, value in values.items()}
    expected = set(kind._get_param_names()) - set(_NOT_KEPT)
    wrong = [name for name, value in known.items() if name not in expected or not _RIGHT[name](value)]
    if wrong:
        raise ValueError(f"{len(wrong)} parameters are unknown or of the wrong type")
    return known


def _from_plain(value: Any) -> Any:
    if not isinstance(value, dict) or "type" not in value:
        return value
    if value["type"] == "Architecture":
        return read_architecture({name: v for name, v in value.items() if name != "type"})
    fields = {name: math.inf if v == "inf" else _nested_tuples(v) for name, v in value.items() if name != "type"}
    return _KINDS[value["type"]](**fields)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_budget(value: Any) -> bool:
    if isinstance(value, dict):
        return set(value) <= set(KINDS) and all(map(_is_number, value.values()))
    return value is None or (_is_number(value) and value > 0)


def _is_columns(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(name, (str, int)) for name in value))


def _one_of(*allowed: Any) -> Callable[[Any], bool]:
    return lambda value: any(type(value) is type(right) and value == right for right in allowed)


def _named_or(*kinds: type) -> Callable[[Any], bool]:
    """A short name, or a value of one of these types."""
    return lambda value: isinstance(value, kinds) or (isinstance(value, str) and value.isidentifier())


_RIGHT: dict[str, Callable[[Any], bool]] = {
    "adversary_loss": _named_or(AlphaLoss, LogLoss, ZeroOneLoss, SquaredLoss),
    "architecture": lambda value: isinstance(value, Architecture) or value == "auto" or value in ARCHITECTURES,
    "balanced": _one_of(True, False),
    "budget": _is_budget,
    "certified": lambda value: value is None or (_is_number(value) and 0 < value < 1),
    "confidence": lambda value: _is_number(value) and 0.5 < value < 1,
    "constraint": _named_or(AugmentedLagrangian, Penalty),
    "distortion": _one_of("auto", "ranks", "squared", "hamming", "cross_entropy", CUSTOM),
    "fairness": _one_of("demographic_parity", "equalized_odds"),
    "handle_unknown": _one_of("error", "most_frequent"),
    "hidden": lambda value: isinstance(value, tuple) and all(type(units) is int for units in value),
    "loss": _named_or(AlphaLoss, LogLoss, ZeroOneLoss, SquaredLoss),
    "max_loss": lambda value: value is None or _is_number(value),
    "release": _one_of("sampled", "probabilities"),
    "sees_sensitive": _one_of(True, False),
    "sensitive_columns": _is_columns,
    "target_weight": lambda value: _is_number(value) and value >= 0,
    "training": lambda value: value is None or isinstance(value, Training),
    "unmet": _one_of("raise", "warn"),
}


def _to_plain(value: Any) -> Any:
    if isinstance(value, Architecture):
        return {"type": "Architecture", **_to_plain(value.to_dict())}
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
