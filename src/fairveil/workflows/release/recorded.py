"""The card of a release on disk, and results that are added to it."""

from pathlib import Path
from typing import Any

from fairveil._utils.errors import InputError
from fairveil.auditing import AuditResult
from fairveil.workflows.release.card import card_path, read_card, with_audit, write_card
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.sources import open_source


def card_of(release: Path) -> dict[str, Any]:
    """The card of a release, which must be the file it was written for."""
    found = read_card(card_path(release))
    if _digest(release) != found["release"]["sha256"]:
        raise InputError(f"{release.name} is not the file its card was written for: it was changed or replaced.")
    return found


def ledger_of(release: Path, veil: Path | None) -> Ledger:
    """The ledger that contains this release."""
    if veil is not None:
        if not veil.is_file():
            raise InputError(f"There is no veil {veil}.")
        return Ledger.of(veil)
    found = Ledger.holding(_digest(release), [release.absolute().parent, Path.cwd()])
    if found is None:
        raise InputError(f"No ledger here contains {release.name}. Name its veil with --veil. Nothing was written.")
    return found[0]


def record_audit(release: Path, result: AuditResult, veil: Path | None = None) -> bool:
    """Add an audit to the card of its release; False if there is a card but the audit was not checked by the ledger."""
    card = card_path(release)
    if card.exists() and result.seal:
        write_card(card, with_audit(card_of(release), result.to_dict(), ledger_of(release, veil)))
    return bool(result.seal) or not card.exists()


def _digest(release: Path) -> str:
    if not release.exists():
        raise InputError(f"There is no release {release}.")
    return open_source(release).digest()
