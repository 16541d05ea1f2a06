"""`Quantiser`: encodes any table in K cells, so that what is released afterwards can be certified."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from fairveil._utils.errors import InputError, must_be
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Codec
from fairveil.encoders.codebook import FEWEST_ROWS_OF_A_CELL, learn_cells, nearest_cell
from fairveil.estimators.base import TableTransformer
from fairveil.estimators.inputs import seed_from


class Quantiser(TableTransformer):
    """Releases each row as the nearest of at most `n_cells` valid representative records.

    For a release by another tool: quantise it, publish the quantised table, and certify that one:
    `fairveil.certify(quantiser.cells_of(released), sensitive, alphabet=quantiser.n_cells_, trained_on=..., rows=...)`.
    It hides nothing by itself.

    Parameters
    ----------
    n_cells : int
        Maximum number of records.
    min_rows_per_cell : int
        Minimum number of fitted rows per record: a record of few rows could identify a person.
    schema : Schema, optional
        Inferred from X when absent.
    random_state : int, numpy generator or None

    Attributes
    ----------
    representatives_ : array
        The records, encoded.
    n_cells_ : int
        The actual number of records.
    schema_ : Schema

    Examples
    --------
    >>> import numpy as np
    >>> import fairveil as fv
    >>> x = np.random.default_rng(0).normal(size=(400, 2))
    >>> len(np.unique(fv.Quantiser(n_cells=8, random_state=0).fit_transform(x), axis=0))
    8
    """

    def __init__(
        self,
        n_cells: int = 64,
        *,
        min_rows_per_cell: int = FEWEST_ROWS_OF_A_CELL,
        schema: Schema | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_cells = n_cells
        self.min_rows_per_cell = min_rows_per_cell
        self.schema = schema
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:
        """Learn the representatives; S and y are ignored."""
        for name, least in (("n_cells", 2), ("min_rows_per_cell", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise InputError(must_be("Quantiser", name, f"a whole number of at least {least}", value))
        table = self._read(X, reset=True)
        self.schema_: Schema = (self.schema or Schema.infer(table)).without_bins()
        rows = Codec(self.schema_).encode(table.arrow)
        seed, fewest = seed_from(self.random_state, "Quantiser"), int(self.min_rows_per_cell)
        self.representatives_ = learn_cells(rows, self.schema_, int(self.n_cells), seed, fewest).records.numpy()
        self.n_cells_ = len(self.representatives_)
        return self

    def cells_of(self, X: Any) -> np.ndarray:
        """The cell of each row, 0..n_cells_-1."""
        check_is_fitted(self, "representatives_")
        rows = Codec(self.schema_).encode(self._read(X, reset=False).arrow)
        return np.asarray(nearest_cell(rows, torch.from_numpy(self.representatives_), self.schema_.layout).numpy())

    def transform(self, X: Any, *, sensitive_features: Any = None) -> Any:
        """Every row as its cell's representative: the same kind of table, columns and types."""
        table = self._read(X, reset=False)
        released = torch.from_numpy(self.representatives_)[torch.from_numpy(self.cells_of(X))]
        return table.like_origin(Codec(self.schema_).decode(released), keep_types=True)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The columns of a release."""
        check_is_fitted(self, "representatives_")
        return np.asarray([column.name for column in self.schema_.seen], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        return tags
