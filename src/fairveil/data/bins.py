"""Bins of a numeric column, chosen from data so that no edge reveals a single row's value."""

import math

import numpy as np

#: A number is released by drawing one of about this many bins (twice that for a heavy tail), then a point within it.
MOST_BINS = 64
#: Bins of all columns of a wide table together; a column keeps at least the second number.
_MOST_OF_ALL, _LEAST_BINS = 6144, 16
#: A value held by at least this share of the rows gets a bin of its own, so that spikes are preserved.
_SPIKE = 0.002
#: Bins are split until drawing within them costs at most this share of the variance (more where there are fewer bins).
_BIN_COST = 0.01


def most_bins(columns: int) -> int:
    """How many bins a number of a table with this many columns may have: fewer in wide tables.

    >>> most_bins(15), most_bins(300)
    (64, 20)
    """
    return max(_LEAST_BINS, min(MOST_BINS, _MOST_OF_ALL // max(columns, 1)))


def bin_starts(values: np.ndarray, lower: float, grid: float, fewest: int, most: int = MOST_BINS) -> tuple[float, ...]:
    """Where bins begin: one per spike, others near quantiles rounded to round numbers, wide ones split again.

    most: about how many, twice that for a heavy tail.
    """
    steps, counts = np.unique(np.round((values - lower) / grid).astype(np.int64), return_counts=True)
    common = counts >= fewest
    if len(steps) <= most // 2 and 2 * counts[common].sum() >= counts.sum():
        starts = _gaps_closed(steps[common])
    else:
        spiky = counts >= max(fewest, _SPIKE * len(values))
        spikes = steps[spiky][np.argsort(-counts[spiky], kind="stable")][: most // 4]
        rest = np.repeat(steps, np.where(np.isin(steps, spikes), 0, counts))
        levels = np.linspace(0.0, 1.0, most // 2 if len(rest) else 0)
        cuts = np.quantile(rest, levels, method="nearest") if len(rest) else levels
        cuts = _round_cuts(cuts, lower / grid) if fewest > 1 else cuts
        fixed = np.unique(np.concatenate([[0], spikes, spikes + 1]).astype(np.int64))
        starts = np.unique(np.concatenate([fixed, cuts]).astype(np.int64))
        starts = _without_small(starts[starts <= steps[-1]], fixed, steps, counts, fewest)
        starts = _cut_wide_bins(starts, steps, counts, fewest, most)
    return tuple(tidy(lower + float(s) * grid, grid) for s in starts)


def bin_shares(starts: tuple[float, ...], grid: float, values: np.ndarray, fewest: int) -> tuple[float, ...]:
    """The share of the values in each bin, to a thousandth; a bin of fewer than `fewest` counts as empty."""
    places = np.searchsorted(np.asarray(starts) - 0.5 * grid, values, side="right") - 1
    counts = np.bincount(places.clip(0), minlength=len(starts))
    counts = np.where(counts < min(fewest, counts.max()), 0, counts)
    return tuple(np.round(counts / counts.sum(), 3).tolist())


def _round_cuts(cuts: np.ndarray, origin: float) -> np.ndarray:
    """Cut points moved to rounder numbers nearby: an exact quantile is one person's value.

    origin: the number 0 lies at step -origin. Numbers are rounded, not their distance from the end of the range.
    """
    cuts = np.unique(cuts)
    apart = np.diff(cuts)
    if not len(apart):
        return cuts
    room = np.minimum(np.append(apart, apart[-1]), np.insert(apart, 0, apart[0]))
    unit = 10.0 ** np.floor(np.log10(np.maximum(room / 2, 1.0)))
    return np.asarray(np.round((cuts + origin) / unit) * unit - origin).round().clip(0)


def _without_small(
    starts: np.ndarray, fixed: np.ndarray, steps: np.ndarray, counts: np.ndarray, fewest: int
) -> np.ndarray:
    """Merge bins of few rows with their neighbours; edges at spikes are kept."""
    while True:
        rows = np.bincount(np.searchsorted(starts, steps, side="right") - 1, counts, len(starts))
        small = np.flatnonzero((rows > 0) & (rows < fewest))
        joined = [i for bin_ in small for i in (bin_, bin_ + 1) if i < len(starts) and starts[i] not in fixed]
        if not joined:
            return starts
        starts = np.delete(starts, joined[0])


def _cut_wide_bins(starts: np.ndarray, steps: np.ndarray, counts: np.ndarray, fewest: int, most: int) -> np.ndarray:
    """Halve the bin whose uniform draw costs most, until the total cost is small or the number of bins is reached.

    A heavy tail puts few rows into a bin that spans most of the range: drawing there would exceed any budget.
    """
    total = float(np.average((steps - np.average(steps, weights=counts)) ** 2, weights=counts))
    allowed = _BIN_COST * (MOST_BINS / most) ** 2 * total * counts.sum()
    whole = np.zeros(0, dtype=np.int64)  # starts of bins that cannot be cut without isolating a few rows
    while len(starts) < 2 * most:
        ends = np.append(starts[1:], steps[-1] + 1)
        owner = np.searchsorted(starts, steps, side="right") - 1
        rows = np.bincount(owner, counts, len(starts))
        centre = (starts + ends - 1) / 2
        spread = np.bincount(owner, counts * (steps - centre[owner]) ** 2, len(starts))
        cost = spread + rows * ((ends - starts) ** 2 - 1) / 12
        can_be_cut = (ends - starts > 1) & ~np.isin(starts, whole)
        if not can_be_cut.any() or cost[can_be_cut].sum() <= allowed:
            break
        worst = int(np.argmax(np.where(can_be_cut, cost, -1.0)))
        inside = owner == worst
        cut = _cut_within(int(starts[worst]), int(ends[worst]), steps[inside], counts[inside], fewest)
        if cut is None:
            whole = np.append(whole, starts[worst])
        else:
            starts = np.insert(starts, worst + 1, cut)
    return starts


def _cut_within(start: int, end: int, steps: np.ndarray, counts: np.ndarray, fewest: int) -> int | None:
    """Where to split a bin: near its middle, with at least `fewest` rows or none on either side; None if impossible."""
    middle = (start + end) // 2
    below = int(counts[steps < middle].sum())
    if not any(0 < side < fewest for side in (below, int(counts.sum()) - below)):
        return middle
    rows = np.cumsum(counts)
    if rows[-1] < 2 * fewest:
        return None
    low = int(steps[np.searchsorted(rows, fewest)]) + 1
    high = int(steps[np.searchsorted(rows, rows[-1] - fewest, side="right")])
    wanted = min(max(middle, low), high)
    # A round number between the two: either of them is one person's value.
    for power in range(int(math.log10(end - start)), -1, -1):
        for place in (wanted // 10**power * 10**power, -(-wanted // 10**power) * 10**power):
            if low <= place <= high and start < place < end:
                return int(place)
    return None


def _gaps_closed(steps: np.ndarray) -> np.ndarray:
    """One bin for each step that occurs, and one for each gap between two of them."""
    starts: np.ndarray = np.unique(np.concatenate([[0], steps, steps + 1]))
    return np.asarray(starts[starts <= steps[-1]])


def tidy(value: float, grid: float) -> float:
    """Remove binary rounding errors from a number on a decimal grid (0.30000000000000004)."""
    return round(value, max(0, -math.floor(math.log10(grid)) + 1))
