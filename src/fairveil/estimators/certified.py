"""Certificates on demand: how many cells a code may have so that rows set aside will certify a given bound."""

import math
from collections.abc import Sequence
from itertools import combinations

from fairveil._utils.errors import CertificateNotMet, InputError, must_be
from fairveil.auditing.variation import binomial_bound
from fairveil.encoders.codebook import FEWEST_ROWS_OF_A_CELL, MOST_CELLS

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


def cells_for(certified: float, fitted: Sequence[int], held_out: Sequence[int], confidence: float) -> int:
    """The largest number of cells for which the certificate will most likely hold.

    fitted, held_out: the rows of each group that balance the cells, and that certify them. If all groups have the same
    shares of K cells among the fitted rows, the observed total variation among others has the mean sqrt(K v / 2 pi),
    where v = 1/n + 1/m + 1/n' + 1/m' over the sizes of both samples of both groups.

    Raises CertificateNotMet if not even two cells can be expected to be certified.
    """
    pairs = list(combinations(range(len(fitted)), 2))
    if min([*fitted, *held_out]) == 0:
        raise CertificateNotMet("A group of S has too few rows: none is left to balance or to certify its cells.", 1.0)
    level = (1.0 - confidence) / len(pairs)
    fewest, best = MOST_CELLS, 0.0
    for one, other in pairs:
        v = sum(1.0 / rows[group] for rows in (fitted, held_out) for group in (one, other))
        margin = binomial_bound(0.0, held_out[one], held_out[other], 0.9 * level) + _SAFETY * math.sqrt(v * _FOLDED / 4)
        left = certified - margin
        fewest = min(fewest, math.floor(2.0 * math.pi * left**2 / v) if left > 0 else 0)
        best = max(best, margin + math.sqrt(v / math.pi))
    fewest = min(fewest, sum(fitted) // FEWEST_ROWS_OF_A_CELL)
    if fewest < 2:
        raise CertificateNotMet(
            f"These rows can certify about {best:.3f} at best, not {certified:g}: the smallest groups of S have "
            f"{min(fitted)} rows to fit and {min(held_out)} to certify. Give more rows, or ask for a larger value.",
            best,
        )
    return fewest
