"""`exchange`: rows that are at hand exchange values, so that no predictor can tell their groups apart.

There are two readings, because they promise different things. For a *publication*, a file that is handed on, see
`fairveil.matching.publication`. For a *representation*, each row keeps its place and its other columns and gets a
censored record: whole records are exchanged.

A share of the rows of every group takes the record of a row of another group, chosen by optimal matchings so that
records change little, and gives its own record away. Which rows take part, and which group each of them receives a
record from, is drawn such that every record is equally likely to go to every group (`fairveil.matching.shares`): the
released record is independent of S over the draw, for any predictor, without sampling error. All records of the table
are released once, so the table's distribution does not change at all.

Rows that keep their record weaken this: if a share k of the rows of each group stays as it is, the total variation
between the groups is at most k. The rows that cost most to exchange stay.
"""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from fairveil._utils.errors import BudgetNotMet, InputError, must_be
from fairveil._utils.progress import progress
from fairveil._utils.randomness import ByteSource
from fairveil.auditing.certificate import Certificate
from fairveil.auditing.inputs import read_clusters, read_targets
from fairveil.data.batch import Batch, check_types
from fairveil.data.frames import Table, read_columns, read_table
from fairveil.data.images import Images, is_images, read_image_batch
from fairveil.data.schema import Schema
from fairveil.data.sensitive import describe_sensitive
from fairveil.estimators.inputs import draw_source, seed_from
from fairveil.matching.pairs import Points, match, pair_costs
from fairveil.matching.points import SHARED_WEIGHT, TARGET_WEIGHT, Kept, record_points, shared_scores_of
from fairveil.matching.publication import People, Published, number_of_chunks, publish
from fairveil.matching.shares import Floats, Ints, assign, exchange_counts, shuffled

#: Rounds of the matching that estimates what an exchange of each row costs.
_TRIAL_ROUNDS = 3
#: The share of a budget that the estimate may use, and how often a draw above the budget is drawn again.
_WITHIN, _ATTEMPTS = 0.98, 5
_FEWEST_ROWS = 2

Purpose = Literal["representation", "publication"]


def exchange(
    X: Any,
    *,
    sensitive_features: Any,
    purpose: Purpose = "representation",
    certified: float | None = 0.05,
    budget: float | None = None,
    targets: Any = None,
    target_weight: float = TARGET_WEIGHT,
    shared_weight: float = SHARED_WEIGHT,
    within: Any = None,
    schema: Schema | None = None,
    random_state: Any = None,
    verbose: bool = True,
) -> tuple[Any, Certificate]:
    """Exchange values between rows of different groups of S; no training, for rows that are at hand.

    Parameters
    ----------
    X : table, array or images
        All columns are exchanged. Columns that must stay with their row (an identifier, a label) belong elsewhere, or
        have the role `keep` or `pass` in the schema of a publication.
    sensitive_features : array or table
        S: one or several columns; groups are the combinations that occur; numbers are cut into ranges.
    purpose : {"representation", "publication"}
        "representation": whole records are exchanged, for models that predict from each row's record. The set of
        records stays as it was, so whoever recognises a person by some columns still finds the true record.
        "publication": for a file that is handed on. Levels of columns are exchanged independently within blocks of
        similar rows, and numbers are drawn anew within their bins; whoever recognises a person by some columns finds
        the others of a random row of its block. This is data swapping (Dalenius and Reiss, 1982; Fienberg and McIntyre,
        2004) such that the released row is independent of S. Tables only.
    certified : float, optional
        Upper bound on ΔDemP of any predictor, from 0 up to 1. Representation: this share of the rows of each group
        keeps its record, those that would cost most to exchange; None with a budget: as few as it allows. Publication:
        blocks are as large as the bound needs; rows keep their values only if the budget requires it.
    budget : float, optional
        Upper bound on the mean distortion of these rows; it holds exactly. Representation: changed categories plus
        squared changes of the numbers in standard deviations. Publication: the default distortion of `FairEncoder`,
        changed categories plus distances between the ranks of numbers, on the values as released.
    targets : mapping, frame or series, optional
        Known tasks. Matchings then also keep each row's rank, within its group, by a cross-fitted prediction of the
        target. A missing label is predicted.
    target_weight : float
        What the whole range of that rank costs, in units of the distortion.
    shared_weight : float
        Without targets, matchings also keep each row's rank by what the columns have in common: a task that nobody
        named is likely to depend on it. The weight is relative to closeness; 0: matchings only keep rows close.
    within : array, optional
        Rows exchange records only with rows of the same value: the splits of a data set, or Y for equalized odds. The
        bound then holds within every value.
    schema : Schema, optional
        For a publication: roles, ranges, bins and dependencies of the columns; inferred by default.
    random_state : int, numpy generator or None
        As for `FairEncoder`: with an int, the same table gets the same draw; with None, draws come from the operating
        system.
    verbose : bool
        Show progress.

    Returns
    -------
    X_r : like X
        What each row receives. Row i is still the row of the same person, so that it can be audited and joined with
        other columns: shuffle a publication before you hand it on, as `fairveil release --by matching` does.
    Certificate
        Of kind "construction". It is about predictions made for these rows from X_r, in expectation over the draw. It
        says nothing about a person who is recognised by other columns.

    Raises
    ------
    BudgetNotMet
        The budget cannot be kept together with `certified`.

    >>> X = pd.DataFrame({"a": [0, 1] * 50, "b": ["x", "y", "y", "y"] * 25})
    >>> X_r, certificate = exchange(X, sensitive_features=[0, 1] * 50, certified=0.0, random_state=0, verbose=False)
    >>> certificate.bound, sorted(X_r["b"]) == sorted(X["b"])
    (0.0, True)
    """
    if purpose not in ("representation", "publication"):
        raise InputError(must_be("exchange", "purpose", "'representation' or 'publication'", purpose))
    check_limits(certified, budget)
    for name, weight in (("target_weight", target_weight), ("shared_weight", shared_weight)):
        if not (_is_number(weight) and 0.0 <= weight < math.inf):
            raise InputError(must_be("exchange", name, "a finite number of at least 0", weight))
    batch: Batch = read_image_batch(X) if is_images(X) else read_table(X)
    secret = read_columns(sensitive_features, "sensitive")
    if secret.num_rows != len(batch):
        raise InputError(
            f"X has {len(batch)} rows, sensitive_features {secret.num_rows}. They must have the same length."
        )
    if len(batch) < _FEWEST_ROWS:
        raise InputError(f"Found n_samples = {len(batch)} rows; there is nothing to exchange.")
    sensitive = describe_sensitive(secret, discrete=True)
    groups = sensitive.classes_of(secret).numpy()
    names = [" & ".join(map(str, values)) for values in sensitive.joint_values()]
    parts = read_clusters(within, len(batch)) if within is not None else np.zeros(len(batch), dtype=np.int64)
    assert parts is not None
    source = draw_source(random_state, "exchange", batch, secret)
    kept = Kept(_target_columns(targets, len(batch)), target_weight, shared_weight, seed_from(random_state, "exchange"))
    if purpose == "publication":
        people = People(groups, parts, names)
        return _publication(
            batch, schema, people, certified, budget, kept, source, conditional=within is not None, verbose=verbose
        )
    if schema is not None:
        raise InputError("exchange uses a schema for purpose='publication' only: records are exchanged as they are.")
    points = record_points(batch)
    placed = np.hstack([points, kept.coordinates(points, groups, parts, lambda: shared_scores_of(batch, groups))])
    with progress(_steps(parts, budget), "Exchange", verbose) as report:
        done = 0

        def step(note: str) -> None:
            nonlocal done
            done += 1
            report(done, note)

        record, stay = _exchanged(points, placed, groups, parts, certified, budget, source, step)
    spent = pair_costs(points, np.arange(len(record)), record)
    moved = record != np.arange(len(record))
    return _released(batch, record), _certificate(
        stay, groups, parts, names, within is not None, float(spent.mean()), float(moved.mean())
    )


def check_limits(certified: float | None, budget: float | None) -> None:
    """Reject limits that are not numbers, or none at all."""
    if certified is None and budget is None:
        raise InputError("exchange needs an upper bound: certified=, budget=, or both.")
    for name, value, most in (("certified", certified, 1.0), ("budget", budget, math.inf)):
        if value is not None and not (_is_number(value) and 0.0 <= value < most):
            raise InputError(
                must_be("exchange", name, "None, or a number of at least 0" + " and below 1" * (most < 2), value)
            )


def _publication(
    batch: Batch, schema: Schema | None, people: People, certified: float | None, budget: float | None,
    kept: Kept, source: ByteSource, *, conditional: bool, verbose: bool,
) -> tuple[Any, Certificate]:  # fmt: skip
    if not isinstance(batch, Table):
        raise InputError("purpose='publication' exchanges columns, and images have none. Use a veil.")
    schema = schema or Schema.infer(batch)
    check_types(batch, schema)
    chunks = number_of_chunks(people.parts)
    with progress(chunks * (2 if budget is None else 4), "Exchange", verbose) as report:
        done = 0

        def step(note: str) -> None:
            nonlocal done
            done += 1
            report(done, note)

        found = publish(
            batch.content, schema, people, certified=certified, budget=budget, source=source, kept=kept,
            step=step,
        )  # fmt: skip
    return batch.like_origin(found.rows), publication_certificate(found, people, conditional=conditional)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _released(batch: Batch, record: Ints) -> Any:
    """The records in the caller's form."""
    rows = batch.take(record)
    if isinstance(rows, Images):
        return rows.array[..., 0] if rows.grey else rows.array
    return batch.like_origin(rows.content)


def _target_columns(targets: Any, rows: int) -> dict[str, pa.ChunkedArray]:
    columns = read_targets(targets, "target")
    short = [name for name, column in columns.items() if len(column) != rows]
    if short:
        raise InputError([f"X has {rows} rows, the target {name!r} {len(columns[name])}." for name in short])
    return columns


def _steps(parts: Ints, budget: float | None) -> int:
    return len(np.unique(parts)) + 1 + (0 if budget is None else 1)


def _exchanged(
    points: Points, placed: Points, groups: Ints, parts: Ints, certified: float | None, budget: float | None,
    source: ByteSource, step: Callable[[str], None],
) -> tuple[Ints, np.ndarray]:  # fmt: skip
    """The record that each row receives, and which rows keep theirs."""
    cost, distortion = np.zeros(len(points)), np.zeros(len(points))
    if budget is not None or certified:
        cost, distortion = _trial(points, placed, groups, parts, source)
        step("costs")
    share = float(certified or 0.0)
    if certified is None:
        assert budget is not None
        share = _share_within(cost, distortion, groups, parts, _WITHIN * budget)
        step("shares")
    for _ in range(_ATTEMPTS):
        stay = _costliest(cost, groups, parts, share, up=certified is None)
        record = np.arange(len(points))
        for part in np.unique(parts):
            rows = np.flatnonzero((parts == part) & ~stay)
            record[rows] = rows[_permutation(placed[rows], groups[rows], source)]
            step("matching")
        spent = float(pair_costs(points, np.arange(len(record)), record).mean())
        if budget is None or spent <= budget:
            return record, stay
        share = 1.0 - (1.0 - share) * _WITHIN * budget / spent if certified is None else share
    raise BudgetNotMet(
        f"An exchange with certified={certified} exceeds the budget of {budget:g} on these rows. Raise the budget or "
        "the certified value."
    )


def _permutation(points: Points, groups: Ints, source: ByteSource) -> Ints:
    """Which record each row receives, such that every record is equally likely to go to every group."""
    present, codes = np.unique(groups, return_inverse=True)
    record = np.arange(len(points))
    if len(present) < 2:
        return record
    counts = exchange_counts(np.bincount(codes), source)
    receives, gives = assign(counts, codes, source)
    for one in range(len(present)):
        for other in range(len(present)):
            owners = np.flatnonzero((codes == one) & (receives == other))
            records = np.flatnonzero((codes == other) & (gives == one))
            if one != other and len(owners):
                owners, records = match(points, owners, records, source)
                record[owners] = records
    return record


def _trial(points: Points, placed: Points, groups: Ints, parts: Ints, source: ByteSource) -> tuple[Floats, Floats]:
    """What it would cost each row to receive a record of another group: with and without the targets' part."""
    cost, distortion = np.zeros(len(points)), np.zeros(len(points))
    for part in np.unique(parts):
        inside = np.flatnonzero(parts == part)
        for group in np.unique(groups[inside]):
            rows, others = inside[groups[inside] == group], inside[groups[inside] != group]
            if len(others):
                drawn = np.resize(shuffled(others, source), len(rows))
                rows, drawn = match(placed, rows, drawn, source, _TRIAL_ROUNDS)
                cost[rows], distortion[rows] = pair_costs(placed, rows, drawn), pair_costs(points, rows, drawn)
    return cost, distortion


def _share_within(cost: Floats, distortion: Floats, groups: Ints, parts: Ints, budget: float) -> float:
    """The smallest share of rows that must keep their records for the expected distortion to be within the budget."""

    def expected(share: float) -> float:
        kept = _costliest(cost, groups, parts, share, up=True)
        total = 0.0
        for part in np.unique(parts):
            inside = (parts == part) & ~kept
            for group in np.unique(groups[inside]):
                rows = inside & (groups == group)
                total += float(distortion[rows].sum()) * (1.0 - rows.sum() / inside.sum())
        return total / len(cost)

    low, high = 0.0, 1.0
    if expected(low) <= budget:
        return low
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if expected(middle) <= budget else (middle, high)
    return high


def _costliest(cost: Floats, groups: Ints, parts: Ints, share: float, *, up: bool) -> np.ndarray:
    """The given share of the rows of each group and part that cost most; whole numbers are rounded up or down."""
    kept = np.zeros(len(cost), dtype=bool)
    for part in np.unique(parts):
        for group in np.unique(groups):
            rows = np.flatnonzero((parts == part) & (groups == group))
            number = min(len(rows), math.ceil(share * len(rows)) if up else math.floor(share * len(rows) + 1e-9))
            kept[rows[np.argsort(-cost[rows], kind="stable")[:number]]] = True
    return kept


def _certificate(
    kept: np.ndarray, groups: Ints, parts: Ints, names: list[str], conditional: bool, spent: float, moved: float
) -> Certificate:
    """TV between two groups is at most the larger share of rows that keep their records: counted, not estimated."""
    bounds = {}
    for part in np.unique(parts):
        inside = parts == part
        sizes = np.bincount(groups[inside], minlength=len(names))
        stay = np.bincount(groups[inside & kept], minlength=len(names)) / np.maximum(sizes, 1)
        for one, other in combinations(np.flatnonzero(sizes).tolist(), 2):
            bounds[int(part), one, other] = float(max(stay[one], stay[other]))
    evidence = (
        f"{len(groups):,} rows exchanged whole records at random; {moved:.1%} hold another row's record, at a mean "
        f"distortion of {spent:.3g}."
    )
    return _by_construction(bounds, People(groups, parts, names), evidence, conditional=conditional)


def publication_certificate(found: Published, people: People, *, conditional: bool = False) -> Certificate:
    """What a publication certifies: the groups' shares of the blocks are counted, not estimated."""
    evidence = (
        f"{len(people.groups):,} rows in {found.blocks:,} blocks exchanged {len(found.levels)} levels of columns at "
        f"random; {found.moved:.1%} of them are in blocks that did, at a mean distortion of {found.total:.3g}."
    )
    return _by_construction(found.bounds, people, evidence, conditional=conditional)


def _by_construction(
    bounds: dict[tuple[int, int, int], float], people: People, evidence: str, *, conditional: bool
) -> Certificate:
    """bounds: for each part and pair of groups."""
    found = [
        {"first": people.names[one], "second": people.names[other], "given": part if conditional else None,
         "first_rows": int(np.sum((people.parts == part) & (people.groups == one))),
         "second_rows": int(np.sum((people.parts == part) & (people.groups == other))), "observed": bound,
         "bound": bound, "method": "exchange"}
        for (part, one, other), bound in bounds.items()
    ]  # fmt: skip
    pairs = pd.DataFrame(found, columns=["first", "second", "given", "first_rows", "second_rows", "observed", "bound",
                                         "method"])  # fmt: skip
    assumptions = (
        "the predictor is fixed before the draw, and is applied to the record that each of these rows received;",
        "it sees nothing else about a row: no columns that were not exchanged, no row order, no other source;",
        "the rates of one draw vary around their expectation, as in any sample of this size.",
    )
    bound = float(pairs["bound"].max()) if len(pairs) else 0.0
    return Certificate(bound, 1.0, "equalized_odds" if conditional else "demographic_parity", bound, 0,
                       len(people.groups), pairs, assumptions, evidence, "construction")  # fmt: skip
