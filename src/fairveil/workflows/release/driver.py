"""From a file and a veil to a release with its card."""

from pathlib import Path
from typing import Any

from fairveil._utils.atomic import refuse_overwriting, sha256_of
from fairveil.workflows.release.card import Card, card_path, make_card, read_card, write_card
from fairveil.workflows.release.job import Options, ReleaseSummary, open_veil
from fairveil.workflows.sources import open_source


def release_file(
    source: str | Path, veil: str | Path, target: str | Path, options: Options, labels: str | Path | None = None
) -> Card:
    """Write a censored copy of a table or a folder of images, and its card; returns the card."""
    source, veil, target = Path(source), Path(veil), Path(target)
    labels = None if labels is None else Path(labels)
    encoder = open_veil(veil)
    _refuse_overwriting(source, veil, target, labels)
    made = Card()

    def finish(told: ReleaseSummary, joint: dict[str, Any] | None) -> None:
        made.update(make_card(target.name, encoder, sha256_of(veil), told, options, joint))
        write_card(card_path(target), made)

    open_source(source, labels).release(encoder, veil, target, options, finish)
    return made or read_card(card_path(target))


def _refuse_overwriting(source: Path, veil: Path, target: Path, labels: Path | None) -> None:
    """Reject outputs that would overwrite an input."""
    card = card_path(target)
    refuse_overwriting(
        {"release": target, "card": card, "card's text": card.with_suffix(".md")},
        {"input": source, "veil": veil, "table of labels": labels},
    )
