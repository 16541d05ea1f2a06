"""Audits and certificates of files: a release beside what it was made from, row by row."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairveil.auditing import AuditResult, Certificate, audit
from fairveil.auditing.attackers import Profile, check_profile
from fairveil.errors import InputError
from fairveil.pictures import image_names, read_images
from fairveil.release.images import folder_digest
from fairveil.release.inspecting import with_guessed_type
from fairveil.release.labels import labels_of
from fairveil.release.ledger import Ledger
from fairveil.release.reading import TableFile, open_table
from fairveil.release.releasing import open_veil
from fairveil.release.sampling import MOST_ROWS, sample_rows
from fairveil.whole import sha256_of

_BATCH = 65_536


def audit_file(
    release: str | Path,
    original: str | Path,
    sensitive: Sequence[str],
    targets: Sequence[str] = (),
    *,
    veil: str | Path | None = None,
    labels: str | Path | None = None,
    same_order: bool = False,
    profile: Profile = "quick",
    show_progress: bool = True,
    certificate: Certificate | None = None,
) -> AuditResult:
    """Attack a release as it lies on disk. Which row is which is known from the ledger of its veil.

    veil: whose ledger to ask; by default those beside the release, beside the original, and here. same_order: the
    release has the order of the original (made by another tool). labels: for images, a table of `file`, S and targets.
    """
    check_profile(profile)
    release, original = Path(release), Path(original)
    if not sensitive:
        raise InputError("Name what should be hidden with --sensitive.")
    if release.is_dir():
        return _audit_images(release, original, sensitive, targets, veil, labels, same_order, profile, show_progress)
    after, before = open_table(release), open_table(original)
    absent = [name for name in (*sensitive, *targets) if name not in before.names]
    if absent:
        raise InputError([f"{original.name} has no column {name!r}." for name in absent])
    shared = [name for name in after.names if name in before.names]
    rows = _count(after)
    order = np.arange(rows) if same_order else _order(sha256_of(release), release, original, veil)
    if len(order) != rows or (same_order and _count(before) != rows):
        raise InputError(f"{release.name} and {original.name} do not have equally many rows.")
    some = np.arange(rows)
    if rows > MOST_ROWS:
        some = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
    released = _guessed(after, take_from(after, after.names, some))
    known = _guessed(before, take_from(before, [*dict.fromkeys([*shared, *sensitive, *targets])], order[some]))
    return audit(
        released,
        known.select(list(sensitive)),
        {name: known[name] for name in targets},
        original=known.select([name for name in shared if name not in sensitive]) if shared else None,
        certificate=certificate,
        profile=profile,
        progress=show_progress,
    )


def _audit_images(
    release: Path, original: Path, sensitive: Sequence[str], targets: Sequence[str], veil: str | Path | None,
    labels: str | Path | None, same_order: bool, profile: Profile, show_progress: bool,
) -> AuditResult:  # fmt: skip
    if labels is None:
        raise InputError("An audit of images needs --labels, a table with the columns 'file', S and targets.")
    names, released = image_names(original), image_names(release)
    digest = folder_digest(release)
    order = np.arange(len(names)) if same_order else _order(digest, release, original, veil)
    if len(order) != len(released):
        raise InputError(f"{release.name} and {original.name} do not hold equally many images.")
    truth = labels_of(Path(labels), [names[i] for i in order], [*sensitive, *targets])
    after, before = (
        read_images(folder, files).astype(np.float32) / 255.0
        for folder, files in ((release, released), (original, [names[i] for i in order]))
    )
    return audit(after, truth.select(list(sensitive)), {name: truth[name] for name in targets}, original=before,
                 profile=profile, progress=show_progress)  # fmt: skip


def certify_file(
    source: str | Path, veil: str | Path, *, target: str | None, confidence: float, unseen_rows: bool
) -> Certificate:
    """Bound the unfairness of any predictor on a veil's release, from rows that it was not fitted on."""
    encoder = open_veil(veil)
    file = open_table(source)
    schema, sensitive = encoder.veil_.schema, encoder.veil_.sensitive
    names = [column.name for column in sensitive.columns]
    columns = [column.name for column in schema.columns if column.role != "drop"]
    wanted = [*dict.fromkeys([*columns, *names, *([target] if target else [])])]
    absent = [name for name in wanted if name not in file.names]
    if absent:
        raise InputError([f"{file.path.name} has no column {name!r}." for name in absent])
    families: dict[str, Any] = {c.name: c.family for c in (*schema.columns, *sensitive.columns)}
    table, _ = sample_rows(file, wanted, families, MOST_ROWS, seed=0)
    y = None if target is None else table[target].to_numpy(zero_copy_only=False)
    return encoder.certify(
        table.select(columns), sensitive_features=table.select(names), y=y, confidence=confidence,
        unseen_rows=unseen_rows,
    )  # fmt: skip


def take_from(file: TableFile, columns: Sequence[str], places: NDArray[np.int64]) -> pa.Table:
    """The rows of a file at these places, in this order; as text where the file is CSV."""
    wanted = np.argsort(places, kind="stable")
    ordered = places[wanted]
    found, start = [], 0
    for table in file.batches(columns, {}, _BATCH):
        low, high = np.searchsorted(ordered, [start, start + table.num_rows])
        found.append(table.take(pa.array(ordered[low:high] - start)))
        start += table.num_rows
    if not found or (len(ordered) and ordered[-1] >= start):
        raise InputError(f"{file.path.name} has fewer rows than the release was made from.")
    back = np.empty_like(wanted)
    back[wanted] = np.arange(len(wanted))
    return pa.concat_tables(found).take(pa.array(back)).combine_chunks()


def _guessed(file: TableFile, table: pa.Table) -> pa.Table:
    if file.kind == "parquet":
        return table
    return pa.table({name: with_guessed_type(table[name]) for name in table.column_names})


def _count(file: TableFile) -> int:
    if file.rows is not None:
        return file.rows
    return sum(table.num_rows for table in file.batches(file.names[:1], {}, _BATCH))


def _order(sha256: str, release: Path, original: Path, veil: str | Path | None) -> NDArray[np.int64]:
    """Of which input row each released row is."""
    if veil is not None:
        ledger = Ledger(Path(veil))
        entry = ledger.find(sha256)
        known = None if entry is None else (ledger, entry)
    else:
        known = Ledger.holding(sha256, [release.absolute().parent, original.absolute().parent, Path.cwd()])
    order = None if known is None else known[0].order(known[1])
    if order is None:
        raise InputError(
            f"Which row of {release.name} belongs to which row of {original.name} is not known: released rows are "
            "shuffled, and no ledger beside them tells their order. Name the veil with --veil; for a file whose rows "
            "stand in the order of the original, say --same-order."
        )
    return order
