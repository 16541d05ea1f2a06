"""Tables to tensors and back, by the schema. Exactly invertible for tables whose numbers lie on their grids."""

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from fairveil._utils.errors import ClippedWarning, InputError, rows_named
from fairveil.data.columns import Column, family_of
from fairveil.data.dependencies import Link
from fairveil.data.frames import missing_mask
from fairveil.data.layout import Group
from fairveil.data.schema import Schema

HandleUnknown = Literal["error", "most_frequent"]

#: Tolerance for numbers off their grid, as a fraction of a step: binary fractions are inexact.
_OFF_GRID = 1e-6


@dataclass(frozen=True)
class Codec:
    """Encodes rows of a schema as float32 tensors of shape (rows, layout.width), and decodes such tensors.

    handle_unknown: how to treat a category the schema does not list: reject it, or read it as the most frequent one.
    """

    schema: Schema
    handle_unknown: HandleUnknown = "error"

    def check(self, table: pa.Table) -> list[str]:
        """Every problem that prevents this table from being encoded."""
        return self._read(table)[1]

    def encode(self, table: pa.Table) -> Tensor:
        """Rows as a tensor: one-hot groups, then scaled numbers. A missing value has its own slot, never a NaN."""
        return self.encode_rows(table).x

    def encode_rows(self, table: pa.Table) -> "EncodedRows":
        """Rows as a tensor, and further views of them; every column is read once."""
        read, problems = self._read(table)
        if problems:
            raise InputError(problems)
        layout = self.schema.layout
        out = np.zeros((table.num_rows, layout.width), dtype=np.float32)
        numbers = []
        for index, column in enumerate(layout.numbers):
            _warn_of_clipping(column, read[column.name].values)
            numbers.append(_encode_number(column, read[column.name]))
            out[:, layout.group_width + index] = numbers[-1]
        rows = np.arange(table.num_rows)
        codes = []
        for group in layout.groups:
            seen = read[group.column.name]
            if group.number is None:
                codes.append(_codes(group.column, seen))
            else:
                codes.append(_bins(group.column, seen, numbers[group.number]))
            out[rows, group.start + codes[-1]] = 1.0
        # Numbers without bins are distinguished to a thousandth of their scale.
        codes += [np.round(1000.0 * numbers[i]).astype(np.int64) for i in layout.free]
        each = np.stack(codes, axis=1) if codes else np.zeros((table.num_rows, 0), dtype=np.int64)
        return EncodedRows(self, torch.from_numpy(out), each, read)

    def _read(self, table: pa.Table) -> tuple[dict[str, "_Seen"], list[str]]:
        """All columns that can be read, and every problem."""
        read, problems = {}, []
        for column in self.schema.seen:
            if column.name not in table.column_names:
                problems.append(f"Column {column.name!r} is missing from the table. Add it, or fit without it.")
                continue
            values = table[column.name]
            missing = missing_mask(values)
            family = family_of(values.type)
            if family != column.family and not missing.all():
                problems.append(
                    f"Column {column.name!r} holds {family or values.type} values where the schema has "
                    f"{column.family}. Convert it to the type it had when the veil was fitted."
                )
                continue
            read[column.name] = _Seen(missing, _values(column, values))
            problems += _column_problems(column, read[column.name], self.handle_unknown)
        for name in table.column_names:
            if name not in self.schema.names:
                problems.append(f"Column {name!r} is not in the schema. Remove it, or give it a role and fit again.")
        return read, problems

    def original(self, table: pa.Table, encoded: Tensor) -> Tensor:
        """Encoded rows with every number as given by the caller: see `EncodedRows.original`."""
        read, _ = self._read(table)
        return _original(self, encoded, read)

    def decode(self, tensor: Tensor) -> pa.Table:
        """Released rows as a table. Accepts tensors from `encode` or from a sampled release.

        Dependencies between columns hold in the table even if the tensor contradicts them.
        """
        layout = self.schema.layout
        array = tensor.detach().cpu().numpy()
        slots = {group.start: array[:, group.start : group.stop].argmax(axis=1) for group in layout.groups}
        numbers = [array[:, layout.group_width + index] for index in range(len(layout.numbers))]
        for link in layout.links:
            _enforce(link, slots, numbers)
        gone: dict[str, np.ndarray] = {}
        columns: dict[str, pa.Array] = {}
        for group in layout.groups:
            codes = slots[group.start]
            if group.number is None:
                columns[group.column.name] = _decode_categories(group, codes)
            elif group.column.missing:
                gone[group.column.name] = codes == group.width - 1
        for column, values in zip(layout.numbers, numbers, strict=True):
            columns[column.name] = pa.array(_decode_number(column, values), mask=gone.get(column.name))
        return pa.table({column.name: columns[column.name] for column in self.schema.seen})

    def assemble(self, table: pa.Table, values: Tensor, *, sampled: bool) -> pa.Table:
        """A release of these rows: columns with role keep or pass unchanged, the others from the tensor."""
        if not sampled:
            return self.soft(values)
        drawn, untouched = self.decode(values), {c.name for c in self.schema.columns if c.role in ("keep", "pass")}
        return pa.table({column.name: (table if column.name in untouched else drawn)[column.name]
                         for column in self.schema.released})  # fmt: skip

    def as_written(self, values: Tensor) -> Tensor:
        """Released values after a round trip through a table."""
        return self.encode(self.decode(values))

    def soft(self, tensor: Tensor) -> pa.Table:
        """A release of probabilities: one column per slot, named `column=category`; numbers in the caller's units."""
        layout = self.schema.layout
        array = tensor.detach().cpu().numpy().astype(np.float64)
        for index, column in enumerate(layout.numbers):
            slot = layout.group_width + index
            array[:, slot] = array[:, slot] * column.scale + column.center
        return pa.table({name: array[:, slot] for slot, name in enumerate(layout.slot_names)})


@dataclass(frozen=True)
class EncodedRows:
    """Rows of a table, encoded.

    x: (rows, layout.width). codes: (rows, columns), the category or bin of each value: an encoder that releases bins
    distinguishes rows by these.
    """

    codec: Codec
    x: Tensor
    codes: np.ndarray
    read: dict[str, "_Seen"]

    @cached_property
    def original(self) -> Tensor:
        """The rows with every number as the caller has it, neither clipped nor rounded to its grid.

        Distortion is measured from here, so the effect of a narrow range or a coarse grid counts too. A category that
        the schema does not list is always lost: it is placed where its squared distance to every one-hot vector is 2,
        the cost of a change.
        """
        return _original(self.codec, self.x, self.read)


def _original(codec: Codec, encoded: Tensor, read: dict[str, "_Seen"]) -> Tensor:
    layout = codec.schema.layout
    exact = encoded.clone()
    for group in layout.groups:
        if group.number is None and (codec.handle_unknown != "error" or group.column.rare):
            seen = read[group.column.name]
            lost = np.flatnonzero((seen.values < 0) & ~seen.missing)
            exact[lost, group.start : group.stop] = (1.0 + math.sqrt(1.0 + group.width)) / group.width
    for index, column in enumerate(layout.numbers):
        seen = read[column.name]
        scaled = np.where(seen.missing, 0.0, (seen.values - column.center) / column.scale)
        exact[:, layout.group_width + index] = torch.from_numpy(scaled.astype(np.float32))
    return exact


def _enforce(link: Link, slots: dict[int, np.ndarray], numbers: list[np.ndarray]) -> None:
    """Set the determined column; if another column already determined it, adjust the determining one instead."""
    if link.source is not None:
        source = slots[link.source[0]]
    else:
        assert link.source_number is not None
        edges = np.asarray(link.edges, dtype=np.float32)
        source = (np.searchsorted(edges, numbers[link.source_number], side="right") - 1).clip(0)
        if link.gone is not None:
            source = np.where(slots[link.gone[0]] == link.gone[1], len(link.edges), source)
    if link.repeated and link.target is not None:
        target = slots[link.target[0]]
        wrong = np.asarray(link.slots)[source] != target
        if link.source is not None:
            slots[link.source[0]] = np.where(wrong, np.asarray(link.defaults)[target], source)
        if link.source_number is not None:
            moved = np.asarray(link.default_values, dtype=np.float32)[target]
            numbers[link.source_number] = np.where(wrong, moved, numbers[link.source_number])
        return
    if link.target is not None:
        slots[link.target[0]] = np.asarray(link.slots)[source]
    if link.number is not None:
        numbers[link.number] = np.asarray(link.values, dtype=np.float32)[source]


@dataclass(frozen=True)
class _Seen:
    """A column of a table, read once: which values are missing, and the values as `_values` returns them."""

    missing: np.ndarray
    values: np.ndarray


def _values(column: Column, values: pa.ChunkedArray) -> np.ndarray:
    """The numbers of a numeric column; the positions of categories in the column's list, -1 for unlisted ones."""
    if column.kind != "categorical":
        return np.asarray(values.to_numpy(zero_copy_only=False).astype(np.float64))
    if pa.types.is_null(values.type):
        return np.full(len(values), -1, dtype=np.int64)
    kind = pa.float64() if column.family == "number" else pa.bool_() if column.family == "boolean" else pa.string()
    found = pc.index_in(values.cast(kind), value_set=pa.array(column.categories, type=kind))
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


def _column_problems(column: Column, seen: _Seen, handle_unknown: HandleUnknown) -> list[str]:
    where, problems = f"Column {column.name!r}", []
    if not column.missing and seen.missing.any():
        problems.append(
            f"{where} has missing values ({rows_named(np.flatnonzero(seen.missing).tolist())}) but had none when the "
            "veil was fitted. Fill them, or fit again on a table that has some."
        )
    if column.kind == "categorical":
        unknown = np.flatnonzero((seen.values < 0) & ~seen.missing)
        if len(unknown) and handle_unknown == "error" and not column.rare:
            problems.append(
                f"{where} holds categories that the veil has not seen ({rows_named(unknown.tolist())}). Add them to "
                "the schema and fit again, or set handle_unknown='most_frequent' to read them as the most frequent one."
            )
        return problems
    infinite = np.flatnonzero(np.isinf(seen.values))
    if len(infinite):
        problems.append(f"{where} holds infinity ({rows_named(infinite.tolist())}). Replace it with a number.")
    if column.kind == "integer" and column.grid is not None and column.lower is not None:
        steps = (seen.values[np.isfinite(seen.values)] - column.lower) / column.grid
        if len(steps) and np.abs(steps - np.round(steps)).max() > _OFF_GRID:
            problems.append(f"{where} holds numbers off its grid of {column.grid:g}. Round them, or fit again.")
    return problems


def _codes(column: Column, seen: _Seen) -> np.ndarray:
    default = column.categories.index(column.default) if column.default in column.categories else 0
    codes = np.where(seen.values < 0, default, seen.values)
    return np.where(seen.missing, len(column.categories), codes) if column.missing else codes


def _bins(column: Column, seen: _Seen, encoded: np.ndarray) -> np.ndarray:
    """The bin of each number; one past the last bin for a missing number. encoded: from `_encode_number`."""
    numbers = encoded * column.scale + column.center
    starts = np.asarray(column.starts or (-np.inf,))
    codes = np.searchsorted(starts, numbers + 0.5 * (column.grid or 0.0), side="right") - 1
    codes[seen.missing] = len(starts)
    return np.clip(codes, 0, None)


def _encode_number(column: Column, seen: _Seen) -> np.ndarray:
    numbers = np.clip(seen.values, *_range(column))
    if column.grid is not None and column.lower is not None:
        numbers = column.lower + np.round((numbers - column.lower) / column.grid) * column.grid
    return np.where(seen.missing, 0.0, (numbers - column.center) / column.scale)


def _range(column: Column) -> tuple[float, float]:
    return -np.inf if column.lower is None else column.lower, np.inf if column.upper is None else column.upper


def _warn_of_clipping(column: Column, numbers: np.ndarray) -> None:
    """Warn if more numbers lie outside the range than in the rows from which the schema was inferred."""
    lower, upper = _range(column)
    outside = int(((numbers < lower) | (numbers > upper)).sum())
    usual = len(numbers) * column.clipped
    if outside > usual + 4.0 * math.sqrt(usual) + (usual > 0):
        warnings.warn(
            f"Column {column.name!r}: {outside} of {len(numbers)} numbers lie outside the schema's range and were "
            "clipped to it. Widen 'lower' and 'upper' in the schema if these numbers are valid.",
            ClippedWarning,
            stacklevel=3,
        )


def _decode_number(column: Column, slots: np.ndarray) -> np.ndarray:
    numbers = slots.astype(np.float64) * column.scale + column.center
    if column.grid is None or column.lower is None:
        return numbers
    numbers = column.lower + np.round((numbers - column.lower) / column.grid) * column.grid
    decimals = max(0, int(np.ceil(-np.log10(column.grid))) + 1)
    return np.round(numbers, decimals).astype(np.int64 if column.kind == "integer" else np.float64)


def _decode_categories(group: Group, codes: np.ndarray) -> pa.Array:
    values: list[object] = [*group.column.categories]
    return pa.array(values + [None] * group.column.missing).take(pa.array(codes))
