"""The distortion of a release on held-out rows, as written, and the part of it that no encoder can avoid."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fairveil._utils.errors import BudgetNotMet
from fairveil._utils.randomness import Seeds
from fairveil.data.images import rows_at_once, unpack
from fairveil.data.marginals import Marginals
from fairveil.data.rows import Rows
from fairveil.estimators.inputs import Prepared
from fairveil.objectives import Distortion
from fairveil.objectives.bounds import Bounds
from fairveil.objectives.distortion import KINDS, slot_weights
from fairveil.objectives.released import ReleasedBatch
from fairveil.training.confidence_bound import DRAWS, FEWEST_ROWS, Achieved, bound_on_mean
from fairveil.veil import Veil

#: The share of a budget that training may always spend, even if less remains: the budget is then not met.
_LEAST_LEFT = 0.1


@dataclass(frozen=True)
class Floor:
    """The cost of each row if its categories and bins are released unchanged, and the part of it invisible to training.

    A few rows of a heavy tail cause most of it, and held-out rows may contain none of them. It is therefore measured on
    all rows, and held-out rows measure only what is spent beyond it. rows: (rows, 2), by kind. mean: over all rows.
    unseen: the part of it due to numbers outside the ranges and unlisted categories, which an encoded row does not
    show.
    """

    rows: Tensor
    mean: Tensor
    unseen: Tensor

    @classmethod
    def of(cls, prepared: Prepared, distortion: Distortion) -> "Floor":
        """Over all rows; zero for images, and for distortions that are not sums over columns."""
        count = len(prepared.rows)
        if prepared.original is prepared.rows.x or not distortion.is_additive:  # nothing is lost by encoding
            zero = torch.zeros(len(KINDS), dtype=torch.float64)
            return cls(zero.expand(count, -1), zero, zero)
        rows, seen = [], []
        for part in torch.split(torch.arange(count), rows_at_once(prepared.original.shape[1])):
            x, original = prepared.rows.x[part], prepared.original[part]
            rows.append(distortion.unchanged(x, original).double())
            seen.append(distortion.unchanged(x, x).double())
        each = torch.cat(rows)
        weight = torch.ones(count) if prepared.rows.weight is None else prepared.rows.weight
        share = weight.double()[:, None] / weight.sum()
        return cls(each, (share * each).sum(dim=0), (share * (each - torch.cat(seen))).sum(dim=0))

    def take(self, index: Tensor) -> "Floor":
        """Only these rows; the means remain those of all rows."""
        return replace(self, rows=self.rows[index])


def left_to_spend(bounds: Bounds, floor: Floor) -> Bounds:
    """What training may spend of the budgets: less what it does not see. A budget out of reach ends as not met."""
    unseen = bounds.of_rows(floor.unseen.float().unsqueeze(0))[0]
    return replace(bounds, values=torch.maximum(bounds.values - unseen.clamp_min(0.0), _LEAST_LEFT * bounds.values))


def _lost_message(prepared: Prepared, distortion: Distortion, total: float) -> str:
    """Which columns lose most, and what to do."""
    layout, x, original = prepared.schema.layout, prepared.rows.x, prepared.original
    apart = (original - x)[:, layout.grouped].square().mean(dim=0) * slot_weights(layout)[layout.grouped]
    costs = {group.column.name: float(apart[group.start : group.stop].sum()) for group in layout.groups}
    for column, cost in zip(layout.numbers, distortion.of_numbers(x, original).mean(dim=0).tolist(), strict=True):
        costs[column.name] = costs.get(column.name, 0.0) + cost
    worst = [f"{name!r} ({cost:.3g})" for name, cost in sorted(costs.items(), key=lambda c: -c[1])[:3] if cost > 0]
    columns = f" Numbers outside the ranges and rare values cost most in {', '.join(worst)}." if worst else ""
    return (
        f"Rows that keep their categories and bins already cost {total:.3g}, before anything is hidden, which uses up "
        f"the budget.{columns} Raise the budget, widen 'lower' and 'upper' of these columns in the schema, or merge "
        "their rare values."
    )


def measure(
    veil: Veil,
    distortion: Distortion,
    rows: Rows,
    original: Tensor,
    floor: Floor,
    bounds: Bounds,
    member: int,
    confidence: float,
    seeds: Seeds,
) -> Achieved:
    """Mean distortion of held-out rows as they would be written, and its upper confidence bound.

    Each row is released several times and its distortions averaged: the mean stays the same, but the bound is not
    widened by the randomness of a single draw. The cost of rows that keep their categories and bins is known from all
    fitted rows (floor); what is spent beyond that is bounded from these rows.
    """
    generator = seeds.torch()
    draws, changed = [], []
    layout = veil.schema.layout
    compared = layout.shape is None and veil.encoder.signature.sampled
    before = Marginals.of(layout, rows.x, rows.weight) if compared else None
    after: float | np.ndarray = 0.0
    for _ in range(DRAWS):
        release = _as_written(veil, rows, original, generator)
        after = after + Marginals.of(layout, release.values, rows.weight).counts if compared else after
        draws.append(distortion.realised(release, unpack(original)).double() - floor.rows)
        changed.append(_changed(release.values, unpack(rows.x), layout.grouped))
    parts = torch.stack(draws).mean(dim=0)
    lost = floor.mean.tolist()
    limits = distortion.limits()
    level = 1.0 - (1.0 - confidence) / len(bounds.names)
    budgets = dict(zip(bounds.names, bounds.values[member].tolist(), strict=True))
    weights = None if rows.weight is None else rows.weight.numpy()
    share = float(np.average(torch.stack(changed).double().mean(dim=0), weights=weights))

    def achieved(values: Tensor, name: str, more: float, parts: dict[str, Achieved]) -> Achieved:
        upper = bound_on_mean(values.numpy(), level, limits[name], weights)
        mean = float(np.average(values, weights=weights))
        return Achieved(mean + more, upper + more, budgets.get(name), len(values), level, parts, more,
                        share if name == "total" else None, distortion.measure, limits[name].by_squares)  # fmt: skip

    kinds = {kind: achieved(parts[:, i], kind, lost[i], {}) for i, kind in enumerate(KINDS)}
    drift = () if before is None else before.drift(np.asarray(after))
    return replace(achieved(parts.sum(dim=1), "total", sum(lost), kinds), columns=drift)


def _as_written(veil: Veil, rows: Rows, original: Tensor, generator: torch.Generator) -> ReleasedBatch:
    """A release of these rows as it would be written."""
    release = veil.release(rows.x, rows.sensitive, generator)
    if not veil.encoder.signature.sampled:
        return release
    values = veil.codec.as_written(release.values)  # the written table counts
    # A kept number is released exactly, while a tensor rounds it.
    kept = torch.from_numpy(veil.schema.layout.kept)
    return replace(release, drawn=torch.where(kept, original, values) if kept.any() else values)


def _changed(released: Tensor, x: Tensor, grouped: slice) -> Tensor:
    """Which rows changed a category or a bin; in rows without either, any number: (rows,)."""
    inside = grouped if grouped.stop else slice(None)
    return (released[:, inside] != x[:, inside]).any(dim=1)


def refuse_unreachable(prepared: Prepared, distortion: Distortion, bounds: Bounds, floor: Floor, held_out: int) -> None:
    """Raise BudgetNotMet before training if none of the budgets can be met: rows cost as much before anything is
    hidden, or there are too few held-out rows to verify it.
    """
    lost = bounds.of_rows(floor.mean.float().unsqueeze(0))[0]
    if bool((lost >= bounds.values).any(dim=1).all()):
        raise BudgetNotMet(_lost_message(prepared, distortion, float(lost.sum())))
    if held_out >= FEWEST_ROWS:
        return
    limits = distortion.limits()
    least = torch.tensor([limits[name].largest for name in bounds.names])
    if bool((bounds.values < least).any(dim=1).all()):
        rows = len(prepared.rows)
        needed = -(-FEWEST_ROWS * rows // held_out)
        raise BudgetNotMet(
            f"No budget can be verified with {rows} rows: {held_out} of them are held out, and a bound on the "
            f"distortion needs {FEWEST_ROWS}. Give at least {needed} rows, or hold out more of them with "
            f"Training(held_out=...)."
        )


def unmet_message(achieved: Achieved) -> str:
    """The message for bounds that do not hold: by how much, and what to do."""
    broken = [("distortion", achieved), *((f"{kind} distortion", part) for kind, part in achieved.parts.items())]
    lines = [
        f"the {name} of {part.rows} held-out rows is {part.mean:.4g}, at most {part.upper:.4g} with confidence "
        f"{part.confidence:.3g}, above the budget of {part.bound:.4g}"
        for name, part in broken
        if part.bound is not None and part.upper > part.bound
    ]
    if achieved.rows < FEWEST_ROWS:
        advice = f"At least {FEWEST_ROWS} held-out rows are needed to verify a budget: give more rows."
    else:
        advice = "Raise the budget, train for more steps, or give more rows."
    return f"{'; '.join(lines).capitalize()}. {advice}"
