"""Tables to tensors and back, by the schema. Exactly invertible on every table whose numbers lie on their grids."""

import math
import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from fairveil.columns import Column, family_of
from fairveil.errors import ClippedWarning, InputError, rows_named
from fairveil.schema import Group, Schema
from fairveil.tables import missing_mask

Unseen = Literal["error", "most_frequent"]


@dataclass(frozen=True)
class Codec:
    """Encodes rows of a schema as float32 tensors of shape (rows, layout.width), and decodes such tensors.

    unseen: what to do with a category that the schema does not list: refuse, or read it as the most frequent one.
    """

    schema: Schema
    unseen: Unseen = "error"

    def check(self, table: pa.Table) -> list[str]:
        """Every problem that keeps this table from being encoded."""
        problems = []
        for column in self.schema.seen:
            if column.name not in table.column_names:
                problems.append(f"Column {column.name!r} is missing from the table. Add it, or fit without it.")
            else:
                problems += _column_problems(column, table[column.name], self.unseen)
        for name in table.column_names:
            if name not in self.schema.names:
                problems.append(f"Column {name!r} is not in the schema. Remove it, or give it a role and fit again.")
        return problems

    def encode(self, table: pa.Table) -> Tensor:
        """Rows as a tensor: one-hot groups, then numbers in units of their scale. Missing is a slot, never a NaN."""
        problems = self.check(table)
        if problems:
            raise InputError(problems)
        layout = self.schema.layout
        out = np.zeros((table.num_rows, layout.width), dtype=np.float32)
        rows = np.arange(table.num_rows)
        for index, column in enumerate(layout.numbers):
            _warn_of_clipping(column, table[column.name])
            out[:, layout.group_width + index] = _encode_number(column, table[column.name])
        for group in layout.groups:
            values = table[group.column.name]
            codes = _codes(group.column, values) if group.number is None else _bins(group.column, values)
            out[rows, group.start + codes] = 1.0
        return torch.from_numpy(out)

    def original(self, table: pa.Table, encoded: Tensor) -> Tensor:
        """Encoded rows with every number as the caller has it, neither clipped nor put on its grid.

        Distortion is counted from here, so that what a narrow range or a coarse grid takes away is counted too. A
        category that the schema does not list is lost whatever is released: it is put where its squared distance to
        every one-hot vector is 2, that of a change.
        """
        exact = encoded.clone()
        for group in self.schema.layout.groups:
            if group.number is None and self.unseen != "error":
                values = table[group.column.name]
                lost = np.flatnonzero((_lookup(group.column, values) < 0) & ~missing_mask(values))
                exact[lost, group.start : group.stop] = (1.0 + math.sqrt(1.0 + group.width)) / group.width
        for index, column in enumerate(self.schema.layout.numbers):
            numbers = table[column.name].to_numpy(zero_copy_only=False).astype(np.float64)
            scaled = np.where(missing_mask(table[column.name]), 0.0, (numbers - column.center) / column.scale)
            exact[:, self.schema.layout.group_width + index] = torch.from_numpy(scaled.astype(np.float32))
        return exact

    def decode(self, tensor: Tensor) -> pa.Table:
        """Released rows as a table. Takes tensors as `encode` or a sampled release makes them."""
        layout = self.schema.layout
        array = tensor.detach().cpu().numpy()
        gone: dict[str, np.ndarray] = {}
        columns: dict[str, pa.Array] = {}
        for group in layout.groups:
            codes = array[:, group.start : group.stop].argmax(axis=1)
            if group.number is None:
                columns[group.column.name] = _decode_categories(group, codes)
            elif group.column.missing:
                gone[group.column.name] = codes == group.width - 1
        for index, column in enumerate(layout.numbers):
            values = _decode_number(column, array[:, layout.group_width + index])
            columns[column.name] = pa.array(values, mask=gone.get(column.name))
        return pa.table({column.name: columns[column.name] for column in self.schema.seen})

    def soft(self, tensor: Tensor) -> pa.Table:
        """A release of probabilities: one column a slot, named `column=category`; numbers in the caller's units."""
        layout = self.schema.layout
        array = tensor.detach().cpu().numpy().astype(np.float64)
        for index, column in enumerate(layout.numbers):
            slot = layout.group_width + index
            array[:, slot] = array[:, slot] * column.scale + column.center
        return pa.table({name: array[:, slot] for slot, name in enumerate(layout.slot_names)})


def _column_problems(column: Column, values: pa.ChunkedArray, unseen: Unseen) -> list[str]:
    where = f"Column {column.name!r}"
    missing = missing_mask(values)
    problems = []
    family = family_of(values.type)
    if family != column.family and not missing.all():
        return [f"{where} holds {family or values.type} values where the schema has {column.family}. "
                "Convert it as it was when the veil was fitted."]  # fmt: skip
    if missing.any() and not column.missing:
        problems.append(
            f"{where} has missing values ({rows_named(np.flatnonzero(missing).tolist())}) but had none when the veil "
            "was fitted. Fill them, or fit again on a table that has some."
        )
    if column.kind == "categorical":
        unknown = np.flatnonzero((_lookup(column, values) < 0) & ~missing)
        if len(unknown) and unseen == "error":
            problems.append(
                f"{where} holds categories that the veil has not seen ({rows_named(unknown.tolist())}). Add them to "
                "the schema and fit again, or set unseen='most_frequent' to read them as the most frequent one."
            )
        return problems
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        problems.append(f"{where} holds infinity ({rows_named(infinite.tolist())}). Replace it by a number.")
    if column.kind == "integer" and column.grid is not None and column.lower is not None:
        steps = (numbers[np.isfinite(numbers)] - column.lower) / column.grid
        if not np.allclose(steps, np.round(steps), rtol=0.0, atol=1e-6):
            problems.append(f"{where} holds numbers off its grid of {column.grid:g}. Round them, or fit again.")
    return problems


def _lookup(column: Column, values: pa.ChunkedArray) -> np.ndarray:
    """The position of each value in the column's categories, -1 where it is none of them."""
    kind = pa.float64() if column.family == "number" else pa.bool_() if column.family == "boolean" else pa.string()
    if pa.types.is_null(values.type):
        return np.full(len(values), -1, dtype=np.int64)
    found = pc.index_in(values.cast(kind), value_set=pa.array(column.categories, type=kind))
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


def _codes(column: Column, values: pa.ChunkedArray) -> np.ndarray:
    codes = _lookup(column, values)
    missing = missing_mask(values)
    default = column.categories.index(column.default) if column.default in column.categories else 0
    codes[(codes < 0) & ~missing] = default
    codes[missing] = len(column.categories)
    return codes


def _bins(column: Column, values: pa.ChunkedArray) -> np.ndarray:
    """The bin of each number; the slot behind the last one for a missing number."""
    numbers = _encode_number(column, values).astype(np.float64) * column.scale + column.center
    starts = np.asarray(column.starts or (-np.inf,))
    codes = np.searchsorted(starts, numbers + 0.5 * (column.grid or 0.0), side="right") - 1
    codes[missing_mask(values)] = len(starts)
    return np.clip(codes, 0, None)


def _encode_number(column: Column, values: pa.ChunkedArray) -> np.ndarray:
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    missing = missing_mask(values)
    numbers = np.clip(numbers, *_range(column))
    if column.grid is not None and column.lower is not None:
        numbers = column.lower + np.round((numbers - column.lower) / column.grid) * column.grid
    return np.where(missing, 0.0, (numbers - column.center) / column.scale)


def _range(column: Column) -> tuple[float, float]:
    return -np.inf if column.lower is None else column.lower, np.inf if column.upper is None else column.upper


def _warn_of_clipping(column: Column, values: pa.ChunkedArray) -> None:
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    lower, upper = _range(column)
    outside = int(((numbers < lower) | (numbers > upper)).sum())
    if outside:
        warnings.warn(
            f"Column {column.name!r}: {outside} of {len(numbers)} numbers lie outside the schema's range and were "
            "moved to its nearest end. Widen 'lower' and 'upper' in the schema if they belong.",
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
