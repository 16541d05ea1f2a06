"""The attackers: several families of newly trained models, each tuned on validation rows.

A model has `fit(x, y, x_val, y_val)` and `predict(x)`: probabilities (rows, classes) for a discrete target, numbers for
a continuous one. Attackers and models of downstream tasks differ only in their targets.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fairveil._utils.errors import InputError, must_be
from fairveil.auditing.crosses import Crosses
from fairveil.auditing.model import Array, Matrix, Model, loss_of
from fairveil.auditing.networks import FILTERS, Network
from fairveil.auditing.pretrained import OnFeatures, is_available

Profile = Literal["quick", "full"]

#: Row limits of the nearest-neighbour and random-forest attackers, whose cost grows fastest with the rows.
_MOST_ROWS = {"quick": 20_000, "full": 60_000}


#: Different training rows in each leaf of LightGBM.
_FEWEST_IN_A_LEAF = 20


class Boosting:
    """LightGBM with early stopping on validation rows. share: fraction of the columns that each tree uses."""

    def __init__(
        self, classes: int | None, leaves: int, rate: float, trees: int, seed: int, *, share: float = 1.0
    ) -> None:
        self.classes, self.trees = classes, trees
        self.settings: dict[str, Any] = {"learning_rate": rate, "num_leaves": leaves, "verbose": -1, "seed": seed,
                                         "feature_fraction": share, "deterministic": True,
                                         "force_row_wise": True}  # fmt: skip

    def fit(self, x: Matrix, y: Array, x_val: Matrix, y_val: Array, draws: int = 1) -> Self:
        """Boost until the validation loss stops improving."""
        import lightgbm

        # Draws of one row are alike: a leaf needs as many different rows as without them.
        settings = {**self.settings, "min_data_in_leaf": _FEWEST_IN_A_LEAF * draws}
        truth, judge = y, y_val
        known = np.ones(len(y_val), dtype=bool)
        if self.classes is None:
            settings["objective"] = "regression"
        else:
            # LightGBM needs consecutive class codes; classes without training rows have none.
            self.seen = np.unique(y)
            truth, known = np.searchsorted(self.seen, y).astype(np.float64), np.isin(y_val, self.seen)
            judge = np.searchsorted(self.seen, y_val[known]).astype(np.float64)
            several = len(self.seen) > 2
            settings |= {"objective": "multiclass", "num_class": len(self.seen)} if several else {"objective": "binary"}
        rows = lightgbm.Dataset(x, truth, free_raw_data=False)
        held = lightgbm.Dataset(x_val[known], judge, reference=rows, free_raw_data=False)
        stop = lightgbm.early_stopping(20, verbose=False)
        self.model = lightgbm.train(settings, rows, self.trees, valid_sets=[held], callbacks=[stop])
        return self

    def predict(self, x: Matrix) -> Array:
        """Predict with the best iteration."""
        found = np.asarray(self.model.predict(x), dtype=np.float64)
        if self.classes is None:
            return found
        if found.ndim == 1:
            found = np.stack([1.0 - found, found], axis=1)
        return _spread_out(found[:, : len(self.seen)], self.seen, self.classes)


class Sklearn:
    """A scikit-learn model, fitted on at most `most` rows."""

    def __init__(self, model: Any, classes: int | None, most: int, seed: int) -> None:
        self.model, self.classes, self.most, self.seed = model, classes, most, seed

    def fit(self, x: Matrix, y: Array, x_val: Matrix, y_val: Array, draws: int = 1) -> Self:
        """Fit; validation rows are not used."""
        chosen = _subset(len(x), self.most, self.seed)
        with warnings.catch_warnings():
            # A model that has not converged is scored like any other.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(x[chosen], y[chosen])
        return self

    def predict(self, x: Matrix) -> Array:
        """Predict with the wrapped model."""
        # A matrix product may set this flag for padding that it does not use. The rows themselves are checked.
        with np.errstate(invalid="ignore"):
            if self.classes is None:
                return np.asarray(self.model.predict(x), dtype=np.float64)
            return _spread_out(np.asarray(self.model.predict_proba(x)), self.model.classes_, self.classes)


class Averaged:
    """The mean prediction of several models that differ in their seeds."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = list(models)

    def fit(self, x: Matrix, y: Array, x_val: Matrix, y_val: Array, draws: int = 1) -> Self:
        """Fit every model."""
        self.models = [model.fit(x, y, x_val, y_val, draws) for model in self.models]
        return self

    def predict(self, x: Matrix) -> Array:
        """Their mean."""
        return np.asarray(np.mean([model.predict(x) for model in self.models], axis=0))


class Neighbours:
    """k nearest neighbours; k is chosen on validation rows."""

    def __init__(self, classes: int | None, choices: Sequence[int], most: int, seed: int) -> None:
        self.classes, self.choices, self.most, self.seed = classes, tuple(choices), most, seed

    def fit(self, x: Matrix, y: Array, x_val: Matrix, y_val: Array, draws: int = 1) -> Self:
        """Index the training rows and choose k."""
        from sklearn.neighbors import NearestNeighbors

        chosen = _subset(len(x), self.most, self.seed)
        self.y = y[chosen]
        choices = [min(k * max(1, len(chosen) * draws // len(x)), len(chosen)) for k in self.choices]
        largest = max(choices)
        self.index = NearestNeighbors(n_neighbors=largest, algorithm="brute").fit(x[chosen])
        judged = _subset(len(x_val), 2000, self.seed)
        near = self._near(x_val[judged])
        losses = [loss_of(self._answer(near[:, :k]), y_val[judged]) for k in choices]
        self.k = choices[int(np.argmin(losses))]
        return self

    def predict(self, x: Matrix) -> Array:
        """Smoothed with the prior at the weight of one row, so that no class has probability 0."""
        return self._answer(self._near(x)[:, : self.k])

    def _near(self, x: Matrix) -> NDArray[np.int64]:
        return np.asarray(self.index.kneighbors(x, return_distance=False))

    def _answer(self, near: NDArray[np.int64]) -> Array:
        values = self.y[near]
        if self.classes is None:
            return np.asarray(values.mean(axis=1))
        prior = np.bincount(self.y.astype(np.int64), minlength=self.classes) / len(self.y)
        shares = np.stack([(values == code).sum(axis=1) for code in range(self.classes)], axis=1)
        return np.asarray((shares + prior) / (near.shape[1] + 1.0))


class Sparse:
    """A linear model of the few features, or products of two features, that correlate most with the target.

    It finds weak leaks in one digit, the row order or a pure interaction: where most features are noise, models that
    use all of them overfit, and trees miss an interaction of features that are independent of the target. All products
    are screened at once by matrix products; the number of features to keep is chosen on validation rows.
    """

    def __init__(self, classes: int | None, choices: Sequence[int], seed: int) -> None:
        self.classes, self.choices, self.seed = classes, tuple(choices), seed

    def fit(self, x: Matrix, y: Array, x_val: Matrix, y_val: Array, draws: int = 1) -> Self:
        """Screen the features, then fit the number of them with the lowest validation loss."""
        self.center, spread = x.mean(axis=0), x.std(axis=0)
        self.spread = np.where(spread > 1e-6, spread, np.inf).astype(np.float32)  # drops constant features
        scaled = self._scaled(x)
        self.pairs = _screen(scaled, self._indicators(y), max(self.choices))
        best: tuple[float, int, Any] = (np.inf, 0, None)
        held = self._features(self._scaled(x_val))
        made = self._features(scaled)
        for keep in self.choices:
            model = linear_model(self.classes, 1.0, self.seed, scale=False).fit(made[:, :keep], y, x_val, y_val)
            loss = loss_of(model.predict(held[:, :keep]), y_val)
            if best[2] is None or loss < best[0]:
                best = (loss, keep, model)
        _, self.keep, self.model = best
        return self

    def predict(self, x: Matrix) -> Array:
        """Predict from the features that were kept."""
        return np.asarray(self.model.predict(self._features(self._scaled(x))[:, : self.keep]))

    def _scaled(self, x: Matrix) -> Matrix:
        return np.asarray((x - self.center) / self.spread, dtype=np.float32)

    def _indicators(self, y: Array) -> Matrix:
        # Of two classes, one indicator is enough.
        codes = np.arange(self.classes or 1) if self.classes != 2 else np.ones(1)
        columns = y[:, None] if self.classes is None else y[:, None] == codes[None, :]
        columns = columns.astype(np.float64)
        spread = columns.std(axis=0)
        return np.asarray((columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0), dtype=np.float32)

    def _features(self, scaled: Matrix) -> Matrix:
        first, second = self.pairs[:, 0], self.pairs[:, 1]
        partner = np.where(second < 0, np.float32(1.0), scaled[:, second])
        return np.asarray(partner * scaled[:, first], dtype=np.float32)


#: Products are screened among at most this many features: those that correlate most with the target.
_MOST_PAIRED = 400


def _screen(scaled: Matrix, targets: Matrix, keep: int) -> NDArray[np.int64]:
    """The features (i, -1) and products (i, j) with the largest correlation with any target column: (keep, 2)."""
    n = len(scaled)
    alone = np.abs(scaled.T @ targets / n).max(axis=1)
    chosen = np.sort(np.argsort(-alone, kind="stable")[:_MOST_PAIRED])
    some = scaled[:, chosen]
    squares = some**2
    deviation = np.sqrt(np.maximum(squares.T @ squares / n - (some.T @ some / n) ** 2, 1e-12))
    together = np.zeros((len(chosen), len(chosen)), dtype=np.float32)
    for column in targets.T:
        together = np.maximum(together, np.abs((some * column[:, None]).T @ some / n) / deviation)
    # A product of rare flags is nonzero in a handful of rows only: its correlation is noise.
    together[deviation < 1e-3] = 0.0
    rows, columns = np.triu_indices(len(chosen), k=1)
    # The largest of many correlations is larger by chance: products are compared by what exceeds that.
    chance = [np.sqrt(2.0 * np.log(max(count, 2)) / n) for count in (len(alone), len(rows))]
    scores = np.concatenate([alone - chance[0], together[rows, columns] - chance[1]])
    names = np.concatenate([
        np.stack([np.arange(scaled.shape[1]), np.full(scaled.shape[1], -1)], axis=1),
        np.stack([chosen[rows], chosen[columns]], axis=1),
    ])  # fmt: skip
    return np.asarray(names[np.argsort(-scores, kind="stable")[:keep]], dtype=np.int64)


@dataclass(frozen=True)
class Attacker:
    """A family of models on one view of the release.

    candidates(classes, seed): the models that are tried; the one with the lowest validation loss is used.
    checks: whether it is fast and strong enough to run the controls of a quick audit.
    """

    name: str
    view: str
    candidates: Callable[[int | None, int], Sequence[Model]]
    checks: bool = False


def check_profile(profile: str) -> None:
    """Reject an unknown profile."""
    if profile not in get_args(Profile):
        raise InputError(must_be("audit", "profile", "'quick' or 'full'", profile))


def battery(profile: Profile, *, images: bool = False, wide: bool = False) -> list[Attacker]:
    """The attackers of a profile. wide: also those on principal components; images always have them."""
    most, full = _MOST_ROWS[profile], profile == "full"
    boosts = [(31, 0.08, 200)] if not full else [(31, 0.08, 400), (8, 0.08, 400), (127, 0.05, 400)]

    def boosting(classes: int | None, seed: int) -> list[Model]:
        return [Boosting(classes, *settings, seed) for settings in boosts]

    def linear(classes: int | None, seed: int) -> list[Model]:
        return [linear_model(classes, strength, seed) for strength in ((0.1,) if not full else (0.001, 0.1, 10.0))]

    def forest(classes: int | None, seed: int) -> list[Model]:
        sizes = (5,) if not full else (3, 15, 60)
        return [Sklearn(_forest(classes, leaf, 100 if not full else 300, seed), classes, most, seed) for leaf in sizes]

    def neighbours(classes: int | None, seed: int) -> list[Model]:
        return [Neighbours(classes, (10, 40, 120), most // 2, seed)]

    def sparse(classes: int | None, seed: int) -> list[Model]:
        return [Sparse(classes, (1, 3, 10, 30, 100), seed)]

    def crosses(classes: int | None, seed: int) -> list[Model]:
        return [Crosses(classes, seed, lambda classes, seed: Boosting(classes, 15, 0.05, 200, seed))]

    def network(hidden: tuple[int, ...], number: int) -> Callable[..., list[Model]]:
        epochs = 15 if not full else 40
        return lambda classes, seed: [Network(hidden, classes=classes, epochs=epochs, seed=seed + number)]

    def convolutions(classes: int | None, seed: int) -> list[Model]:
        if not full:
            return [Network((128,), classes=classes, filters=FILTERS, epochs=15, seed=seed + 7)]
        deep = (*FILTERS, 128)  # until validation rows stop it
        return [Network((256,), classes=classes, filters=deep, epochs=100, batch=128, rate=1e-3, dropout=0.4,
                        patience=8, seed=seed + 7)]  # fmt: skip

    def on_components(classes: int | None, seed: int) -> list[Model]:
        # Equal scales find what is spread over many components, their own scales what a few large ones tell.
        kinds: list[dict[str, Any]] = [{"input_dropout": 0.4}, {"input_dropout": 0.1, "one_scale": True}]
        return [Averaged([Network((512, 256), classes=classes, epochs=25, patience=25, batch=128, rate=1e-3,
                                  dropout=0.4, decay=0.01, seed=seed + 11 + number, **kinds[number % 2])
                          for number in range(2 if not full else 6)])]  # fmt: skip

    def pretrained(classes: int | None, seed: int) -> list[Model]:
        return [OnFeatures([linear_model(classes, 0.01, seed), *on_components(classes, seed)])]

    widths = [(128, 64)] if not full else [(64,), (256, 128), (512, 256, 128)]
    networks = [
        Attacker(f"MLP {'-'.join(map(str, hidden))}{f' #{number + 1}' if full else ''}", "values",
                 network(hidden, 100 * number))
        for hidden in widths for number in range(2 if full else 1)
    ]  # fmt: skip
    tables = [
        Attacker("linear", "values", linear, checks=True),
        Attacker("LightGBM", "values", boosting, checks=True),
        Attacker("random forest", "values", forest),
        Attacker("nearest neighbours", "values", neighbours),
        *networks,
        Attacker("sparse linear", "everything", sparse, checks=True),
        Attacker("crosses", "codes", crosses, checks=True),
        # Trees on everything also see the details; without the values they are worth their time in a full audit only.
        *([Attacker("LightGBM", "details", boosting)] if full else []),
        Attacker("LightGBM", "everything", boosting),
    ]
    components = [
        Attacker("MLP 512-256", "components", on_components, checks=True),
        Attacker("LightGBM", "components", boosting),
        Attacker("nearest neighbours", "components", neighbours),
        Attacker("linear", "components", linear),
    ]
    if images and full and is_available():
        components.append(Attacker("pretrained features", "images", pretrained))
    if images:
        return [Attacker("CNN", "images", convolutions, checks=True), *components, *tables]
    return [*tables, *components] if wide else tables


def linear_model(classes: int | None, strength: float, seed: int, *, scale: bool = True) -> Model:
    """Logistic or ridge regression."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = Ridge(1.0 / strength) if classes is None else LogisticRegression(C=strength, max_iter=300, tol=1e-3)
    return Sklearn(make_pipeline(StandardScaler(), linear) if scale else linear, classes, 10**9, seed)


def _forest(classes: int | None, leaf: int, trees: int, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    threads = torch.get_num_threads()  # as many as all else: the order in which trees are added up depends on it
    settings: dict[str, Any] = {"n_estimators": trees, "min_samples_leaf": leaf, "n_jobs": threads,
                                "random_state": seed}  # fmt: skip
    if classes is None:
        return RandomForestRegressor(max_features=0.33, **settings)
    return RandomForestClassifier(max_features="sqrt", **settings)


def _subset(rows: int, most: int, seed: int) -> NDArray[np.int64]:
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _spread_out(probabilities: Array, seen: NDArray[np.generic], classes: int) -> Array:
    """Columns for all classes, including those without training rows."""
    out = np.zeros((len(probabilities), classes))
    out[:, np.asarray(seen, dtype=np.int64)] = probabilities
    return out
