"""Mutual information in an audit: the bounds of `fairveil.information`, and the paper's estimate from an embedding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import special

from fairveil._utils.errors import InputError
from fairveil.auditing.inputs import Released, Target
from fairveil.auditing.model import Array, loss_of
from fairveil.auditing.networks import FILTERS, Network
from fairveil.auditing.protocol import Attempt, Evidence, Terms
from fairveil.auditing.scoring import Truth, flat
from fairveil.data.frames import Table, missing_mask
from fairveil.information import (
    KnnEstimate,
    channel_information,
    mutual_information_with_error,
    predicted_information,
)
from fairveil.metrics import Estimate

#: Width of the last hidden layer (supplement, Section `MIestimation`): small for few classes, else wide, then PCA.
_FEW_CLASSES, _SMALL, _WIDE, _COMPONENTS = 8, 8, 128, 12
_FEWEST_OF_A_CLASS = 30
#: Maximum number of test rows of the nearest-neighbour estimate; its error is that of these rows.
_MOST_ROWS = 6000


LogDensity = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Channel:
    """A known channel: log p(released_i | original_j), and both tables as numbers."""

    log_density: LogDensity
    released: Array
    original: Array

    @classmethod
    def of(cls, released: Released, original: Released | None, log_density: LogDensity) -> "Channel":
        """Build the channel; raises unless both are tables of numbers without missing cells."""
        tables = [released, original]
        if not all(isinstance(table, Table) and _all_numbers(table) for table in tables):
            raise InputError("log_density needs a release and an original that are tables of numbers, nothing missing.")
        arrays = [_numbers(table) for table in tables if isinstance(table, Table)]
        return cls(log_density, arrays[0], arrays[1])

    def information(self, rows: NDArray[np.int64], codes: NDArray[np.int64], confidence: float) -> Estimate:
        """An upper bound on the information of the release about a column, from these rows."""
        return channel_information(self.released[rows], codes, self.log_density, self.original[rows], confidence)


def _all_numbers(table: Table) -> bool:
    columns = [table.arrow[name] for name in table.names]
    kinds = all(pa.types.is_floating(column.type) or pa.types.is_integer(column.type) for column in columns)
    return kinds and not any(missing_mask(column).any() for column in columns)


def _numbers(table: Table) -> Array:
    return np.column_stack([table.arrow[name].to_numpy().astype(np.float64) for name in table.names])


def information_row(
    target: Target,
    attempts: Sequence[Attempt],
    release: Evidence,
    original: Evidence | None,
    channel: Channel | None,
    terms: Terms,
    *,
    epochs: int,
) -> dict[str, Any]:
    """The information of the release about a column, in nats.

    lower: entropy minus the log-loss on test rows of the model with the lowest validation loss. upper: if the channel
    is known. embedding: k-NN estimate from the embedding, with its error; normalised: divided by that of the original
    data.
    """
    truth = Truth.of(target, release.parts)
    codes = truth.test.astype(np.int64)
    shares = np.bincount(codes, truth.weights)
    shares = shares / shares.sum()
    best = min(attempts, key=lambda attempt: loss_of(attempt.validation, truth.validation))
    row: dict[str, Any] = {"column": target.name, "rows": len(codes),
                           "entropy": float(special.entr(shares).sum())}  # fmt: skip
    lower = predicted_information(best.test, codes, terms.confidence, sample_weight=truth.weights)
    row |= {**flat("lower", lower), "model": best.name}
    if channel is not None:
        row |= flat("upper", channel.information(truth.parts.test, codes, terms.confidence))
    # The k-NN estimate needs enough neighbours: classes with few test rows are dropped.
    some = np.sort(np.random.default_rng(terms.seed).permutation(len(codes))[:_MOST_ROWS])
    codes = codes[some]
    frequent = np.isin(codes, np.flatnonzero(np.bincount(codes) >= _FEWEST_OF_A_CLASS))
    if len(np.unique(codes[frequent])) < 2:
        return row
    some, codes = some[frequent], codes[frequent]
    found = mutual_information_with_error(embedding(target, release, epochs, terms.seed)[some], codes)
    row |= {"embedding": found.value, "embedding_error": found.error}
    if original is not None:
        before = mutual_information_with_error(embedding(target, original, epochs, terms.seed)[some], codes)
        row |= {"embedding_original": before.value, "embedding_original_error": before.error,
                **_ratio(found, before)}  # fmt: skip
    return row


def _ratio(found: KnnEstimate, before: KnnEstimate) -> dict[str, float]:
    """The share of the information that is left, and its first-order error; NaN if the original has hardly any."""
    if before.value <= before.error:
        return {"normalised": np.nan, "normalised_error": np.nan}
    value = found.value / before.value
    return {"normalised": value, "normalised_error": float(np.hypot(found.error, value * before.error) / before.value)}


def embedding(target: Target, evidence: Evidence, epochs: int, seed: int) -> Array:
    """The last hidden layer, on test rows, of a network trained to predict the target."""
    images = evidence.has("images")
    view = "images" if images else "values"
    few = (target.classes or 0) <= _FEW_CLASSES
    truth = Truth.of(target, evidence.parts)
    x, y = evidence.training(view, target, target.values)
    rows: NDArray[np.float32] = evidence.view(view)
    network = Network((64, _SMALL) if few else (_WIDE, _WIDE), classes=target.classes, filters=FILTERS * images,
                      epochs=epochs, seed=seed)  # fmt: skip
    network.fit(x, y, rows[truth.parts.validation], truth.validation)
    found = network.embed(rows[truth.parts.test])
    from sklearn.decomposition import PCA

    return found if few else np.asarray(PCA(_COMPONENTS, random_state=seed).fit_transform(found))
