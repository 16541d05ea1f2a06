"""Demographic parity, equalized odds and group rates, for any number of values of Y and S.

Every value has a confidence interval and its group sizes; small groups are flagged. sample_weight: as in
`fairveil.metrics.scores`; group sizes are unweighted.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fairveil._utils.errors import InputError
from fairveil._utils.weights import Array, effective_rows
from fairveil.metrics.estimate import Estimate, check_confidence, hits_and_rows, same_length, share, weights_of

#: A group with fewer rows is flagged: its rates are uncertain by about 0.2.
SMALL_GROUP = 30


@dataclass(frozen=True)
class Gap(Estimate):
    """The largest gap, and the values and groups it comes from.

    by_value: one row per value y: `y`, `gap`, `low`, `high` (for this y; `joint_low` and `joint_high` are simultaneous
        for all y), and the groups with the `higher` and the `lower` rate.
    groups: one row per group: `group`, `rows`, `small`.
    total: for equalized odds, the sum of the gaps over y.
    """

    by_value: pd.DataFrame = field(compare=False)
    groups: pd.DataFrame = field(compare=False)
    total: Estimate | None = None

    def largest(self) -> Estimate:
        """The largest gap as a plain estimate."""
        return Estimate(self.value, self.low, self.high, self.rows)


def demographic_parity_gap(
    predicted: ArrayLike,
    sensitive: ArrayLike,
    *,
    bins: int | ArrayLike | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    sample_weight: ArrayLike | None = None,
) -> Gap:
    """ΔDemP(y) = max over s, s' of |P(pred = y | s) - P(pred = y | s')| (`eq:statistic_DP`), and its maximum over y.

    bins: for numeric predictions, the bin edges, or the number of quantile bins; None uses every distinct value. The
    interval is for the maximum of all differences, from simultaneous bootstrap bands: it also holds if the groups do
    not differ. (The value itself, a maximum, is then biased upwards.)

    >>> demographic_parity_gap([1, 1, 0, 0], ["a", "a", "b", "b"]).value
    1.0
    """
    guess, s = same_length(predicted=predicted, sensitive=sensitive)
    if bins is not None:
        guess = bin_predictions(guess, bins)
    groups, codes = np.unique(s, return_inverse=True)
    values, told = np.unique(guess, return_inverse=True)
    mass = weights_of(sample_weight, len(s), "predicted")
    counts = np.zeros((len(groups), len(values)))
    np.add.at(counts, (codes, told), 1.0 if mass is None else mass)
    sizes = np.bincount(codes)
    effective = np.array([_effective(mass, codes == g) for g in range(len(groups))])
    with np.errstate(invalid="ignore"):
        rates = counts / counts.sum(axis=1, keepdims=True)
    # Resample from slightly smoothed rates, so that a rate of 0 or 1 has a nonzero variance.
    smooth = (np.nan_to_num(rates) * effective[:, None] + 1.0 / len(values)) / (effective + 1.0)[:, None]
    generator = np.random.default_rng(seed)
    draws = np.maximum(np.round(effective), 1).astype(np.int64)
    boot = np.stack([generator.multinomial(n, rate / rate.sum(), resamples) / n
                     for n, rate in zip(draws, smooth, strict=True)], axis=1)  # fmt: skip
    return _gap(groups, values, sizes, rates, smooth, boot, check_confidence(confidence))


def equalized_odds_gap(
    predicted: ArrayLike,
    truth: ArrayLike,
    sensitive: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    sample_weight: ArrayLike | None = None,
) -> Gap:
    """ΔEO(y) = max over s, s' of |P(pred = y | s, Y = y) - P(pred = y | s', Y = y)| (`eq:measure_EO1`).

    The value is the maximum over y, `total` the sum (for binary Y the ΔEO of Madras et al.). Groups without rows
    with Y = y are left out of ΔEO(y).

    >>> gap = equalized_odds_gap([1, 1, 0, 0], [1, 1, 1, 0], ["a", "a", "b", "b"])
    >>> gap.value, gap.total.value
    (1.0, 1.0)
    """
    guess, right, s = same_length(predicted=predicted, truth=truth, sensitive=sensitive)
    groups = np.unique(s)
    # P(pred = y | s, Y = y): the share of each group's rows with Y = y that is predicted as y.
    values = np.unique(right)
    mass = weights_of(sample_weight, len(s), "predicted")
    cells = [[(s == g) & (right == y) for y in values] for g in groups]
    found = np.array([
        [hits_and_rows(guess[cell] == y, None if mass is None else mass[cell])
         for y, cell in zip(values, row, strict=True)]
        for row in cells
    ])  # fmt: skip
    told, of_class = found[..., 0], found[..., 1]
    with np.errstate(invalid="ignore"):
        rates = told / of_class
    smooth = np.where(of_class > 0, (told + 0.5) / (of_class + 1.0), np.nan)
    generator = np.random.default_rng(seed)
    draws = np.where(of_class > 0, np.maximum(np.round(of_class), 1), 0).astype(np.int64)
    with np.errstate(invalid="ignore"):
        boot = generator.binomial(draws, np.nan_to_num(smooth), (resamples, *smooth.shape)) / draws
    sizes = np.bincount(np.searchsorted(groups, s))
    gap = _gap(groups, values, sizes, rates, smooth, boot, check_confidence(confidence))
    value, low, high = (float(gap.by_value[name].sum()) for name in ("gap", "joint_low", "joint_high"))
    total = Estimate(value, low, high, len(s))
    return Gap(gap.value, gap.low, gap.high, gap.rows, gap.by_value, gap.groups, total)


def _effective(mass: Array | None, part: NDArray[np.bool_]) -> float:
    return float(part.sum()) if mass is None else effective_rows(mass[part], 0)


def group_rates(
    predicted: ArrayLike, truth: ArrayLike, sensitive: ArrayLike, *, positive: Any = None, confidence: float = 0.95,
    sample_weight: ArrayLike | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Rows, accuracy, selection, false positive and false negative rate of each group, with exact intervals.

    As in Tables `tb:errorFNNE` and `tb:errorTCNNE`. positive: the value of a binary Y that counts as positive; by
    default the larger of the two. A column NAME has its interval in NAME_low and NAME_high; `small` flags groups of
    fewer than 30 rows.

    >>> frame = group_rates([1, 0, 1, 1], [1, 1, 0, 1], ["a", "a", "b", "b"])
    >>> frame[["group", "rows", "false_negative_rate", "false_positive_rate"]].values.tolist()
    [['a', 2, 0.5, nan], ['b', 2, 0.0, 1.0]]
    """
    guess, right, s = same_length(predicted=predicted, truth=truth, sensitive=sensitive)
    values = np.unique(np.concatenate([right, guess]))
    if len(values) == 1 and positive is None:
        raise InputError("Y and the predictions hold one single value: say which value is positive (positive=).")
    if len(values) > 2:
        raise InputError(f"group_rates is for two values of Y, and there are {len(values)}. Use equalized_odds_gap.")
    positive = values[-1] if positive is None else positive
    if len(values) == 2 and positive not in values:
        raise InputError("The 'positive' parameter of group_rates must be one of the values of Y.")
    told, true = guess == positive, right == positive
    every = np.ones(len(s), dtype=bool)
    # For each rate, its hits and the rows in its denominator.
    rates = {"accuracy": (told == true, every), "selection_rate": (told, every),
             "false_positive_rate": (told, ~true), "false_negative_rate": (~told, true)}  # fmt: skip
    mass = weights_of(sample_weight, len(s), "predicted")
    rows = []
    for group in np.unique(s):
        row: dict[str, Any] = {"group": group, "rows": int((s == group).sum())}
        ends: dict[str, float] = {}
        for name, (hits, among) in rates.items():
            part = (s == group) & among
            found = share(hits[part], confidence, None if mass is None else mass[part])
            row[name] = found.value
            ends |= {f"{name}_low": found.low, f"{name}_high": found.high}
        rows.append({**row, **ends, "small": row["rows"] < SMALL_GROUP})
    return pd.DataFrame(rows)


def absolute_error_cdf(
    predicted: ArrayLike, truth: ArrayLike, at: ArrayLike | None = None, *, confidence: float = 0.95,
    sample_weight: ArrayLike | None = None,
) -> pd.DataFrame:  # fmt: skip
    """P(|pred - truth| <= t): columns `error` (t), `share`, and a band `low`, `high` that is simultaneous for all t.

    The band is that of Dvoretzky, Kiefer and Wolfowitz, with Massart's constant.

    >>> absolute_error_cdf([1.0, 2.0], [1.0, 4.0], at=[0.0, 1.0, 2.0])["share"].tolist()
    [0.5, 0.5, 1.0]
    """
    guess, right = same_length(predicted=predicted, truth=truth)
    errors = np.abs(guess.astype(np.float64) - right.astype(np.float64))
    order = np.argsort(errors, kind="stable")
    points = np.unique(errors) if at is None else np.asarray(at, dtype=np.float64)
    mass = weights_of(sample_weight, len(errors), "predicted")
    until = np.concatenate([[0.0], np.cumsum(np.ones(len(errors)) if mass is None else mass[order])])
    within = until[np.searchsorted(errors[order], points, side="right")] / until[-1]
    rows = effective_rows(mass, len(errors))
    half = np.sqrt(np.log(2.0 / (1.0 - check_confidence(confidence))) / (2.0 * rows))
    return pd.DataFrame({"error": points, "share": within, "low": np.maximum(within - half, 0.0),
                         "high": np.minimum(within + half, 1.0)})  # fmt: skip


def bin_predictions(predicted: NDArray[np.generic], bins: int | ArrayLike) -> NDArray[np.generic]:
    """Assign numbers to the bins between the edges, or to this many quantile bins."""
    numbers = predicted.astype(np.float64)
    if isinstance(bins, (int, np.integer)):
        if bins < 2:
            raise InputError(f"bins must be at least 2, or a list of edges. Got {bins}.")
        edges = np.unique(np.quantile(numbers, np.linspace(0, 1, int(bins) + 1)[1:-1]))
    else:
        edges = np.sort(np.asarray(bins, dtype=np.float64))
    return np.digitize(numbers, edges)


def _gap(
    groups: NDArray[np.generic], values: NDArray[np.generic], sizes: NDArray[np.int64], rates: Array, smooth: Array,
    boot: Array, confidence: float,
) -> Gap:  # fmt: skip
    """Gaps and bands: sizes (groups,), rates and smooth (groups, values), boot (resamples, groups, values)."""
    first, second = np.triu_indices(len(groups), k=1)
    if not len(first):
        raise InputError("The sensitive column holds one single group: there is nothing to compare.")
    differences = np.abs(rates[first] - rates[second])  # (pairs, values); nan where a group has no rows
    moved = np.abs((boot[:, first] - boot[:, second]) - (smooth[first] - smooth[second]))
    errors = np.std(np.nan_to_num(boot[:, first] - boot[:, second]), axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        standard = np.where(np.isnan(differences) | (errors == 0), 0.0, moved / errors)
    all_at_once = float(np.quantile(standard.max(axis=(1, 2)), confidence))
    value_by_value = np.quantile(standard.max(axis=1), confidence, axis=0)
    usable = np.where(np.isnan(differences), -np.inf, differences)
    errors = np.where(np.isnan(differences), 0.0, errors)
    gaps = np.maximum(usable.max(axis=0), 0.0)

    def end(width: Array | float) -> Array:
        return np.asarray(np.clip((usable + width * errors).max(axis=0), 0.0, 1.0))

    filled = np.where(np.isnan(rates), np.nanmean(rates, axis=0), rates)
    by_value = pd.DataFrame({"y": values, "gap": gaps, "low": end(-value_by_value), "high": end(value_by_value),
                             "joint_low": end(-all_at_once), "joint_high": end(all_at_once),
                             "higher": groups[filled.argmax(axis=0)],
                             "lower": groups[filled.argmin(axis=0)]})  # fmt: skip
    told = pd.DataFrame({"group": groups, "rows": sizes, "small": sizes < SMALL_GROUP})
    low, high = (float(by_value[name].max()) for name in ("joint_low", "joint_high"))
    return Gap(float(gaps.max()), low, high, int(sizes.sum()), by_value, told)
