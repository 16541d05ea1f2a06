"""From a file and a veil to a release with its card."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairveil._utils.atomic import refuse_overwriting, sha256_of
from fairveil._utils.errors import InputError
from fairveil._utils.randomness import SystemRandom
from fairveil.auditing import probe
from fairveil.data.kinds import joint_labels
from fairveil.data.schema import Schema
from fairveil.estimators import FairEncoder, load
from fairveil.workflows.reading import open_table
from fairveil.workflows.release.card import card_path, make_card, read_card, write_card
from fairveil.workflows.release.images import ImageJob, release_images
from fairveil.workflows.release.job import Job, Options, ReleaseSummary
from fairveil.workflows.release.tables import release_table
from fairveil.workflows.sampling import sample_rows
from fairveil.workflows.writing import check_target

#: Rows on which several releases together are attacked.
_MOST_ATTACKED = 20_000
_FEWEST_ATTACKED = 200


def open_veil(path: str | Path) -> FairEncoder:
    """A veil that releases data."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no veil {path}." if not path.exists() else f"{path} is not a veil file.")
    encoder = load(path)
    if not isinstance(encoder, FairEncoder):
        raise InputError(f"{path.name} is a classifier. It predicts; it releases no data.")
    return encoder


def release_file(
    source: str | Path, veil: str | Path, target: str | Path, options: Options, labels: str | Path | None = None
) -> dict[str, Any]:
    """Write a censored copy of a table or a folder of images, and its card; gives the card back."""
    source, veil, target = Path(source), Path(veil), Path(target)
    labels = None if labels is None else Path(labels)
    encoder = open_veil(veil)
    _refuse_overwriting(source, veil, target, labels)
    made: dict[str, Any] = {}

    def finish(told: ReleaseSummary, joint: dict[str, Any] | None) -> None:
        made.update(make_card(target.name, encoder, sha256_of(veil), told, options, joint))
        write_card(card_path(target), made)

    if source.is_dir():
        if not target.parent.is_dir():
            raise InputError(f"There is no folder {target.parent} to write {target.name} to.")
        release_images(ImageJob(source, encoder, veil, target, labels, options), lambda told: finish(told, None))
        return made or read_card(card_path(target))
    if not isinstance(encoder.veil_.schema, Schema):
        raise InputError("This veil was fitted to images: give a folder of them.")
    job = Job(open_table(source), encoder, veil, check_target(target), options)
    release_table(
        job, lambda told: finish(told, together(job, told.earlier_releases + 1) if told.earlier_releases else None)
    )
    return made or read_card(card_path(target))


def _refuse_overwriting(source: Path, veil: Path, target: Path, labels: Path | None) -> None:
    """None of what is written may replace what is read."""
    card = card_path(target)
    refuse_overwriting(
        {"release": target, "card": card, "card's text": card.with_suffix(".md")},
        {"input": source, "veil": veil, "table of labels": labels},
    )


def together(job: Job, releases: int) -> dict[str, Any] | None:
    """What a fresh attacker finds of S in one release, and in so many releases of the same rows side by side.

    The attacker is granted that they know which rows belong together. Draws of different releases are independent given
    the rows, so fresh draws stand for the earlier ones.
    """
    names = [column.name for column in job.veil.sensitive.columns]
    if any(name not in job.source.names for name in names):
        return {"text": "not measured, because the input does not hold S.", "releases": releases}
    columns = [*job.columns, *(name for name in names if name not in job.columns)]
    table, _ = sample_rows(job.source, columns, job.families, _MOST_ATTACKED, seed=0)
    if table.num_rows < _FEWEST_ATTACKED:
        return {"text": f"not measured on fewer than {_FEWEST_ATTACKED} rows.", "releases": releases}
    truth = joint_labels(table.select(names))
    drawn = [_drawn(job, table) for _ in range(releases)]
    half = np.random.default_rng(0).permutation(table.num_rows)
    found = [_found(frames, truth, half) for frames in ([drawn[0]], drawn)]
    text = (
        f"a fresh attacker with one release guesses {' & '.join(names)} right in {100 * found[0]:.1f} % of "
        f"{table.num_rows // 2:,} rows, with all {releases} side by side in {100 * found[1]:.1f} %."
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
