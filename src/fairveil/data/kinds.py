"""Whether a column is a class or a number, for S, tasks and audits alike; and how text cells are typed."""

from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil.data.columns import Family, family_of
from fairveil.data.frames import missing_mask
from fairveil.data.types import arrow_type, from_numbers, from_pattern, is_moment, text_pattern

#: Numbers with at most this many distinct values are classes; so are integers with at most `MOST_CLASSES` distinct
#: values, each held by at least `FEWEST_OF_A_GROUP` rows.
MOST_VALUES = 30
MOST_CLASSES = 256
_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0")
#: A group of S with fewer rows cannot be split into training, validation and test rows.
FEWEST_OF_A_GROUP = 20


def is_class(column: pa.ChunkedArray) -> bool:
    """Whether a column is a class, as opposed to a number to be predicted.

    Text and booleans are. Numbers are if they have few values, or are integers (codes, years) that occur often.

    >>> is_class(pa.chunked_array([[1.5, 2.5, 2.5]])), is_class(pa.chunked_array([list(range(100))]))
    (True, False)
    """
    if family_of(column.type) != "number":
        return True
    numbers = column.filter(pa.array(~missing_mask(column))).to_numpy().astype(np.float64)
    distinct, counts = np.unique(numbers, return_counts=True)
    if len(distinct) <= MOST_VALUES:
        return True
    whole = bool(np.all(distinct == np.round(distinct)))
    return whole and len(distinct) <= MOST_CLASSES and bool(counts.min() >= FEWEST_OF_A_GROUP)


def joint_labels(table: pa.Table) -> NDArray[np.str_]:
    """The joint value of several columns as one string per row; "(missing)" counts as a value."""
    texts = [pc.fill_null(table[name].cast(pa.string()), "(missing)").to_numpy() for name in table.column_names]
    return np.array([" & ".join(row) for row in zip(*texts, strict=True)], dtype=np.str_)


def with_guessed_type(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """A text column as numbers, booleans, dates or times, if every cell parses as one."""
    pattern = text_pattern(text)
    if pattern is not None:
        return from_numbers(from_pattern(text, pattern)[0], arrow_type(pattern))
    present = pc.drop_null(text)
    truth = pc.all(pc.is_in(pc.utf8_lower(present), pa.array(["true", "false"]))).as_py()
    family: Family = "boolean" if truth else "number"
    values, wrong = from_text(text, family)
    if wrong or not len(present):
        return text
    return _whole(values) if family == "number" else values


def _whole(values: pa.ChunkedArray) -> pa.ChunkedArray:
    numbers = pc.drop_null(values)
    whole = pc.all(pc.equal(numbers, pc.floor(numbers))).as_py()
    small = pc.all(pc.less(pc.abs(numbers), 2.0**53)).as_py()
    return values.cast(pa.int64()) if whole and small else values


def from_text(text: pa.ChunkedArray, held_as: str) -> tuple[pa.ChunkedArray, list[int]]:
    """Text as typed values, and the positions of cells that do not parse (empty if all do).

    held_as: a family, or a type (`Column.held_as`).
    """
    if held_as == "string":
        return text, []
    if held_as == "boolean":
        yes, no = (pc.is_in(text, pa.array(words)) for words in (_TRUE, _FALSE))
        values = pc.if_else(pc.or_(yes, no), yes, pa.scalar(None, pa.bool_()))
        return values, _positions(pc.and_(pc.is_valid(text), pc.is_null(values)))
    if held_as not in get_args(Family) and is_moment(arrow_type(held_as)):
        return from_pattern(text, held_as)
    try:
        return text.cast(pa.float64()), []
    except pa.ArrowInvalid:
        return text, _positions(pc.invert(pc.fill_null(pc.match_substring_regex(text, _NUMBER), True))) or [0]


_NUMBER = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"


def _positions(mask: pa.ChunkedArray) -> list[int]:
    return [int(i) for i in pc.indices_nonzero(mask).to_pylist()]
