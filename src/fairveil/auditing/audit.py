"""`audit`: how well attackers predict S from a release, and how useful the release still is."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fairveil
from fairveil._utils.errors import InputError, must_be
from fairveil._utils.progress import progress as show
from fairveil.auditing.attack import Found, attack_all, holder_rows
from fairveil.auditing.attackers import Attacker, Profile, battery, check_profile
from fairveil.auditing.certificate import Certificate
from fairveil.auditing.clusters import repeats_too_often
from fairveil.auditing.columns import compare_columns
from fairveil.auditing.controls import control_rows, failures
from fairveil.auditing.encoder_rows import Division, divide, read_encoder_rows
from fairveil.auditing.inputs import (
    Draw,
    Released,
    Target,
    check_all,
    check_parts,
    joint_target,
    make_target,
    read_clusters,
    read_release,
    read_targets,
    takes_rows,
)
from fairveil.auditing.mutual_information import Channel, LogDensity, information_row
from fairveil.auditing.presence import KnownPeople, known_people, presence_rows
from fairveil.auditing.protocol import Evidence, Terms
from fairveil.auditing.result import AuditResult
from fairveil.auditing.tasks import Used, task_models, task_rows
from fairveil.auditing.views import shared_features, with_disagreement
from fairveil.data.frames import Table, missing_mask
from fairveil.data.weights import read_weights
from fairveil.metrics.estimate import check_confidence
from fairveil.metrics.parity import SMALL_GROUP

#: If the encoder can be called, attackers learn from several draws of each training row: about this many rows in total,
#: in at least and at most this many further draws; of images, in the smallest number.
_DRAWN_ROWS, _FEWEST_DRAWS, _MOST_DRAWS = {"quick": 60_000, "full": 240_000}, {"quick": 1, "full": 4}, 15
#: The maximum number of rows per part.
_MOST_ROWS = {"quick": 100_000, "full": 500_000}

#: Epochs of the embedding network.
_EPOCHS = {"quick": 10, "full": 40}


def audit(
    released: Any,
    sensitive_features: Any,
    targets: Any = None,
    original: Any = None,
    *,
    split: Any = None,
    encoder_rows: Any = None,
    clusters: Any = None,
    sample_weight: Any = None,
    quasi_identifiers: Sequence[str] | None = None,
    whole_release: Iterable[Any] | None = None,
    draw: Draw | None = None,
    log_density: LogDensity | None = None,
    certificate: Certificate | None = None,
    test_on_original: bool = False,
    profile: Profile = "quick",
    confidence: float = 0.95,
    random_state: int = 0,
    verbose: bool = True,
) -> AuditResult:
    """Attack a release with newly trained models. The release may come from any method.

    Parameters
    ----------
    released : table, array or images
        pandas, polars, pyarrow or an array; images as (rows, height, width[, channels]); in the row order in which it
        would be published.
    sensitive_features : array or table
        S, one or more columns; their joint value is attacked too.
    targets : mapping, frame or series, optional
        Downstream tasks by name.
    original : table, array or images, optional
        The rows before censoring, in the same order: used for a control that must succeed, and as the baseline of every
        task.
    split : array, optional
        'train', 'validation' or 'test' for each row; by default a random 50 %, 15 % and 35 %.
    encoder_rows : array or series of bool, optional
        Whether the encoder was fitted on each row (`FairEncoder.fitted_rows_`). If at least 1,000 rows are new to the
        encoder, attackers and models learn from new rows and are tested on new rows; attackers that learn from fitted
        rows are a second figure. An encoder may hide S better in the rows it was fitted on, and attackers that learn
        from these find too little. With `split`, the parts are kept and the result says what they are.
    clusters : array, optional
        The person of each row, if people have several rows: all rows of a person are in the same part,
        attackers see how these rows differ, and intervals are wider accordingly. Without it, the result warns if rows
        repeat in a way that independent rows do not.
    sample_weight : array, optional
        The number of population rows that each row represents. Attackers and models are then trained and scored on that
        population, with confidence intervals based on the actual rows. The permutation test (`p_value`, `found`) and
        the information of the embedding use unweighted test rows.
    quasi_identifiers : list of str, optional
        Columns that an attacker knows of a person, for what the release tells by the presence or absence of matching
        rows (`result.presence`); needs `original`. By default, up to seven columns with few values that identify
        people best.
    whole_release : iterable of arrow tables, optional
        All rows of the release, in batches, if `released` is a sample of them: matching rows are counted in all.
    draw : callable, optional
        Another release of the same rows, for an attacker who has the encoder and learns from several draws of each
        row. `draw()` returns all rows; `draw(rows)`, if it takes an argument, returns the rows at these positions,
        which is faster. Models of tasks learn from the release alone, as its users do.
    log_density : callable, optional
        For a table of numbers from a known channel, log p(released_i | original_j) as (n, m) for arrays of n and m
        rows; gives an upper bound on the information. Needs `original`.
    certificate : Certificate, optional
        Shown next to the measured values.
    test_on_original : bool
        Also test downstream models on original rows.
    profile : {"quick", "full"}
        "quick" takes a few minutes for Adult; "full" has more model families, larger grids, several seeds and draws.
    confidence : float
        Level of the confidence intervals.
    random_state : int
        Seed of splits and attackers.
    verbose : bool
        Show progress.

    Returns
    -------
    AuditResult
        If nothing is found, that is not a proof: see `certify` for bounds that hold against every attacker.

    Examples
    --------
    >>> import fairveil as fv
    >>> result = fv.audit(released, S, {"salary": y}, original=X)  # doctest: +SKIP
    >>> print(result.verdict())  # doctest: +SKIP
    """
    check_profile(profile)
    check_confidence(confidence)
    clock = _Clock()
    seed = _seed(random_state)
    case = _open_case(released, sensitive_features, targets, original, split, encoder_rows, clusters, sample_weight,
                      draw, log_density, profile, seed, shared=test_on_original, facts=quasi_identifiers,
                      whole_release=whole_release)  # fmt: skip
    clock.lap("reading")
    images = case.seen.has("images")
    attackers = [a for a in battery(profile, images=images, wide=True) if case.seen.has(a.view)]
    checks = [a for a in attackers if a.checks or profile == "full"]
    models = task_models(profile, images=images)
    with _stepper(_fits(case, attackers, checks, models), verbose) as step:
        terms = Terms(confidence, seed, step)
        attacked = {t.name: attack_all(t, attackers, case.seen, terms, columns=len(case.hidden)) for t in case.hidden}
        holders = [row for target in case.hidden for row in holder_rows(target, case.seen, case.known, terms)]
        clock.lap("attacks")
        second = {t.name: _from_fitted(case, t, checks, terms) for t in case.hidden}
        clock.lap("attacks from fitted rows")
        controls = [r for t in case.hidden for r in control_rows(t, checks, case.seen, case.known, terms)]
        clock.lap("controls")
        presence = _presence(case, terms)
        clock.lap("presence")
        used = [
            task_rows(task, case.secrets, *case.without(task.name), models, terms, on_original=test_on_original)
            for task in case.tasks
        ]
        clock.lap("tasks")
        nats = _information(case, attacked, used, _EPOCHS[profile], terms)
        clock.lap("information")
    reasons = failures(controls, {name for name, found in attacked.items() if found.summary["found"]})
    return AuditResult(
        valid=not reasons,
        reasons=tuple(reasons),
        leakage=pd.DataFrame([{**found.summary, **second[name]} for name, found in attacked.items()]),
        attacks=pd.DataFrame([row for found in attacked.values() for row in found.rows] + holders),
        tails=pd.DataFrame([row for found in attacked.values() for row in found.tails]),
        tasks=pd.DataFrame([row for found in used for row in found.rows]),
        rates=pd.DataFrame([row for found in used for row in found.rates]),
        information=pd.DataFrame(nats),
        controls=pd.DataFrame(controls),
        groups=_group_sizes(case),
        columns=case.columns[0],
        marginals=case.columns[1],
        certified=certificate,
        settings=_settings(case, profile, terms),
        seconds=clock.seconds,
        presence=pd.DataFrame(presence),
    )


@dataclass(frozen=True)
class _Case:
    """The inputs of an audit: targets, and the views of the release and of the original.

    hidden: the sensitive columns and, if there are several, their joint value. division: how the rows are used.
    missing: released columns with missing cells. repeats: whether rows repeat although no clusters are given. people:
    what is known of people by other columns, and how many released rows match. without: the views of the release and of
    the original without a column, so that a task is not predicted from its own target.
    """

    secrets: list[Target]
    tasks: list[Target]
    hidden: list[Target]
    division: Division
    seen: Evidence
    known: Evidence | None
    channel: Channel | None
    missing: list[str]
    repeats: bool
    people: KnownPeople | None
    without: Callable[[str], tuple[Evidence, Evidence | None]]
    columns: tuple[pd.DataFrame, pd.DataFrame]


def _open_case(
    released: Any, sensitive: Any, targets: Any, original: Any, split: Any, encoder_rows: Any, clusters: Any,
    sample_weight: Any, draw: Draw | None, log_density: LogDensity | None, profile: Profile, seed: int, *,
    shared: bool, facts: Sequence[str] | None, whole_release: Iterable[Any] | None,
) -> _Case:  # fmt: skip
    """Read and check all inputs, split the rows, build the attackers' views."""
    release = read_release(released, "released")
    before = None if original is None else read_release(original, "original")
    secret_columns, task_columns = read_targets(sensitive, "sensitive"), read_targets(targets, "target")
    check_all(release, before, secret_columns, task_columns)
    secrets = [make_target(name, column) for name, column in secret_columns.items()]
    tasks = [make_target(name, column) for name, column in task_columns.items()]
    people = read_clusters(clusters, len(release))
    repeats = people is None and repeats_too_often(release)
    weights = read_weights(sample_weight, len(release), "The release")
    fitted = read_encoder_rows(encoder_rows, len(release))
    division = divide(fitted, split, _with_joint(secrets), len(release), _MOST_ROWS[profile], seed, people)
    division = division.weighted(weights)
    train = division.parts.train
    draws = (
        [] if draw is None else [_drawn(draw, release, train, people) for _ in range(_draws(profile, release, train))]
    )
    # Before rows are dropped, because an attacker sees all rows of the release.
    known_facts = known_people(facts, release, before, list(secret_columns), whole_release)
    if people is not None:
        # Before rows are dropped, because an attacker sees all rows of a person.
        release = with_disagreement(release, people)
    kept = division.rows
    if len(kept) < len(release):  # so that the rows in use bound the memory
        release, before = release.take(kept), None if before is None else before.take(kept)
        secrets, tasks = ([target.take(kept) for target in columns] for columns in (secrets, tasks))
        known_facts = None if known_facts is None else known_facts.take(kept)
        division = division.among(kept)
    parts, hidden = division.parts, _with_joint(secrets)
    problems = [text for target in hidden for text in check_parts(target, parts.within(target.rows).named())]
    if problems:
        raise InputError(problems)
    seen, known = _evidence(release, draws, before, division, shared=shared)
    channel = None if log_density is None else Channel.of(release, before, log_density)
    columns = pd.DataFrame(), pd.DataFrame()
    if isinstance(before, Table) and isinstance(release, Table):
        columns = compare_columns(before, release)

    @cache
    def without(name: str) -> tuple[Evidence, Evidence | None]:
        if name not in release.names or len(release.names) == 1:
            return seen, known
        others = None if before is None else before.without(name)
        return _evidence(release.without(name), [again.without(name) for again in draws], others, division,
                         shared=shared)  # fmt: skip

    return _Case(secrets, tasks, hidden, division, seen, known, channel, _with_missing(release), repeats, known_facts,
                 without, columns)  # fmt: skip


def _with_joint(secrets: list[Target]) -> list[Target]:
    """The sensitive columns and, if there are several, their joint value."""
    joint = joint_target(secrets)
    return [*secrets, *([joint] if joint else [])]


def _from_fitted(case: _Case, target: Target, attackers: list[Attacker], terms: Terms) -> dict[str, Any]:
    """The summary of attackers that learn from rows the encoder was fitted on, as further columns; empty without."""
    fitted = case.division.fitted
    if fitted is None:
        return {}
    found = attack_all(target, attackers, case.seen.on(fitted), terms, columns=len(case.hidden)).summary
    return {f"fitted_{name}": value for name, value in found.items() if name not in ("sensitive", "rows", "majority")}


def _seed(random_state: object) -> int:
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)) or random_state < 0:
        raise InputError(must_be("audit", "random_state", "a whole number of at least 0", random_state))
    return int(random_state)


def _fits(case: _Case, attackers: list[Attacker], checks: list[Attacker], models: list[Attacker]) -> int:
    """The number of models to train, for the progress bar."""
    planted = sum(case.seen.plant(case.hidden[0].values).has(a.view) for a in checks)
    given = case.known is not None
    each = len(attackers) + (1 + given + (case.division.fitted is not None)) * len(checks) + planted + given
    forms = 2 * sum(a.checks for a in attackers) * sum(target.classes is None for target in case.hidden)
    discrete = sum(target.classes is not None for target in (*case.hidden, *case.tasks))
    forms += len(case.secrets) * (case.people is not None)
    return forms + len(case.hidden) * each + len(case.tasks) * (1 + given) * len(models) + discrete


def _settings(case: _Case, profile: Profile, terms: Terms) -> dict[str, Any]:
    return {
        "profile": profile,
        "confidence": float(terms.confidence),
        "seed": int(terms.seed),
        "draws": 1 + len(case.seen.extra),
        "rows": {name: len(np.unique(rows)) for name, rows in case.seen.parts.named().items()},
        "learned_from": case.division.learned_from,
        "new_rows": case.division.new_rows,
        "weighted": case.seen.parts.weights is not None,
        "original_given": case.known is not None,
        "missing_cells_in": case.missing,
        "repeats": case.repeats,
        "version": fairveil.__version__,
    }


def _evidence(
    release: Released, draws: list[Released], before: Released | None, division: Division, *, shared: bool
) -> tuple[Evidence, Evidence | None]:
    features = None
    if shared and isinstance(release, Table) and isinstance(before, Table):
        features = shared_features([release, *(d for d in draws if isinstance(d, Table))], before)
    parts, fitted = division.parts, division.fitted
    known = None if before is None else Evidence.of(before, parts, features=features)
    others = () if fitted is None else (fitted.train, fitted.validation)
    return Evidence.of(release, parts, draws, before, features, others), known


def _with_missing(release: Released) -> list[str]:
    return [name for name in release.names if missing_mask(release.select([name])[name]).any()]


def _draws(profile: Profile, release: Released, train: NDArray[np.int64]) -> int:
    """How many further draws of the training rows attackers learn from."""
    fewest = _FEWEST_DRAWS[profile]
    if not isinstance(release, Table):
        return fewest
    return int(np.clip(_DRAWN_ROWS[profile] // len(train) - 1, fewest, _MOST_DRAWS))


def _drawn(draw: Draw, release: Released, train: NDArray[np.int64], people: NDArray[np.int64] | None) -> Released:
    """The training rows of another release. All rows are drawn if people have several, which attackers compare."""
    chosen = takes_rows(draw) and people is None
    wanted = np.unique(train) if chosen else np.arange(len(release))
    again = read_release(draw(wanted) if takes_rows(draw) else draw(), "drawn")
    if len(again) != len(wanted) or type(again) is not type(release) or again.names != release.names:
        raise InputError("draw() must give another release of the same rows: as many of them, with the same columns.")
    if again.equals(release.take(wanted)):
        raise InputError("draw() gives the same release again. Is random_state fixed? Each call must draw anew.")
    if people is not None:
        again = with_disagreement(again, people)
    return again.take(np.asarray(np.searchsorted(wanted, train)))


def _presence(case: _Case, terms: Terms) -> list[dict[str, Any]]:
    """What matching rows tell about each sensitive column."""
    rows = []
    for target in case.secrets if case.people is not None else ():
        assert case.people is not None
        terms.step(f"{target.name}: presence and absence")
        rows += presence_rows(target, case.people, case.seen.parts, terms)
    return rows


def _information(
    case: _Case, attacked: dict[str, Found], used: list[Used], epochs: int, terms: Terms
) -> list[dict[str, Any]]:
    """Information about every discrete column, in nats: S from all attackers, tasks from their models."""
    predicted = [
        *(("sensitive", target, attacked[target.name].attempts, (case.seen, case.known)) for target in case.hidden),
        *(("target", task, found.attempts, case.without(task.name))
          for task, found in zip(case.tasks, used, strict=True)),
    ]  # fmt: skip
    rows = []
    for role, target, attempts, (seen, known) in predicted:
        if target.classes is None:
            continue
        terms.step(f"information about {target.name}")
        row = information_row(target, attempts, seen, known, case.channel, terms, epochs=epochs)
        rows.append({"role": role, **row})
    return rows


def _group_sizes(case: _Case) -> pd.DataFrame:
    rows = []
    for target in case.secrets:
        if target.classes is not None:
            sizes = np.bincount(target.values[case.seen.parts.test].astype(np.int64), minlength=target.classes)
            rows += [
                {"sensitive": target.name, "group": label, "rows": int(size), "small": bool(size < SMALL_GROUP)}
                for label, size in zip(target.labels, sizes, strict=True)
            ]
    return pd.DataFrame(rows)


class _Clock:
    """Measures the seconds of each stage."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.seconds: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name] = round(now - self.last, 3)
        self.last = now


@contextmanager
def _stepper(total: int, enabled: bool) -> Iterator[Callable[[str], None]]:
    with show(total, "Audit", enabled) as report:
        done = 0

        def step(note: str) -> None:
            nonlocal done
            done += 1
            report(min(done, total), note)

        yield step
