"""The target of a classifier, checked: class indices and the classes."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from fairveil._utils.errors import InputError
from fairveil.data.frames import missing_mask, read_columns

#: Limited because adversaries for equalized odds have one input per pair of a soft prediction and a class.
_MOST_CLASSES = 25


def read_target(y: Any, rows: int) -> tuple[Tensor, NDArray[Any]]:
    """Class indices of y, and the classes."""
    if y is None:
        raise InputError("This estimator requires y to be passed, but the target y is None.")
    if not hasattr(y, "__array__") and not isinstance(y, (list, tuple)):
        y = np.asarray(read_columns(y, "y").column(0))
    values = np.asarray(y)
    if values.dtype.kind in "US" and isinstance(y, (list, tuple)):
        values = np.asarray(y, dtype=object)  # otherwise a missing value would become a text label
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn("A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=4)
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"y must be one column of labels. Got shape {values.shape}.")
    if len(values) != rows:
        raise InputError(f"X has {rows} rows, y {len(values)}. They must have the same length.")
    if missing_mask(read_columns(pd.Series(values), "y").column(0)).any():
        raise InputError("y has missing values (NaN or None). Drop those rows: Input y contains NaN.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError("y holds infinity. Drop those rows: Input y contains infinity.")
    if values.dtype.kind in "mM":
        raise InputError("y holds dates, which are not classes. Convert it to text.")
    check_classification_targets(values)
    classes, codes = np.unique(values, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"y holds {len(classes)} class; a classifier needs two classes or more.")
    if len(classes) > _MOST_CLASSES:
        raise InputError(f"y holds {len(classes)} classes; up to {_MOST_CLASSES} can be predicted. Group rare ones.")
    return torch.from_numpy(codes.astype(np.int64)), classes
