"""Read the caller's table as an arrow table, and return results in the caller's type.

pandas, polars and pyarrow tables and two-dimensional arrays are all converted to a `pyarrow.Table`, so the rest of the
code does not depend on the caller's library.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil._utils.errors import InputError
from fairveil.data.types import from_numbers, stands_for_number, to_numbers


def is_frame(data: object) -> bool:
    """Whether data is a table with named columns (pandas, polars or pyarrow)."""
    return (
        nw.dependencies.is_pandas_dataframe(data)
        or nw.dependencies.is_polars_dataframe(data)
        or nw.dependencies.is_pyarrow_table(data)
    )


def collected(data: Any) -> Any:
    """A lazy polars frame, collected; anything else unchanged."""
    return data.collect() if nw.dependencies.is_polars_lazyframe(data) else data


def is_series(data: object) -> bool:
    """Whether data is one column of a pandas, polars or pyarrow table."""
    return (
        nw.dependencies.is_pandas_series(data)
        or nw.dependencies.is_polars_series(data)
        or isinstance(data, (pa.Array, pa.ChunkedArray))
    )


@dataclass(frozen=True)
class Table:
    """An arrow table, and what is needed to return a result in the caller's type.

    arrow: the rows, in plain types: text, booleans, numbers. coded: columns that the caller's library stores as
    categories, whatever their values. types: the original types of columns whose dates, times or decimals were
    converted to numbers.
    """

    arrow: pa.Table
    origin: Any
    coded: frozenset[str] = frozenset()
    types: Mapping[str, pa.DataType] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.arrow.column_names)

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    @property
    def content(self) -> pa.Table:
        """The rows."""
        return self.arrow

    def select(self, names: Sequence[str]) -> pa.Table:
        """Some of the columns."""
        return self.arrow.select(list(names))

    def take(self, rows: NDArray[np.int64]) -> "Table":
        """Some of the rows, for fitting: `like_origin` works only on all of them."""
        return replace(self, arrow=self.arrow.take(pa.array(rows)))

    def without(self, name: str) -> "Table":
        """The other columns; all of them if there is none of that name."""
        kept = [column for column in self.names if column != name]
        return replace(self, arrow=self.arrow.select(kept))

    def equals(self, other: object) -> bool:
        """Whether another table holds the same rows in the same columns."""
        return isinstance(other, Table) and bool(self.arrow.equals(other.arrow))

    def digest(self) -> bytes:
        """A hash of all values."""
        return table_digest(self.arrow)

    def like_origin(self, released: pa.Table, *, keep_types: bool = True) -> Any:
        """Return `released` in the caller's type: library, index and, with `keep_types`, each column's type."""
        if keep_types:
            released = pa.table({
                name: from_numbers(released[name], self.types[name]) if name in self.types else released[name]
                for name in released.column_names
            })  # fmt: skip
        if nw.dependencies.is_pandas_dataframe(self.origin):
            return _to_pandas(released, self.origin, keep_types)
        if nw.dependencies.is_polars_dataframe(self.origin):
            return _to_polars(released, self.origin, keep_types)
        if nw.dependencies.is_pyarrow_table(self.origin):
            return _to_arrow(released, self.origin, keep_types)
        return _to_numpy(released, self.origin, keep_types)


def table_digest(table: pa.Table) -> bytes:
    """A hash of all values of an arrow table, and of their types."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).digest()


def read_table(data: Any, names: Sequence[str] | None = None) -> Table:
    """Read a pandas, polars or pyarrow table or a two-dimensional array; list every problem at once.

    names: the column names of an array; x0, x1, ... by default.
    """
    data = collected(data)
    if is_frame(data):
        return _read_frame(data)
    return _read_array(np.asarray(data), names)


def read_columns(data: Any, default: str) -> pa.Table:
    """Read one or several separate columns (a series, list, array or frame), such as the sensitive features."""
    data = collected(data)
    if is_frame(data):
        return read_table(data).arrow
    if is_series(data):
        name = getattr(data, "name", None)
        name = name if isinstance(name, str) and name else default
        column = _converted(data)
        if column is None:
            raise InputError(_mixed(name))
        return pa.table({name: column})
    array = np.asarray(data)
    if array.ndim == 1:
        return pa.table({default: plain_column(_array_to_arrow(array, default))})
    if array.ndim == 2:
        columns = (plain_column(_array_to_arrow(array[:, i], default)) for i in range(array.shape[1]))
        return pa.table({f"{default}_{i}": column for i, column in enumerate(columns)})
    raise InputError(f"{default} must be one column or a table of columns. Got an array of {array.ndim} dimensions.")


def missing_mask(column: pa.ChunkedArray) -> np.ndarray:
    """Where a column holds no value: null, or NaN in a column of floats."""
    nulls = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
    return np.asarray(nulls.to_numpy(zero_copy_only=False), dtype=bool)


def is_copy(column: pa.ChunkedArray, secret: pa.ChunkedArray) -> bool:
    """Whether one column equals another, up to a one-to-one renaming of its values."""
    if column.equals(secret):
        return True
    try:
        coded = [values.combine_chunks().dictionary_encode() for values in (column, secret)]
    except pa.ArrowNotImplementedError:  # lists and other nested values cannot be compared
        return False
    # Values are numbered by first appearance: equal codes mean that each column determines the other.
    few = len(coded[0].dictionary) <= len(column) // 2
    return few and coded[0].indices.equals(coded[1].indices)


def _read_frame(data: Any) -> Table:
    names = list(data.column_names) if nw.dependencies.is_pyarrow_table(data) else list(data.columns)
    problems = _name_problems(names)
    if problems:
        raise InputError(problems)
    columns: dict[str, pa.ChunkedArray] = {}
    raw: dict[str, pa.ChunkedArray] = {}
    for name in names:
        found = _converted(data[name], plain=False)
        if found is None:
            problems.append(_mixed(name))
            continue
        raw[name], columns[name] = found, plain_column(found)
    if problems:
        raise InputError(problems)
    coded = frozenset(name for name, column in raw.items() if pa.types.is_dictionary(column.type))
    return Table(pa.table(columns), data, coded, _special(raw))


def _special(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, pa.DataType]:
    """The original types of columns whose values are converted to numbers."""
    kinds = {name: column.type for name, column in columns.items()}
    plain = {name: kind.value_type if pa.types.is_dictionary(kind) else kind for name, kind in kinds.items()}
    return {name: kind for name, kind in plain.items() if stands_for_number(kind)}


def _mixed(name: str) -> str:
    return (
        f"Column {name!r} mixes types or holds objects that are not a single text, number or truth value. "
        "Convert it to one type, or leave it out."
    )


def _converted(series: Any, *, plain: bool = True) -> pa.ChunkedArray | None:
    """A column as arrow; None if it has no single type, for the caller to report.

    Arrow's own error is dropped on purpose: its message shows a data value.
    """
    try:
        column = _series_to_arrow(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError):
        return None
    return plain_column(column) if plain else column


def _name_problems(names: list[Any]) -> list[str]:
    if any(not isinstance(name, str) for name in names):
        return ["Column names must be strings: rename them, for example with X.columns = X.columns.astype(str)."]
    twice = sorted({name for name in names if names.count(name) > 1})
    return [f"Column name {name!r} occurs {names.count(name)} times. Column names must be unique." for name in twice]


def _read_array(array: np.ndarray, names: Sequence[str] | None) -> Table:
    if array.ndim != 2:
        raise InputError(
            f"Expected a table or a 2D array, got an array of {array.ndim} dimensions. Reshape your data: "
            "one row per record, one column per feature."
        )
    names = [f"x{i}" for i in range(array.shape[1])] if names is None else list(names)
    columns = {name: _array_to_arrow(array[:, i], name) for i, name in enumerate(names)}
    plain = {name: plain_column(column) for name, column in columns.items()}
    return Table(pa.table(plain), array, types=_special(columns))


def _array_to_arrow(values: np.ndarray, name: str) -> pa.ChunkedArray:
    if np.iscomplexobj(values):
        raise InputError(f"Complex data not supported: column {name!r}.")
    try:
        return pa.chunked_array([pa.array(values, from_pandas=True)])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        # `from None`: arrow's own message shows a data value.
        raise TypeError(
            f"Column {name!r}: every argument must be a string or a number, of one type per column."
        ) from None


def _series_to_arrow(series: Any) -> pa.ChunkedArray:
    if isinstance(series, pa.ChunkedArray):
        return series
    if isinstance(series, pa.Array):
        return pa.chunked_array([series])
    if nw.dependencies.is_polars_series(series):
        return pa.chunked_array([series.to_arrow()])
    array = pa.Array.from_pandas(series)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode dictionary and view columns, so that equal values compare equal; convert dates, times and decimals to
    numbers.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    return to_numbers(column)


def _to_pandas(released: pa.Table, origin: Any, keep_types: bool) -> Any:
    out = {}
    for name in released.column_names:
        values = released[name].to_pandas()
        out[name] = _retype_pandas(values, origin[name].dtype) if keep_types and name in origin else values
    frame = pd.DataFrame(out, copy=False)
    frame.index = origin.index
    return frame


def _retype_pandas(values: pd.Series, dtype: Any) -> pd.Series:
    """Cast to the caller's type, or leave a wider one if that type cannot hold the released values."""
    if isinstance(dtype, pd.CategoricalDtype):
        more = [value for value in values.dropna().unique() if value not in dtype.categories]
        return values.astype(pd.CategoricalDtype([*dtype.categories, *more], dtype.ordered) if more else dtype)
    if not isinstance(dtype, np.dtype):
        return values.astype(dtype)
    if values.isna().any():
        # A missing value may be released where this batch had none: numpy's integers and booleans cannot hold it.
        dtype = {"i": "Int64", "u": "Int64", "b": "boolean"}.get(dtype.kind, dtype)
        return values.astype(dtype)
    return values.astype(dtype) if _holds(dtype, values.to_numpy()) else values


def _holds(dtype: np.dtype, values: np.ndarray) -> bool:
    """Whether the integer type of this batch can hold the released values."""
    if dtype.kind not in "iu" or values.dtype.kind not in "iuf" or not len(values):
        return True
    limits = np.iinfo(dtype)
    return bool(limits.min <= values.min() and values.max() <= limits.max)


def _to_polars(released: pa.Table, origin: Any, keep_types: bool) -> Any:
    import polars as pl

    frame = pl.DataFrame(pl.from_arrow(released))
    if not keep_types:
        return frame
    return frame.with_columns([_retype_polars(frame[n], origin.schema[n]) for n in frame.columns if n in origin.schema])


def _retype_polars(values: Any, dtype: Any) -> Any:
    import polars as pl

    if isinstance(dtype, pl.Enum):
        known = dtype.categories.to_list()
        dtype = pl.Enum([*known, *(v for v in values.drop_nulls().unique().sort().to_list() if v not in known)])
    try:
        return values.cast(dtype)
    except pl.exceptions.InvalidOperationError:  # a number that this batch's narrower type cannot hold
        return values


def _to_arrow(released: pa.Table, origin: pa.Table, keep_types: bool) -> pa.Table:
    if not keep_types:
        return released
    return pa.table({name: _retype_arrow(released[name], origin[name]) for name in released.column_names})


def _retype_arrow(values: pa.ChunkedArray, origin: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(origin.type):
        try:
            return values.cast(origin.type)
        except pa.ArrowInvalid:  # a number that this batch's narrower type cannot hold
            return values
    categories = origin.unify_dictionaries().combine_chunks().dictionary
    values = values.cast(categories.type).combine_chunks()
    more = [value for value in values.unique().drop_null().to_pylist() if value not in set(categories.to_pylist())]
    categories = pa.concat_arrays([categories, pa.array(more, categories.type)])
    codes = pc.index_in(values, value_set=categories)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes.cast(origin.type.index_type), categories)])


def _to_numpy(released: pa.Table, origin: np.ndarray, keep_types: bool) -> np.ndarray:
    columns = [released[name].to_numpy(zero_copy_only=False) for name in released.column_names]
    if not columns:
        return np.empty((released.num_rows, 0))
    stacked = np.column_stack(columns)
    if not keep_types or origin.dtype.kind in "US":
        return stacked  # a fixed-width text type would truncate: a released category may be longer than this batch's
    if origin.dtype.kind in "iub" and any(released[n].null_count for n in released.column_names):
        return stacked.astype(np.float64)
    return stacked.astype(origin.dtype) if _holds(origin.dtype, stacked) else stacked
