"""From a file and a veil to a release with its card."""

from pathlib import Path
from typing import Any

from fairveil._utils.atomic import refuse_overwriting, sha256_of
from fairveil._utils.errors import InputError
from fairveil._utils.stores import Location, is_url, locate
from fairveil.workflows.release.card import Card, card_location, card_path, make_card, read_card, write_card
from fairveil.workflows.release.job import Options, ReleaseSummary, open_veil
from fairveil.workflows.sources import open_source


def release_file(
    source: str | Path, veil: str | Path, target: str | Path, options: Options, labels: str | Path | None = None
) -> Card:
    """Write a censored copy of a table or a folder of images, and its card; returns the card.

    source: a file, a folder or a glob pattern, on this machine or in a store. target: a file, or without a suffix a
    folder of Parquet files. The veil is on this machine, with its ledger.
    """
    if is_url(veil):
        raise InputError("The veil must be on this machine: its ledger, which is private, lies next to it.")
    veil, goal = Path(veil), locate(target)
    labels = None if labels is None else Path(labels)
    encoder = open_veil(veil)
    _refuse_overwriting(source, veil, goal, labels)
    made = Card()

    def finish(told: ReleaseSummary, joint: dict[str, Any] | None) -> None:
        made.update(make_card(goal.name, encoder, sha256_of(veil), told, options, joint))
        write_card(card_location(goal), made)

    open_source(source, labels).release(encoder, veil, target, options, finish)
    return made or read_card(card_location(goal))


def _refuse_overwriting(source: str | Path, veil: Path, target: Location, labels: Path | None) -> None:
    """Reject outputs that would overwrite an input, or lie among the files of one."""
    if target.local is None:
        if is_url(source) and f"{target.shown}/".startswith(f"{locate(source).shown.rstrip('/')}/"):
            raise InputError(f"The release {target.shown} would replace the input, or lie in it. Name another place.")
        return
    local = None if is_url(source) else Path(source)
    if local is not None and local.is_dir() and local.resolve() in target.local.resolve().parents:
        raise InputError(f"The release {target.name} would lie in the input folder. Name a place outside of it.")
    card = card_path(target.local)
    refuse_overwriting(
        {"release": target.local, "card": card, "card's text": card.with_suffix(".md")},
        {"input": local, "veil": veil, "table of labels": labels},
    )
