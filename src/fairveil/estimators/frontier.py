"""`FairFrontier`: the trade-off curve of an estimator, all budgets and seeds trained as one batched network."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fairveil._utils.errors import BudgetNotMet, BudgetWarning, CollapseWarning, InputError, must_be
from fairveil._utils.html import fragment
from fairveil.estimators.classifier import FairClassifier
from fairveil.estimators.encoder import FairEncoder
from fairveil.estimators.inputs import Budget
from fairveil.report.charts import frontier_figure
from fairveil.report.frontier import write_training


def _releases(frontier: "FairFrontier") -> bool:
    """Whether the estimator releases rows rather than predictions."""
    return hasattr(frontier.estimator, "transform")


class FairFrontier(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """One fitted estimator for each of several budgets, all trained together in one game.

    Parameters
    ----------
    estimator : FairEncoder or FairClassifier
        The estimator fitted at every point. Its own `budget` (or `max_loss`) is not used.
    budgets : list
        Budgets, each as in `FairEncoder`; for a `FairClassifier`, bounds on its loss.
    n_seeds : int
        How many estimators to train for each budget, from different initial weights. A warm start (of `Transport` or
        `Partition`) is shared by all of them: for independent repetitions fit again with another `random_state`.

    Attributes
    ----------
    points_ : DataFrame
        One row per budget and seed: the achieved value, its upper bound, whether the budget is met, and the training
        adversaries' gain over guessing on validation rows (which is not a measure of leakage). For encoders also the
        unit of the distortion, the column whose distribution moved most and by how much (total variation), and the
        columns that collapse to few values.
    estimators_ : list
        The fitted estimators, in the order of `points_`.

    Raises
    ------
    BudgetNotMet
        No budget is met, and the estimator's `unmet` is "raise".

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import fairveil as fv
    >>> generator = np.random.default_rng(0)
    >>> X = pd.DataFrame({"town": generator.choice(["x", "y"], 200), "age": generator.integers(20, 60, 200)})
    >>> S = pd.Series(generator.choice(["f", "m"], 200), name="sex")
    >>> brief = fv.Training(steps=2, adversary_hidden=((4,),), rounds=1)
    >>> encoder = fv.FairEncoder(training=brief, unmet="warn", verbose=False, random_state=0)
    >>> frontier = fv.FairFrontier(encoder, budgets=[6.0, 9.0]).fit(X, sensitive_features=S)
    >>> frontier.points_["budget"].tolist()
    [6.0, 9.0]
    >>> frontier.at(9.0).transform(X).shape
    (200, 2)
    """

    def __init__(
        self,
        estimator: FairEncoder | FairClassifier,
        budgets: Sequence[Budget] = (0.25, 0.5, 1.0, 2.0),
        *,
        n_seeds: int = 1,
    ) -> None:
        self.estimator = estimator
        self.budgets = budgets
        self.n_seeds = n_seeds

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train all points at once; the arguments are those of the estimator's `fit`."""
        for name in ("estimators_", "points_"):  # a failed fit must not leave an old frontier
            self.__dict__.pop(name, None)
        members = [(budget, number) for budget in self._budgets() for number in range(self.n_seeds)]
        base = clone(self.estimator)
        if getattr(base, "certified", None) is not None:
            raise InputError("A frontier trains one encoder per budget; certified= fits a single one.")
        budgets, numbers = [budget for budget, _ in members], [number for _, number in members]
        trained = base._train(X, y, sensitive_features, sample_weight, budgets, numbers)
        state = {name: value for name, value in vars(base).items() if name not in base.get_params(deep=False)}
        estimators = []
        for (budget, _), found in zip(members, trained, strict=True):
            single = clone(self.estimator).set_params(**{base._varied: budget, "schema": found.veil.table_schema})
            vars(single).update(state)
            estimators.append(single._adopt(found))
        points = pd.DataFrame([
            {"budget": budget, "seed": number, **single._point()}
            for (budget, number), single in zip(members, estimators, strict=True)
        ])  # fmt: skip
        self._tell_unmet(points)
        if "collapsed" in points and (points["collapsed"] != "").any():
            found = points[points["collapsed"] != ""]
            names = sorted({name for each in found["collapsed"] for name in each.split(", ")})
            warnings.warn(f"Columns collapse to few values at budgets {found['budget'].drop_duplicates().tolist()}: "
                          f"{', '.join(names[:10])}. See points_ and drift_ of each estimator.",
                          CollapseWarning, stacklevel=2)  # fmt: skip
        self.estimators_: list[Any] = estimators
        self.points_ = points
        for name in ("n_features_in_", "feature_names_in_", "classes_"):
            if name in state:
                setattr(self, name, state[name])
        return self

    @classmethod
    def of(cls, estimator: FairEncoder | FairClassifier, parts: Sequence["FairFrontier"]) -> Self:
        """One frontier of several that were fitted to the same rows, for other budgets each.

        Their encoders were trained in games of their own: they differ a little from those of one game.
        """
        frontier = cls(estimator, [budget for part in parts for budget in part.budgets], n_seeds=parts[0].n_seeds)
        frontier.estimators_ = [single for part in parts for single in part.estimators_]
        frontier.points_ = pd.concat([part.points_ for part in parts], ignore_index=True)
        for name in ("n_features_in_", "feature_names_in_", "classes_"):
            if hasattr(parts[0], name):
                setattr(frontier, name, getattr(parts[0], name))
        frontier._tell_unmet(frontier.points_)
        return frontier

    def _tell_unmet(self, points: pd.DataFrame) -> None:
        if self.estimator.unmet == "raise" and not points["met"].any():
            raise BudgetNotMet(
                f"None of the budgets is met on held-out rows: the lowest upper bound is {points['upper'].min():.4g}. "
                "Raise the budgets, train for more steps, or give more rows."
            )
        if not points["met"].all():
            unmet = points.loc[~points["met"], "budget"].drop_duplicates().tolist()
            warnings.warn(f"These budgets are not met on held-out rows: {unmet}.", BudgetWarning, stacklevel=3)

    def at(self, budget: Budget, seed: int = 0) -> Any:
        """The fitted estimator of one point. Raises BudgetNotMet for one that is not met, unless `unmet` is "warn"."""
        check_is_fitted(self, "points_")
        found = [i for i, (b, n) in enumerate(zip(self.points_["budget"], self.points_["seed"], strict=True))
                 if b == budget and n == seed]  # fmt: skip
        if not found:
            raise InputError(f"There is no point with budget {budget} and seed {seed}. Budgets: {list(self.budgets)}.")
        if self.estimator.unmet == "raise" and not self.points_["met"][found[0]]:
            raise BudgetNotMet(f"The budget of {budget} is not met: the upper bound is "
                               f"{self.points_['upper'][found[0]]:.4g}.")  # fmt: skip
        return self.estimators_[found[0]]

    def plot(self) -> Any:
        """Plot all points: how much of each budget was spent, and the training adversaries' remaining gain.

        Returns an array of two matplotlib axes.
        """
        return np.asarray(frontier_figure(self._shown()).axes)

    def _html_repr(self) -> str:
        """For notebooks: the points, above scikit-learn's diagram of the parameters."""
        diagram = str(super()._html_repr())
        if not hasattr(self, "points_"):
            return diagram
        names = ["budget", "seed", "achieved", "upper", "met"]
        rows = [names, *([point[name] for name in names] for point in self._shown())]
        met = int(self.points_["met"].sum())
        return fragment("Frontier", f"{met} of {len(self.points_)} budgets are met on held-out rows.", rows) + diagram

    def to_html(self, path: str | Path) -> None:
        """Write all points as one explorable page with a slider over the budgets. It holds no rows."""
        write_training(self._shown(), self.estimator._varied, Path(path))

    def _shown(self) -> list[dict[str, Any]]:
        """Points as plain values; for a budget by kind, the sum."""
        check_is_fitted(self, "points_")
        rows = self.points_.rename(columns={"distortion": "achieved", "loss": "achieved"}).to_dict("records")
        return [
            {**row, "shown": str(row["budget"]),
             "budget": sum(row["budget"].values()) if isinstance(row["budget"], dict) else row["budget"]}
            for row in rows
        ]  # fmt: skip

    @available_if(_releases)  # type: ignore[untyped-decorator]
    def transform(self, X: Any, *, budget: Budget | None = None, sensitive_features: Any = None) -> Any:
        """A censored copy of X at one budget; by default, at the point that is met and changes the rows most."""
        check_is_fitted(self, "points_")
        if budget is not None:
            return self.at(budget).transform(X, sensitive_features=sensitive_features)
        met = self.points_[self.points_["met"]] if self.points_["met"].any() else self.points_
        chosen = self.estimators_[met["distortion"].idxmax()]
        return chosen.transform(X, sensitive_features=sensitive_features)

    @available_if(_releases)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None) -> Any:
        """Fit, then release the same rows at the point that is met and changes them most."""
        self.fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        shown = sensitive_features if self.estimator.sees_sensitive else None
        return self.transform(X, sensitive_features=shown)

    @available_if(_releases)  # type: ignore[untyped-decorator]
    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The columns of a release."""
        check_is_fitted(self, "points_")
        return self.estimators_[0].get_feature_names_out(input_features)

    def __sklearn_tags__(self) -> Any:
        return self.estimator.__sklearn_tags__()

    def _budgets(self) -> list[Budget]:
        if not isinstance(self.estimator, (FairEncoder, FairClassifier)):
            raise InputError(must_be("FairFrontier", "estimator", "a FairEncoder or a FairClassifier", self.estimator))
        if not isinstance(self.n_seeds, int) or isinstance(self.n_seeds, bool) or self.n_seeds < 1:
            raise InputError(must_be("FairFrontier", "n_seeds", "a whole number of at least 1", self.n_seeds))
        given = list(self.budgets) if hasattr(self.budgets, "__iter__") else []
        if not given:
            raise InputError(must_be("FairFrontier", "budgets", "a list of at least one budget", self.budgets))
        if len({isinstance(budget, dict) for budget in given}) > 1:
            raise InputError("All budgets must have the same form: numbers, or mappings from kind to number.")
        if any(given.count(budget) > 1 for budget in given):
            raise InputError("The 'budgets' parameter of FairFrontier names a budget twice.")
        return given
