"""Noise independent of S: Laplace and Gaussian mechanisms at a given distortion, with their epsilon.

The baselines of Table `tb:genki`. A row of d coordinates, each of range 1, gets independent noise of variance D / d per
coordinate, so that E|X_r - X|^2 = D. Under local differential privacy any row may be exchanged for any other: the
sensitivity is d in L1 and sqrt(d) in L2.

Examples
--------
>>> import numpy as np
>>> import fairveil as fv
>>> x = np.random.default_rng(0).normal(size=(100, 3))
>>> fv.noise.LaplaceNoise(budget=1.0, random_state=0).fit_transform(x).shape
(100, 3)
"""

import math
from typing import Any, Self

import numpy as np
import torch
from scipy import optimize, special
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil._utils.randomness import ByteSource, normal
from fairveil.data.layout import Layout
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Codec
from fairveil.encoders.heads import Snap
from fairveil.estimators.base import TableTransformer
from fairveil.estimators.inputs import draw_source
from fairveil.objectives import Distortion
from fairveil.objectives.released import ReleasedBatch

#: Rows used to calibrate the noise for mixed tables to its budget.
_CALIBRATION_ROWS = 20_000


def laplace_epsilon(distortion: float, dimension: int) -> float:
    """Epsilon of Laplace noise of variance D / d per coordinate (the supplement): d sqrt(2 d / D).

    >>> round(laplace_epsilon(2, 256), 2)  # Table `tb:genki`
    4096.0
    """
    distortion, dimension = _check(distortion, dimension)
    return dimension * math.sqrt(2.0 * dimension / distortion)


def gaussian_epsilon(distortion: float, dimension: int, delta: float) -> float:
    """Epsilon of Gaussian noise by the *paper's* formula: 2 d / sqrt(D) sqrt(ln(1.25 / delta)).

    It reproduces Table `tb:genki` and is not a guarantee: the bound it is based on has sqrt(2 ln(1.25/delta)) and holds
    for epsilon < 1 only. `analytic_gaussian_epsilon` is the true value.

    >>> round(gaussian_epsilon(3, 256, 1e-6), 2)
    1107.57
    """
    distortion, dimension = _check(distortion, dimension)
    return 2.0 * dimension / math.sqrt(distortion) * math.sqrt(math.log(1.25 / _check_delta(delta)))


def analytic_gaussian_epsilon(distortion: float, dimension: int, delta: float) -> float:
    """The exact epsilon of Gaussian noise of variance D / d per coordinate (Balle and Wang 2018).

    The least epsilon with Phi(a - epsilon / (2a)) - e^epsilon Phi(-a - epsilon / (2a)) <= delta, a = d / (2 sqrt(D)).

    >>> round(analytic_gaussian_epsilon(1000, 256, 1e-6), 2)
    70.46
    """
    distortion, dimension = _check(distortion, dimension)
    delta = _check_delta(delta)
    half = dimension / math.sqrt(distortion) / 2.0

    def excess(epsilon: float) -> float:
        first = special.log_ndtr(half - epsilon / (2.0 * half))
        second = epsilon + special.log_ndtr(-half - epsilon / (2.0 * half))
        # log(e^first - e^second) versus log delta: neither overflows for an epsilon of many thousands.
        return float(first + np.log(-np.expm1(min(second - first, -1e-300))) - math.log(delta))

    if excess(0.0) <= 0.0:
        return 0.0
    return float(optimize.brentq(excess, 0.0, 2.0 * half**2 + 80.0 * half + 80.0, xtol=1e-10, rtol=1e-12))


class NoiseTransformer(TableTransformer):
    """Independent noise on every coordinate of a row, as a transformer with the interface of `FairEncoder`.

    budget: D, the mean distortion of a row, as in `FairEncoder`. A table of numbers gets noise of variance D / d on the
    schema's scale (clipping to the range removes some of it). In a table with categories noise is added to their
    one-hot slots, the largest slot is released, and the noise is as strong as D allows on the fitted rows.
    """

    def __init__(self, budget: float = 1.0, *, schema: Schema | None = None, random_state: Any = None) -> None:
        self.budget = budget
        self.schema = schema
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:
        """Infer the schema and calibrate the noise; S and y are ignored."""
        number = isinstance(self.budget, (int, float, np.number)) and not isinstance(self.budget, bool)
        if not number or not 0 < self.budget < math.inf:
            raise InputError(must_be(type(self).__name__, "budget", "a finite number above 0", self.budget))
        table = self._read(X, reset=True)
        self.schema_: Schema = (self.schema or Schema.infer(table)).without_bins()
        layout = self.schema_.layout
        if layout.groups:
            source = draw_source(self.random_state, type(self).__name__, table)
            self.deviation_ = self._calibrate(Codec(self.schema_).encode(table.arrow), source)
        else:
            self.deviation_ = math.sqrt(self.budget / max(len(layout.numbers), 1))
        return self

    def transform(self, X: Any, *, sensitive_features: Any = None) -> Any:
        """A noisy copy of X: the same kind of table, columns, types and categories."""
        check_is_fitted(self, "deviation_")
        table = self._read(X, reset=False)
        codec = Codec(self.schema_)
        source = draw_source(self.random_state, type(self).__name__, table)
        rows = codec.encode(table.arrow)
        noisy = _noisy(rows, self.deviation_ * self._unit(len(rows), rows.shape[1], source), self.schema_.layout)
        return table.like_origin(codec.decode(noisy), keep_types=True)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The columns of a release."""
        check_is_fitted(self, "deviation_")
        return np.asarray([column.name for column in self.schema_.seen], dtype=object)

    def _unit(self, rows: int, columns: int, source: ByteSource) -> Tensor:
        """Noise of mean 0 and variance 1."""
        raise NotImplementedError  # abstract

    def _calibrate(self, rows: Tensor, source: ByteSource) -> float:
        """The deviation at which the distortion of these rows meets the budget, or the largest that noise can cause."""
        rows, layout = rows[:_CALIBRATION_ROWS], self.schema_.layout
        unit, distortion = self._unit(len(rows), rows.shape[1], source), Distortion(layout)

        def spent(deviation: float) -> float:
            noisy = _noisy(rows, deviation * unit, layout)
            return float(distortion.realised(ReleasedBatch(noisy, noisy[..., layout.grouped]), rows).sum(dim=-1).mean())

        low, high = 0.0, 1e-3
        while spent(high) < self.budget and high < 1e3:
            low, high = high, 2.0 * high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if spent(middle) < self.budget else (low, middle)
        return low


class LaplaceNoise(NoiseTransformer):
    """Laplace noise of scale sqrt(D / (2 d)) on each of d numbers."""

    def _unit(self, rows: int, columns: int, source: ByteSource) -> Tensor:
        uniform = source.double(rows, columns) - 0.5
        scaled = -torch.sign(uniform) * torch.log1p(-2.0 * uniform.abs()) / math.sqrt(2.0)
        return scaled.to(torch.float32)


class GaussianNoise(NoiseTransformer):
    """Gaussian noise of variance D / d on each of d numbers."""

    def _unit(self, rows: int, columns: int, source: ByteSource) -> Tensor:
        return normal(source, rows, columns)


def _noisy(rows: Tensor, noise: Tensor, layout: Layout) -> Tensor:
    """Rows with noise on every slot, made valid: the largest slot of each group, numbers clipped and rounded."""
    moved = rows + noise
    parts = []
    for group in layout.groups:
        chosen = moved[:, group.start : group.stop].argmax(dim=1)
        parts.append(torch.nn.functional.one_hot(chosen, group.width).to(rows.dtype))
    numbers = Snap(layout)(moved[:, layout.continuous])
    for group, part in zip(layout.groups, parts, strict=True):
        if group.number is not None and group.column.missing:
            numbers[:, group.number] *= 1.0 - part[:, -1]
    return torch.where(torch.from_numpy(layout.kept), rows, torch.cat([*parts, numbers], dim=1))


def _check(distortion: float, dimension: int) -> tuple[float, int]:
    if not 0 < distortion < math.inf:
        raise InputError(f"A distortion must be a finite number above 0. Got {distortion!r}.")
    if not isinstance(dimension, (int, np.integer)) or dimension < 1:
        raise InputError(f"A dimension must be a whole number of at least 1. Got {dimension!r}.")
    return float(distortion), int(dimension)


def _check_delta(delta: float) -> float:
    if not 0 < delta < 1:
        raise InputError(f"delta must lie between 0 and 1. Got {delta!r}.")
    return float(delta)
