"""Log results to MLflow, if it is installed: figures, and the files that may be published. No rows, no ledgers."""

import tempfile
from pathlib import Path
from typing import Any

from fairveil._utils.errors import InputError
from fairveil.auditing import AuditResult
from fairveil.estimators import FairEncoder
from fairveil.workflows.release.card import card_path, read_card


def log_to_mlflow(
    *,
    encoder: FairEncoder | None = None,
    audit: AuditResult | None = None,
    release: str | Path | None = None,
) -> None:
    """Log a veil, an audit and the card of a release to the active MLflow run (or a new one).

    encoder: its budget, distortion and bound, and its `.veil` file. audit: leakage, worst ΔDemP and utility, and the
    report. release: the card next to this file; the release itself is not logged.
    """
    try:
        import mlflow
    except ImportError:
        raise InputError("MLflow is not installed: pip install mlflow.") from None
    card = None if release is None else card_path(Path(release))
    if card is not None:
        read_card(card)  # raises if it is not one
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if encoder is not None:
            mlflow.log_params(_parameters(encoder))
            mlflow.log_metrics({"distortion": encoder.distortion_.mean, "distortion_upper": encoder.distortion_.upper})
            encoder.save(folder / "encoder.veil")
        if audit is not None:
            mlflow.log_metrics(_figures(audit))
            audit.to_html(folder / "audit.html")
            audit.to_json(folder / "audit.json")
        for path in (*sorted(folder.iterdir()), *([] if card is None else [card, card.with_suffix(".md")])):
            mlflow.log_artifact(str(path))


def _parameters(encoder: FairEncoder) -> dict[str, Any]:
    hidden = [column.name for column in encoder.veil_.sensitive.columns]
    return {
        "budget": encoder.budget,
        "hides": " & ".join(hidden),
        "architecture": encoder.veil_.encoder.architecture.name,
    }


def _figures(audit: AuditResult) -> dict[str, float]:
    """The main figures of a valid audit; of an invalid one only that."""
    found: dict[str, float] = {"audit_valid": float(audit.valid)}
    if audit.valid:
        for row in audit.leakage.to_dict("records"):
            for name in ("auc", "advantage", "worst_gap", "p_value"):
                if row.get(name) == row.get(name) and row.get(name) is not None:
                    found[f"{_safe(row['sensitive'])}_{name}"] = float(row[name])
        for row in audit.tasks.to_dict("records"):
            found[f"{_safe(row['target'])}_{_safe(row['model'])}_utility"] = float(row["utility"])
    return found


def _safe(name: str) -> str:
    """A name as MLflow allows it."""
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in str(name))
