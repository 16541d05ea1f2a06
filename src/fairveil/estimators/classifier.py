"""`FairClassifier`: predict a known target while hiding S in the predictions, as a scikit-learn classifier."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from fairveil._utils.errors import BudgetNotMet, BudgetWarning, InputError, must_be
from fairveil._utils.randomness import ByteSource
from fairveil.data.batch import check_types
from fairveil.data.frames import Table, read_table
from fairveil.data.schema import Schema
from fairveil.data.table_codec import HandleUnknown
from fairveil.data.weights import read_weights
from fairveil.encoders import ClassifierHead, Signature
from fairveil.estimators.adversaries import chance_given, check_fairness
from fairveil.estimators.base import TableEstimator
from fairveil.estimators.inputs import (
    Aims,
    Prepared,
    draw_source,
    given_sensitive,
    prepare,
    read_sensitive,
    split_sensitive,
)
from fairveil.estimators.targets import read_target
from fairveil.estimators.training import Settings, Trained, train
from fairveil.objectives import AlphaLoss, Constraint, Loss, PredictionLoss, make_loss, score_grid
from fairveil.objectives.bounds import Bounds
from fairveil.training import Target, Training
from fairveil.training.confidence_bound import FEWEST_ROWS, Achieved, upper_bound
from fairveil.veil import Veil

Fairness = Literal["demographic_parity", "equalized_odds"]


class FairClassifier(ClassifierMixin, TableEstimator):  # type: ignore[misc]
    """A classifier whose predictions reveal as little about S as a bound on their loss allows.

    For each row one of a few soft predictions (`scores_`) is drawn. The draw is learned in the constrained game of
    `eq:Opt-fairClassifier-EO`: adversaries predict S from the soft prediction (for equalized odds, also given Y), and
    the mean loss of the predictions must not exceed `max_loss`.

    Parameters
    ----------
    fairness : {"demographic_parity", "equalized_odds"}
        Predictions independent of S, or independent of S among rows with the same true label.
    max_loss : float
        Epsilon, the bound on the mean loss, in nats for log-loss. Smaller values give better but less fair predictions.
        A bound that held-out rows do not confirm is not met.
    loss : {"log", "zero_one"} or AlphaLoss
        Loss of the predictions. "zero_one" bounds the error rate itself; a label is drawn then, not a soft prediction.
    adversary_loss : {"log", "zero_one"} or AlphaLoss
    sees_sensitive : bool
        Whether the classifier sees S in addition to X, in `fit` and in `predict`.
    balanced : bool
        Whether all groups of S (for equalized odds: all pairs of S and Y) have equal weight in the adversaries' losses,
        whatever their size. Gaps such as ΔEO call for that; the paper's game weights rows equally.
    unmet : {"raise", "warn"}
        What `fit` does if the bound is not met.
    hidden : tuple of int
        Hidden layers of the network.
    sensitive_columns, schema, constraint, handle_unknown, training, confidence, verbose, random_state :
        As in `FairEncoder`. With an int, the same table gets the same draw every time; with None every call draws
        again. Only one draw per row is protected: publish one only, and derive labels from the published soft
        predictions.

    Attributes
    ----------
    classes_ : array
        The labels.
    scores_ : array
        The available soft predictions, (scores, classes).
    loss_ : Achieved
        Mean loss on held-out rows and its upper confidence bound.
    history_ : History
        The course of training.

    Raises
    ------
    BudgetNotMet
        The upper bound on the loss exceeds `max_loss`, and `unmet` is "raise".

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import fairveil as fv
    >>> generator = np.random.default_rng(0)
    >>> X = pd.DataFrame({"town": generator.choice(["x", "y"], 200), "age": generator.integers(20, 60, 200)})
    >>> S = pd.Series(generator.choice(["f", "m"], 200), name="sex")
    >>> y = (X["age"] > 40).astype(int)
    >>> brief = fv.Training(steps=2, adversary_hidden=((4,),), rounds=1)
    >>> model = fv.FairClassifier(max_loss=9.0, training=brief, unmet="warn", verbose=False, random_state=0)
    >>> model.fit(X, y, sensitive_features=S).predict_proba(X).shape
    (200, 2)
    """

    #: The parameter that a `FairFrontier` varies.
    _varied = "max_loss"

    def __init__(
        self,
        fairness: Fairness = "demographic_parity",
        max_loss: float = 0.4,
        *,
        loss: str | Loss = "log",
        adversary_loss: str | Loss = "log",
        constraint: str | Constraint = "augmented_lagrangian",
        sees_sensitive: bool = False,
        sensitive_columns: Sequence[str | int] | None = None,
        balanced: bool = False,
        hidden: tuple[int, ...] = (128, 128),
        schema: Schema | None = None,
        handle_unknown: HandleUnknown = "error",
        training: Training | None = None,
        unmet: Literal["raise", "warn"] = "raise",
        confidence: float = 0.95,
        verbose: bool = True,
        random_state: Any = None,
    ) -> None:
        self.fairness = fairness
        self.max_loss = max_loss
        self.loss = loss
        self.adversary_loss = adversary_loss
        self.constraint = constraint
        self.sees_sensitive = sees_sensitive
        self.sensitive_columns = sensitive_columns
        self.balanced = balanced
        self.hidden = hidden
        self.schema = schema
        self.handle_unknown = handle_unknown
        self.training = training
        self.unmet = unmet
        self.confidence = confidence
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Learn to predict y from X without revealing `sensitive_features`.

        Parameters
        ----------
        X : table or array
            pandas, polars or pyarrow.
        y : array
            The labels.
        sensitive_features : array or table
            S, one or several columns, unless `sensitive_columns` or the schema identifies it in X.
        sample_weight : array, optional
            How many rows of the population each row stands for.
        """
        for name in ("veil_", "scores_", "loss_", "history_"):  # a failed fit must not leave old results
            self.__dict__.pop(name, None)
        [trained] = self._train(X, y, sensitive_features, sample_weight, [self.max_loss], [0])
        if self.unmet == "raise" and not trained.achieved.met:
            raise BudgetNotMet(unmet_loss(trained.achieved))
        if not trained.achieved.met:
            warnings.warn(unmet_loss(trained.achieved), BudgetWarning, stacklevel=2)
        return self._adopt(trained)

    def _train(
        self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any, budgets: Sequence[Any],
        numbers: Sequence[int],
    ) -> list[Trained]:  # fmt: skip
        """Train a classifier for each pair of a loss bound and a seed number, all in one game."""
        settings, prediction, adversary = Settings.of(self), *self._losses()
        bounds = [_bound(value) for value in budgets]
        table = self._read(X, reset=True)
        truth, self.classes_ = read_target(y, len(table))
        weights = read_weights(sample_weight, len(table))
        inside = split_sensitive(table, self.sensitive_columns, self.schema)
        per_column = bool(settings.training.per_column_adversaries)
        prepared = prepare(
            table,
            read_sensitive(table, inside, sensitive_features),
            self.schema,
            inside,
            None,
            Aims(adversary, 0.0, self.sees_sensitive, per_column),
            bins=True,
            handle_unknown=self.handle_unknown,
            weights=weights,
        )
        truth = truth if weights is None else truth[torch.from_numpy(weights > 0)]
        scores = score_grid(len(self.classes_), prediction)
        cost = PredictionLoss(scores, prediction)
        if min(bounds) <= cost.least:
            raise InputError(
                f"max_loss must exceed {cost.least:.3g}, the loss of the most confident correct prediction. "
                f"Got {min(bounds):g}."
            )
        prepared = self._with_truth(prepared, truth, adversary)

        def achieved(veil: Veil, held_out: Tensor, member: int) -> Achieved:
            rows = prepared.rows.take(held_out)
            chance = veil.release(rows.x, rows.sensitive, torch.Generator()).probabilities
            values = (chance * cost.costs(rows.x)).sum(dim=1).double().numpy()
            shares = None if rows.weight is None else rows.weight.numpy()
            upper = upper_bound(values, self.confidence, cost.largest, shares)
            mean = float(np.average(values, weights=shares))
            return Achieved(mean, upper, bounds[member], len(values), self.confidence, measure="loss")

        sensitive = prepared.sensitive
        seen = 0 if prepared.rows.sensitive is None else sensitive.width
        return train(
            prepared,
            settings,
            architecture=ClassifierHead(tuple(map(tuple, scores.tolist())), self._odds, tuple(self.hidden)),
            signature=Signature(prepared.schema.layout, "sampled", seen, sensitive.discrete, sensitive.names()),
            loss=adversary,
            distortion=cost,
            bounds=Bounds.of_loss(bounds),
            numbers=numbers,
            measure=achieved,
        )

    def _losses(self) -> tuple[AlphaLoss, AlphaLoss]:
        """The loss of predictions and that of adversaries, checked."""
        owner = type(self).__name__
        check_fairness(owner, self.fairness)
        losses = make_loss(self.loss, owner), make_loss(self.adversary_loss, owner, "adversary_loss")
        prediction, adversary = losses
        if not (isinstance(prediction, AlphaLoss) and isinstance(adversary, AlphaLoss)):
            raise InputError(f"{owner} predicts classes and hides classes: loss and adversary_loss must be 'log', "
                             "'zero_one' or an AlphaLoss.")  # fmt: skip
        return prediction, adversary

    @property
    def _odds(self) -> bool:
        return self.fairness == "equalized_odds"

    def _with_truth(self, prepared: Prepared, truth: Tensor, adversary: AlphaLoss) -> Prepared:
        """Rows that end with the true label, one-hot, and the adversaries' losses without any prediction."""
        one_hot = torch.nn.functional.one_hot(truth, len(self.classes_)).to(prepared.rows.x.dtype)
        secrets, given = prepared.rows.secrets, truth if self._odds else torch.zeros_like(truth)
        weight = torch.ones(len(truth)) if prepared.rows.weight is None else prepared.rows.weight.float()
        importance = _alike(secrets[0], given, weight) if self.balanced else torch.ones(len(truth))
        x = torch.cat([prepared.rows.x, one_hot], dim=1)
        rows = replace(prepared.rows, x=x, importance=importance)
        targets = tuple(
            Target(target.outputs, chance_given(adversary, secret, given, importance * weight))
            for target, secret in zip(prepared.targets, secrets, strict=True)
        )
        return replace(prepared, rows=rows, targets=targets)

    def _read(self, X: Any, *, reset: bool) -> Table:
        # No table is returned, so numbered columns (`pd.DataFrame(array)`) can be named by their numbers.
        if isinstance(X, pd.DataFrame) and len(X.columns) and all(isinstance(c, (int, np.integer)) for c in X.columns):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return read_table(X.set_axis([f"x{name}" for name in X.columns], axis=1))
        return super()._read(X, reset=reset)

    def _adopt(self, trained: Trained) -> Self:
        architecture = trained.veil.encoder.architecture
        assert isinstance(architecture, ClassifierHead)
        self.veil_ = trained.veil
        self.scores_ = np.array(architecture.scores)
        self.loss_ = trained.achieved
        self.history_ = trained.history
        return self

    def _point(self) -> dict[str, Any]:
        """The row of this fitted classifier in a frontier."""
        achieved = self.loss_
        return {
            "loss": achieved.mean,
            "upper": achieved.upper,
            "held_out_rows": achieved.rows,
            "met": achieved.met,
            "advantage": self.history_.advantage,
        }

    @property
    def schema_(self) -> Schema:
        """The schema of the fitted table."""
        check_is_fitted(self, "veil_")
        assert self.veil_.table_schema is not None
        return self.veil_.table_schema

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """A label for each row: the most likely one under the soft prediction drawn for it."""
        chosen = self.predict_proba(X, sensitive_features=sensitive_features).argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float64]:
        """The soft prediction drawn for each row, (rows, classes): only this is fair and may be published."""
        x, shown, source = self._encode(X, sensitive_features)
        drawn = self.veil_.values(x, shown, source).argmax(dim=1).numpy()
        return np.asarray(self.scores_[drawn])

    def label_chances(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float64]:
        """The probability that `predict` returns each label, (rows, classes), over its own draw.

        For inspection, not for publication: only the draw is protected from adversaries.
        """
        x, shown, source = self._encode(X, sensitive_features)
        chances = self.veil_.release(x, shown, source).probabilities.double().numpy()
        return np.asarray(chances @ np.eye(len(self.classes_))[self.scores_.argmax(axis=1)])

    def save(self, path: str | Path) -> None:
        """Write a `.veil` file, like `FairEncoder.save`; read it with `fairveil.load`."""
        from fairveil.estimators.saving import save  # it knows every kind of estimator

        check_is_fitted(self, "veil_")
        save(self, path)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None) -> float:
        """Accuracy of `predict`."""
        from sklearn.metrics import accuracy_score

        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def _encode(self, X: Any, given: Any) -> tuple[Tensor, Tensor | None, ByteSource]:
        check_is_fitted(self, "veil_")
        table = self._read(X, reset=False)
        check_types(table, self.veil_.schema)
        secret = given_sensitive(self.veil_, table, given, "predict")
        source = draw_source(self.random_state, type(self).__name__, table, secret)
        return self.veil_.codec.encode(table.arrow), self.veil_.shown(len(table), secret), source

    def get_metadata_routing(self) -> Any:
        """Which methods request `sensitive_features`: `fit`, and predictions only if the classifier sees S."""
        routing = super().get_metadata_routing()
        if not self.sees_sensitive:
            for method in ("predict", "predict_proba", "score"):
                getattr(routing, method).requests.pop("sensitive_features", None)
        return routing


def _bound(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < np.inf:
        raise InputError(must_be("FairClassifier", "max_loss", "a finite number above 0", value))
    return float(value)


def unmet_loss(achieved: Achieved) -> str:
    """The message for a bound that does not hold: by how much, and what to do."""
    few = " There are too few held-out rows to verify any bound." if achieved.rows < FEWEST_ROWS else ""
    return (
        f"The loss of {achieved.rows} held-out rows is {achieved.mean:.4g}, at most {achieved.upper:.4g} with "
        f"confidence {achieved.confidence:.3g}, above max_loss = {achieved.bound:.4g}.{few} Raise "
        "max_loss, train for more steps, or give more rows."
    )


def _alike(secret: Tensor, given: Tensor, weight: Tensor) -> Tensor:
    """Importance of each row, with mean 1 under the weights, such that every pair of S and `given` that occurs counts
    equally.
    """
    pair = given * (int(secret.max()) + 1) + secret
    sizes = torch.bincount(pair, weight)
    share: Tensor = weight.sum() / (sizes[pair] * (sizes > 0).sum())
    return share
