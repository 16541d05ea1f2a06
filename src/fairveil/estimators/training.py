"""From prepared rows to veils: split, play, measure on held-out rows. One path for one budget and for many."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from fairveil._utils.errors import BudgetNotMet, InputError, must_be
from fairveil.data.images import PictureSchema, rows_at_once, unpack
from fairveil.data.table_codec import Unseen
from fairveil.encoders import EncoderSpec, learn_cells, why_no_transport
from fairveil.encoders.matrix import MOST_CELLS
from fairveil.estimators.inputs import Budget, Prepared
from fairveil.objectives import Constraint, Distortion, Loss, make_distortion
from fairveil.objectives.distortion import KINDS, Release, slot_weights
from fairveil.training import Bounds, History, Problem, Rows, Training, default_training, play
from fairveil.training.confidence_bound import DRAWS, Achieved, upper_bound
from fairveil.veil import Veil, take_member

#: Rows that every group of S must have for `auto` to choose transport: fewer do not teach a mover.
_FEWEST_MOVED = 500
#: Pixels up to which `auto` chooses a dense network for images.
_MOST_DENSE = 2048
#: The share of a budget that training may always spend, although less is left of it: then the budget is not met.
_LEAST_LEFT = 0.1


@dataclass(frozen=True)
class Settings:
    """What the caller chose, checked: the parts of the game that do not come from the data."""

    architecture: Any
    release: str
    loss: Loss
    distortion: Any
    constraint: Constraint
    training: Training | None
    confidence: float
    unseen: Unseen
    device: torch.device
    show_progress: bool
    checkpoint: Path | None
    cells: int | None = None

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.confidence, float) or not 0.5 < self.confidence < 1:
            problems.append(must_be("FairEncoder", "confidence", "a number between 0.5 and 1", self.confidence))
        problems += check_unseen("FairEncoder", self.unseen)
        whole = isinstance(self.cells, int) and not isinstance(self.cells, bool)
        if self.cells is not None and not (whole and 2 <= self.cells <= MOST_CELLS):
            expected = f"None or a whole number from 2 to {MOST_CELLS}"
            problems.append(must_be("FairEncoder", "cells", expected, self.cells))
        elif self.cells is not None and self.architecture not in ("matrix", "partition"):
            problems.append("The 'cells' parameter of FairEncoder is for architecture='matrix' or 'partition' only.")
        if problems:
            raise InputError(problems)


def check_unseen(owner: str, unseen: object) -> list[str]:
    """What is wrong with this parameter, if anything."""
    right = unseen in ("error", "most_frequent")
    return [] if right else [must_be(owner, "unseen", "'error' or 'most_frequent'", unseen)]


@dataclass(frozen=True)
class Trained:
    """One member's veil with its distortion on held-out rows and its history."""

    veil: Veil
    achieved: Achieved
    history: History


def train(
    prepared: Prepared, budgets: Sequence[Budget], seeds: Sequence[int], settings: Settings, seed: int
) -> list[Trained]:
    """Train one member for each (budget, seed) pair, all in one game."""
    layout = prepared.schema.layout
    bounds = Bounds.of(budgets, relative=layout.shape is not None)
    distortion = make_distortion(settings.distortion, layout, settings.release)
    if distortion.custom is not None and bounds.names != ("total",):
        raise InputError("A distortion function gives one number a row, so the budget must be one number too.")
    architecture = _architecture(prepared, settings, distortion)
    training = settings.training or default_training(architecture)
    parts = split_rows(len(prepared.rows), training, seed)
    level = 1.0 - (1.0 - settings.confidence) / len(bounds.names)
    spec = EncoderSpec(
        architecture,
        settings.release,
        0 if prepared.rows.sensitive is None else prepared.sensitive.width,
        prepared.sensitive.discrete,
        training.hidden,
        training.noise_dim,
        training.normalise,
        training.residual,
        training.levels,
        _cells(prepared, parts.train, settings.cells, seed),
    )
    floor = _Floor.of(prepared, distortion)
    problem = Problem(layout, spec, settings.loss, distortion, settings.constraint,
                      _left_to_spend(bounds, floor, prepared), prepared.chances, prepared.outputs, tuple(seeds),
                      prepared.tasks, training)  # fmt: skip
    outcome = play(
        problem,
        prepared.rows.take(parts.train),
        prepared.rows.take(parts.validation),
        held_out=len(parts.held_out),
        z=float(stats.norm.ppf(level)),
        seed=seed,
        device=settings.device,
        show_progress=settings.show_progress,
        checkpoint=settings.checkpoint,
    )
    held_out = prepared.rows.take(parts.held_out)
    original = prepared.original.index_select(0, parts.held_out)
    trained = []
    for member in range(problem.members):
        veil = Veil(prepared.schema, prepared.sensitive, take_member(outcome.encoder, member), settings.unseen)
        achieved = measure(
            veil, distortion, held_out, original, floor.take(parts.held_out), bounds, member, settings.confidence, seed
        )
        trained.append(Trained(veil, achieved, outcome.history.of_member(member)))
    return trained


def _architecture(prepared: Prepared, settings: Settings, distortion: Distortion) -> Any:
    """The architecture by name or as given; `auto` takes transport where two large groups can be told and moved."""
    chosen = settings.architecture
    if chosen == "transport" and not distortion.is_linear:
        raise InputError(
            "architecture='transport' needs a distortion that adds up over columns and numbers with bins: 'auto', "
            "'hamming' or 'squared'. Use 'feedforward' with others."
        )
    if chosen == "partition" and settings.release == "sampled" and not _is_nearness(distortion):
        raise InputError(
            "architecture='partition' divides rows by the default distortion, changed categories and squared numbers: "
            "use 'auto' or 'hamming', or 'squared' where all columns are numbers."
        )
    if not isinstance(chosen, str) or chosen != "auto":
        return chosen
    if prepared.schema.layout.shape is not None:
        return "feedforward" if prepared.schema.layout.width <= _MOST_DENSE else "autoencoder"
    secret = prepared.rows.secrets[0]
    large = prepared.sensitive.discrete and bool((torch.bincount(secret) >= _FEWEST_MOVED).all())
    seen = EncoderSpec("transport", settings.release, 0 if prepared.rows.sensitive is None else 1)
    movable = distortion.is_linear and why_no_transport(prepared.schema.layout, seen) is None
    two = prepared.outputs[0] == 2
    return "transport" if large and two and movable else "feedforward"


def _is_nearness(distortion: Distortion) -> bool:
    """Whether distortion is the distance by which cells are near or far."""
    categories = [group for group in distortion.layout.groups if group.number is None or group.column.missing]
    right = distortion.categorical == "hamming" or (distortion.categorical == "squared" and not categories)
    return right and distortion.custom is None


@dataclass(frozen=True)
class _Floor:
    """What each row costs if its categories and bins are released as they are, and what training does not see of it.

    A few rows of a heavy tail pay for most of it, and held-out rows may have none of them. So it is counted on all
    rows, and held-out rows tell only what is spent beyond. rows: (rows, 2), by kind. mean: of all rows. unseen: of
    that, what numbers beyond the ranges and categories that are not listed cost: an encoded row does not show it.
    """

    rows: Tensor
    mean: Tensor
    unseen: Tensor

    @classmethod
    def of(cls, prepared: Prepared, distortion: Distortion) -> "_Floor":
        """Of all rows; nothing for images, and for distortions that do not add up over columns."""
        count = len(prepared.rows)
        if prepared.schema.layout.shape is not None or not distortion.is_additive:
            zero = torch.zeros(len(KINDS), dtype=torch.float64)
            return cls(zero.expand(count, -1), zero, zero)
        rows, seen = [], []
        for part in torch.split(torch.arange(count), rows_at_once(prepared.original.shape[1])):
            x, original = prepared.rows.x[part], prepared.original[part]
            rows.append(distortion.unchanged(x, original).double())
            seen.append(distortion.unchanged(x, x).double())
        each = torch.cat(rows)
        return cls(each, each.mean(dim=0), (each - torch.cat(seen)).mean(dim=0))

    def take(self, index: Tensor) -> "_Floor":
        """Only these rows; the means stay those of all."""
        return replace(self, rows=self.rows[index])


def _left_to_spend(bounds: Bounds, floor: _Floor, prepared: Prepared) -> Bounds:
    """What training may spend of the budgets: less what it does not see."""
    lost, unseen = (bounds.of_rows(part.float().unsqueeze(0))[0] for part in (floor.mean, floor.unseen))
    if bool((lost >= bounds.values).any(dim=1).all()):
        raise BudgetNotMet(_lost_message(prepared, float(lost.sum())))
    # A budget that is out of reach among others that are not ends as one that is not met.
    return replace(bounds, values=torch.maximum(bounds.values - unseen.clamp_min(0.0), _LEAST_LEFT * bounds.values))


def _lost_message(prepared: Prepared, total: float) -> str:
    """Which columns lose most, and what to do."""
    layout = prepared.schema.layout
    apart = (prepared.original - prepared.rows.x).square().mean(dim=0) * slot_weights(layout)
    costs = {group.column.name: float(apart[group.start : group.stop].sum()) for group in layout.groups}
    for i, column in enumerate(layout.numbers):
        costs[column.name] = costs.get(column.name, 0.0) + float(apart[layout.group_width + i])
    worst = [f"{name!r} ({cost:.3g})" for name, cost in sorted(costs.items(), key=lambda c: -c[1])[:3] if cost > 0]
    columns = f" Numbers beyond the ranges and rare values cost most in {', '.join(worst)}." if worst else ""
    return (
        f"Rows that keep their categories and bins cost {total:.3g} already, before anything is hidden, which is all "
        f"of the budget.{columns} Raise the budget, widen 'lower' and 'upper' of these columns in the schema, or group "
        "their rare values."
    )


def measure(
    veil: Veil,
    distortion: Distortion,
    rows: Rows,
    original: Tensor,
    floor: _Floor,
    bounds: Bounds,
    member: int,
    confidence: float,
    seed: int,
) -> Achieved:
    """Mean distortion of held-out rows as they would be written, and its upper confidence bound.

    Each row is released several times and its distortions averaged: the mean is the same, and the bound is not widened
    by the luck of a single draw. What rows cost that keep their categories and bins is known from all fitted rows
    (floor); what is spent beyond that is bounded from these.
    """
    generator = torch.Generator().manual_seed((seed + 1) % 2**63)
    draws, changed = [], []
    for _ in range(DRAWS):
        release = _as_written(veil, rows, original, generator)
        draws.append(distortion.realised(release, unpack(original)).double() - floor.rows)
        changed.append(_share_changed(release.values, unpack(rows.x), veil.schema.layout.grouped))
    parts = torch.stack(draws).mean(dim=0)
    lost = floor.mean.tolist()
    largest = veil.schema.layout.largest_distortion() if distortion.is_bounded else {}
    level = 1.0 - (1.0 - confidence) / len(bounds.names)
    limits = dict(zip(bounds.names, bounds.values[member].tolist(), strict=True))

    def achieved(values: Tensor, name: str, more: float, parts: dict[str, Achieved]) -> Achieved:
        upper = upper_bound(values.numpy(), level, largest.get(name, float("inf")))
        return Achieved(float(values.mean()) + more, upper + more, limits.get(name), len(values), level, parts, more,
                        float(np.mean(changed)) if name == "total" else None)  # fmt: skip

    kinds = {kind: achieved(parts[:, i], kind, lost[i], {}) for i, kind in enumerate(KINDS)}
    return achieved(parts.sum(dim=1), "total", sum(lost), kinds)


def _as_written(veil: Veil, rows: Rows, original: Tensor, generator: torch.Generator) -> Release:
    """A release of these rows as it would be written."""
    release = veil.release(rows.x, rows.sensitive, generator)
    # Images are as released already: whole 255ths, or real numbers.
    if isinstance(veil.schema, PictureSchema) or veil.encoder.spec.release != "sampled":
        return release
    # To a table and back: what counts is the table.
    values = veil.codec.encode(veil.codec.decode(release.values))
    # A kept number is released to its last digit, which a tensor does not hold.
    kept = torch.from_numpy(veil.schema.layout.kept)
    return replace(release, drawn=torch.where(kept, original, values))


def _share_changed(released: Tensor, x: Tensor, grouped: slice) -> float:
    """The share of the rows in which a category or a bin is another one; of rows without either, any number."""
    inside = grouped if grouped.stop else slice(None)
    return float((released[:, inside] != x[:, inside]).any(dim=1).double().mean())


def _cells(prepared: Prepared, train: Tensor, count: int | None, seed: int) -> tuple[tuple[float, ...], ...]:
    """Representatives learned from training rows, as plain numbers."""
    if count is None:
        return ()
    if isinstance(prepared.schema, PictureSchema):
        raise InputError("The 'cells' parameter of FairEncoder is for tables, not for images.")
    learned = learn_cells(prepared.rows.x.index_select(0, train), prepared.schema, count, seed)
    return tuple(tuple(row) for row in learned.tolist())


@dataclass(frozen=True)
class _Parts:
    train: Tensor
    validation: Tensor
    held_out: Tensor


def split_rows(rows: int, training: Training, seed: int) -> _Parts:
    """Rows to train on, to choose by and to verify with, at random."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed((seed + 2) % 2**63))
    validation, held_out = max(2, int(rows * training.validation)), max(2, int(rows * training.held_out))
    return _Parts(order[validation + held_out :], order[:validation], order[validation : validation + held_out])
