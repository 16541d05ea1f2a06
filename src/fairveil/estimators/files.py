"""Fitted estimators as `.veil` files: a manifest, weights and a SHA-256. No code, no rows."""

from pathlib import Path
from typing import Any

import numpy as np

import fairveil
from fairveil.archive import read_archive, write_archive
from fairveil.bound import Achieved
from fairveil.errors import VeilFileError
from fairveil.estimators.classifier import FairClassifier
from fairveil.estimators.encoder import FairEncoder
from fairveil.estimators.plain import from_plain, plain_parameters
from fairveil.estimators.training import Trained
from fairveil.game import History
from fairveil.veil import Veil

_FORMATS: dict[str, type[FairEncoder] | type[FairClassifier]] = {
    "fairveil-veil-1": FairEncoder,
    "fairveil-classifier-1": FairClassifier,
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


def load(path: str | Path) -> Any:
    """Read a `.veil` file: a fitted `FairEncoder` or `FairClassifier`. Refuses one whose checksum does not fit."""
    manifest, weights = read_archive(path)
    kind = _FORMATS.get(str(manifest.get("format")))
    if kind is None:
        raise VeilFileError(f"{Path(path).name} is not a veil of this version of fairveil.")
    veil = Veil.from_parts(manifest, weights)
    try:
        parameters = {name: from_plain(value) for name, value in manifest["parameters"].items()}
        estimator = kind(**parameters, schema=veil.table_schema)
        history, features = History.from_dict(manifest["history"]), manifest["features"]
        if isinstance(estimator, FairClassifier):
            estimator.classes_ = np.asarray(manifest["classes"])
        bounded = "loss" if isinstance(estimator, FairClassifier) else "distortion"
        trained = Trained(veil, Achieved.from_dict(manifest[bounded]), history)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VeilFileError(
            f"{Path(path).name} has a manifest that cannot be read ({type(error).__name__})."
        ) from error
    estimator.n_features_in_ = len(veil.schema.columns) or veil.schema.layout.width
    if features:
        estimator.feature_names_in_ = np.asarray(features, dtype=object)
    return estimator._adopt(trained)
