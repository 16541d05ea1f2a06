"""The joint leakage of several releases of the same rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairveil._utils.randomness import SystemRandom
from fairveil.auditing import probe
from fairveil.workflows.release.job import Job
from fairveil.workflows.sampling import sample_rows

#: Maximum and minimum rows for attacking several releases together.
_MOST_ATTACKED = 20_000
_FEWEST_ATTACKED = 200


def together(job: Job, releases: int) -> dict[str, Any] | None:
    """Accuracy of a fresh attacker on S from one release, and from this many releases of the same rows together.

    The attacker is assumed to know which rows belong together. Draws of different releases are independent given the
    rows, so fresh draws can replace the earlier ones.
    """
    names = [column.name for column in job.veil.sensitive.columns]
    if any(name not in job.source.names for name in names):
        return {"text": "not measured, because the input does not contain S.", "releases": releases}
    columns = [*job.columns, *(name for name in names if name not in job.columns)]
    table = sample_rows(job.source, columns, job.held_as, _MOST_ATTACKED, seed=0).table
    if table.num_rows < _FEWEST_ATTACKED:
        return {"text": f"not measured on fewer than {_FEWEST_ATTACKED} rows.", "releases": releases}
    truth = job.veil.sensitive.labels(table.select(names))
    drawn = [_drawn(job, table) for _ in range(releases)]
    half = np.random.default_rng(0).permutation(table.num_rows)
    found = [_found(frames, truth, half) for frames in ([drawn[0]], drawn)]
    text = (
        f"a fresh attacker predicts {' & '.join(names)} from one release in {100 * found[0]:.1f} % of "
        f"{table.num_rows // 2:,} rows, and from all {releases} together in {100 * found[1]:.1f} %."
    )
    return {"text": text, "releases": releases, "one": found[0], "all": found[1]}


def _drawn(job: Job, table: pa.Table) -> pd.DataFrame:
    secret = table.select(job.secret_names) if job.secret_names else None
    frame = job.veil.apply(table.select(job.released_names), secret, SystemRandom()).to_pandas()
    numbers = frame.select_dtypes("number").columns
    return frame.assign(**{name: frame[name].fillna(-1) for name in numbers})


def _found(frames: Sequence[pd.DataFrame], truth: np.ndarray, order: np.ndarray) -> float:
    wide = pd.concat([frame.add_prefix(f"{i}.") for i, frame in enumerate(frames)], axis=1)
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    return probe(wide.iloc[train], truth[train], wide.iloc[test], truth[test]).accuracy.value
