"""Real files, safely: from a table or a folder of images to a censored copy that can be handed on."""

from typing import TYPE_CHECKING

from fairveil.lazy import lazily

if TYPE_CHECKING:
    from fairveil.release.card import (
        card_path,
        card_text,
        read_card,
        read_json,
        with_audit,
        with_certificate,
        write_card,
    )
    from fairveil.release.checking import audit_file, certify_file, sealed_certificate
    from fairveil.release.fitting import Recipe, fit_file, fit_frontier
    from fairveil.release.inspecting import Inspection, inspect_file, read_schema
    from fairveil.release.job import Options
    from fairveil.release.labels import folder_digest
    from fairveil.release.reading import open_table
    from fairveil.release.releasing import open_veil, release_file

__getattr__, __dir__ = lazily(
    __name__,
    {
        "card": ["card_path", "card_text", "read_card", "read_json", "with_audit", "with_certificate", "write_card"],
        "checking": ["audit_file", "certify_file", "sealed_certificate"],
        "fitting": ["Recipe", "fit_file", "fit_frontier"],
        "inspecting": ["Inspection", "inspect_file", "read_schema"],
        "job": ["Options"],
        "labels": ["folder_digest"],
        "reading": ["open_table"],
        "releasing": ["open_veil", "release_file"],
    },
)

__all__ = [
    "Inspection",
    "Options",
    "Recipe",
    "audit_file",
    "card_path",
    "card_text",
    "certify_file",
    "fit_file",
    "fit_frontier",
    "folder_digest",
    "inspect_file",
    "open_table",
    "open_veil",
    "read_card",
    "read_json",
    "read_schema",
    "release_file",
    "sealed_certificate",
    "with_audit",
    "with_certificate",
    "write_card",
]
