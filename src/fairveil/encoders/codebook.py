"""A codebook of K records for a table: every row belongs to the cell of the nearest record.

Records are learned by k-means in the geometry of the distortion (Hamming for categories, squared for numbers), then
made valid: the most frequent category, the mean number rounded to its grid. A cell of few rows could identify a person,
so small cells are merged into others.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil.data.images import ImageSchema
from fairveil.data.layout import Layout
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Codec
from fairveil.objectives.distortion import slot_weights

#: Largest alphabet: a channel over it has the square of this many entries per member.
MOST_CELLS = 2048
#: Every representative stands for at least this many training rows.
FEWEST_ROWS_OF_A_CELL = 20
#: Alternations of assigning rows and updating representatives after k-means, which ignores validity.
_ROUNDS = 10


def learn_codebook(
    rows: Rows, schema: Schema | ImageSchema, count: int | None, seed: int
) -> tuple[tuple[float, ...], ...]:
    """At most `count` records learned from training rows, as plain numbers; empty for None."""
    if count is None:
        return ()
    assert isinstance(schema, Schema)  # an architecture with a codebook rejects images
    return plain_rows(learn_cells(rows.x, schema, count, seed, weight=rows.weight).records)


def plain_rows(values: Tensor) -> tuple[tuple[float, ...], ...]:
    """A matrix as plain numbers, for an architecture."""
    return tuple(tuple(row) for row in values.tolist())


def check_cells(owner: str, count: object) -> None:
    """Raise InputError unless this is a valid number of records for a codebook."""
    if type(count) is not int or not 2 <= count <= MOST_CELLS:
        raise InputError(must_be(owner, "n_cells", f"a whole number from 2 to {MOST_CELLS}", count))


class Cells(NamedTuple):
    """records: (K, width), valid in the schema. scores: (K, scores), the mean of the cell's rows; see `learn_cells`."""

    records: Tensor
    scores: Tensor


def learn_cells(
    rows: Tensor,
    schema: Schema,
    count: int,
    seed: int,
    fewest: int = FEWEST_ROWS_OF_A_CELL,
    weight: Tensor | None = None,
    scores: Tensor | None = None,
) -> Cells:
    """At most `count` cells with distinct records; each stands for at least `fewest` rows, whatever their weights: a
    single person of large weight must not be a cell.

    scores: (rows, scores), further numbers by which rows are told apart, in the unit of the distance.
    """
    from sklearn.cluster import MiniBatchKMeans

    if count < 2:
        raise InputError(f"n_cells must be at least 2. Got {count}.")
    count = min(count, len(rows) // fewest)
    if count < 2:
        raise InputError(
            f"n_samples = {len(rows)} training rows are too few for two cells of at least {fewest} rows each."
        )
    scores = torch.zeros(len(rows), 0) if scores is None else scores
    weights, width = slot_weights(schema.layout), rows.shape[1]
    points = torch.cat([rows * weights.sqrt(), scores], dim=1).numpy()
    mass = torch.ones(len(rows)) if weight is None else weight.float()
    clusters = MiniBatchKMeans(count, random_state=seed % 2**31, n_init=3, batch_size=4096)
    fitted = clusters.fit(points, sample_weight=None if weight is None else mass.numpy())
    means = torch.from_numpy(fitted.cluster_centers_).float()
    cells = _valid(means[:, :width] / weights.sqrt().clamp_min(1e-6), means[:, width:], schema)
    for _ in range(_ROUNDS):
        cells, cell = _without_small(rows, scores, cells, weights, fewest)
        sizes = torch.bincount(cell, mass, minlength=len(cells.records))[:, None]
        means, middles = (torch.zeros_like(held).index_add_(0, cell, each * mass[:, None]) / sizes
                          for each, held in ((rows, cells.records), (scores, cells.scores)))  # fmt: skip
        cells = _valid(means, middles, schema)
    return _without_small(rows, scores, cells, weights, fewest)[0]


def _without_small(rows: Tensor, scores: Tensor, cells: Cells, weights: Tensor, fewest: int) -> tuple[Cells, Tensor]:
    """Dissolve the smallest cells, a few at a time, until all are large enough; also returns each row's cell."""
    while True:
        cell = (cell_distances(rows, cells.records, weights) + squared_distances(scores, cells.scores)).argmin(dim=1)
        sizes = torch.bincount(cell, minlength=len(cells.records))
        small = int((sizes < fewest).sum())
        if not small:
            return cells, cell
        # Rows of a dissolved cell enlarge others: dissolving all small cells at once would remove too many.
        gone = sizes.argsort()[: max(1, small // 8)]
        kept = torch.ones(len(cells.records), dtype=torch.bool)
        kept[gone] = False
        cells = Cells(cells.records[kept], cells.scores[kept])


def nearest_cell(rows: Tensor, representatives: Tensor, layout: Layout) -> Tensor:
    """The cell of each row: (rows,)."""
    return cell_distances(rows, representatives, slot_weights(layout).to(rows.device)).argmin(dim=1)


def cell_distances(rows: Tensor, representatives: Tensor, weights: Tensor) -> Tensor:
    """Distortion of each row if it were released as each representative: (rows, K)."""
    return squared_distances(rows * weights.sqrt(), representatives * weights.sqrt())


def squared_distances(rows: Tensor, points: Tensor) -> Tensor:
    """Squared Euclidean distances: (rows, K)."""
    squares = rows.square().sum(dim=1)[:, None] + points.square().sum(dim=1)[None, :]
    return (squares - 2.0 * rows @ points.T).clamp_min(0.0)


def _valid(means: Tensor, scores: Tensor, schema: Schema) -> Cells:
    """Mean rows made valid by a round trip through a table; cells with the same record become one."""
    table = Codec(schema).decode(_within_range(means, schema.layout))
    records, place = np.unique(Codec(schema).encode(table).numpy(), axis=0, return_inverse=True)
    merged = torch.zeros(len(records), scores.shape[1]).index_add_(0, torch.from_numpy(place), scores)
    return Cells(torch.from_numpy(records), merged / torch.from_numpy(np.bincount(place))[:, None])


def _within_range(means: Tensor, layout: Layout) -> Tensor:
    low = [-np.inf if c.lower is None else (c.lower - c.center) / c.scale for c in layout.numbers]
    high = [np.inf if c.upper is None else (c.upper - c.center) / c.scale for c in layout.numbers]
    out = means.clone()
    limits = (torch.tensor(end, dtype=means.dtype) for end in (low, high))
    out[:, layout.continuous] = torch.clamp(out[:, layout.continuous], *limits)
    return out
