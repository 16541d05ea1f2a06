"""The distortion of a release: its mean on held-out rows and an upper confidence bound."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fairveil._utils.weights import effective_rows, normalised

#: With fewer held-out rows nothing is claimed: the bound is the largest distortion the schema allows. With fewer
#: changed rows the asymptotic bound is not used alone.
FEWEST_ROWS = 30
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
    bin changed; None if it was not counted.
    """

    mean: float
    upper: float
    bound: float | None
    rows: int
    confidence: float
    parts: dict[str, "Achieved"] = field(default_factory=dict)
    lost: float = 0.0
    changed: float | None = None

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
        parts = {str(name): cls.from_dict(part) for name, part in values["parts"].items()}
        return cls(numbers["mean"], math.inf if optional["upper"] is None else optional["upper"], optional["bound"],
                   rows, numbers["confidence"], parts, numbers["lost"], optional["changed"])  # fmt: skip


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def upper_bound(
    values: NDArray[np.float64],
    confidence: float,
    largest: float = math.inf,
    floor: float = 0.0,
    weights: NDArray[np.float64] | None = None,
) -> float:
    """Upper confidence bound on a mean of distortions, which are at least 0 and at most `largest`.

    Uses Hall's (1992) transformation of Student's t. Distortions are skewed (most rows change little, a few a lot), so
    the plain t bound is too low; the transformation removes that error to first order. The bound is asymptotic; its
    coverage is tested by simulation on such distributions. It requires observed changes: with fewer than 30 rows
    nothing is claimed beyond `largest`, and with fewer than 30 changed rows the bound is at least the exact
    (Clopper-Pearson) bound on the share of changed rows times `largest`. A row is changed if its value exceeds `floor`:
    for losses, which are rarely 0, the loss of a good prediction.

    weights: how many rows of the population each one stands for. The bound is then on the weighted mean, a ratio, with
    the deviation of its linear part; rows and changed rows are counted by Kish's effective number.

    >>> round(upper_bound(np.repeat([0.0, 1.0], [90, 10]), 0.95, largest=1.0), 3)
    0.164
    """
    weight = np.ones(len(values)) if weights is None else normalised(weights)
    n = effective_rows(weight, len(values))
    if n < FEWEST_ROWS:
        return largest
    kept = values <= floor
    changed = n * float(weight[~kept].sum()) / len(values)
    rare = 0.0
    if min(changed, float(np.sum(~kept))) < FEWEST_ROWS:
        share = float(stats.beta.ppf(confidence, changed + 1, n - changed)) if changed < n else 1.0
        rare = share * largest + (float(np.average(values[kept], weights=weight[kept])) if kept.any() else 0.0)
    mean = float(np.average(values, weights=weight))
    return min(max(_hall_bound(mean + weight * (values - mean), confidence), rare), largest)


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
