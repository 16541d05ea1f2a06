"""Demographic parity, equalized odds and group rates, for any number of values of Y and S.

Every value has an interval and the sizes of its groups; groups too small to say much are flagged.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from fairlearn.metrics import MetricFrame, count, false_negative_rate, false_positive_rate, selection_rate
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import accuracy_score

from fairveil._utils.errors import InputError
from fairveil.metrics.estimate import Array, Estimate, check_confidence, clopper_pearson, same_length

#: A group with fewer rows is flagged: a rate of it is known to no better than about 0.2.
SMALL_GROUP = 30


@dataclass(frozen=True)
class Gap(Estimate):
    """The largest gap, and where it comes from.

    by_value: a row for each value y: `y`, `gap`, `low`, `high` (for this y; `joint_low` and `joint_high` hold for all y
        at once), and the groups with the `higher` and the `lower` rate.
    groups: a row for each group: `group`, `rows`, `small`.
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
) -> Gap:
    """ΔDemP(y) = max over s, s' of |P(pred = y | s) - P(pred = y | s')| (`eq:statistic_DP`), and its maximum over y.

    bins: for numeric predictions, the edges of cells, or how many cells with equal numbers of predictions; None takes
    every value as it is. The interval is that of the maximum of all differences, from a simultaneous bootstrap band
    around every one of them: it holds where groups are alike too. (The value itself, a maximum, errs upwards there.)

    >>> demographic_parity_gap([1, 1, 0, 0], ["a", "a", "b", "b"]).value
    1.0
    """
    guess, s = same_length(predicted=predicted, sensitive=sensitive)
    if bins is not None:
        guess = bin_predictions(guess, bins)
    table = _Counts.of(guess, s)
    # From slightly smoothed rates, so that a rate of 0 or 1 is not taken for certain.
    smooth = (table.counts + 1.0 / len(table.values)) / (table.sizes + 1.0)[:, None]
    generator = np.random.default_rng(seed)
    boot = np.stack([generator.multinomial(n, rate / rate.sum(), resamples) / n
                     for n, rate in zip(table.sizes, smooth, strict=True)], axis=1)  # fmt: skip
    return _gap(table, table.rates, smooth, boot, check_confidence(confidence))


def equalized_odds_gap(
    predicted: ArrayLike,
    truth: ArrayLike,
    sensitive: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Gap:
    """ΔEO(y) = max over s, s' of |P(pred = y | s, Y = y) - P(pred = y | s', Y = y)| (`eq:measure_EO1`).

    The value is the maximum over y, `total` the sum (for binary Y the ΔEO of Madras et al.). Groups without a row
    of some Y = y take no part in ΔEO(y).

    >>> gap = equalized_odds_gap([1, 1, 0, 0], [1, 1, 1, 0], ["a", "a", "b", "b"])
    >>> gap.value, gap.total.value
    (1.0, 1.0)
    """
    guess, right, s = same_length(predicted=predicted, truth=truth, sensitive=sensitive)
    groups = np.unique(s)
    # P(pred = y | s, Y = y): of each group's rows with Y = y, the share that is told so.
    values = np.unique(right)
    of_class = np.array([[np.sum((s == g) & (right == y)) for y in values] for g in groups], dtype=np.int64)
    told = np.array([[np.sum((s == g) & (right == y) & (guess == y)) for y in values] for g in groups])
    with np.errstate(invalid="ignore"):
        rates = told / of_class
    smooth = np.where(of_class > 0, (told + 0.5) / (of_class + 1.0), np.nan)
    generator = np.random.default_rng(seed)
    with np.errstate(invalid="ignore"):
        boot = generator.binomial(of_class, np.nan_to_num(smooth), (resamples, *smooth.shape)) / of_class
    table = _Counts(groups, values, told.astype(float), np.bincount(np.searchsorted(groups, s)))
    gap = _gap(table, rates, smooth, boot, check_confidence(confidence))
    value, low, high = (float(gap.by_value[name].sum()) for name in ("gap", "joint_low", "joint_high"))
    total = Estimate(value, low, high, len(s))
    return Gap(gap.value, gap.low, gap.high, gap.rows, gap.by_value, gap.groups, total)


def group_rates(
    predicted: ArrayLike, truth: ArrayLike, sensitive: ArrayLike, *, positive: Any = None, confidence: float = 0.95
) -> pd.DataFrame:
    """For each group: rows, accuracy, selection, false positive and false negative rate, with exact intervals.

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
    guess, right = (guess == positive).astype(int), (right == positive).astype(int)
    measures = {
        "rows": count,
        "accuracy": accuracy_score,
        "selection_rate": selection_rate,
        "false_positive_rate": false_positive_rate,
        "false_negative_rate": false_negative_rate,
    }
    found = MetricFrame(metrics=measures, y_true=right, y_pred=guess, sensitive_features=s).by_group
    frame = found.rename_axis("group").reset_index().astype({"rows": int})
    positives = np.array([int(right[s == g].sum()) for g in frame["group"]])
    sizes = {"accuracy": frame["rows"], "selection_rate": frame["rows"],
             "false_positive_rate": frame["rows"] - positives, "false_negative_rate": positives}  # fmt: skip
    for name, size in sizes.items():
        n = np.asarray(size)
        frame.loc[n == 0, name] = np.nan  # fairlearn calls a rate of no rows 0
        hits = np.round(np.nan_to_num(frame[name].to_numpy()) * n)
        frame[f"{name}_low"], frame[f"{name}_high"] = clopper_pearson(hits, n, confidence)
    frame["small"] = frame["rows"] < SMALL_GROUP
    return frame


def absolute_error_cdf(
    predicted: ArrayLike, truth: ArrayLike, at: ArrayLike | None = None, *, confidence: float = 0.95
) -> pd.DataFrame:
    """P(|pred - truth| <= t): columns `error` (t), `share`, and a band `low`, `high` that holds for all t at once.

    The band is that of Dvoretzky, Kiefer and Wolfowitz, with Massart's constant.

    >>> absolute_error_cdf([1.0, 2.0], [1.0, 4.0], at=[0.0, 1.0, 2.0])["share"].tolist()
    [0.5, 0.5, 1.0]
    """
    guess, right = same_length(predicted=predicted, truth=truth)
    errors = np.sort(np.abs(guess.astype(np.float64) - right.astype(np.float64)))
    points = np.unique(errors) if at is None else np.asarray(at, dtype=np.float64)
    share = np.searchsorted(errors, points, side="right") / len(errors)
    half = np.sqrt(np.log(2.0 / (1.0 - check_confidence(confidence))) / (2.0 * len(errors)))
    return pd.DataFrame({"error": points, "share": share, "low": np.maximum(share - half, 0.0),
                         "high": np.minimum(share + half, 1.0)})  # fmt: skip


def bin_predictions(predicted: NDArray[np.generic], bins: int | ArrayLike) -> NDArray[np.generic]:
    """Numbers to the cells between the edges, or to this many cells with equal numbers of predictions."""
    numbers = predicted.astype(np.float64)
    if isinstance(bins, (int, np.integer)):
        if bins < 2:
            raise InputError(f"bins must be at least 2, or a list of edges. Got {bins}.")
        edges = np.unique(np.quantile(numbers, np.linspace(0, 1, int(bins) + 1)[1:-1]))
    else:
        edges = np.sort(np.asarray(bins, dtype=np.float64))
    return np.digitize(numbers, edges)


@dataclass(frozen=True)
class _Counts:
    """How often each value is predicted in each group: counts (groups, values), sizes (groups,)."""

    groups: NDArray[np.generic]
    values: NDArray[np.generic]
    counts: Array
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, predicted: NDArray[np.generic], sensitive: NDArray[np.generic]) -> "_Counts":
        groups, s = np.unique(sensitive, return_inverse=True)
        values, y = np.unique(predicted, return_inverse=True)
        counts = np.zeros((len(groups), len(values)))
        np.add.at(counts, (s, y), 1.0)
        return cls(groups, values, counts, counts.sum(axis=1).astype(np.int64))

    @property
    def rates(self) -> Array:
        return np.asarray(self.counts / self.sizes[:, None])


def _gap(table: _Counts, rates: Array, smooth: Array, boot: Array, confidence: float) -> Gap:
    """The gaps with bands: rates and smooth (groups, values), boot (resamples, groups, values)."""
    groups = len(table.groups)
    first, second = np.triu_indices(groups, k=1)
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
    by_value = pd.DataFrame({"y": table.values, "gap": gaps, "low": end(-value_by_value), "high": end(value_by_value),
                             "joint_low": end(-all_at_once), "joint_high": end(all_at_once),
                             "higher": table.groups[filled.argmax(axis=0)],
                             "lower": table.groups[filled.argmin(axis=0)]})  # fmt: skip
    sizes = pd.DataFrame({"group": table.groups, "rows": table.sizes, "small": table.sizes < SMALL_GROUP})
    low, high = (float(by_value[name].max()) for name in ("joint_low", "joint_high"))
    return Gap(float(gaps.max()), low, high, int(table.sizes.sum()), by_value, sizes)
