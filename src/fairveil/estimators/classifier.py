"""`FairClassifier`: predict a known target while hiding S in the predictions, as a scikit-learn classifier."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from fairveil._utils.errors import BudgetNotMet, BudgetWarning, InputError, must_be
from fairveil._utils.randomness import ByteSource
from fairveil.data.frames import Table, read_table
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Unseen
from fairveil.encoders import EncoderSpec
from fairveil.estimators.inputs import (
    Aims,
    Prepared,
    draw_source,
    given_sensitive,
    pick_device,
    prepare,
    read_sensitive,
    seed_from,
    split_sensitive,
)
from fairveil.estimators.table import TableEstimator
from fairveil.estimators.targets import read_target
from fairveil.estimators.training import Trained, check_unseen, split_rows
from fairveil.objectives import (
    AlphaLoss,
    Constraint,
    Loss,
    PredictionLoss,
    make_constraint,
    make_loss,
    score_grid,
)
from fairveil.training import Bounds, Problem, Rows, Training, default_training, play
from fairveil.training.confidence_bound import FEWEST_ROWS, Achieved, upper_bound
from fairveil.veil import Veil, take_member

Fairness = Literal["demographic_parity", "equalized_odds"]
_FAIRNESS = ("demographic_parity", "equalized_odds")
#: A prediction that costs less than this share of the way from the best to the worst is a good one: where others are
#: rare, the bound on the loss counts them exactly.
_GOOD = 0.05


class ClassifierBase(TableEstimator):
    """What `FairClassifier` and `FairClassifierFrontier` share: all parameters but the bound on the loss."""

    def _read(self, X: Any, *, reset: bool) -> Table:
        # No table is given back, so that numbered columns (`pd.DataFrame(array)`) may go by the text of their number.
        if isinstance(X, pd.DataFrame) and len(X.columns) and all(isinstance(c, (int, np.integer)) for c in X.columns):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return read_table(X.set_axis([f"x{name}" for name in X.columns], axis=1))
        return super()._read(X, reset=reset)

    def _train(self, X: Any, y: Any, sensitive_features: Any, bounds: Sequence[float]) -> list[Trained]:
        self._check()
        name = type(self).__name__
        losses = make_loss(self.loss, name), make_loss(self.adversary_loss, name, "adversary_loss")
        if not all(isinstance(loss, AlphaLoss) for loss in losses):
            raise InputError(f"{name} predicts classes and hides classes: loss and adversary_loss must be "
                             "'log', 'zero_one' or an AlphaLoss.")  # fmt: skip
        prediction, adversary = losses
        assert isinstance(prediction, AlphaLoss)
        table = self._read(X, reset=True)
        truth, self.classes_ = read_target(y, len(table))
        inside = split_sensitive(table, self.sensitive_columns, self.schema)
        prepared = prepare(
            table,
            read_sensitive(table, inside, sensitive_features),
            self.schema,
            inside,
            None,
            Aims(adversary, 0.0, self.sees_sensitive, self.per_column_adversaries),
            bins=True,
            unseen=self.unseen,
        )
        scores = score_grid(len(self.classes_), prediction)
        cost = PredictionLoss(scores, prediction)
        if min(bounds) <= cost.least:
            raise InputError(
                f"max_loss must exceed {cost.least:.3g}, the loss of a sure prediction that is right. "
                f"Got {min(bounds):g}."
            )
        return self._play(prepared, truth, scores, cost, adversary, bounds)

    def _play(
        self,
        prepared: Prepared,
        truth: Tensor,
        scores: Tensor,
        cost: PredictionLoss,
        adversary: Loss,
        bounds: Sequence[float],
    ) -> list[Trained]:
        training, seed = self.training or default_training("labels"), seed_from(self.random_state, type(self).__name__)
        layout, odds = prepared.schema.layout, self.fairness == "equalized_odds"
        spec = EncoderSpec(
            architecture="labels",
            sensitive_width=0 if prepared.rows.sensitive is None else prepared.sensitive.width,
            hidden=training.hidden,
            scores=tuple(map(tuple, scores.tolist())),
            given_truth=odds,
        )
        one_hot = torch.nn.functional.one_hot(truth, len(self.classes_)).to(prepared.rows.x.dtype)
        secrets, given = prepared.rows.secrets, truth if odds else torch.zeros_like(truth)
        importance = _alike(secrets[0], given) if self.balanced else torch.ones(len(truth))
        rows = Rows(torch.cat([prepared.rows.x, one_hot], dim=1), prepared.rows.sensitive, secrets, (), importance)
        chances = tuple(_chance(adversary, secret, given, importance) for secret in secrets)
        problem = Problem(layout, spec, adversary, cost, make_constraint(self.constraint), Bounds.of_loss(bounds),
                          chances, prepared.outputs, tuple([0] * len(bounds)), (), training)  # fmt: skip
        parts = split_rows(len(rows), training, seed)
        outcome = play(
            problem,
            rows.take(parts.train),
            rows.take(parts.validation),
            held_out=len(parts.held_out),
            z=float(stats.norm.ppf(self.confidence)),
            seed=seed,
            device=pick_device(self.device, type(self).__name__),
            show_progress=bool(self.progress),
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
        )
        held_out, found = rows.take(parts.held_out), []
        for member, bound in enumerate(bounds):
            veil = Veil(prepared.schema, prepared.sensitive, take_member(outcome.encoder, member), self.unseen)
            chance = veil.release(held_out.x, held_out.sensitive, torch.Generator()).probabilities
            values = (chance * cost.costs(held_out.x)).sum(dim=1).double().numpy()
            floor = cost.least + _GOOD * (cost.largest - cost.least)
            upper = upper_bound(values, self.confidence, cost.largest, floor)
            achieved = Achieved(float(values.mean()), upper, bound, len(values), self.confidence)
            found.append(Trained(veil, achieved, outcome.history.of_member(member)))
        return found

    def _check(self) -> None:
        name, problems = type(self).__name__, []
        if self.fairness not in _FAIRNESS:
            problems.append(must_be(name, "fairness", " or ".join(map(repr, _FAIRNESS)), self.fairness))
        if self.training is not None and not isinstance(self.training, Training):
            problems.append(must_be(name, "training", "a Training, or None", self.training))
        if self.schema is not None and not isinstance(self.schema, Schema):
            problems.append(must_be(name, "schema", "a Schema, or None to infer one", self.schema))
        if not isinstance(self.confidence, float) or not 0.5 < self.confidence < 1:
            problems.append(must_be(name, "confidence", "a number between 0.5 and 1", self.confidence))
        if self.checkpoint is not None and not isinstance(self.random_state, (int, np.integer)):
            problems.append("A checkpoint needs random_state to be a whole number: without it no run repeats another.")
        if self.unmet not in ("raise", "warn"):
            problems.append(must_be(name, "unmet", "'raise' or 'warn'", self.unmet))
        problems += check_unseen(name, self.unseen)
        if problems:
            raise InputError(problems)

    def _bound(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < np.inf:
            raise InputError(must_be(type(self).__name__, "max_loss", "a finite number above 0", value))
        return float(value)


class FairClassifier(ClassifierMixin, ClassifierBase):  # type: ignore[misc]
    """A classifier whose predictions say as little of S as a bound on their loss allows.

    For each row one of a few soft predictions (`scores_`) is drawn. The draw is learned in the constrained game of
    `eq:Opt-fairClassifier-EO`: adversaries guess S from the soft prediction (for equalized odds: knowing Y as well),
    and the mean loss of the predictions must not exceed `max_loss`.

    Parameters
    ----------
    fairness : {"demographic_parity", "equalized_odds"}
        Predictions independent of S, or independent of S among rows with the same true label.
    max_loss : float
        Epsilon, the bound on the mean loss, in nats for log-loss. The less, the better the predictions and the less
        fair. A bound that held-out rows do not confirm is not met.
    loss : {"log", "zero_one"} or AlphaLoss
        Of the predictions. "zero_one" bounds the error rate itself; what is drawn is then a label, and nothing softer.
    adversary_loss : {"log", "zero_one"} or AlphaLoss
    sees_sensitive : bool
        Whether the classifier is shown S beside X, in `fit` and in `predict`.
    balanced : bool
        Whether all groups of S (for equalized odds: all pairs of S and Y) count the same to adversaries, whatever their
        size. Gaps such as ΔEO ask for that; the paper's game counts rows.
    unmet : {"raise", "warn"}
        What `fit` does if the bound is not met.
    sensitive_columns, per_column_adversaries, schema, constraint, unseen, training, confidence, checkpoint, progress,
    device, random_state : as in `FairEncoder`.
        With an int, the same table gets the same draw every time; with None every call draws anew. What was hidden is
        one draw a row: hand on one only, and take labels from the soft predictions that were handed on.

    Attributes
    ----------
    classes_ : the labels. scores_ : the soft predictions that can be made, (scores, classes).
    loss_ : mean loss of held-out rows and its upper confidence bound. history_ : what happened in training.

    Raises
    ------
    BudgetNotMet : the upper bound on the loss exceeds `max_loss`, and `unmet` is "raise".
    """

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
        self.fairness = fairness
        self.max_loss = max_loss
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
        """Learn to predict y from X without telling `sensitive_features`."""
        for name in ("veil_", "scores_", "loss_", "history_"):  # a fit that fails must not leave an older one behind
            self.__dict__.pop(name, None)
        [found] = self._train(X, y, sensitive_features, [self._bound(self.max_loss)])
        return self._adopt(found)

    def _adopt(self, found: Trained) -> Self:
        if not found.achieved.met:
            message = unmet_loss(found.achieved)
            if self.unmet == "raise":
                raise BudgetNotMet(message)
            warnings.warn(message, BudgetWarning, stacklevel=3)
        self.veil_ = found.veil
        self.scores_ = np.array(found.veil.encoder.spec.scores)
        self.loss_ = found.achieved
        self.history_ = found.history
        return self

    @property
    def schema_(self) -> Schema:
        """The schema of the fitted table."""
        check_is_fitted(self, "veil_")
        return self.veil_.codec.schema

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """A label for each row: the likeliest under the soft prediction that was drawn for it."""
        chosen = self.predict_proba(X, sensitive_features=sensitive_features).argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float64]:
        """The soft prediction drawn for each row, (rows, classes): all that may be handed on, and all that is fair."""
        x, shown, source = self._encode(X, sensitive_features)
        drawn = self.veil_.values(x, shown, source).argmax(dim=1).numpy()
        return np.asarray(self.scores_[drawn])

    def label_chances(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float64]:
        """How likely `predict` is to give each label, (rows, classes), over its own draw.

        For looking at the classifier, not for handing on: only what is drawn was hidden from adversaries.
        """
        x, shown, source = self._encode(X, sensitive_features)
        chances = self.veil_.release(x, shown, source).probabilities.double().numpy()
        return np.asarray(chances @ np.eye(len(self.classes_))[self.scores_.argmax(axis=1)])

    def save(self, path: str | Path) -> None:
        """Write a `.veil` file, as `FairEncoder.save`; read it with `fairveil.load`."""
        from fairveil.estimators.saving import save  # it knows every kind of estimator

        check_is_fitted(self, "veil_")
        save(self, path)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None) -> float:
        """Accuracy of `predict`."""
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def _encode(self, X: Any, given: Any) -> tuple[Tensor, Tensor | None, ByteSource]:
        check_is_fitted(self, "veil_")
        table = self._read(X, reset=False)
        secret = given_sensitive(self.veil_, table, given, "predict")
        source = draw_source(self.random_state, type(self).__name__, table.arrow, secret)
        return self.veil_.codec.encode(table.arrow), self.veil_.shown(len(table), secret), source

    def get_metadata_routing(self) -> Any:
        """Who asks for `sensitive_features`: `fit`, and predictions only if the classifier sees S."""
        routing = super().get_metadata_routing()
        if not self.sees_sensitive:
            for method in ("predict", "predict_proba", "score"):
                getattr(routing, method).requests.pop("sensitive_features", None)
        return routing


def unmet_loss(achieved: Achieved) -> str:
    """Which bound does not hold, by how much, and what to do."""
    few = " There are too few held-out rows to verify any bound." if achieved.rows < FEWEST_ROWS else ""
    return (
        f"The loss of {achieved.rows} held-out rows is {achieved.mean:.4g}, at most {achieved.upper:.4g} with "
        f"confidence {achieved.confidence:.3g}, above max_loss = {achieved.bound:.4g}.{few} Raise "
        "max_loss, train for more steps, or give more rows."
    )


def _alike(secret: Tensor, given: Tensor) -> Tensor:
    """What each row counts, mean 1, if every pair of S and `given` that occurs is to count as much as any other."""
    pair = given * (int(secret.max()) + 1) + secret
    sizes = torch.bincount(pair).float()
    share: Tensor = len(pair) / (sizes[pair] * (sizes > 0).sum())
    return share


def _chance(loss: Loss, secret: Tensor, given: Tensor, importance: Tensor) -> float:
    """The least loss of an adversary that sees no prediction, but knows `given`."""
    total = 0.0
    for value in range(int(given.max()) + 1):
        part = given == value
        total += float(importance[part].sum()) / len(secret) * float(loss.chance(secret[part], importance[part]))
    return total
