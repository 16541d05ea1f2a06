"""Publication: values are exchanged within blocks of similar rows, level by level, so that a file can be handed on.

This is data swapping, a method of statistical disclosure control (Dalenius and Reiss, 1982; Fienberg and McIntyre,
2004), with an aim from information theory: rows are not swapped to make single records uncertain, but such that the
released row is independent of S.

- Rows form blocks in which every group has the share that it has in the table (`fairveil.matching.blocks`).
- Within a block, each level of columns (`fairveil.matching.levels`) is permuted uniformly at random, independently of
  the other levels. All rows of a block then have the same distribution: the released row tells the block and no more.
  A person who is recognised by the columns of one level is found with values of a random row of the block in the
  others, whose group is as likely to be any group as in the whole table.
- Numbers are drawn anew within their bins.

Large tables are divided into random chunks with the same shares of all groups. Only one chunk is encoded at a time.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairveil._utils.errors import BudgetNotMet, InputError
from fairveil._utils.randomness import ByteSource
from fairveil.data.layout import Layout
from fairveil.data.marginals import ColumnDrift, Marginals
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Codec, EncodedRows
from fairveil.matching.blocks import (
    block_count,
    cheapest,
    form_blocks,
    group_shares,
    shuffle_within,
    spread_of,
    variation_bound,
)
from fairveil.matching.levels import find_levels, small_codes
from fairveil.matching.points import Kept, rank_points, shared_scores_in
from fairveil.matching.shares import Floats, Ints, shuffled
from fairveil.objectives.distortion import Distortion, make_distortion
from fairveil.objectives.released import ReleasedBatch

#: Rows that are encoded and matched at once.
_CHUNK = 50_000
#: A draw above the budget is drawn again with less to exchange, at most this often.
_ATTEMPTS = 8
#: The share of a budget that is planned for: draws vary.
_WITHIN = 0.995


@dataclass(frozen=True)
class People:
    """S of every row. parts: rows exchange values only with rows of the same part. names: of the groups."""

    groups: Ints
    parts: Ints
    names: list[str]


@dataclass(frozen=True)
class Published:
    """A publication. rows: the released columns; row i stands for row i of the input.

    distortion: the mean over all rows as written, by kind of column. changed: the share of rows with a changed category
    or bin. moved: the share of rows in blocks that exchanged values. bounds: for each part and pair of groups (part,
    group, group), the bound on total variation.
    """

    rows: pa.Table
    distortion: Floats
    changed: float
    moved: float
    drift: tuple[ColumnDrift, ...]
    bounds: dict[tuple[int, int, int], float]
    levels: list[list[str]]
    blocks: int

    @property
    def total(self) -> float:
        """The distortion summed over kinds of columns."""
        return float(self.distortion.sum())


def publish(
    table: pa.Table, schema: Schema, people: People, *, certified: float | None, budget: float | None,
    source: ByteSource, kept: Kept | None = None, step: Callable[[str], None] = lambda note: None,
) -> Published:  # fmt: skip
    """Exchange values within blocks; raises BudgetNotMet if the budget cannot be kept together with `certified`."""
    refuse_exact_numbers(schema)
    run = _Run(table, schema, people, source)
    blocks = _formed(run, certified, kept or Kept(), step)
    moves = np.ones(len(blocks.costs), dtype=bool)
    if budget is None:
        return _checked(_drawn(run, blocks, moves, step), certified, None)
    floor = _drawn(run, blocks, ~moves, step).total
    if floor > budget:
        raise BudgetNotMet(
            f"Numbers that are drawn anew within their bins, values outside the schema's ranges and rare categories "
            f"already cost {floor:.3g}, more than the budget of {budget:g}. Raise the budget."
        )
    room = (_WITHIN * budget - floor) * len(run.people.groups)
    for _ in range(_ATTEMPTS):
        moves = cheapest(blocks.costs, room)
        found = _drawn(run, blocks, moves, step)
        if found.total <= budget:
            return _checked(found, certified, budget)
        room = min(room * (budget - floor) / (found.total - floor), room) * _WITHIN
    raise BudgetNotMet(f"No draw within the budget of {budget:g} was found on these rows. Raise the budget.")


def refuse_exact_numbers(schema: Schema) -> None:
    """Raise for numbers without bins: an exact number of another row would be a true value of that person."""
    exact = [column.name for column in schema.columns
             if column.role == "encode" and column.kind != "categorical" and not column.starts]  # fmt: skip
    if exact:
        raise InputError([f"Column {name!r} is a number without bins, so it could only be published exactly. Give it "
                          "a range and bins (fairveil inspect proposes them), or drop it."
                          for name in exact])  # fmt: skip
    if not any(column.role == "encode" for column in schema.columns):
        raise InputError("The schema has no column with the role 'encode': there is nothing to exchange.")


def _checked(found: Published, certified: float | None, budget: float | None) -> Published:
    bound = max(found.bounds.values(), default=0.0)
    if certified is not None and bound > certified + 1e-12:
        kept = "" if budget is None else f" within the budget of {budget:g}"
        raise BudgetNotMet(
            f"Exchanges{kept} certify {bound:.3g} on these rows, not {certified:g}: {1 - found.moved:.1%} of the rows "
            "keep their values. Raise the budget or the certified value."
        )
    return found


@dataclass(frozen=True)
class _Chunk:
    """Rows of one part that are matched together, and the numbers of their blocks: first, first + 1, ..."""

    rows: Ints
    part: int
    first: int
    count: int


@dataclass(frozen=True)
class _Blocks:
    """The block of every row, what exchanging each block costs in expectation, and the chunks."""

    of_row: Ints
    costs: Floats
    chunks: list[_Chunk]
    levels: list[list[str]]


@dataclass(frozen=True)
class _Run:
    table: pa.Table
    schema: Schema
    people: People
    source: ByteSource

    @cached_property
    def codec(self) -> Codec:
        return Codec(self.schema, "most_frequent")

    @property
    def layout(self) -> Layout:
        return self.schema.layout

    @cached_property
    def distortion(self) -> Distortion:
        return make_distortion("auto", self.layout, "sampled")

    def taken(self, rows: Ints) -> pa.Table:
        return self.table.select([column.name for column in self.schema.released]).take(pa.array(rows))

    def encoded(self, table: pa.Table) -> EncodedRows:
        return self.codec.encode_rows(table.select([column.name for column in self.schema.seen]))


def _formed(run: _Run, certified: float | None, kept: Kept, step: Callable[[str], None]) -> _Blocks:
    people, of_row = run.people, np.full(len(run.people.groups), -1, dtype=np.int64)
    chunks, costs, levels = [], [], None
    first = 0
    for part, rows, sizes in _chunked(people, run.source):
        count = block_count(sizes, people.names, certified)
        encoded = run.encoded(run.taken(rows))
        if levels is None:
            levels = find_levels(run.schema, _codes(run.layout, encoded))
        points, unchanged = rank_points(run.layout, encoded.x)
        groups = people.groups[rows]
        scores = partial(shared_scores_in, run.layout, encoded.x, groups)
        standing = kept.coordinates(points, groups, np.zeros_like(groups), scores, rows)
        block = form_blocks(np.hstack([points, unchanged, standing]), groups, count, run.source)
        of_row[rows] = first + block
        costs.append(spread_of(points, block, count))
        chunks.append(_Chunk(rows, part, first, count))
        first += count
        step("matching")
    return _Blocks(of_row, np.concatenate(costs), chunks, levels or [])


def number_of_chunks(parts: Ints) -> int:
    """How many chunks are matched, for progress."""
    return sum(math.ceil(size / _CHUNK) for size in np.bincount(parts))


def _chunked(people: People, source: ByteSource) -> Iterator[tuple[int, Ints, Ints]]:
    """Random rows of one part, with its shares of all groups: their part, their positions, the sizes of groups."""
    for part in np.unique(people.parts):
        inside = np.flatnonzero(people.parts == part)
        number = math.ceil(len(inside) / _CHUNK)
        groups = [shuffled(inside[people.groups[inside] == group], source) for group in range(len(people.names))]
        for i in range(number):
            rows = np.sort(np.concatenate([np.array_split(members, number)[i] for members in groups]))
            yield int(part), rows, np.bincount(people.groups[rows], minlength=len(people.names))


def _codes(layout: Layout, encoded: EncodedRows) -> dict[str, Ints]:
    """Categories and bins as small whole numbers."""
    columns = zip(layout.groups, encoded.codes.T, strict=False)
    step = max(1, len(encoded.codes) // _CHUNK)
    return {group.column.name: small_codes(code[::step], ordered=group.number is not None) for group, code in columns}


def _drawn(run: _Run, blocks: _Blocks, moves: NDArray[np.bool_], step: Callable[[str], None]) -> Published:
    """Draw and measure everything, chunk by chunk. moves: which blocks exchange values."""
    pieces, sums, changed = [], np.zeros(2), 0.0
    none = Marginals.of(run.layout, torch.zeros(0, run.layout.width))
    before, after = none.counts, none.counts
    for chunk in blocks.chunks:
        table = run.taken(chunk.rows)
        rows = run.encoded(table)
        local = blocks.of_row[chunk.rows] - chunk.first
        values = _exchanged(run, rows.x, local, moves[chunk.first : chunk.first + chunk.count], blocks.levels)
        made = run.codec.assemble(table, values, sampled=True)
        written = run.encoded(made)
        parts = run.distortion.realised(
            ReleasedBatch(written.original, written.original[:, run.layout.grouped]), rows.original
        )
        sums += parts.double().sum(dim=0).numpy()
        changed += float((written.codes != rows.codes).any(axis=1).sum())
        before = before + Marginals.of(run.layout, rows.x).counts
        after = after + Marginals.of(run.layout, written.x).counts
        pieces.append(made)
        step("drawing")
    total = len(run.people.groups)
    place = np.empty(total, dtype=np.int64)
    place[np.concatenate([chunk.rows for chunk in blocks.chunks])] = np.arange(total)
    return Published(
        pa.concat_tables(pieces).take(pa.array(place)).combine_chunks(), sums / total, changed / total,
        float(moves[blocks.of_row].mean()), replace(none, counts=before).drift(after),
        _bounds(run.people, blocks, moves), blocks.levels, len(moves),
    )  # fmt: skip


def _exchanged(run: _Run, x: Tensor, blocks: Ints, moves: NDArray[np.bool_], levels: Sequence[Sequence[str]]) -> Tensor:
    """Encoded rows with every level permuted within the blocks that move, and all numbers drawn anew within bins."""
    values, layout = x.clone(), run.layout
    groups = {group.column.name: group for group in layout.groups}
    for level in levels:
        chosen = np.where(moves[blocks], shuffle_within(blocks, run.source), np.arange(len(blocks)))
        drawn = x[torch.from_numpy(chosen)]
        for name in level:
            group = groups[name]
            values[:, group.start : group.stop] = drawn[:, group.start : group.stop]
    for group in layout.groups:
        if group.number is not None and group.column.role == "encode":
            slot = layout.group_width + group.number
            bins = values[:, group.start : group.start + len(group.column.starts)].argmax(dim=1).numpy()
            values[:, slot] = torch.from_numpy(_within_bins(group.column, bins, run.source))
    return values


def _within_bins(column: Any, bins: Ints, source: ByteSource) -> NDArray[np.float32]:
    """A uniform grid point of each bin, on the tensor's scale."""
    low, high = column.bins()[bins].T
    points = np.round((high - low) / column.grid) + 1
    drawn = low + np.floor(source.double(len(bins), 1).numpy()[:, 0] * points) * column.grid
    return np.asarray((drawn - column.center) / column.scale, dtype=np.float32)


def _bounds(people: People, blocks: _Blocks, moves: NDArray[np.bool_]) -> dict[tuple[int, int, int], float]:
    found = {}
    for part in np.unique(people.parts):
        inside = people.parts == part
        shares = group_shares(blocks.of_row[inside], people.groups[inside], len(moves), len(people.names))
        present = np.unique(people.groups[inside])
        for one, other in combinations(present, 2):
            found[int(part), int(one), int(other)] = variation_bound(shares, moves, int(one), int(other))
    return found
