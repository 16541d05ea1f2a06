"""A release in a ledger: which input row each released row was made from."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairveil._utils.atomic import sha256_of
from fairveil._utils.errors import InputError
from fairveil.auditing import AuditResult
from fairveil.workflows.release.card import card_path, read_card
from fairveil.workflows.release.ledger import Entry, Ledger


@dataclass(frozen=True)
class Known:
    """A release in a ledger: its entry, and the index of the input row of each released row."""

    ledger: Ledger
    entry: Entry
    veil: Path
    order: NDArray[np.int64]

    def fitted(self, some: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.bool_] | None:
        """Whether the encoder was fitted on each released row, or on some of them; None if the ledger does not say."""
        found = self.ledger.fitted
        rows = None if found is None else found.rows_of(self.entry)
        return None if rows is None else rows[self.order[some]]

    def seal(self, result: AuditResult) -> AuditResult:
        """The result, bound to its release."""
        subject = {"release": self.entry.sha256, "veil": self.ledger.veil_sha256, "original": self.entry.original}
        bound = replace(result, subject=subject)
        return replace(bound, seal=self.ledger.seal(bound.to_dict()))


def find_known(
    sha256: str, release: Path, original: Path, veil: str | Path | None, *, same_order: bool
) -> Known | None:
    """The ledger's record of a release; None if there is none, and the caller states that the order is unchanged."""
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
        f"It is unknown which row of {release.name} belongs to which row of {original.name}: released rows are "
        "shuffled, and no ledger was found with their order. Name the veil with --veil; for a file whose rows "
        "are in the order of the original, pass --same-order."
    )


def _with_veil(ledger: Ledger, entry: Entry, release: Path, given: str | Path | None) -> Known:
    beside = ledger.folder.with_name(ledger.folder.name.removesuffix(".ledger"))
    path = beside if given is None else Path(given)
    if not path.is_file() or sha256_of(path) != ledger.veil_sha256:
        raise InputError(f"The veil that made {release.name} is not at {path}. Name it with --veil.")
    order = ledger.order(entry)
    if order is None:
        raise InputError(f"The order of {release.name} was not kept (--forget-order): it cannot be audited.")
    return Known(ledger, entry, path, order)
