"""Real files, safely: from a table or a folder of images to a censored copy that can be handed on."""

from typing import TYPE_CHECKING

from fairveil._utils.lazy import lazily

if TYPE_CHECKING:
    from fairveil.workflows.audit import audit_file, certify_file, sealed_certificate
    from fairveil.workflows.fit import Recipe, fit_file, fit_frontier
    from fairveil.workflows.inspect import Inspection, inspect_file, read_schema
    from fairveil.workflows.labels import folder_digest
    from fairveil.workflows.reading import open_table
    from fairveil.workflows.release.card import (
        card_path,
        card_text,
        read_card,
        read_json,
        with_audit,
        with_certificate,
        write_card,
    )
    from fairveil.workflows.release.driver import open_veil, release_file
    from fairveil.workflows.release.job import Options

__getattr__, __dir__ = lazily(
    __name__,
    {
        "audit": ["audit_file", "certify_file", "sealed_certificate"],
        "fit": ["Recipe", "fit_file", "fit_frontier"],
        "inspect": ["Inspection", "inspect_file", "read_schema"],
        "labels": ["folder_digest"],
        "reading": ["open_table"],
        "release.card": [
            "card_path",
            "card_text",
            "read_card",
            "read_json",
            "with_audit",
            "with_certificate",
            "write_card",
        ],
        "release.driver": ["open_veil", "release_file"],
        "release.job": ["Options"],
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
