"""An attacker that uses combinations of two and three columns.

Every column, pair and triple of columns becomes a categorical feature with cross-fitted target encoding, and the
features that explain most of the target enter a linear model, or trees. The parity of three columns, which is
independent of any two of them, is one such feature; trees alone do not find it.
"""

import warnings
from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

Array = NDArray[np.float64]
Matrix = NDArray[np.float32]

#: Folds of the cross-fitting, and weight of the prior in each cell, in rows.
_FOLDS, _PRIOR_ROWS = 5, 10.0
#: Maximum number of classes of a column in triples, and of triples.
_COARSE, _MOST_TRIPLES = 8, 600
#: Maximum number of columns whose pairs are all tried, and of classes of a column in pairs.
_MOST_PAIRED, _MOST_CLASSES = 60, 64
#: Candidate numbers of combinations for the linear model, and the number for trees; chosen on validation rows.
_KEPT, _KEPT_BY_TREES = (1, 4, 24), 64


#: Makes a model of trees for a number of classes (None for numbers) and a seed.
Trees = Callable[[int | None, int], Any]


class Crosses:
    """A linear model, or trees, on cross-fitted target encodings of column combinations.

    trees: makes the model that also sees the columns themselves; None for the linear model alone.
    """

    def __init__(self, classes: int | None, seed: int, trees: Trees | None = None) -> None:
        self.classes, self.seed, self.trees = classes, seed, trees

    def fit(self, x: Matrix, y: Array, x_val: Matrix, y_val: Array, draws: int = 1) -> Self:
        """Rank the combinations, then fit the model with the lowest validation loss."""
        codes, held = x.astype(np.int64), x_val.astype(np.int64)
        self.sizes = np.maximum(codes.max(axis=0, initial=0), held.max(axis=0, initial=0)) + 1
        self.truth = self._indicators(y)
        self.prior = self.truth.mean(axis=0)
        # All draws of a row are in one fold and count as one row: they share its S.
        own, self.draws = len(y) // draws, 1
        fold = np.tile(np.random.default_rng(self.seed).integers(0, _FOLDS, own), draws)
        truth, self.truth = self.truth, self.truth[:own]
        scored = [(self._gain(codes[:own], subset, fold[:own]), subset) for subset in self._subsets()]
        self.truth, self.draws = truth, draws
        scored.sort(key=lambda pair: -pair[0])
        self.chosen = [subset for _, subset in scored[: _KEPT_BY_TREES if self.trees else max(_KEPT)]]
        self.tables = [self._table(codes, subset) for subset in self.chosen]
        made = [self._encoded(codes, subset, fold) for subset in self.chosen]
        ready = [table[self._cells(held, subset)] for subset, table in zip(self.chosen, self.tables, strict=True)]
        best: tuple[float, int, Any] = (np.inf, 0, None)
        for keep in _KEPT:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # scored like any other model
                model = self._model().fit(np.hstack(made[:keep]), y)
            loss = self._loss(self._answer(model, np.hstack(ready[:keep])), y_val)
            if best[2] is None or loss < best[0]:
                best = (loss, keep, model)
        if self.trees is not None:
            trees = self.trees(self.classes, self.seed)
            trees.fit(self._beside(x, made), y, self._beside(x_val, ready), y_val, draws)
            if self._loss(trees.predict(self._beside(x_val, ready)), y_val) < best[0]:
                best = (0.0, len(self.chosen), trees)
        _, self.keep, self.model = best
        return self

    def predict(self, x: Matrix) -> Array:
        """Predict from the combinations that were kept."""
        codes = np.minimum(x.astype(np.int64), self.sizes - 1)
        parts = [table[self._cells(codes, subset)]
                 for subset, table in zip(self.chosen[: self.keep], self.tables, strict=False)]  # fmt: skip
        if not hasattr(self.model, "coef_"):  # trees
            return np.asarray(self.model.predict(self._beside(x, parts)))
        return self._answer(self.model, np.hstack(parts))

    def _beside(self, x: Matrix, encodings: Sequence[Array]) -> Matrix:
        """The columns with the encodings; of two classes, one encoding is enough."""
        parts = [part[:, -1:] if self.classes == 2 else part for part in encodings]
        return np.hstack([x, *(part.astype(np.float32) for part in parts)])

    def _subsets(self) -> list[tuple[int, ...]]:
        columns = [column for column in range(len(self.sizes)) if self.sizes[column] > 1] or [0]
        paired = [column for column in columns if self.sizes[column] <= _MOST_CLASSES]
        paired = sorted(paired, key=lambda column: self.sizes[column])[:_MOST_PAIRED]
        few = paired
        while comb(len(few), 3) > _MOST_TRIPLES:
            few = few[:-1]
        return [*((column,) for column in columns), *combinations(paired, 2), *combinations(few, 3)]

    def _cells(self, codes: NDArray[np.int64], subset: Sequence[int]) -> NDArray[np.int64]:
        """The cell (combination of classes) of each row."""
        cell = np.zeros(len(codes), dtype=np.int64)
        for column in subset:
            size = self._levels(column, subset)
            cell = cell * size + np.minimum(codes[:, column], size - 1)
        return cell

    def _levels(self, column: int, subset: Sequence[int]) -> int:
        return int(min(self.sizes[column], _COARSE) if len(subset) == 3 else self.sizes[column])

    def _count(self, subset: Sequence[int]) -> int:
        return int(np.prod([self._levels(column, subset) for column in subset]))

    def _sums(self, cells: NDArray[np.int64], count: int) -> tuple[Array, Array]:
        """Number of rows per cell, (cells,), and sums of the target per cell, (cells, outputs)."""
        sums = [np.bincount(cells, column, minlength=count) for column in self.truth.T]
        return np.bincount(cells, minlength=count).astype(np.float64), np.stack(sums, axis=1)

    def _rates(self, rows: Array, sums: Array) -> Array:
        prior = _PRIOR_ROWS * self.draws
        return np.asarray((sums + prior * self.prior) / (rows + prior)[..., None])

    def _table(self, codes: NDArray[np.int64], subset: Sequence[int]) -> Array:
        """The target encoding of each cell from all training rows: (cells, outputs)."""
        return self._feature(self._rates(*self._sums(self._cells(codes, subset), self._count(subset))))

    def _cross_fitted(self, codes: NDArray[np.int64], subset: Sequence[int], fold: NDArray[np.int64]) -> Array:
        """Cross-fitted rates of each training row, from the other folds: (rows, outputs)."""
        count = self._count(subset)
        cells = self._cells(codes, subset)
        rows, sums = self._sums(cells + count * fold, count * _FOLDS)
        rows, sums = rows.reshape(_FOLDS, count), sums.reshape(_FOLDS, count, -1)
        rates = self._rates(rows.sum(axis=0) - rows, sums.sum(axis=0) - sums)
        return np.asarray(rates[fold, cells])

    def _gain(self, codes: NDArray[np.int64], subset: Sequence[int], fold: NDArray[np.int64]) -> float:
        """Cross-fitted log-likelihood in nats, or negative squared error."""
        rates = self._cross_fitted(codes, subset, fold)
        if self.classes is None:
            return -float(np.mean((self.truth - rates) ** 2))
        return float(np.sum(self.truth * np.log(rates)) / len(rates))

    def _encoded(self, codes: NDArray[np.int64], subset: Sequence[int], fold: NDArray[np.int64]) -> Array:
        return self._feature(self._cross_fitted(codes, subset, fold))

    def _feature(self, rates: Array) -> Array:
        """Log-ratios to the prior; means are unchanged."""
        return rates if self.classes is None else np.asarray(np.log(rates / self.prior))

    def _indicators(self, y: Array) -> Array:
        if self.classes is None:
            return np.asarray(((y - y.mean()) / (y.std() or 1.0))[:, None])
        shares = np.bincount(y.astype(np.int64), minlength=self.classes)
        truth = np.eye(self.classes)[y.astype(np.int64)]
        return truth + np.where(shares == 0, 1e-9, 0.0)  # avoids log 0 for a class without rows

    def _model(self) -> Any:
        from sklearn.linear_model import LogisticRegression, Ridge

        return Ridge(1.0) if self.classes is None else LogisticRegression(C=1.0, max_iter=200)

    def _answer(self, model: Any, features: Array) -> Array:
        if self.classes is None:
            return np.asarray(model.predict(features), dtype=np.float64)
        out = np.zeros((len(features), self.classes))
        out[:, model.classes_.astype(np.int64)] = model.predict_proba(features)
        return out

    def _loss(self, predicted: Array, truth: Array) -> float:
        if self.classes is None:
            return float(np.mean((predicted - truth) ** 2))
        return float(-np.mean(np.log(np.clip(predicted[np.arange(len(truth)), truth.astype(np.int64)], 1e-12, 1.0))))
