"""Which rows attackers learn from: rows that the encoder was fitted on, or new ones.

An encoder with room to overfit hides S better in the rows it was fitted on than in new rows. An attacker that learns
from fitted rows then learns too little, and an audit that uses them reports too little leakage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._utils.errors import InputError
from fairveil.auditing.inputs import Target, check_parts
from fairveil.auditing.protocol import Parts, Positions, learning_parts, split_rows
from fairveil.data.frames import read_columns

NEW, FITTED, NOT_STATED = "new rows", "rows the encoder was fitted on", "not stated"
#: With fewer new rows attackers learn from fitted rows: they would learn too little from so few.
FEWEST_NEW = 1000


@dataclass(frozen=True)
class Division:
    """How the rows of an audit are used.

    parts: of the headline figures. fitted: for attackers that learn from fitted rows instead, with the same test rows;
    None if there are none. learned_from: NEW, FITTED or NOT_STATED. new_rows: how many there are; None if not stated.
    """

    parts: Parts
    fitted: Parts | None
    learned_from: str
    new_rows: int | None = None

    @property
    def rows(self) -> Positions:
        """All rows in use, sorted."""
        return self.parts.rows if self.fitted is None else np.union1d(self.parts.rows, self.fitted.rows)

    def weighted(self, weights: NDArray[np.float64] | None) -> "Division":
        """The same division with these weights."""
        fitted = None if self.fitted is None else self.fitted.weighted(weights)
        return replace(self, parts=self.parts.weighted(weights), fitted=fitted)

    def among(self, rows: Positions) -> "Division":
        """The same division, as positions within these rows."""
        fitted = None if self.fitted is None else self.fitted.among(rows)
        return replace(self, parts=self.parts.among(rows), fitted=fitted)


def read_encoder_rows(given: Any, rows: int) -> NDArray[np.bool_] | None:
    """A boolean for each row: whether the encoder was fitted on it. None if not given."""
    if given is None:
        return None
    table = read_columns(given, "encoder_rows")
    column = table.column(0)
    values = column.to_numpy(zero_copy_only=False)
    if table.num_columns != 1 or len(values) != rows or column.null_count or values.dtype != np.bool_:
        raise InputError(
            f"encoder_rows must be a boolean for each of the {rows} released rows: true where the encoder was fitted "
            "on the row (encoder.fitted_rows_, in the order of the release)."
        )
    return np.asarray(values)


def divide(
    fitted: NDArray[np.bool_] | None,
    split: Any,
    hidden: Sequence[Target],
    rows: int,
    most: int,
    seed: int,
    people: NDArray[np.int64] | None,
) -> Division:
    """Split the rows into parts: among new rows if they are known and there are enough of them.

    A caller's `split` is kept as it is. hidden: all sensitive columns; each group needs rows in every part. The rows of
    a person count as fitted if one of them is.
    """
    strata = hidden[0].values if hidden[0].classes is not None else None
    usual = split_rows(split, strata, rows, most, seed, people)
    if fitted is None:
        return Division(usual, None, NOT_STATED)
    if people is not None:
        fitted = np.isin(people, people[fitted])
    new = np.flatnonzero(~fitted)
    learning = np.concatenate([usual.train, usual.validation])
    if split is not None or len(new) == rows:
        return Division(usual, None, FITTED if fitted[learning].any() else NEW, len(new))
    if len(new) >= FEWEST_NEW:
        parts = _within(new, strata, most, seed, people)
        if parts is not None and not _problems(hidden, parts):
            return Division(
                parts, _fitted_parts(np.flatnonzero(fitted), parts, hidden, strata, most, seed), NEW, len(new)
            )
    return Division(usual, None, FITTED, len(new))


def _within(
    chosen: Positions, strata: NDArray[np.float64] | None, most: int, seed: int, people: NDArray[np.int64] | None
) -> Parts | None:
    """A random split of these rows; None if a group has too few rows for a split."""
    try:
        own = split_rows(None, None if strata is None else strata[chosen], len(chosen), most, seed,
                         None if people is None else people[chosen])  # fmt: skip
    except ValueError:  # scikit-learn's, for a group of one row
        return None
    return Parts(chosen[own.train], chosen[own.validation], chosen[own.test], people=people)


def _fitted_parts(
    fitted: Positions, parts: Parts, hidden: Sequence[Target], strata: NDArray[np.float64] | None, most: int, seed: int
) -> Parts | None:
    """Training and validation rows among the fitted ones, with the test rows of `parts`."""
    if len(fitted) < FEWEST_NEW:
        return None
    train, validation = learning_parts(fitted, strata, most, seed)
    made = Parts(train, validation, parts.test, people=parts.people)
    return None if _problems(hidden, made) else made


def _problems(hidden: Sequence[Target], parts: Parts) -> bool:
    return any(check_parts(target, parts.within(target.rows).named()) for target in hidden)
