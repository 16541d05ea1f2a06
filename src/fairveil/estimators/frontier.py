"""`FairFrontier`: the whole trade-off, all budgets (and seeds) trained as one batched network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from fairveil._utils.errors import BudgetNotMet, InputError, must_be
from fairveil.data.images import PictureSchema
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Unseen
from fairveil.encoders.base import ModuleFactory
from fairveil.estimators.encoder import FairEncoder, GameEstimator, unmet_message
from fairveil.estimators.inputs import Budget, check_budget, seed_from
from fairveil.estimators.training import Trained, train
from fairveil.objectives import Constraint, Loss
from fairveil.objectives.distortion import RowDistortion
from fairveil.training import Training


class FairFrontier(GameEstimator):
    """One encoder for each of several budgets, trained together in one game.

    budgets : list of budgets, each as in `FairEncoder`.
    seeds : how many encoders to train for each budget, from different starting weights. What is learned before the
        game (by `transport`, by `partition`, or with `Training(lessons=...)`) is one for all of them: for independent
        repetitions fit anew with another `random_state`.
    All other parameters are those of `FairEncoder`.

    After `fit`: `points_`, a frame with one row a budget and seed (achieved distortion, upper bound, whether the budget
    is met); `encoder(budget)`, the fitted `FairEncoder` of one point. A point whose budget is not met is marked, and
    asking for its encoder raises `BudgetNotMet`; `fit` raises it when no point is met.
    """

    def __init__(
        self,
        budgets: Sequence[Budget] = (0.25, 0.5, 1.0, 2.0),
        *,
        seeds: int = 1,
        architecture: str | ModuleFactory = "auto",
        cells: int | None = None,
        loss: str | Loss = "log",
        distortion: str | RowDistortion = "auto",
        constraint: str | Constraint = "augmented_lagrangian",
        sees_sensitive: bool = False,
        release: Literal["sampled", "probabilities"] = "sampled",
        target_weight: float = 0.0,
        sensitive_columns: Sequence[str | int] | None = None,
        per_column_adversaries: bool = False,
        schema: Schema | None = None,
        unseen: Unseen = "error",
        training: Training | None = None,
        confidence: float = 0.95,
        checkpoint: str | Path | None = None,
        progress: bool = True,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.budgets = budgets
        self.seeds = seeds
        self.architecture = architecture
        self.cells = cells
        self.loss = loss
        self.distortion = distortion
        self.constraint = constraint
        self.sees_sensitive = sees_sensitive
        self.release = release
        self.target_weight = target_weight
        self.sensitive_columns = sensitive_columns
        self.per_column_adversaries = per_column_adversaries
        self.schema = schema
        self.unseen = unseen
        self.training = training
        self.confidence = confidence
        self.checkpoint = checkpoint
        self.progress = progress
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:
        """Train all points at once."""
        for name in ("trained_", "points_"):  # a fit that fails must not leave an older frontier behind
            self.__dict__.pop(name, None)
        members, trained = self.train_all(X, y, sensitive_features)
        points = pd.DataFrame([_point(b, n, t) for (b, n), t in zip(members, trained, strict=True)])
        if not points["met"].any():
            raise BudgetNotMet("No budget is met. " + unmet_message(trained[-1].achieved))
        self.trained_: list[Trained] = trained
        self.points_ = points
        return self

    def train_all(
        self, X: Any, y: Any = None, sensitive_features: Any = None
    ) -> tuple[list[tuple[Budget, int]], list[Trained]]:
        """Train without asking whether any budget is met: (budget, seed) of every member, and what came of it.

        For experiments with methods that do not keep their bound; `fit` is the way to a veil.
        """
        settings = self._settings()
        if not isinstance(self.seeds, int) or self.seeds < 1:
            raise InputError(must_be("FairFrontier", "seeds", "a whole number of at least 1", self.seeds))
        prepared = self._prepare(X, y, sensitive_features)
        budgets = self._check_budgets(prepared.schema)
        members = [(budget, number) for budget in budgets for number in range(self.seeds)]
        seed = seed_from(self.random_state)
        return members, train(prepared, [b for b, _ in members], [n for _, n in members], settings, seed)

    def encoder(self, budget: Budget, seed: int = 0) -> FairEncoder:
        """The fitted encoder of one point."""
        check_is_fitted(self, "points_")
        found = [i for i, (b, n) in enumerate(zip(self.points_["budget"], self.points_["seed"], strict=True))
                 if b == budget and n == seed]  # fmt: skip
        if not found:
            raise InputError(f"There is no point with budget {budget} and seed {seed}. Budgets: {list(self.budgets)}.")
        trained = self.trained_[found[0]]
        if not trained.achieved.met:
            raise BudgetNotMet(unmet_message(trained.achieved))
        shared = {
            name: value for name, value in self.get_params(deep=False).items() if name not in ("budgets", "seeds")
        }
        encoder = FairEncoder(budget, **{**shared, "schema": trained.veil.table_schema})
        encoder.n_features_in_ = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            encoder.feature_names_in_ = self.feature_names_in_
        encoder._fitted_rows = self._fitted_rows
        return encoder._adopt(trained)

    def transform(self, X: Any, *, budget: Budget | None = None, sensitive_features: Any = None) -> Any:
        """A censored copy of X at one budget; without one, at the point that is met and changes the rows most."""
        check_is_fitted(self, "points_")
        seed = 0
        if budget is None:
            met = self.points_[self.points_["met"]]
            budget, seed = met.loc[met["distortion"].idxmax(), ["budget", "seed"]]
        return self.encoder(budget, seed).transform(X, sensitive_features=sensitive_features)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The columns of a release."""
        check_is_fitted(self, "points_")
        return np.asarray(self.trained_[0].veil.output_names(), dtype=object)

    def _check_budgets(self, schema: Schema | PictureSchema) -> list[Budget]:
        given = list(self.budgets) if hasattr(self.budgets, "__iter__") else []
        if not given:
            raise InputError(must_be("FairFrontier", "budgets", "a list of at least one budget", self.budgets))
        budgets = [check_budget("FairFrontier", budget, schema) for budget in given]
        if len({isinstance(budget, dict) for budget in budgets}) > 1:
            raise InputError("All budgets must be of one form: numbers, or mappings from kind to number.")
        if any(budgets.count(budget) > 1 for budget in budgets):
            raise InputError("The 'budgets' parameter of FairFrontier names a budget twice.")
        return budgets


def _point(budget: Budget, seed: int, trained: Trained) -> dict[str, Any]:
    achieved = trained.achieved
    return {
        "budget": budget,
        "seed": seed,
        "distortion": achieved.mean,
        "upper": achieved.upper,
        "categorical": achieved.parts["categorical"].mean,
        "continuous": achieved.parts["continuous"].mean,
        "held_out_rows": achieved.rows,
        "met": achieved.met,
    }
