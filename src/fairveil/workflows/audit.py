"""Audits and certificates of files: a release beside what it was made from, row by row."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil._utils.atomic import sha256_of
from fairveil._utils.errors import ClippedWarning, InputError
from fairveil.auditing import AuditResult, Certificate, audit
from fairveil.auditing.attackers import Profile, check_profile
from fairveil.data.columns import Family
from fairveil.data.images import image_names, read_images
from fairveil.data.kinds import with_guessed_type
from fairveil.objectives.distortion import KINDS
from fairveil.objectives.released import ReleasedBatch
from fairveil.workflows.labels import folder_digest, labels_of
from fairveil.workflows.reading import TableFile, is_text, open_table
from fairveil.workflows.release.card import card_path, read_card
from fairveil.workflows.release.driver import open_veil
from fairveil.workflows.release.images import image_hashes
from fairveil.workflows.release.job import Job, Options
from fairveil.workflows.release.ledger import Entry, Ledger
from fairveil.workflows.release.sketch import ordered_digest
from fairveil.workflows.release.tables import original_digest
from fairveil.workflows.sampling import MOST_ROWS, sample_rows

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
    person: str | None = None,
    profile: Profile = "quick",
    show_progress: bool = True,
    certificate: Certificate | None = None,
) -> AuditResult:
    """Attack a release as it lies on disk. Which row is which is known from the ledger of its veil.

    The original must be the very rows from which the release was made, in their order: the ledger knows a digest of
    them, and the distortion of the release. A result that was checked against the ledger carries its seal; without
    one it is not entered on a card.

    veil: whose ledger to ask; by default those beside the release, beside the original, here, and those noted for this
    user. same_order: the release has the order of the original (made by another tool). labels: for images, a table of
    `file`, S and targets. person: a column of the original that says whose row it is.
    """
    check_profile(profile)
    release, original = Path(release), Path(original)
    if not sensitive:
        raise InputError("Name what should be hidden with --sensitive.")
    if release.is_dir():
        if person is not None:
            raise InputError("--person is for tables.")
        return _audit_images(release, original, sensitive, targets, veil, labels, same_order, profile, show_progress)
    after, before = open_table(release), open_table(original)
    wanted = [*sensitive, *targets, *([] if person is None else [person])]
    absent = [name for name in wanted if name not in before.names]
    if absent:
        raise InputError([f"{original.name} has no column {name!r}." for name in absent])
    shared = [name for name in after.names if name in before.names]
    rows = _count(after)
    known = _known(sha256_of(release), release, original, veil, same_order=same_order)
    order = np.arange(rows) if known is None else known.order
    if len(order) != rows or (known is None and _count(before) != rows):
        raise InputError(f"{release.name} and {original.name} do not have equally many rows.")
    some = np.arange(rows)
    if rows > MOST_ROWS:
        some = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
    if known is not None:
        _refuse_other_original(known, before, after, some)
    released = _guessed(after, take_from(after, after.names, some))
    truth = _guessed(before, take_from(before, [*dict.fromkeys([*shared, *wanted])], order[some]))
    hidden = {*sensitive, *([] if person is None else [person])}
    result = audit(
        released,
        truth.select(list(sensitive)),
        {name: truth[name] for name in targets},
        original=truth.select([name for name in shared if name not in hidden]) if shared else None,
        clusters=None if person is None else truth[person],
        certificate=certificate,
        profile=profile,
        verbose=show_progress,
    )
    return result if known is None else known.seal(result)


@dataclass(frozen=True)
class _Known:
    """A release that a ledger knows: its entry, and of which input row each released row is."""

    ledger: Ledger
    entry: Entry
    veil: Path
    order: NDArray[np.int64]

    def seal(self, result: AuditResult) -> AuditResult:
        """The result, bound to the release that it is of."""
        subject = {"release": self.entry.sha256, "veil": self.ledger.veil_sha256, "original": self.entry.original}
        bound = replace(result, subject=subject)
        return replace(bound, seal=self.ledger.seal(bound.to_dict()))


def _known(sha256: str, release: Path, original: Path, veil: str | Path | None, *, same_order: bool) -> _Known | None:
    """What a ledger knows of a release; None if none does, and the caller says that it has the original's order."""
    if veil is not None:
        if not Path(veil).is_file():
            raise InputError(f"There is no veil {veil}.")
        ledger = Ledger.of(Path(veil))
        entry = ledger.find(sha256)
        found = None if entry is None else (ledger, entry)
    else:
        found = Ledger.holding(sha256, [release.absolute().parent, original.absolute().parent, Path.cwd()])
    if found is not None:
        return _with_veil(*found, release, veil)
    card = card_path(release)
    shuffled = card.exists() and read_card(card)["release"]["order"] == "shuffled"
    if same_order and not shuffled:
        return None
    raise InputError(
        f"Which row of {release.name} belongs to which row of {original.name} is not known: released rows are "
        "shuffled, and no ledger beside them tells their order. Name the veil with --veil; for a file whose rows "
        "stand in the order of the original, pass --same-order."
    )


def _with_veil(ledger: Ledger, entry: Entry, release: Path, given: str | Path | None) -> _Known:
    beside = ledger.folder.with_name(ledger.folder.name.removesuffix(".ledger"))
    path = beside if given is None else Path(given)
    if not path.is_file() or sha256_of(path) != ledger.veil_sha256:
        raise InputError(f"The veil with which {release.name} was made is not at {path}. Name it with --veil.")
    order = ledger.order(entry)
    if order is None:
        raise InputError(f"The order of {release.name} was not kept (--forget-order): it cannot be audited.")
    return _Known(ledger, entry, path, order)


def _refuse_other_original(known: _Known, before: TableFile, after: TableFile, some: NDArray[np.int64]) -> None:
    """Stop an audit against rows that are not those of the release, or stand in another order."""
    job = Job(before, open_veil(known.veil), known.veil, after.path, Options())
    absent = [name for name in job.columns if name not in before.names]
    if absent or original_digest(job, known.ledger.key) != known.entry.original:
        raise InputError(
            f"{before.path.name} is not the table from which {after.path.name} was made, or its rows were changed or "
            "sorted since. Give the file that was released. Nothing was written."
        )
    if known.entry.distortion and job.distortion is not None:
        _refuse_other_distortion(known, job, before, after, some)


def _refuse_other_distortion(
    known: _Known, job: Job, before: TableFile, after: TableFile, some: NDArray[np.int64]
) -> None:
    """Stop an audit of rows that are not as far apart as the ledger says; of each kind of column."""
    assert job.distortion is not None
    seen = [column.name for column in job.schema.seen]
    tables = (take_from(after, seen, some, job.families), take_from(before, seen, known.order[some], job.families))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedWarning)
        written, exact = (job.encoded(_without_apostrophes(table)).original for table in tables)
    parts = job.distortion.realised(ReleasedBatch(written, written[:, job.schema.layout.grouped]), exact).double()
    for kind, spent in zip(KINDS, parts.T, strict=True):
        expected, found = known.entry.distortion[kind], float(spent.mean())
        error = float(spent.std()) / math.sqrt(len(some)) if len(some) < known.entry.rows else 0.0
        if abs(found - expected) > 5.0 * error + 1e-3 * (0.01 + expected):
            raise InputError(
                f"The distortion between {after.path.name} and {before.path.name} ({kind} columns) is {found:.4g}, "
                f"where the ledger says {expected:.4g}: the rows do not belong together. Nothing was written."
            )


def _without_apostrophes(table: pa.Table) -> pa.Table:
    """Texts without the apostrophe that keeps spreadsheets from running them."""
    return pa.table({
        name: pc.replace_substring_regex(table[name], r"^'(\s*[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}])", r"\1")
        if is_text(table[name].type) else table[name]
        for name in table.column_names
    })  # fmt: skip


def _audit_images(
    release: Path, original: Path, sensitive: Sequence[str], targets: Sequence[str], veil: str | Path | None,
    labels: str | Path | None, same_order: bool, profile: Profile, show_progress: bool,
) -> AuditResult:  # fmt: skip
    if labels is None:
        raise InputError("An audit of images needs --labels, a table with the columns 'file', S and targets.")
    names, released = image_names(original), image_names(release)
    known = _known(folder_digest(release), release, original, veil, same_order=same_order)
    order = np.arange(len(names)) if known is None else known.order
    if len(order) != len(released) or len(names) != len(released):
        raise InputError(f"{release.name} and {original.name} do not hold equally many images.")
    truth = labels_of(Path(labels), [names[i] for i in order], [*sensitive, *targets])
    after, before = (read_images(folder, files) for folder, files in ((release, released), (original, names)))
    if known is not None:
        hashes = image_hashes(before, known.ledger.key)
        if ordered_digest(hashes, 0).tobytes().hex() != known.entry.original:
            raise InputError(f"{original.name} does not hold the images from which {release.name} was made.")
    result = audit(
        after.astype(np.float32) / 255.0, truth.select(list(sensitive)), {name: truth[name] for name in targets},
        original=before[order].astype(np.float32) / 255.0, profile=profile, verbose=show_progress,
    )  # fmt: skip
    return result if known is None else known.seal(result)


def sealed_certificate(certificate: Certificate, veil: str | Path) -> dict[str, Any]:
    """A certificate as plain values, bound to its veil by SHA-256 and sealed by the veil's ledger."""
    ledger = Ledger.of(Path(veil))
    ledger.prepare()
    values = {**certificate.to_dict(), "subject": {"veil": ledger.veil_sha256}}
    return {**values, "seal": ledger.seal(values)}


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


def take_from(
    file: TableFile, columns: Sequence[str], places: NDArray[np.int64], families: Mapping[str, Family] | None = None
) -> pa.Table:
    """The rows of a file at these places, in this order; of CSV files as text, or as what `families` says."""
    wanted = np.argsort(places, kind="stable")
    ordered = places[wanted]
    found, start = [], 0
    for table in file.batches(columns, families or {}, _BATCH):
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
