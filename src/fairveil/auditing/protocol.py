"""The protocol: models are fitted on training rows, tuned on validation rows and scored once on test rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil._utils.components import Components
from fairveil._utils.engine import HERE, Engine
from fairveil._utils.errors import InputError, rows_named
from fairveil._utils.weights import systematic_resample
from fairveil.auditing.attackers import Attacker
from fairveil.auditing.inputs import ImageArray, Released, Target
from fairveil.auditing.model import Array, Matrix, Model, loss_of
from fairveil.auditing.views import FeatureMap, kept_values, order_features
from fairveil.data.frames import Table

#: Default shares of validation and test rows.
_VALIDATION, _TEST = 0.15, 0.35
PARTS = ("train", "validation", "test")
#: Images, and tables of at least this many numbers, are also seen as this many principal components.
_WIDE, _COMPONENTS = 64, 128

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """Row positions of the training, validation and test parts.

    weights: how many rows of the population each row of the table represents; None if each represents one. Scores on
    test rows are weighted. Training and validation rows are repeated in proportion to their weights, so that every
    attacker learns from the population, whether or not it supports weights. people: the person of each row of the
    table; None if every row is a different person.
    """

    train: Positions
    validation: Positions
    test: Positions
    weights: Array | None = None
    people: Positions | None = None

    @property
    def rows(self) -> NDArray[np.int64]:
        """All rows in use, sorted, without repeats."""
        return np.unique(np.concatenate([self.train, self.validation, self.test]))

    def weighted(self, weights: Array | None) -> "Parts":
        """The parts with these weights: fitting rows are repeated, test rows of weight 0 dropped."""
        if weights is None:
            return self
        test = self.test[weights[self.test] > 0]
        train, validation = _repeated(self.train, weights), _repeated(self.validation, weights)
        return Parts(train, validation, test, weights, self.people)

    def named(self) -> dict[str, NDArray[np.int64]]:
        """The parts by name."""
        return dict(zip(PARTS, (self.train, self.validation, self.test), strict=True))

    def among(self, rows: NDArray[np.int64]) -> "Parts":
        """The same parts, as positions within these rows."""
        weights = None if self.weights is None else self.weights[rows]
        people = None if self.people is None else self.people[rows]
        return self._each(lambda part: np.searchsorted(rows, part), weights, people)

    def within(self, rows: NDArray[np.int64]) -> "Parts":
        """The parts restricted to these rows."""
        return self._each(lambda part: part[np.isin(part, rows)], self.weights, self.people)

    def _each(
        self, change: Callable[[Positions], Positions], weights: Array | None, people: Positions | None
    ) -> "Parts":
        return Parts(change(self.train), change(self.validation), change(self.test), weights, people)


#: A part grows to at most this many times its number of rows.
_MOST_REPEATED = 4


def _repeated(part: NDArray[np.int64], weights: Array) -> NDArray[np.int64]:
    """Rows of a part, repeated in proportion to their weights: exactly for small integer weights, else rounded."""
    own = weights[part]
    if not own.any():
        raise InputError("sample_weight is zero in all rows of a part of the split: nothing can be learned there.")
    count = max(round(float(own.sum() / own[own > 0].min())), len(part))
    return np.asarray(part[systematic_resample(own, min(count, _MOST_REPEATED * len(part)))])


def split_rows(
    split: Any,
    strata: NDArray[np.generic] | None,
    rows: int,
    most: int,
    seed: int,
    people: NDArray[np.int64] | None = None,
) -> Parts:
    """The caller's parts, or a random split stratified by S; at most `most` training rows.

    people: the person of each row. All rows of a person are then in the same part of a random split, so that none is
    recognised by another.
    """
    if split is not None:
        parts = _given_parts(np.asarray(split), strata, rows, seed)
    elif people is not None:
        _, first, person = np.unique(people, return_index=True, return_inverse=True)
        own = _random_parts(None if strata is None else strata[first], len(first), seed)
        parts = own._each(lambda part: np.flatnonzero(np.isin(person, part)), None, None)
    else:
        parts = _random_parts(strata, rows, seed)
    generator = np.random.default_rng(seed)
    limits = (most, most // 4, most)
    train, validation, test = (
        _at_most(part, limit, generator) for part, limit in zip(parts.named().values(), limits, strict=True)
    )
    return Parts(train, validation, test, people=people)


def learning_parts(
    rows: Positions, strata: NDArray[np.generic] | None, most: int, seed: int
) -> tuple[Positions, Positions]:
    """These rows as training and validation rows, in the proportion of a random split, stratified by S."""
    from sklearn.model_selection import train_test_split

    own = None if strata is None else strata[rows]
    share = _VALIDATION / (1.0 - _TEST)
    train, validation = train_test_split(rows, test_size=share, random_state=seed, stratify=own)
    generator = np.random.default_rng(seed)
    return _at_most(np.sort(train), most, generator), _at_most(np.sort(validation), most // 4, generator)


def _at_most(part: Positions, limit: int, generator: np.random.Generator) -> Positions:
    return np.sort(generator.choice(part, limit, replace=False)) if len(part) > limit else part


def _random_parts(strata: NDArray[np.generic] | None, rows: int, seed: int) -> Parts:
    from sklearn.model_selection import train_test_split

    rest, test = train_test_split(np.arange(rows), test_size=_TEST, random_state=seed, stratify=strata)
    train, validation = learning_parts(rest, strata, rows, seed)
    return Parts(train, validation, np.sort(test))


def _given_parts(names: NDArray[np.generic], strata: NDArray[np.generic] | None, rows: int, seed: int) -> Parts:
    from sklearn.model_selection import train_test_split

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


@dataclass(frozen=True)
class Evidence:
    """A release as attackers see it: one matrix per view, and the training rows of further draws.

    Further draws have the views of the values only: details, such as how often a value occurs, are of a whole release.
    """

    parts: Parts
    views: dict[str, Matrix]
    extra: tuple[dict[str, Matrix], ...] = ()

    @classmethod
    def of(
        cls,
        released: Released,
        parts: Parts,
        draws: Sequence[Released] = (),
        original: Released | None = None,
        features: FeatureMap | None = None,
        others: Sequence[Positions] = (),
    ) -> "Evidence":
        """Build all views.

        draws: further draws of the training rows. features: a feature map shared with other evidence. original: adds
        the view `original`. others: further parts whose rows are attacked separately (see `on`).
        """
        order = order_features(
            len(released), tuple(map(np.unique, (parts.train, parts.validation, parts.test, *others)))
        )
        show = _viewer([released], features, np.unique(parts.train))
        views = show(released, order)
        if isinstance(released, Table) and isinstance(original, Table):
            known = FeatureMap.of([original]).values(original)
            views["original"] = np.hstack([views["values"], known, kept_values(released, original)])
        again = (show(draw, order[parts.train], details=False) for draw in draws)
        return cls(parts, views, tuple(again))

    def on(self, parts: Parts) -> "Evidence":
        """The same release with other parts, without further draws."""
        return Evidence(parts, self.views)

    def view(self, name: str) -> Matrix:
        """All rows of the release in this view."""
        return _view(self.views, name)

    def has(self, name: str) -> bool:
        """Whether the view exists."""
        return {"values", "details"} <= set(self.views) if name == "everything" else name in self.views

    def training(self, name: str, target: Target, values: Array) -> tuple[Matrix, Array]:
        """Training rows of the release and of its further draws, with their target."""
        train = self.parts.within(target.rows).train
        taking_part = np.isin(self.parts.train, train)
        more = [views[name][taking_part] for views in self.extra if name in views]
        return np.concatenate([self.view(name)[train], *more]), np.tile(values[train], 1 + len(more))

    def draws(self, name: str) -> int:
        """From how many draws of each training row attackers on this view learn."""
        return 1 + sum(name in views for views in self.extra)

    def plant(self, column: Array) -> "Evidence":
        """The view `values` with an added column: a leak of known size."""
        return Evidence(self.parts, {"values": np.hstack([self.views["values"], column[:, None].astype(np.float32)])})


def _view(views: dict[str, Matrix], name: str) -> Matrix:
    return np.hstack([views["values"], views["details"]]) if name == "everything" else views[name]


def _viewer(
    releases: Sequence[Released], features: FeatureMap | None, learned: Positions
) -> Callable[..., dict[str, Matrix]]:
    """A function that builds the views of any draw of a release: by a common feature map, or as images.

    learned: the training rows, from which principal components are learned.
    """
    tables = [release for release in releases if isinstance(release, Table)]
    if tables:
        return _table_viewer(tables, features or FeatureMap.of(tables), learned)
    pictures = [release for release in releases if isinstance(release, ImageArray)]
    whole = all(np.all(r.array == np.round(r.array)) for r in pictures)
    components = Components.of(_flat(pictures[0])[learned], _COMPONENTS, 0)

    def show(images: ImageArray, order: Matrix, *, details: bool = True) -> dict[str, Matrix]:
        flat = _flat(images)
        views = {"images": images.array, "values": flat, "components": components.project(flat)}
        # If pixels are integers, the last bit of each.
        fine = [(flat % 2).astype(np.float32), order] if whole else [order]
        return views | ({"details": np.hstack(fine)} if details else {})

    return show


def _table_viewer(tables: Sequence[Table], columns: FeatureMap, learned: Positions) -> Callable[..., dict[str, Matrix]]:
    components = None
    if len(columns.numbers) >= _WIDE:
        components = Components.of(columns.scaled(tables[0])[learned], _COMPONENTS, 0)

    def show(table: Table, order: Matrix, *, details: bool = True) -> dict[str, Matrix]:
        views = {"values": columns.values(table), "codes": columns.codes(table)}
        if components is not None:
            views["components"] = components.project(columns.scaled(table))
        return views | ({"details": np.hstack([columns.details(table), order])} if details else {})

    return show


def _flat(images: ImageArray) -> Matrix:
    return np.asarray(images.array.reshape(len(images), -1), dtype=np.float32)


@dataclass(frozen=True)
class Attempt:
    """Predictions of one attacker for validation and test rows, and for test rows of another release if requested."""

    attacker: str
    view: str
    validation: Array
    test: Array
    other: Array | None = None

    @property
    def name(self) -> str:
        """The name shown in results."""
        return f"{self.attacker} ({self.view})"


def attempt(
    attacker: Attacker,
    evidence: Evidence,
    target: Target,
    seed: int,
    values: Array | None = None,
    also: Evidence | None = None,
) -> Attempt:
    """Fit every candidate on training rows and predict with the one that has the lowest validation loss.

    values: target values that replace those of `target`. also: other rows with the same features, to predict too.
    """
    truth = target.values if values is None else values
    parts = evidence.parts.within(target.rows)
    x, y = evidence.training(attacker.view, target, truth)
    view = evidence.view(attacker.view)
    judge, final = view[parts.validation], view[parts.test]
    best: tuple[float, Model | None, Array | None] = (np.inf, None, None)
    for model in attacker.candidates(target.classes, seed):
        seen = model.fit(x, y, judge, truth[parts.validation], evidence.draws(attacker.view)).predict(judge)
        loss = loss_of(seen, truth[parts.validation])
        if best[1] is None or loss < best[0]:
            best = (loss, model, seen)
    assert best[1] is not None
    assert best[2] is not None
    other = None if also is None else best[1].predict(also.view(attacker.view)[parts.test])
    return Attempt(attacker.name, attacker.view, best[2], best[1].predict(final), other)


@dataclass(frozen=True)
class Wanted:
    """An attempt to be made: the arguments of `attempt`, and a note for the progress bar."""

    note: str
    attacker: Attacker
    evidence: Evidence
    target: Target
    values: Array | None = None
    also: Evidence | None = None


@dataclass(frozen=True)
class Terms:
    """Settings of every stage of an audit: confidence level, seed of all models, progress callback, engine.

    Every result depends on its own arguments alone, so any engine gives the same ones.
    """

    confidence: float = 0.95
    seed: int = 0
    step: Callable[[str], None] = lambda note: None
    engine: Engine = HERE

    def attempts(self, wanted: Sequence[Wanted]) -> list[Attempt]:
        """Make these attempts, in any order."""
        tasks = [(each.attacker, each.evidence, each.target, self.seed, each.values, each.also) for each in wanted]
        return self.engine.map(attempt, tasks, lambda number: self.step(wanted[number].note))

    @property
    def plain(self) -> "Terms":
        """The settings alone, for a piece of work that runs elsewhere."""
        return Terms(self.confidence, self.seed)
