"""Common to all estimators on tables: reading the caller's input with scikit-learn's checks."""

from typing import Any

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from fairveil._utils.errors import InputError
from fairveil.data.frames import Table, collected, is_frame, read_table


class TableEstimator(BaseEstimator):  # type: ignore[misc]
    """A randomized estimator that takes tables of mixed columns."""

    def _read(self, X: Any, *, reset: bool) -> Table:
        """X as a table, with scikit-learn's own checks of arrays, feature counts and feature names."""
        X = collected(X)
        if is_frame(X):
            table = read_table(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if not table.names:
                raise InputError("Found array with 0 feature(s) while a minimum of 1 is required: X has no columns.")
            if not len(table):
                raise InputError("Found array with 0 sample(s) while a minimum of 1 is required: X has no rows.")
            return table
        array = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        # An array passed to an estimator fitted on a frame is read by position, as in scikit-learn.
        return read_table(array, names=None if reset else getattr(self, "feature_names_in_", None))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


class TableTransformer(TransformerMixin, TableEstimator):  # type: ignore[misc]
    """A randomized transformer from tables to tables of the same kind."""
