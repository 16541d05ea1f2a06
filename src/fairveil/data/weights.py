"""Sample weights as callers pass them."""

from typing import Any

import numpy as np

from fairveil._utils.errors import InputError
from fairveil._utils.weights import Array, check_weights
from fairveil.data.frames import is_frame, is_series, read_columns


def read_weights(given: Any, rows: int, what: str = "X") -> Array | None:
    """Read and check weights given as a column of any library or an array: (rows,); None if there are none."""
    if given is None:
        return None
    if not is_frame(given) and not is_series(given) and np.asarray(given).ndim == 0:
        raise InputError("sample_weight must be one number per row: 1D.")
    table = read_columns(given, "sample_weight")
    if table.num_columns != 1:
        raise InputError(f"sample_weight must be one number per row: 1D. It has {table.num_columns} columns.")
    return check_weights(table.column(0).to_numpy(), rows, what)
