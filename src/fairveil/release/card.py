"""The card of a release: what was done, what was measured, what is not promised. As Markdown and as JSON."""

import json
import platform
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

import fairveil
from fairveil.auditing import AuditResult, Certificate
from fairveil.errors import InputError
from fairveil.estimators import FairEncoder
from fairveil.pictures import PictureSchema
from fairveil.release.job import Options, Told
from fairveil.whole import write_whole

FORMAT = "fairveil-card-1"
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]#|!"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})
#: Counts below this are not told.
_SMALL = 10
LIMITS = (
    "This is not differential privacy: nothing is promised about who is in the data, or about any single row.",
    "Hidden are the named sensitive attributes and what follows from them, not names, identities or other attributes.",
    "What attackers did not find, a better attacker may find. Only a certificate holds against all of them.",
    "The distortion bound holds for rows like those the veil was fitted on.",
    "Another release of the same rows lets the noise be averaged away, as does any other copy of the original data.",
)


def card_path(release: Path) -> Path:
    """Where the card of a release lies, as JSON; its Markdown ends in .md."""
    return release.with_name(f"{release.name}.card.json")


def make_card(
    name: str, encoder: FairEncoder, veil_sha256: str, told: Told, options: Options, joint: dict[str, Any] | None
) -> dict[str, Any]:
    """All that is known of a release when it is written."""
    veil = encoder.veil_
    columns = [{"name": c.name, "role": c.role, "kind": c.kind} for c in veil.schema.columns if c.released]
    shape = "x".join(map(str, veil.schema.shape)) if isinstance(veil.schema, PictureSchema) else None
    return {
        "format": FORMAT,
        "release": {
            "file": name,
            "sha256": told.sha256,
            "rows": told.rows,
            "columns": columns,
            "images": shape,
            "order": "kept: it tells what the order of the input tells" if options.keep_order else "shuffled",
            "randomness": "the operating system's" if options.seed is None else "REPRODUCIBLE AND INSECURE: whoever "
            "knows the seed can undo the noise. For tests only.",
            "formulas_neutralised": told.neutralised,
            "numbers_moved_into_range": {n: _count(c) for n, c in told.clipped.items()},
        },
        "veil": {
            "sha256": veil_sha256,
            "hides": [column.name for column in veil.sensitive.columns],
            "sees_sensitive": veil.sees_sensitive,
            "architecture": veil.encoder.spec.architecture,
            "budget": encoder.budget,
            "held_out": encoder.distortion_.to_dict(),
        },
        "distortion": {**told.distortion, "total": sum(told.distortion.values()) if told.distortion else None,
                       "rows_measured": told.measured_rows},
        "earlier_releases": {"count": told.earlier_releases, "overlap": round(told.overlap, 3), "together": joint},
        "audit": None,
        "certificate": None,
        "limits": list(LIMITS),
        "versions": {"fairveil": fairveil.__version__, "python": platform.python_version(),
                     "torch": torch.__version__, "pyarrow": pa.__version__},
    }  # fmt: skip


def write_card(path: Path, card: dict[str, Any]) -> None:
    """Write JSON to `path`, and Markdown beside it."""
    write_whole(path, (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode())
    write_whole(path.with_suffix(".md"), card_text(card).encode())


def read_card(path: Path) -> dict[str, Any]:
    """What `write_card` wrote."""
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"There is no card {path.name}: it is written by fairveil release, beside the release."
        ) from None
    except (ValueError, UnicodeDecodeError):
        raise InputError(f"{path.name} is no card: it is not JSON.") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise InputError(f"{path.name} is no card of this version of fairveil.")
    return card


def with_audit(card: dict[str, Any], result: AuditResult) -> dict[str, Any]:
    """The card with what fresh attackers found."""
    leakage = result.to_dict()["leakage"]
    return {**card, "audit": {"valid": result.valid, "verdict": result.verdict(), "profile": result.settings["profile"],
                              "leakage": leakage}}  # fmt: skip


def with_certificate(card: dict[str, Any], certificate: Certificate) -> dict[str, Any]:
    """The card with what is certified."""
    return {**card, "certificate": {"text": str(certificate), "bound": certificate.rounded,
                                    "confidence": certificate.confidence, "notion": certificate.notion}}  # fmt: skip


def card_text(card: dict[str, Any]) -> str:
    """The card as Markdown."""
    release, veil, measured, earlier = card["release"], card["veil"], card["distortion"], card["earlier_releases"]
    held = veil["held_out"]
    lines = [
        f"# {_md(release['file'])}",
        "",
        f"A censored copy of a table of {release['rows']:,} rows." if release["images"] is None
        else f"Censored copies of {release['rows']:,} images ({release['images']}).",
        f"It hides **{_md(' & '.join(veil['hides']))}**. Made by fairveil {card['versions']['fairveil']}.",
        "",
        "## What was done",
        "",
        f"- Budget (bound on the mean distortion of a row): {veil['budget']}.",
        f"- Held out in fitting: {held['mean']:.4g}, at most {_bound(held)} with confidence {held['confidence']:.3g} "
        f"({held['rows']:,} rows).",
        f"- In this file, as written: {_number(measured['total'])} ({measured['rows_measured']:,} rows measured).",
        f"- Encoder: {veil['architecture']}, {'shown S' if veil['sees_sensitive'] else 'not shown S'}. "
        f"Row order: {release['order']}. Randomness: {release['randomness']}.",
        f"- Earlier releases of these rows: {earlier['count']}.",
    ]  # fmt: skip
    if earlier["together"]:
        lines.append(f"- All of them together: {_md(earlier['together']['text'])}")
    if release["formulas_neutralised"]:
        lines.append(f"- {_count(release['formulas_neutralised'])} cells that a spreadsheet would run have an "
                     "apostrophe in front.")  # fmt: skip
    for name, count in release["numbers_moved_into_range"].items():
        lines.append(f"- {_md(name)}: {count} numbers lay beyond the schema's range and were moved to its end.")
    if release["columns"]:
        lines += ["", "| column | role | kind |", "|---|---|---|"]
        lines += [f"| {_md(c['name'])} | {c['role']} | {c['kind']} |" for c in release["columns"]]
    lines += ["", "## What attackers found", ""]
    lines.append(_md(card["audit"]["verdict"]) if card["audit"] else "Not audited yet: `fairveil audit`.")
    lines += ["", "## What is certified", ""]
    lines.append(_md(card["certificate"]["text"]) if card["certificate"] else "Nothing.")
    lines += ["", "## What is not promised", "", *(f"- {text}" for text in card["limits"]), "", "## Hashes", ""]
    lines += [f"- release (SHA-256): `{release['sha256']}`", f"- veil (SHA-256): `{veil['sha256']}`"]
    lines += ["", "Versions: " + ", ".join(f"{name} {value}" for name, value in card["versions"].items()) + "."]
    return "\n".join(lines) + "\n"


def _count(count: int) -> str:
    return str(count) if count >= _SMALL else f"fewer than {_SMALL}"


def _bound(held: dict[str, Any]) -> str:
    return "unbounded" if held["upper"] is None else f"{held['upper']:.4g}"


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4g}"


def _md(text: str) -> str:
    """Names come from data: nothing in them is markup."""
    return " ".join(text.translate(_MARKS).split())
