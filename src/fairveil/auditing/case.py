"""The inputs of an audit, read and checked: targets, parts of the rows, and what attackers see."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil._utils.errors import InputError
from fairveil.auditing.attackers import Profile
from fairveil.auditing.clusters import repeats_too_often
from fairveil.auditing.columns import compare_columns
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
from fairveil.auditing.mutual_information import Channel, LogDensity
from fairveil.auditing.presence import KnownPeople, known_people
from fairveil.auditing.protocol import Evidence
from fairveil.auditing.views import shared_features, with_disagreement
from fairveil.data.frames import Table, missing_mask
from fairveil.data.weights import read_weights

#: If the encoder can be called, attackers learn from several draws of each training row: about this many rows in total,
#: in at least and at most this many further draws; of images, in the smallest number.
_DRAWN_ROWS, _FEWEST_DRAWS, _MOST_DRAWS = {"quick": 60_000, "full": 240_000}, {"quick": 1, "full": 4}, 15
#: The maximum number of rows per part.
_MOST_ROWS = {"quick": 100_000, "full": 500_000}


@dataclass(frozen=True)
class Case:
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


def open_case(
    released: Any, sensitive: Any, targets: Any, original: Any, split: Any, encoder_rows: Any, clusters: Any,
    sample_weight: Any, draw: Draw | None, log_density: LogDensity | None, profile: Profile, seed: int, *,
    shared: bool, facts: Sequence[str] | None, whole_release: Iterable[Any] | None,
) -> Case:  # fmt: skip
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

    return Case(secrets, tasks, hidden, division, seen, known, channel, _with_missing(release), repeats, known_facts,
                 without, columns)  # fmt: skip


def _with_joint(secrets: list[Target]) -> list[Target]:
    """The sensitive columns and, if there are several, their joint value."""
    joint = joint_target(secrets)
    return [*secrets, *([joint] if joint else [])]


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
