"""What a method is given, and what it returns."""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Rows:
    """Rows of a table. X: columns to release. S: sensitive columns, as text. y: the named task, 0 or 1.

    Rows that a method is applied to have no y, and no S unless the method declares that it sees S: what is withheld
    cannot be used by mistake.
    """

    X: pd.DataFrame
    S: pd.DataFrame | None
    y: np.ndarray | None

    def __len__(self) -> int:
        return len(self.X)

    @property
    def group(self) -> np.ndarray:
        """The joint value of all sensitive columns, as text."""
        assert self.S is not None
        first, *others = (self.S[name].astype(str).to_numpy(dtype=object) for name in self.S)
        for other in others:
            first = first + " & " + other
        return first.astype(str)

    @property
    def truth(self) -> np.ndarray:
        """The named task of rows that have one."""
        assert self.y is not None
        return self.y

    def withheld(self, *, sees: bool) -> "Rows":
        """The same rows as a method may see them when it is applied."""
        return replace(self, S=self.S if sees else None, y=None)


@dataclass(frozen=True)
class Output:
    """What a method makes of rows: a table, predictions of the named task, or both."""

    table: pd.DataFrame | None = None
    predicted: np.ndarray | None = None


@dataclass(frozen=True)
class Fitted:
    """A method fitted at one value of its trade-off. certified: its upper bound on ΔDemP of any predictor, if any."""

    setting: str
    apply: Callable[[Rows], Output]
    certified: float | None = None


@dataclass(frozen=True)
class Method:
    """A method of the comparison.

    fit(train, seed) yields one `Fitted` per value of its trade-off. told: learns from the labels of the named task.
    sees: is given S when it is applied. two: handles two groups of S only. ours: part of this package. needs: packages
    it imports. source: the paper or package.
    """

    name: str
    fit: Callable[[Rows, int], Iterator[Fitted]]
    source: str
    told: bool = False
    sees: bool = False
    two: bool = False
    ours: bool = False
    needs: tuple[str, ...] = ()

    def problem(self, groups: int) -> str | None:
        """Why the method cannot run here, if it cannot."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if absent:
            return f"not installed: {', '.join(absent)} (extra `field`)"
        return f"for two groups only, not {groups}" if self.two and groups != 2 else None


def vectors(values: Any, prefix: str = "z") -> Output:
    """A release of vectors: (rows, width), to six decimals.

    In columns that should be constant, rounding errors are linear functions of the row; scaled up, they would tell S.
    """
    array = np.asarray(values, dtype=np.float64).round(6) + 0.0
    return Output(pd.DataFrame(array, columns=[f"{prefix}{i}" for i in range(array.shape[1])]))
