"""`audit`: how well attackers predict S from a release, and how useful the release still is."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd

import fairveil
from fairveil._utils.engine import HERE, Engine
from fairveil._utils.errors import InputError, must_be
from fairveil._utils.progress import progress as show
from fairveil.auditing.attack import Found, attack_all, holder_rows
from fairveil.auditing.attackers import Attacker, Profile, battery, check_profile
from fairveil.auditing.case import Case, open_case
from fairveil.auditing.certificate import Certificate
from fairveil.auditing.controls import control_rows, failures
from fairveil.auditing.inputs import Draw, Target
from fairveil.auditing.mutual_information import LogDensity, information_row
from fairveil.auditing.presence import presence_rows
from fairveil.auditing.protocol import Terms
from fairveil.auditing.result import AuditResult
from fairveil.auditing.tasks import Used, task_models, task_rows
from fairveil.metrics.estimate import check_confidence
from fairveil.metrics.parity import SMALL_GROUP

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
    engine: Engine = HERE,
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
    engine : Engine, optional
        Where models are trained and scored; by default, here (`fairveil.workflows.engines` has others). Results do not
        depend on it, nor on the number of workers, as long as each piece of work computes with as many threads.

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
    case = clock.timed("reading", lambda: open_case(
        released, sensitive_features, targets, original, split, encoder_rows, clusters, sample_weight, draw,
        log_density, profile, seed, shared=test_on_original, facts=quasi_identifiers, whole_release=whole_release,
    ))()  # fmt: skip
    images = case.seen.has("images")
    attackers = [a for a in battery(profile, images=images, wide=True) if case.seen.has(a.view)]
    checks = [a for a in attackers if a.checks or profile == "full"]
    models = task_models(profile, images=images)
    with _stepper(_fits(case, attackers, checks, models), verbose) as step:
        terms = Terms(confidence, seed, step, engine)
        attacked, holders, second, controls, presence, used = engine.together([
            clock.timed("attacks", lambda: _attacked(case, attackers, terms)),
            clock.timed("attacks with the original", lambda: _holders(case, terms)),
            clock.timed("attacks from fitted rows", lambda: _from_fitted(case, checks, terms)),
            clock.timed("controls", lambda: _controls(case, checks, terms)),
            clock.timed("presence", lambda: _presence(case, terms)),
            clock.timed("tasks", lambda: _used(case, models, terms, on_original=test_on_original)),
        ])  # fmt: skip
        nats = clock.timed("information", lambda: _information(case, attacked, used, _EPOCHS[profile], terms))()
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


def _for_each(targets: Sequence[Target], stage: Callable[[Target], Any], terms: Terms) -> list[Any]:
    """A stage for every target; on a cluster, for all of them at once."""
    return terms.engine.together([partial(stage, target) for target in targets])


def _attacked(case: Case, attackers: list[Attacker], terms: Terms) -> dict[str, Found]:
    count = len(case.hidden)
    found = _for_each(case.hidden, lambda t: attack_all(t, attackers, case.seen, terms, columns=count), terms)
    return {target.name: each for target, each in zip(case.hidden, found, strict=True)}


def _holders(case: Case, terms: Terms) -> list[dict[str, Any]]:
    found = _for_each(case.hidden, lambda t: holder_rows(t, case.seen, case.known, terms), terms)
    return [row for rows in found for row in rows]


def _controls(case: Case, checks: list[Attacker], terms: Terms) -> list[dict[str, Any]]:
    found = _for_each(case.hidden, lambda t: control_rows(t, checks, case.seen, case.known, terms), terms)
    return [row for rows in found for row in rows]


def _used(case: Case, models: list[Attacker], terms: Terms, *, on_original: bool) -> list[Used]:
    def use(task: Target) -> Used:
        return task_rows(task, case.secrets, *case.without(task.name), models, terms, on_original=on_original)

    return _for_each(case.tasks, use, terms)


def _from_fitted(case: Case, attackers: list[Attacker], terms: Terms) -> dict[str, dict[str, Any]]:
    """Summaries of attackers that learn from rows the encoder was fitted on, as further columns; empty without."""
    fitted = case.division.fitted
    if fitted is None:
        return {target.name: {} for target in case.hidden}
    seen, count = case.seen.on(fitted), len(case.hidden)
    found = _for_each(case.hidden, lambda t: attack_all(t, attackers, seen, terms, columns=count).summary, terms)
    left_out = ("sensitive", "rows", "majority")
    return {
        target.name: {f"fitted_{name}": value for name, value in summary.items() if name not in left_out}
        for target, summary in zip(case.hidden, found, strict=True)
    }  # fmt: skip


def _seed(random_state: object) -> int:
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)) or random_state < 0:
        raise InputError(must_be("audit", "random_state", "a whole number of at least 0", random_state))
    return int(random_state)


def _fits(case: Case, attackers: list[Attacker], checks: list[Attacker], models: list[Attacker]) -> int:
    """The number of models to train, for the progress bar."""
    planted = sum(case.seen.plant(case.hidden[0].values).has(a.view) for a in checks)
    given = case.known is not None
    each = len(attackers) + (1 + given + (case.division.fitted is not None)) * len(checks) + planted + 2 * given
    forms = 2 * sum(a.checks for a in attackers) * sum(target.classes is None for target in case.hidden)
    discrete = sum(target.classes is not None for target in (*case.hidden, *case.tasks))
    forms += len(case.secrets) * (case.people is not None)
    return forms + len(case.hidden) * each + len(case.tasks) * (1 + given) * len(models) + discrete


def _settings(case: Case, profile: Profile, terms: Terms) -> dict[str, Any]:
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


def _presence(case: Case, terms: Terms) -> list[dict[str, Any]]:
    """What matching rows tell about each sensitive column."""
    if case.people is None:
        return []
    tasks = [(target, case.people, case.seen.parts, terms.plain) for target in case.secrets]
    found = terms.engine.map(presence_rows, tasks, lambda i: terms.step(f"{tasks[i][0].name}: presence and absence"))
    return [row for rows in found for row in rows]


def _information(
    case: Case, attacked: dict[str, Found], used: list[Used], epochs: int, terms: Terms
) -> list[dict[str, Any]]:
    """Information about every discrete column, in nats: S from all attackers, tasks from their models."""
    predicted = [
        *(("sensitive", target, attacked[target.name].attempts, (case.seen, case.known)) for target in case.hidden),
        *(("target", task, found.attempts, case.without(task.name))
          for task, found in zip(case.tasks, used, strict=True)),
    ]  # fmt: skip
    told = [each for each in predicted if each[1].classes is not None]
    work = partial(information_row, epochs=epochs)
    tasks = [(target, attempts, *views, case.channel, terms.plain) for _, target, attempts, views in told]
    rows = terms.engine.map(work, tasks, lambda i: terms.step(f"information about {told[i][1].name}"))
    return [{"role": each[0], **row} for each, row in zip(told, rows, strict=True)]


def _group_sizes(case: Case) -> pd.DataFrame:
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
    """Measures the seconds of each stage; stages may overlap on a cluster."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, stage: Callable[[], Any]) -> Callable[[], Any]:
        """The stage, which records how long it took."""

        def run() -> Any:
            begun = time.monotonic()
            found = stage()
            self.seconds[name] = round(time.monotonic() - begun, 3)
            return found

        return run


@contextmanager
def _stepper(total: int, enabled: bool) -> Iterator[Callable[[str], None]]:
    with show(total, "Audit", enabled) as report:
        done, one_at_a_time = 0, Lock()

        def step(note: str) -> None:
            nonlocal done
            with one_at_a_time:
                done += 1
                report(min(done, total), note)

        yield step
