"""Certificates of a veil's release, and how many cells a code may have so that rows set aside certify a given bound."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairveil._utils.errors import CertificateNotMet, InputError, must_be
from fairveil._utils.randomness import Seeds
from fairveil.auditing import Certificate
from fairveil.auditing.certificate import certify_from
from fairveil.auditing.variation import binomial_bound
from fairveil.data.frames import Table
from fairveil.encoders import BalancedPartition
from fairveil.encoders.codebook import FEWEST_ROWS_OF_A_CELL, MOST_CELLS
from fairveil.estimators.fitted_rows import FittedRows
from fairveil.estimators.inputs import draw_source
from fairveil.training import Training
from fairveil.veil import Veil

#: The share of the rows that are set aside to certify a code.
SET_ASIDE = 0.45
#: Standard deviations of the observed total variation for which the number of cells allows.
_SAFETY = 1.7
#: Variance of the absolute value of a standard normal variable.
_FOLDED = 1.0 - 2.0 / math.pi


def check_certified(owner: str, certified: object) -> None:
    """Raise InputError unless this is a bound on a total variation."""
    number = isinstance(certified, (int, float)) and not isinstance(certified, bool)
    if not number or not 0.0 < certified < 1.0:  # type: ignore[operator]
        raise InputError(must_be(owner, "certified", "a number between 0 and 1, or None", certified))


@dataclass(frozen=True)
class Allowance:
    """How many cells most likely hold a certificate.

    fitted, held_out: the rows of each group that balance the cells, and that certify them. If all groups have the same
    shares of K cells among the fitted rows, the observed total variation among others has a mean of at most
    sqrt(K v / 2 pi), nearly reached by equal cells, where v = 1/n + 1/m + 1/n' + 1/m' over the sizes
    of both samples of both groups.
    """

    certified: float
    fitted: Sequence[int]
    held_out: Sequence[int]
    confidence: float

    def cells(self) -> int:
        """The largest number of cells of equal size; raises CertificateNotMet if not even two most likely hold."""
        if min([*self.fitted, *self.held_out]) == 0:
            raise CertificateNotMet(
                "A group of S has too few rows: none is left to balance or to certify its cells.", 1.0
            )
        fewest = min(math.floor(2.0 * math.pi * left**2 / v) if left > 0 else 0 for left, v in self._pairs())
        fewest = min(fewest, MOST_CELLS, sum(self.fitted) // FEWEST_ROWS_OF_A_CELL)
        if fewest >= 2:
            return fewest
        best = max(self.certified - left + math.sqrt(v / math.pi) for left, v in self._pairs())
        raise CertificateNotMet(
            f"These rows can certify about {best:.3f} at best, not {self.certified:g}: the smallest groups of S have "
            f"{min(self.fitted)} rows to fit and {min(self.held_out)} to certify. Give more rows, or ask for a larger "
            "value.",
            best,
        )

    def _pairs(self) -> list[tuple[float, float]]:
        """Of each pair of groups: what the certificate leaves for the mean of the observed total variation, and v."""
        pairs = list(combinations(range(len(self.fitted)), 2))
        found = []
        for one, other in pairs:
            v = sum(1.0 / rows[group] for rows in (self.fitted, self.held_out) for group in (one, other))
            margin = binomial_bound(0.0, self.held_out[one], self.held_out[other],
                                    0.9 * (1.0 - self.confidence) / len(pairs))  # fmt: skip
            found.append((self.certified - margin - _SAFETY * math.sqrt(v * _FOLDED / 4), v))
        return found


@dataclass(frozen=True)
class CertificatePlan:
    """What a certificate on demand needs: how many cells may be, and which rows fit the code and which certify it."""

    certified: float
    cells: int
    rest: NDArray[np.int64]
    aside: NDArray[np.int64]

    def check(self, found: Certificate) -> Certificate:
        """The certificate of the rows set aside; raises CertificateNotMet if its bound is too large."""
        if found.bound > self.certified:
            message = (f"{len(self.aside):,} rows certify {found.rounded:.4f} for {found.cells} cells, not "
                       f"{self.certified:g}. Give more rows, or ask for a larger value.")  # fmt: skip
            raise CertificateNotMet(message, found.bound)
        return replace(found, evidence=f"{len(self.aside):,} rows that fit set aside and used for nothing else.")


def plan_certificate(
    certified: float, groups: NDArray[np.int64], training: Training, confidence: float, seeds: Seeds
) -> CertificatePlan:
    """Set rows aside at random; raises CertificateNotMet if they can certify no code.

    groups: the class of S of each row.
    """
    order = seeds.child("certificate").numpy().permutation(len(groups))
    count = int(SET_ASIDE * len(order))
    aside, rest = np.sort(order[:count]), np.sort(order[count:])
    completed = training.completed(BalancedPartition.training)
    kept = 1.0 - sum(getattr(completed, name) for name in ("validation", "held_out"))
    sizes, held_out = (np.bincount(groups[rows], minlength=int(groups.max()) + 1) for rows in (rest, aside))
    allowance = Allowance(certified, (sizes * kept).astype(int).tolist(), held_out.tolist(), confidence)
    return CertificatePlan(certified, allowance.cells(), rest, aside)


def certify_veil(
    veil: Veil,
    table: Table,
    secret: pa.Table,
    fitted: FittedRows | None,
    *,
    unseen_rows: bool,
    asymptotic: bool = False,
    **options: Any,
) -> Certificate:
    """Bound the unfairness of any predictor on a veil's release; see `FairEncoder.certify`.

    fitted: the rows it was fitted on; None if they are unknown. options: of `certify_from`.
    """
    encoder = veil.encoder
    if encoder.alphabet is None:
        raise InputError(
            "Only a finite release can be certified: use architecture=fairveil.Matrix(n_cells=K) or "
            "fairveil.Partition(n_cells=K) (fairveil fit --architecture matrix --cells K)."
        )
    passed = [column.name for column in veil.schema.columns if column.role == "pass"]
    if passed:
        raise InputError(f"Columns with the role 'pass' ({', '.join(map(repr, passed))}) are released unseen: "
                         "nothing can be certified of a release that holds them. Drop them.")  # fmt: skip
    if fitted is None and not unseen_rows:
        raise InputError("This encoder was read from a file, which holds no rows: it is unknown whether these "
                         "were used in training. If they were not, pass unseen_rows=True.")  # fmt: skip
    if secret.num_rows != len(table):
        raise InputError(f"X has {len(table)} rows, sensitive_features {secret.num_rows}.")
    rows = veil.codec.encode_rows(table.arrow)
    if unseen_rows or fitted is None:
        evidence = f"{len(table):,} rows; the caller states that none of them was used in training."
    else:
        evidence = fitted.refuse(rows.original)
    names = [" & ".join(map(repr, value)) for value in veil.sensitive.joint_values()]
    groups = np.array(names)[veil.sensitive.classes_of(secret).numpy()]
    shown = veil.shown(len(table), secret)
    transition = probabilities = None
    cells, channel = encoder.cell_of(rows.x), encoder.channel()
    if channel is not None and not asymptotic:
        exact = channel[0].double().numpy()
        transition = dict(zip(names, np.broadcast_to(exact, (len(names), *exact.shape[1:])), strict=True))
    elif not asymptotic:
        probabilities = encoder.probabilities(rows.x, shown)
    if transition is None and probabilities is None:
        # One draw, determined by these rows: the best of several draws could be picked, and would prove nothing.
        cells = encoder.cell_of(veil.values(rows.x, shown, draw_source(0, "FairEncoder", table, secret)))
    return certify_from(
        cells.numpy(), groups, encoder.alphabet, evidence, names=names, transition=transition,
        probabilities=probabilities, asymptotic=asymptotic, **options,
    )  # fmt: skip
