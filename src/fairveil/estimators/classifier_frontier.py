"""`FairClassifierFrontier`: one classifier for each of several bounds on the loss, trained as one batched network."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import pandas as pd
from sklearn.utils.validation import check_is_fitted

from fairveil._utils.errors import BudgetNotMet, BudgetWarning, InputError, must_be
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Unseen
from fairveil.estimators.classifier import ClassifierBase, FairClassifier, Fairness, unmet_loss
from fairveil.objectives import Constraint, Loss
from fairveil.training import Training


class FairClassifierFrontier(ClassifierBase):
    """One `FairClassifier` for each of several bounds on the loss, all trained together in one game.

    max_losses : list of bounds, as `max_loss`. All other parameters are those of `FairClassifier`.

    After `fit`: `points_`, a frame with one row a bound (loss of held-out rows, its upper bound, whether it is met);
    `classifier(max_loss)`, the fitted classifier of one point. For a point that is not met, `fit` warns; asking for
    it raises `BudgetNotMet`, or warns again if `unmet` is "warn".
    """

    def __init__(
        self,
        max_losses: Sequence[float] = (0.35, 0.4, 0.45, 0.5),
        fairness: Fairness = "demographic_parity",
        *,
        loss: str | Loss = "log",
        adversary_loss: str | Loss = "log",
        constraint: str | Constraint = "augmented_lagrangian",
        sees_sensitive: bool = False,
        sensitive_columns: Sequence[str | int] | None = None,
        balanced: bool = False,
        per_column_adversaries: bool = False,
        schema: Schema | None = None,
        unseen: Unseen = "error",
        unmet: Literal["raise", "warn"] = "raise",
        training: Training | None = None,
        confidence: float = 0.95,
        checkpoint: str | Path | None = None,
        progress: bool = True,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.max_losses = max_losses
        self.fairness = fairness
        self.loss = loss
        self.adversary_loss = adversary_loss
        self.constraint = constraint
        self.sees_sensitive = sees_sensitive
        self.sensitive_columns = sensitive_columns
        self.balanced = balanced
        self.per_column_adversaries = per_column_adversaries
        self.schema = schema
        self.unseen = unseen
        self.unmet = unmet
        self.training = training
        self.confidence = confidence
        self.checkpoint = checkpoint
        self.progress = progress
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None) -> Self:
        """Train all points at once."""
        for name in ("trained_", "points_"):
            self.__dict__.pop(name, None)
        given = list(self.max_losses) if hasattr(self.max_losses, "__iter__") else []
        bounds = [self._bound(value) for value in given]
        if not bounds or len(set(bounds)) < len(bounds):
            raise InputError(must_be("FairClassifierFrontier", "max_losses", "a list of different bounds", given))
        trained = self._train(X, y, sensitive_features, bounds)
        points = pd.DataFrame([
            {"max_loss": bound, "loss": t.achieved.mean, "upper": t.achieved.upper, "held_out_rows": t.achieved.rows,
             "met": t.achieved.met} for bound, t in zip(bounds, trained, strict=True)
        ])  # fmt: skip
        if self.unmet == "raise" and not points["met"].any():
            raise BudgetNotMet("No bound is met. " + unmet_loss(trained[-1].achieved))
        unmet = points.loc[~points["met"], "max_loss"].tolist()
        if unmet:
            warnings.warn(f"These bounds are not met on held-out rows: {unmet}.", BudgetWarning, stacklevel=2)
        self.trained_, self.points_ = trained, points
        return self

    def classifier(self, max_loss: float) -> FairClassifier:
        """The fitted classifier of one point."""
        check_is_fitted(self, "points_")
        found = self.points_.index[self.points_["max_loss"] == max_loss]
        if not len(found):
            raise InputError(f"There is no point with max_loss {max_loss}. Bounds: {list(self.points_['max_loss'])}.")
        trained = self.trained_[found[0]]
        shared = {name: value for name, value in self.get_params(deep=False).items() if name != "max_losses"}
        single = FairClassifier(**{**shared, "max_loss": max_loss, "schema": trained.veil.table_schema})
        single.classes_, single.n_features_in_ = self.classes_, self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            single.feature_names_in_ = self.feature_names_in_
        return single._adopt(trained)
