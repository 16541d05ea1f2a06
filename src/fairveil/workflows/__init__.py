"""Safe handling of real files: from a table or a folder of images to a censored copy that can be published."""

from typing import TYPE_CHECKING

from fairveil._utils.lazy import lazily

if TYPE_CHECKING:
    from fairveil.workflows.audit import audit_file, certify_file, sealed_certificate
    from fairveil.workflows.fit import fit_file, fit_frontier
    from fairveil.workflows.inspect import Inspection, edit_roles, inspect_file, read_schema
    from fairveil.workflows.many_files import open_tables
    from fairveil.workflows.points import read_frontier
    from fairveil.workflows.preview import Preview, preview_veil
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
    from fairveil.workflows.release.matching import release_by_matching
    from fairveil.workflows.release.recorded import card_of, ledger_of, record_audit
    from fairveil.workflows.sources import open_source
    from fairveil.workflows.tracking import log_to_mlflow

__getattr__, __dir__ = lazily(
    __name__,
    {
        "audit": ["audit_file", "certify_file", "sealed_certificate"],
        "fit": ["fit_file", "fit_frontier"],
        "inspect": ["Inspection", "edit_roles", "inspect_file", "read_schema"],
        "many_files": ["open_tables"],
        "points": ["read_frontier"],
        "preview": ["Preview", "preview_veil"],
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
        "release.matching": ["release_by_matching"],
        "release.recorded": ["card_of", "ledger_of", "record_audit"],
        "sources": ["open_source"],
        "tracking": ["log_to_mlflow"],
    },
)

__all__ = [
    "Inspection",
    "Options",
    "Preview",
    "Recipe",
    "audit_file",
    "card_of",
    "card_path",
    "card_text",
    "certify_file",
    "edit_roles",
    "fit_file",
    "fit_frontier",
    "inspect_file",
    "ledger_of",
    "log_to_mlflow",
    "open_source",
    "open_table",
    "open_tables",
    "open_veil",
    "preview_veil",
    "read_card",
    "read_frontier",
    "read_json",
    "read_schema",
    "record_audit",
    "release_by_matching",
    "release_file",
    "sealed_certificate",
    "with_audit",
    "with_certificate",
    "write_card",
]
