"""Safe handling of real files: from a table or a folder of images to a censored copy that can be published."""

from typing import TYPE_CHECKING

from fairveil._utils.lazy import lazily

if TYPE_CHECKING:
    from fairveil.workflows.audit import audit_file, certify_file, sealed_certificate
    from fairveil.workflows.fit import fit_file, fit_frontier
    from fairveil.workflows.inspect import Inspection, inspect_file, read_schema
    from fairveil.workflows.reading import open_table
    from fairveil.workflows.recipe import Recipe
    from fairveil.workflows.release.card import (
        card_path,
        card_text,
        read_card,
        read_json,
        with_audit,
        with_certificate,
        write_card,
    )
    from fairveil.workflows.release.driver import release_file
    from fairveil.workflows.release.job import Options, open_veil
    from fairveil.workflows.sources import open_source

__getattr__, __dir__ = lazily(
    __name__,
    {
        "audit": ["audit_file", "certify_file", "sealed_certificate"],
        "fit": ["fit_file", "fit_frontier"],
        "inspect": ["Inspection", "inspect_file", "read_schema"],
        "reading": ["open_table"],
        "recipe": ["Recipe"],
        "release.card": [
            "card_path",
            "card_text",
            "read_card",
            "read_json",
            "with_audit",
            "with_certificate",
            "write_card",
        ],
        "release.driver": ["release_file"],
        "release.job": ["Options", "open_veil"],
        "sources": ["open_source"],
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
    "inspect_file",
    "open_source",
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
