"""The distortion of a release: its mean on held-out rows and an upper confidence bound."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from fairveil._utils.weights import effective_rows, normalised
from fairveil.data.marginals import ColumnDrift, collapse_message
from fairveil.objectives.bounds import Limits
from fairveil.objectives.distortion import UNITS

#: With fewer held-out rows nothing is claimed: the bound is the largest distortion, or infinite.
FEWEST_ROWS = 30
#: The same where nothing limits the distortion of a row: in fewer rows, rare large changes may be missed.
FEWEST_UNLIMITED = 1000
#: Releases of every held-out row that are averaged: the mean stays the same, but the bound is not widened by the
#: randomness of a single draw.
DRAWS = 8


@dataclass(frozen=True)
class Achieved:
    """Distortion on held-out rows, as released.

    mean: their mean. upper: an upper confidence bound on the mean over future rows. bound: the budget it must not
    exceed; None if there is none. parts: the same for categorical and continuous columns. lost: the part of both that
    is spent on rows that keep their categories and bins, averaged over all fitted rows: the draw within bins, numbers
    outside the schema's ranges, and categories it does not list. changed: the share of rows in which a category or a
    bin changed; None if it was not counted. measure: the distortion's name, a key of
    `fairveil.objectives.distortion.UNITS`. asymptotic: whether the bound is asymptotic, as for squares, or needs no
    assumption about the distribution. columns: how the distribution of each column changed; empty for images.

    Examples
    --------
    >>> found = Achieved(mean=0.9, upper=0.97, bound=1.0, rows=2000, confidence=0.95)
    >>> found.met
    True
    """

    mean: float
    upper: float
    bound: float | None
    rows: int
    confidence: float
    parts: dict[str, "Achieved"] = field(default_factory=dict)
    lost: float = 0.0
    changed: float | None = None
    measure: str = "custom"
    asymptotic: bool = False
    columns: tuple[ColumnDrift, ...] = ()

    @property
    def unit(self) -> str:
        """What a distortion of 1 amounts to."""
        return UNITS[self.measure]

    @property
    def collapse(self) -> str | None:
        """A sentence that names the columns that collapse to few values; None if there are none."""
        return collapse_message(self.columns)

    @property
    def met(self) -> bool:
        """Whether every bound holds."""
        own = self.bound is None or self.upper <= self.bound
        return own and all(part.met for part in self.parts.values())

    def to_dict(self) -> dict[str, Any]:
        """As plain values; an infinite bound (no claim) as null."""
        plain: dict[str, Any] = {
            "mean": self.mean,
            "bound": self.bound,
            "rows": self.rows,
            "confidence": self.confidence,
            "lost": self.lost,
            "changed": self.changed,
            "measure": self.measure,
            "unit": self.unit,
            "asymptotic": self.asymptotic,
            "columns": [drift.to_dict() for drift in self.columns],
        }
        plain["upper"] = self.upper if math.isfinite(self.upper) else None
        plain["parts"] = {name: part.to_dict() for name, part in self.parts.items()}
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Achieved":
        """Read what `to_dict` wrote; rejects values of other types, as the file may have been crafted."""
        numbers = {name: values[name] for name in ("mean", "confidence", "lost")}
        optional = {name: values[name] for name in ("upper", "bound", "changed")}
        rows = values["rows"]
        if not all(map(_is_finite, numbers.values())) or not isinstance(rows, int) or isinstance(rows, bool):
            raise ValueError("a bound must hold finite numbers")
        if not all(value is None or _is_finite(value) for value in optional.values()):
            raise ValueError("a bound must hold finite numbers")
        share = optional["changed"]
        if rows < 0 or not 0 < numbers["confidence"] < 1 or (share is not None and not 0 <= share <= 1):
            raise ValueError("a bound must hold a number of rows, and shares between 0 and 1")
        measure, asymptotic = values["measure"], values["asymptotic"]
        if not isinstance(measure, str) or measure not in UNITS or not isinstance(asymptotic, bool):
            raise ValueError("a bound must name its measure")
        parts = {str(name): cls.from_dict(part) for name, part in values["parts"].items()}
        columns = tuple(map(ColumnDrift.from_dict, values["columns"]))
        return cls(numbers["mean"], math.inf if optional["upper"] is None else optional["upper"], optional["bound"],
                   rows, numbers["confidence"], parts, numbers["lost"], share, measure, asymptotic,
                   columns)  # fmt: skip


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def bound_on_mean(
    values: NDArray[np.float64], confidence: float, limits: Limits, weights: NDArray[np.float64] | None = None
) -> float:
    """Upper confidence bound on a mean: free of assumptions if all values are limited, otherwise asymptotic."""
    if limits.by_squares:
        return min(asymptotic_bound(values, confidence, limits.single, weights), limits.largest)
    return upper_bound(values, confidence, limits.largest, weights)


def unseen_share(rows: float, confidence: float) -> float:
    """The largest share of rows of which a sample may show none, at this confidence."""
    return float(1.0 - (1.0 - confidence) ** (1.0 / rows))


def upper_bound(
    values: NDArray[np.float64],
    confidence: float,
    largest: float = math.inf,
    weights: NDArray[np.float64] | None = None,
) -> float:
    """Upper confidence bound on a mean of values that are at most `largest`.

    Gaffke's bound: the quantile of the mean under random (Dirichlet) weights of the observed values and of `largest`,
    which stands for what the sample did not show. It assumes nothing about the distribution, not even that large values
    have been observed. For values of two kinds it is the exact (Clopper-Pearson) bound, for many rows it approaches
    the usual one. That it is valid in general is a conjecture without a known counterexample; its coverage is tested by
    simulation. With fewer than 30 rows, or without a finite `largest`, nothing is claimed.

    weights: how many rows of the population each one stands for. The bound is then on the weighted mean; rows are
    counted by Kish's effective number.

    >>> round(upper_bound(np.repeat([0.0, 1.0], [90, 10]), 0.95, largest=1.0), 3)
    0.164
    """
    n = effective_rows(weights, len(values))
    if n < FEWEST_ROWS or not math.isfinite(largest):
        return largest
    mass = np.full(len(values), 1.0) if weights is None else normalised(weights) * n / len(values)
    points, place = np.unique(np.append(np.minimum(values, largest), largest), return_inverse=True)
    mass = np.bincount(place, np.append(mass, 1.0)).astype(np.float64)
    if len(points) == 1:
        return largest
    if len(points) == 2:
        return float(points[0] + (points[1] - points[0]) * stats.beta.ppf(confidence, mass[1], mass[0]))
    mean = float(np.average(points, weights=mass))
    error = float(np.sqrt((mass * (points - mean) ** 2).sum()) / mass.sum())
    return float(optimize.brentq(lambda t: _chance_above(points - t, mass) - (1.0 - confidence),
                                 mean + 1e-3 * error, largest - 1e-9 * (largest - mean)))  # fmt: skip


def _chance_above(points: NDArray[np.float64], mass: NDArray[np.float64]) -> float:
    """The probability that a sum of `points`, weighted by independent Gamma(mass) variables, exceeds 0.

    By the saddlepoint approximation of Lugannani and Rice; its error is far below that of the confidence level. The
    mean of the sum must be below 0, and the largest point above.
    """
    low, high = 0.0, 1.0 / float(points.max())
    tilt = min(-float((mass * points).sum() / (mass * points**2).sum()), 0.5 * high)
    for _ in range(100):  # Newton's method for the root of the derivative, kept inside a shrinking interval
        ratio = points / (1.0 - tilt * points)
        slope, curvature = float((mass * ratio).sum()), float((mass * ratio**2).sum())
        low, high = (low, tilt) if slope > 0 else (tilt, high)
        before, tilt = tilt, tilt - slope / curvature
        if not low < tilt < high:
            tilt = 0.5 * (low + high)
        if abs(tilt - before) <= 1e-10 * high:
            break
    ratio = points / (1.0 - tilt * points)
    exponent = -float((mass * np.log1p(-tilt * points)).sum())
    signed_root, slope = math.sqrt(max(-2.0 * exponent, 0.0)), tilt * math.sqrt(float((mass * ratio**2).sum()))
    if signed_root < 1e-4:
        return 0.5
    return float(stats.norm.sf(signed_root) + stats.norm.pdf(signed_root) * (1.0 / slope - 1.0 / signed_root))


def asymptotic_bound(
    values: NDArray[np.float64],
    confidence: float,
    single: float = math.inf,
    weights: NDArray[np.float64] | None = None,
) -> float:
    """Upper confidence bound on a mean of values whose largest one is unknown or far beyond any that occurs.

    Hall's (1992) transformation of Student's t, which removes the error due to skewness to first order; plus what
    changes that the sample does not show could cost: the largest share of rows of which a sample may show none, times
    `single`, the largest change of a single column. It assumes that rows which change in many columns at once by far
    more than those observed do not occur. Without a finite `single` it needs `FEWEST_UNLIMITED` rows, with it
    `FEWEST_ROWS`; otherwise nothing is claimed.
    """
    n = effective_rows(weights, len(values))
    limited = math.isfinite(single)
    if n < (FEWEST_ROWS if limited else FEWEST_UNLIMITED):
        return math.inf
    weight = np.ones(len(values)) if weights is None else normalised(weights)
    mean = float(np.average(values, weights=weight))
    guard = unseen_share(n, confidence) * single if limited else 0.0
    return _hall_bound(mean + weight * (values - mean), confidence) + guard


def _hall_bound(values: NDArray[np.float64], confidence: float) -> float:
    n = len(values)
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    if deviation == 0.0:
        return mean
    skew = float(np.mean(((values - mean) / deviation) ** 3))
    quantile = -float(stats.t.ppf(confidence, n - 1))
    root = math.sqrt(n)
    if abs(skew) > 1e-8:
        inner = 1.0 + skew * (quantile / root - skew / (6.0 * n))
        quantile = root * 3.0 / skew * (math.cbrt(inner) - 1.0)
    return mean - quantile * deviation / root
