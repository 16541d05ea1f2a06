"""Audits and certificates of files: a release is compared with its original, row by row."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairveil._utils.errors import InputError
from fairveil.auditing import AuditResult, Certificate, audit
from fairveil.auditing.attackers import Profile, check_profile
from fairveil.workflows.engines import check_engine, started
from fairveil.workflows.protocol import Wanted
from fairveil.workflows.reading import open_table
from fairveil.workflows.release.job import open_veil
from fairveil.workflows.release.known import find_known
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.sampling import MOST_ROWS, sample_rows
from fairveil.workflows.sources import open_source


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
    known: Sequence[str] | None = None,
    profile: Profile = "quick",
    show_progress: bool = True,
    certificate: Certificate | None = None,
    engine: str = "local",
    address: str | None = None,
) -> AuditResult:
    """Attack a release file. Which row is which is read from the ledger of its veil.

    The original must contain exactly the rows from which the release was made, in their order: the ledger holds a
    digest of them, and the distortion of the release. A result that was checked against the ledger carries its seal; a
    result without a seal is not added to a card.

    veil: whose ledger to use; by default, ledgers next to the release, next to the original, in the current folder, and
    those recorded for this user. same_order: the release has the order of the original (made by another tool). labels:
    for images, a table of `file`, S and targets. person: a column of the original that identifies the person of a row.
    known: columns that an attacker knows of a person (`quasi_identifiers` of `audit`). engine, address: where attackers
    are trained; the files are read here.
    """
    check_profile(profile)
    check_engine(engine)
    if not sensitive:
        raise InputError("Name what should be hidden with --sensitive.")
    after, before = open_source(release), open_source(original, labels)
    record = find_known(after.digest(), after.path, before.path, veil, same_order=same_order)
    pair = before.pair(after, record, Wanted(tuple(sensitive), tuple(targets), person))
    with started(engine, address) as chosen:
        result = audit(
            pair.released,
            pair.secrets,
            pair.targets,
            original=pair.original,
            encoder_rows=pair.fitted,
            draw=pair.draw,
            clusters=pair.clusters,
            quasi_identifiers=known or None,
            whole_release=pair.whole_release,
            certificate=certificate,
            profile=profile,
            verbose=show_progress,
            engine=chosen,
        )
    return result if record is None else record.seal(result)


def sealed_certificate(certificate: Certificate, veil: str | Path) -> dict[str, Any]:
    """A certificate as plain values, bound to its veil by SHA-256 and sealed by the veil's ledger."""
    ledger = Ledger.of(Path(veil))
    ledger.prepare()
    values = {**certificate.to_dict(), "subject": {"veil": ledger.veil_sha256}}
    return {**values, "seal": ledger.seal(values)}


def certify_file(
    source: str | Path,
    veil: str | Path,
    *,
    target: str | None,
    target_values: Sequence[str] = (),
    person: str | None = None,
    asymptotic: bool = False,
    confidence: float,
    unseen_rows: bool,
) -> Certificate:
    """Bound the unfairness of any predictor on a veil's release, from rows it was not fitted on.

    target: Y, for equalized odds. target_values: all values of Y, as text; by default those that occur. person: the
    column that identifies people, if they have several rows.
    """
    encoder = open_veil(veil)
    if encoder.veil_.encoder.alphabet is None:
        raise InputError(f"{Path(veil).name} releases too many different records to be certified. Fit one with "
                         "--architecture matrix --cells K, or --architecture partition --cells K.")  # fmt: skip
    if not unseen_rows:
        raise InputError("A veil holds no rows, so it is unknown whether these were used in fitting, and a certificate "
                         "needs rows that were not. If none of them was used, pass --unseen-rows.")  # fmt: skip
    file = open_table(source)
    schema, sensitive = encoder.veil_.schema, encoder.veil_.sensitive
    names = [column.name for column in sensitive.columns]
    columns = [column.name for column in schema.columns if column.role != "drop"]
    wanted = [*dict.fromkeys([*columns, *names, *(name for name in (target, person) if name)])]
    absent = [name for name in wanted if name not in file.names]
    if absent:
        raise InputError([f"{file.path.name} has no column {name!r}." for name in absent])
    held_as = {column.name: column.held_as for column in (*schema.columns, *sensitive.columns)}
    table = sample_rows(file, wanted, held_as, MOST_ROWS, seed=0).table
    y = None if target is None else table[target].to_numpy(zero_copy_only=False)
    if y is not None and target_values:
        y = y.astype(str)
    return encoder.certify(
        table.select(columns), sensitive_features=table.select(names), y=y, y_values=list(target_values) or None,
        clusters=None if person is None else table[person].to_pandas(), asymptotic=asymptotic,
        confidence=confidence, unseen_rows=unseen_rows,
    )  # fmt: skip
