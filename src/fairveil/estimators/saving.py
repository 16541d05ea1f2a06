"""Fitted estimators as `.veil` files: a manifest, weights and a SHA-256. No code, no rows."""

from pathlib import Path
from typing import Any

import numpy as np

import fairveil
from fairveil._utils.errors import VeilFileError
from fairveil.encoders import ClassifierHead
from fairveil.estimators.classifier import FairClassifier
from fairveil.estimators.encoder import FairEncoder
from fairveil.estimators.parameters import CUSTOM, checked_parameters, plain_parameters
from fairveil.estimators.training import Trained
from fairveil.objectives import make_distortion
from fairveil.training import History
from fairveil.training.confidence_bound import Achieved
from fairveil.veil import Veil
from fairveil.veil.archive import read_archive, write_archive

_FORMATS: dict[str, type[FairEncoder] | type[FairClassifier]] = {
    "fairveil-veil-4": FairEncoder,
    "fairveil-classifier-4": FairClassifier,
}


def save(estimator: FairEncoder | FairClassifier, path: str | Path) -> None:
    """Write a fitted estimator."""
    manifest, weights = estimator.veil_.to_parts()
    manifest |= {
        "format": next(name for name, kind in _FORMATS.items() if isinstance(estimator, kind)),
        "version": fairveil.__version__,
        "history": estimator.history_.to_dict(),
        "parameters": plain_parameters(estimator),
        "features": list(map(str, getattr(estimator, "feature_names_in_", ()))),
    }
    if isinstance(estimator, FairClassifier):
        manifest |= {"loss": estimator.loss_.to_dict(), "classes": estimator.classes_.tolist()}
    else:
        manifest["distortion"] = estimator.distortion_.to_dict()
    write_archive(path, manifest, weights)


def load(path: str | Path | bytes) -> Any:
    """Read a `.veil` file, or its content: a fitted `FairEncoder` or `FairClassifier`.

    Rejects a file with a wrong checksum, and one whose parts contradict each other. The file may come from anybody: a
    signature (`fairveil sign`) shows its origin.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.load("sex.veil")  # doctest: +SKIP
    >>> released = encoder.transform(X, sensitive_features=S)  # doctest: +SKIP
    """
    name = "The veil" if isinstance(path, bytes) else Path(path).name
    manifest, weights = read_archive(path)
    kind = _FORMATS.get(str(manifest.get("format")))
    if kind is None:
        raise VeilFileError(f"{name} is not a veil of this version of fairveil. Fit it again with this version.")
    veil = Veil.from_parts(manifest, weights)
    try:
        parameters = checked_parameters(kind, manifest["parameters"])
        estimator = kind(**parameters, schema=veil.table_schema)
        history, features = History.from_dict(manifest["history"]), _texts(manifest["features"])
        if isinstance(estimator, FairClassifier):
            estimator.classes_ = _classes(manifest["classes"], veil)
        elif not _agree(estimator, veil):
            raise ValueError("its parameters contradict its encoder")
        bounded = "loss" if isinstance(estimator, FairClassifier) else "distortion"
        achieved = Achieved.from_dict(manifest[bounded])
        if isinstance(estimator, FairEncoder) and achieved.measure != _measure(estimator, veil):
            raise ValueError("its distortion is measured in another unit than its parameters say")
        trained = Trained(veil, achieved, history)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise VeilFileError(f"{name} has a manifest that cannot be read ({type(error).__name__}).") from None
    estimator.n_features_in_ = len(veil.schema.columns) or veil.schema.layout.width
    if features:
        estimator.feature_names_in_ = np.asarray(features, dtype=object)
    return estimator._adopt(trained)


def _measure(estimator: FairEncoder, veil: Veil) -> str:
    """The measure of distortion that an encoder's parameters imply."""
    if estimator.distortion == CUSTOM or callable(estimator.distortion):
        return CUSTOM
    return make_distortion(estimator.distortion, veil.schema.layout, estimator.release).measure


def _agree(estimator: FairEncoder, veil: Veil) -> bool:
    """Whether the encoder of a veil agrees with the parameters of its estimator."""
    signature = veil.encoder.signature
    seen = estimator.sees_sensitive == veil.sees_sensitive and estimator.release == signature.release
    return seen and veil.encoder.architecture.selectable


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("feature names must be strings")
    return values


def _classes(values: Any, veil: Veil) -> np.ndarray:
    architecture = veil.encoder.architecture
    plain = isinstance(values, list) and all(isinstance(value, (str, int, float, bool)) for value in values)
    if not plain or not isinstance(architecture, ClassifierHead) or len(values) != len(architecture.scores[0]):
        raise TypeError("classes must be plain values, one for each score")
    return np.asarray(values)
