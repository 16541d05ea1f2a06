"""What a release did to each column: how many cells changed, and how its distribution moved."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil.data.frames import Table, missing_mask
from fairveil.data.kinds import is_class
from fairveil.data.types import from_numbers
from fairveil.metrics import share

#: Values and ranges of fewer rows, before or after, are not listed: pages are shared.
_FEWEST = 10
#: Values listed per column; the others count as one.
_MOST_LISTED = 8
OTHERS, MISSING = "(others)", "(missing)"


def compare_columns(before: Table, after: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Each column of a release against the same column of the original rows, in the same order.

    The first frame has one row per column: `kind`, `changed` (the share of cells with another value) with its interval,
    and `drift`, the total variation between the column's distributions before and after, over the listed values: 0 is
    none, 1 is everything. The second frame has these distributions: `column`, `value`, `before`, `after`.
    """
    columns, marginals = [], []
    for name in after.names:
        if name not in before.names:
            continue
        first, second = before.arrow[name], after.arrow[name]
        kind, codes = _coded(first, second, before.types.get(name))
        if codes is None:
            continue
        labels, old, new = codes
        shares = pd.DataFrame({"column": name, "value": labels, "before": old, "after": new})
        moved = share(_differs(first, second))
        columns.append({"column": name, "kind": kind, "changed": moved.value, "changed_low": moved.low,
                        "changed_high": moved.high, "drift": 0.5 * float(np.abs(old - new).sum())})  # fmt: skip
        marginals.append(shares)
    empty = pd.DataFrame(columns=["column", "value", "before", "after"])
    return pd.DataFrame(columns), pd.concat(marginals, ignore_index=True) if marginals else empty


_Shares = tuple[list[str], NDArray[np.float64], NDArray[np.float64]]


def _coded(first: pa.ChunkedArray, second: pa.ChunkedArray, type_: pa.DataType | None) -> tuple[str, _Shares | None]:
    """The kind of a column, and the shares of its values or ranges before and after; None if it cannot be compared."""
    numeric = [pa.types.is_integer(c.type) or pa.types.is_floating(c.type) for c in (first, second)]
    if type_ is None and is_class(first):
        return "category", _shares_of_values(_texts(first), _texts(second))
    if all(numeric):
        return "number", _shares_of_ranges(first, second, type_)
    return "text", _shares_of_values(_texts(first), _texts(second))


def _shares_of_values(first: NDArray[Any], second: NDArray[Any]) -> _Shares:
    counts = [pd.Series(values).value_counts() for values in (first, second)]
    enough = counts[0][counts[0] >= _FEWEST].index
    listed = [value for value in enough if value != MISSING][:_MOST_LISTED]
    labels = [str(value) for value in listed]
    old, new = ([float(count.get(value, 0)) for value in listed] for count in counts)
    return _with_rest(labels, old, new, len(first), len(second))


def _shares_of_ranges(first: pa.ChunkedArray, second: pa.ChunkedArray, type_: pa.DataType | None) -> _Shares:
    old, new = (_numbers(column) for column in (first, second))
    present = old[~np.isnan(old)]
    if not len(present):
        return [], np.empty(0), np.empty(0)
    spread = np.unique(np.quantile(present, np.linspace(0, 1, 7)[1:-1]))
    edges = np.unique([_rounded(edge, float(np.std(present))) for edge in spread])
    bins = len(edges) + 1
    told = [_told(edge, type_) for edge in edges]
    middle = [f"from {a}" for a in told[:-1]] if type_ else [f"{a} to {b}" for a, b in pairwise(told)]
    labels = [f"below {told[0]}", *middle, f"from {told[-1]}"]
    counts = [np.bincount(np.searchsorted(edges, v[~np.isnan(v)], side="right"), minlength=bins) for v in (old, new)]
    shown = [i for i in range(bins) if counts[0][i] >= _FEWEST]
    return _with_rest([labels[i] for i in shown], [float(counts[0][i]) for i in shown],
                      [float(counts[1][i]) for i in shown], len(old), len(new))  # fmt: skip


def _with_rest(labels: list[str], old: list[float], new: list[float], rows: int, released: int) -> _Shares:
    """Shares, with one more entry for all other values."""
    rest = [rows - sum(old), released - sum(new)]
    if max(rest) > 0:
        labels, old, new = [*labels, OTHERS], [*old, rest[0]], [*new, rest[1]]
    return labels, np.asarray(old) / rows, np.asarray(new) / released


def _rounded(value: float, spread: float) -> float:
    """An end of a range, rounded to a hundredth of the spread: exact quantiles are values of single rows."""
    step = 10.0 ** np.floor(np.log10(spread / 20)) if spread > 0 else 1.0
    return float(np.round(value / step) * step)


def _told(edge: float, type_: pa.DataType | None) -> str:
    if type_ is None:
        return f"{round(edge, 10):g}"
    return str(from_numbers(pa.chunked_array([[float(round(edge))]]), type_)[0].as_py())


def _texts(column: pa.ChunkedArray) -> NDArray[Any]:
    texts = pc.cast(column, pa.string()).to_pandas().to_numpy(dtype=object)
    texts[missing_mask(column)] = MISSING
    return np.asarray(texts)


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _differs(first: pa.ChunkedArray, second: pa.ChunkedArray) -> NDArray[np.bool_]:
    if pa.types.is_floating(first.type) or pa.types.is_floating(second.type):
        old, new = (_numbers(column) for column in (first, second))
        return np.asarray((old != new) & ~(np.isnan(old) & np.isnan(new)))
    return np.asarray(_texts(first) != _texts(second))
