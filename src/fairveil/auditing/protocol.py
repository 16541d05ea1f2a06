"""The protocol: fresh models learn from training rows, are tuned on validation rows and scored once on test rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from fairveil.auditing.attackers import Array, Attacker, Matrix, Model, loss_of
from fairveil.auditing.features import FeatureMap, kept_values, order_features
from fairveil.auditing.inputs import Pictures, Released, Target
from fairveil.errors import InputError, rows_named
from fairveil.tables import Table

#: Shares of the rows that tune and that score, where the caller does not say.
_VALIDATION, _TEST = 0.15, 0.35
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Parts:
    """Positions of the rows of each part."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        """All rows that take part, in order."""
        return np.sort(np.concatenate([self.train, self.validation, self.test]))

    def named(self) -> dict[str, NDArray[np.int64]]:
        """The parts by name."""
        return dict(zip(PARTS, (self.train, self.validation, self.test), strict=True))

    def among(self, rows: NDArray[np.int64]) -> "Parts":
        """The same parts as positions among these rows."""
        return Parts(*(np.searchsorted(rows, part) for part in (self.train, self.validation, self.test)))

    def within(self, rows: NDArray[np.int64]) -> "Parts":
        """Only these rows."""
        return Parts(*(part[np.isin(part, rows)] for part in (self.train, self.validation, self.test)))


def split_rows(split: Any, strata: NDArray[np.generic] | None, rows: int, most: int, seed: int) -> Parts:
    """The caller's parts, or a random split that keeps the shares of S; at most `most` training rows."""
    if split is None:
        everything = np.arange(rows)
        rest, test = train_test_split(everything, test_size=_TEST, random_state=seed, stratify=strata)
        inner = None if strata is None else strata[rest]
        share = _VALIDATION / (1.0 - _TEST)
        train, validation = train_test_split(rest, test_size=share, random_state=seed, stratify=inner)
        parts = Parts(np.sort(train), np.sort(validation), np.sort(test))
    else:
        parts = _given_parts(np.asarray(split), strata, rows, seed)
    generator = np.random.default_rng(seed)
    kept = [np.sort(generator.choice(part, limit, replace=False)) if len(part) > limit else part
            for part, limit in ((parts.train, most), (parts.validation, most // 4), (parts.test, most))]  # fmt: skip
    return Parts(*kept)


def _given_parts(names: NDArray[np.generic], strata: NDArray[np.generic] | None, rows: int, seed: int) -> Parts:
    if names.shape != (rows,):
        raise InputError(f"split must name the part of each of the {rows} rows. It has shape {names.shape}.")
    strange = np.flatnonzero(~np.isin(names, PARTS))
    if len(strange):
        raise InputError(f"split must hold 'train', 'validation' or 'test' only ({rows_named(strange.tolist())}).")
    train, validation, test = (np.flatnonzero(names == part) for part in PARTS)
    if not len(train) or not len(test):
        raise InputError("split needs training and test rows.")
    if not len(validation):
        inner = None if strata is None else strata[train]
        train, validation = train_test_split(train, test_size=_VALIDATION, random_state=seed, stratify=inner)
    return Parts(np.sort(train), np.sort(validation), np.sort(test))


class Evidence:
    """A release as attackers see it: one matrix a view, and further draws of its training rows."""

    def __init__(
        self,
        released: Released,
        parts: Parts,
        draws: Sequence[Released] = (),
        original: Released | None = None,
        features: FeatureMap | None = None,
    ) -> None:
        self.parts = parts
        self.rows = len(released)
        self._views: dict[str, Matrix] = {}
        self._extra: list[dict[str, Matrix]] = [{} for _ in draws]
        order = order_features(self.rows, (parts.train, parts.validation, parts.test))
        if isinstance(released, Pictures):
            self._add_pictures(released, [draw for draw in draws if isinstance(draw, Pictures)], order)
        else:
            tables = [draw for draw in draws if isinstance(draw, Table)]
            self._add_table(released, tables, original, features or FeatureMap.of([released, *tables]), order)

    def view(self, name: str) -> Matrix:
        """All rows of the release, as this view shows them."""
        if name not in self._views and name == "everything":
            self._views[name] = np.hstack([self._views["values"], self._views["details"]])
            for extra in self._extra:
                extra[name] = np.hstack([extra["values"], extra["details"]])
        return self._views[name]

    def has(self, name: str) -> bool:
        """Whether the view is there."""
        return name in self._views or name == "everything"

    def training(self, name: str, target: Target, values: Array) -> tuple[Matrix, Array]:
        """Training rows of the release and of its further draws, with what is to be guessed."""
        view = self.view(name)
        train = self.parts.within(target.rows).train
        more = [extra[name][np.isin(self.parts.train, train)] for extra in self._extra if name in extra]
        return np.concatenate([view[train], *more]), np.tile(values[train], 1 + len(more))

    def plant(self, column: Array) -> "Evidence":
        """The same with a column added to its values: a leak of known size."""
        other = object.__new__(Evidence)
        other.parts, other.rows = self.parts, self.rows
        values = self._views["values"]
        other._views = {"values": np.hstack([values, column[:, None].astype(np.float32)])}
        other._extra = []
        return other

    def _add_table(
        self,
        table: Table,
        draws: list[Table],
        original: Released | None,
        features: FeatureMap,
        order: Matrix,
    ) -> None:
        self._views = {"values": features.values(table), "details": np.hstack([features.details(table), order])}
        train = self.parts.train
        for extra, draw in zip(self._extra, draws, strict=True):
            extra["values"] = features.values(draw)[train]
            extra["details"] = np.hstack([features.details(draw), order])[train]
        if isinstance(original, Table):
            known = FeatureMap.of([original]).values(original)
            self._views["original"] = np.hstack([self._views["values"], known, kept_values(table, original)])

    def _add_pictures(self, pictures: Pictures, draws: list[Pictures], order: Matrix) -> None:
        self._views = _picture_views(pictures.array, order)
        for extra, draw in zip(self._extra, draws, strict=True):
            extra |= _picture_views(draw.array[self.parts.train], order[self.parts.train])


def _picture_views(images: Matrix, order: Matrix) -> dict[str, Matrix]:
    """Images whole and as rows of pixels; the last bit of every pixel where they are whole numbers; the row order."""
    flat = images.reshape(len(images), -1)
    whole = bool(np.all(flat == np.round(flat)))
    details = [(flat % 2).astype(np.float32), order] if whole else [order]
    return {"images": images, "values": flat, "details": np.hstack(details)}


@dataclass(frozen=True)
class Attempt:
    """What one attacker predicts for validation and test rows, and for test rows of another release if asked."""

    attacker: str
    view: str
    validation: Array
    test: Array
    other: Array | None = None

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"{self.attacker} ({self.view})"


def attempt(
    attacker: Attacker,
    evidence: Evidence,
    target: Target,
    seed: int,
    values: Array | None = None,
    also: Evidence | None = None,
) -> Attempt:
    """Fit every candidate on training rows, let the best on validation rows predict.

    values: another truth to learn. also: other rows, seen through the same features, to predict too.
    """
    truth = target.values if values is None else values
    parts = evidence.parts.within(target.rows)
    x, y = evidence.training(attacker.view, target, truth)
    view = evidence.view(attacker.view)
    judge, final = view[parts.validation], view[parts.test]
    best: tuple[float, Model | None, Array | None] = (np.inf, None, None)
    for model in attacker.candidates(target.classes, seed):
        seen = model.fit(x, y, judge, truth[parts.validation]).predict(judge)
        loss = loss_of(seen, truth[parts.validation])
        if best[1] is None or loss < best[0]:
            best = (loss, model, seen)
    assert best[1] is not None
    assert best[2] is not None
    other = None if also is None else best[1].predict(also.view(attacker.view)[parts.test])
    return Attempt(attacker.name, attacker.view, best[2], best[1].predict(final), other)
