"""From prepared rows to veils: split, train, measure on held-out rows. The same code for one budget and for many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil._utils.randomness import Seeds
from fairveil._utils.weights import effective_rows
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.data.table_codec import HandleUnknown
from fairveil.encoders import Architecture, Signature
from fairveil.estimators.inputs import Prepared, pick_device, seed_from
from fairveil.objectives import Constraint, Distortion, Loss, PredictionLoss, make_constraint
from fairveil.objectives.bounds import Bounds
from fairveil.training import History, Outcome, Problem, Training, play
from fairveil.training.confidence_bound import Achieved
from fairveil.training.verification import Verification
from fairveil.veil import Veil, take_member


@dataclass(frozen=True)
class Settings:
    """The training settings common to all estimators, checked.

    owner: the estimator's name, for messages. player: plays the game; `play`, or several processes that do.
    """

    owner: str
    constraint: Constraint
    training: Training
    confidence: float
    handle_unknown: HandleUnknown
    show_progress: bool
    seeds: Seeds
    player: Callable[..., Outcome] = play

    @classmethod
    def of(cls, estimator: Any) -> "Settings":
        """From an estimator's parameters; reports all problems at once."""
        owner, problems = type(estimator).__name__, []
        training = Training() if estimator.training is None else estimator.training
        if not isinstance(training, Training):
            problems.append(must_be(owner, "training", "a Training, or None", training))
        elif training.checkpoint is not None and not isinstance(estimator.random_state, (int, np.integer)):
            problems.append("A checkpoint needs random_state to be a whole number: otherwise no run is reproducible.")
        if estimator.schema is not None and not isinstance(estimator.schema, Schema):
            problems.append(must_be(owner, "schema", "a Schema, or None to infer one", estimator.schema))
        if not isinstance(estimator.confidence, float) or not 0.5 < estimator.confidence < 1:
            problems.append(must_be(owner, "confidence", "a number between 0.5 and 1", estimator.confidence))
        if estimator.handle_unknown not in ("error", "most_frequent"):
            problems.append(must_be(owner, "handle_unknown", "'error' or 'most_frequent'", estimator.handle_unknown))
        if estimator.unmet not in ("raise", "warn"):
            problems.append(must_be(owner, "unmet", "'raise' or 'warn'", estimator.unmet))
        if problems:
            raise InputError(problems)
        seeds = Seeds(seed_from(estimator.random_state, owner))
        constraint = make_constraint(estimator.constraint, owner)
        return cls(owner, constraint, training, estimator.confidence, estimator.handle_unknown, bool(estimator.verbose),
                   seeds, getattr(estimator, "_player", play))  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """One member's veil with its distortion (or loss) on held-out rows and its history.

    held_out: the positions of these rows, which neither training nor the choice of the iterate has seen; None for a
    veil read from a file.
    """

    veil: Veil
    achieved: Achieved
    history: History
    held_out: Tensor | None = None


#: Measures the distortion (or loss) of a member's veil on held-out rows, given their positions.
Measure = Callable[[Veil, Tensor, int], Achieved]


def train(
    prepared: Prepared,
    settings: Settings,
    *,
    architecture: Architecture,
    signature: Signature,
    loss: Loss,
    distortion: Distortion | PredictionLoss,
    bounds: Bounds,
    numbers: Sequence[int],
    measure: Measure,
) -> list[Trained]:
    """Train one member for each row of `bounds`, all in one game. numbers: each member's seed number."""
    training = settings.training.completed(architecture.defaults(signature.layout))
    parts = split_rows(len(prepared.rows), training, settings.seeds.child("split"))
    rows = prepared.rows.take(parts.train)
    problem = Problem(
        architecture=architecture.fitted(rows, prepared.schema, settings.seeds.child("codebook")),
        signature=signature,
        loss=loss,
        distortion=distortion,
        constraint=settings.constraint,
        bounds=bounds,
        targets=prepared.targets,
        seeds=tuple(numbers),
        training=training,
        tasks=prepared.tasks,
        given=0 if prepared.rows.given is None else prepared.rows.given.shape[1],
    )
    outcome = settings.player(
        problem,
        rows,
        prepared.rows.take(parts.validation),
        verification=_verification(prepared.rows.take(parts.held_out), settings.confidence, distortion, bounds),
        seeds=settings.seeds,
        device=pick_device(training.device),
        show_progress=settings.show_progress,
    )
    trained = []
    for member in range(problem.members):
        encoder = take_member(outcome.encoder, member)
        veil = Veil(prepared.schema, prepared.sensitive, encoder, settings.handle_unknown)
        achieved = measure(veil, parts.held_out, member)
        trained.append(Trained(veil, achieved, outcome.history.of_member(member), parts.held_out))
    return trained


def _verification(
    held_out: Rows, confidence: float, distortion: Distortion | PredictionLoss, bounds: Bounds
) -> Verification:
    limits, weight = distortion.limits(), None if held_out.weight is None else held_out.weight.numpy()
    rows = effective_rows(weight, len(held_out))
    return Verification(rows, level_of(confidence, bounds), tuple(limits[name] for name in bounds.names))


def level_of(confidence: float, bounds: Bounds) -> float:
    """The confidence level of each of several bounds such that all hold jointly with the given confidence."""
    return 1.0 - (1.0 - confidence) / len(bounds.names)


@dataclass(frozen=True)
class _Parts:
    train: Tensor
    validation: Tensor
    held_out: Tensor


def split_rows(rows: int, training: Training, seeds: Seeds) -> _Parts:
    """Random row indices for training, for selection and for verification."""
    order = torch.randperm(rows, generator=seeds.torch())
    validation, held_out = max(2, int(rows * training.validation)), held_out_rows(rows, training)
    return _Parts(order[validation + held_out :], order[:validation], order[validation : validation + held_out])


def held_out_rows(rows: int, training: Training) -> int:
    """How many rows verify the distortion."""
    return max(2, int(rows * training.held_out))
