"""The card of a release: what was done, measured, and not guaranteed. As Markdown and as JSON."""

import json
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

import fairveil
from fairveil._utils.atomic import refuse_special
from fairveil._utils.errors import InputError
from fairveil._utils.html import fragment
from fairveil._utils.stores import Location, locate
from fairveil.auditing import AuditResult, Certificate
from fairveil.data.columns import Column, shown
from fairveil.data.schema import Schema
from fairveil.estimators import FairEncoder
from fairveil.matching.publication import Published
from fairveil.objectives.distortion import UNITS
from fairveil.veil.archive import few_parts
from fairveil.workflows.release.job import FEWEST_TOLD, Options, ReleaseSummary
from fairveil.workflows.release.ledger import Ledger

FORMAT = "fairveil-card-4"
#: Maximum bytes of a card, an audit or a certificate.
_MOST_BYTES = 2**24
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]#|!"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})
#: Smaller counts are not reported.
_SMALL = 10
_OF_VEILS = "The distortion bound holds for rows like those the veil was fitted on."
LIMITS = (
    "This is not differential privacy: nothing is promised about who is in the data, or about any single row.",
    "Hidden are the named sensitive attributes and what follows from them, not names, identities or other attributes.",
    "What attackers did not find, a better attacker may find. Only a certificate holds against all of them.",
    _OF_VEILS,
    "Another release of the same rows lets the noise be averaged out, as does any other copy of the original data.",
)


_NUMBER = (int, float)
#: The required structure of a card.
_SHAPE: dict[str, Any] = {
    "release": {
        "file": str, "sha256": str, "rows": int, "columns": [{"name": str, "role": str, "kind": str}],
        "images": (str, type(None)), "order": str, "randomness": str, "person": (str, type(None)),
        "formulas_neutralised": (str, type(None)), "numbers_moved_into_range": dict, "warnings": [str],
        "contradicts_the_veil": [str], "presence": (str, type(None)),
        "drift": [{"column": str, "total_variation": _NUMBER, "ks": (int, float, type(None)), "distinct_before": int,
                   "distinct_after": int, "entropy_kept": _NUMBER}],
    },
    "veil": {
        "sha256": str, "hides": [str], "sees_sensitive": bool, "architecture": str,
        "budget": (int, float, dict, type(None)), "held_out": (dict, type(None)),
    },
    "matching": (dict, type(None)),
    "distortion": {"total": (int, float, type(None)), "rows_measured": int},
    "earlier_releases": {"count": int, "overlap": _NUMBER, "together": (dict, type(None))},
    "audit": (dict, type(None)),
    "certificate": (dict, type(None)),
    "limits": [str],
    "versions": {"fairveil": str},
}  # fmt: skip


#: The parts of a card that may be absent: what held-out rows showed of a veil, and how a release by matching was made.
_HELD_OUT: dict[str, Any] = {
    "mean": _NUMBER, "upper": (int, float, type(None)), "confidence": _NUMBER, "rows": int, "unit": str,
    "asymptotic": bool,
}  # fmt: skip
_MATCHING: dict[str, Any] = {"levels": [[str]], "blocks": int, "moved": _NUMBER, "unit": str}


class Card(dict[str, Any]):
    """A card as plain values, which shows itself in notebooks."""

    def _repr_html_(self) -> str:
        release, veil, measured = self["release"], self["veil"], self["distortion"]
        rows = [
            ["what", "value"],
            ["rows", f"{release['rows']:,}"],
            ["hides", " & ".join(veil["hides"])],
            ["budget", _budget(veil["budget"])],
            ["distortion in this file", _number(measured["total"])],
            ["audit", self["audit"]["verdict"] if self["audit"] else "none yet"],
            ["certificate", self["certificate"]["text"] if self["certificate"] else "none"],
            ["SHA-256", release["sha256"]],
        ]
        return fragment(release["file"], "What is not promised: " + " ".join(self["limits"]), rows)


def card_path(release: Path) -> Path:
    """The path of a release's card, as JSON; its Markdown ends in .md."""
    return release.with_name(f"{release.name}.card.json")


def card_location(release: Location) -> Location:
    """The same, for a release that may be in a store."""
    return release.sibling(f"{release.name}.card.json")


def make_card(
    name: str,
    encoder: FairEncoder,
    veil_sha256: str,
    told: ReleaseSummary,
    options: Options,
    joint: dict[str, Any] | None,
) -> dict[str, Any]:
    """Everything known about a release when it is written that may be published with it.

    Exact figures of few rows reveal the draws: they are rounded, and left out below `FEWEST_TOLD` rows.
    """
    veil = encoder.veil_
    shape = "x".join(map(str, veil.schema.layout.shape)) if veil.schema.layout.shape else None
    made_by = {
        "sha256": veil_sha256,
        "hides": [column.name for column in veil.sensitive.columns],
        "sees_sensitive": veil.sees_sensitive,
        "architecture": veil.encoder.architecture.name,
        "budget": encoder.budget_,
        "held_out": encoder.distortion_.to_dict(),
    }
    return _card(name, veil.schema.columns, shape, made_by, told, options, joint)


def matching_card(
    name: str, schema: Schema, schema_sha256: str, told: ReleaseSummary, options: Options, budget: float | None,
    found: Published, certificate: Certificate,
) -> dict[str, Any]:  # fmt: skip
    """The card of a release by matching. Its "veil" is the schema, next to which the ledger lies."""
    made_by = {
        "sha256": schema_sha256,
        "hides": [column.name for column in schema.columns if column.role == "sensitive"],
        "sees_sensitive": True,
        "architecture": "matching",
        "budget": budget,
        "held_out": None,
    }
    joint = {"text": "not measured for releases by matching."} if told.earlier_releases else None
    card = _card(name, schema.columns, None, made_by, told, options, joint)
    untouched = [column.name for column in schema.columns if column.role in ("keep", "pass")]
    limits = [text for text in LIMITS if text != _OF_VEILS]
    if untouched:
        limits.append(f"The certificate does not cover columns that were not exchanged: {', '.join(untouched)}.")
    return {
        **card,
        "matching": {"levels": found.levels, "blocks": found.blocks, "moved": round(found.moved, 3),
                     "unit": UNITS["ranks"]},
        "certificate": {"text": str(certificate), "bound": certificate.rounded, "confidence": certificate.confidence,
                        "notion": certificate.notion},
        "limits": limits,
    }  # fmt: skip


def _card(
    name: str, columns: Sequence[Column], images: str | None, made_by: dict[str, Any], told: ReleaseSummary,
    options: Options, joint: dict[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    tellable = told.rows >= FEWEST_TOLD
    distortion = {kind: round(value, 2) for kind, value in told.distortion.items()} if tellable else {}
    return {
        "format": FORMAT,
        "release": {
            "file": name,
            "sha256": told.sha256,
            "rows": told.rows,
            "columns": [{"name": c.name, "role": c.role, "kind": c.kind} for c in columns if c.released],
            "images": images,
            "order": "kept: it reveals what the order of the input reveals" if options.keep_order else "shuffled",
            "randomness": _randomness(options),
            "person": options.person,
            "formulas_neutralised": _count(told.neutralised) if told.neutralised else None,
            "numbers_moved_into_range": {n: _count(c) for n, c in told.clipped.items()},
            "warnings": list(told.warnings),
            "contradicts_the_veil": list(told.contradictions),
            "presence": told.presence,
            "drift": [drift.to_dict() for drift in told.drift] if tellable else [],
        },
        "veil": made_by,
        "matching": None,
        "distortion": {**distortion, "total": round(told.total, 2) if told.total is not None and tellable else None,
                       "rows_measured": told.rows if told.distortion else 0},
        "earlier_releases": {"count": told.earlier_releases, "overlap": round(told.overlap, 2), "together": joint},
        "audit": None,
        "certificate": None,
        "limits": list(LIMITS),
        "versions": {"fairveil": fairveil.__version__, "python": platform.python_version(),
                     "torch": torch.__version__, "pyarrow": pa.__version__},
    }  # fmt: skip


def _randomness(options: Options) -> str:
    if options.seed is not None:
        return "REPRODUCIBLE AND INSECURE: anyone who knows the seed can undo the noise. For tests only."
    return "the operating system's" + ("; the curator kept the secret of the draws" if options.keep_secret else "")


def write_card(path: Path | Location, card: dict[str, Any]) -> None:
    """Write JSON to `path`, and Markdown next to it."""
    place = locate(path)
    place.write((json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode())
    place.sibling(f"{place.name.removesuffix('.json')}.md").write(card_text(card).encode())


def read_card(path: Path | Location) -> Card:
    """Read what `write_card` wrote. The file may have been changed by anybody: invalid content is rejected."""
    card = read_json(path, "card", "It is written by fairveil release, next to the release.")
    if card.get("format") != FORMAT or not _fits(card, _SHAPE) or not _optional_parts_fit(card):
        raise InputError(f"{shown(path.name)} is not a card of this version of fairveil.")
    return Card(card)


def _optional_parts_fit(card: dict[str, Any]) -> bool:
    """Check the parts of a card that may be absent, and mappings with arbitrary keys."""
    parts = ((card["veil"]["held_out"], _HELD_OUT), (card["matching"], _MATCHING),
             (card["audit"], {"verdict": str}), (card["certificate"], {"text": str}),
             (card["earlier_releases"]["together"], {"text": str}))  # fmt: skip
    budget, moved = card["veil"]["budget"], card["release"]["numbers_moved_into_range"]
    return (
        (card["veil"]["held_out"] is None) != (card["matching"] is None)
        and (budget is not None or card["matching"] is not None)
        and all(re.fullmatch("[0-9a-f]{64}", card[name]["sha256"]) for name in ("release", "veil"))
        and all(part is None or _fits(part, shape) for part, shape in parts)
        and (not isinstance(budget, dict) or all(_fits(value, _NUMBER) for value in budget.values()))
        and all(isinstance(value, str) for value in (*moved.values(), *card["versions"].values()))
    )


def read_json(path: Path | Location, what: str, advice: str = "") -> dict[str, Any]:
    """A mapping from a JSON file that may be crafted. what: the expected content, for messages."""
    place = locate(path)
    if place.local is not None:
        refuse_special(place.local)
    try:
        if (place.size() if place.local is None else place.local.stat().st_size) > _MOST_BYTES:
            raise InputError(f"{shown(path.name)} is larger than {_MOST_BYTES // 2**20} MB: it is not a {what}.")
        text = (place.read() if place.local is None else place.local.read_bytes()).decode("utf-8")
        values = json.loads(text) if few_parts(text) else None
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"There is no {what} {shown(path.name)}. {advice}".strip()) from None
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError(f"{shown(path.name)} is not a {what}: it cannot be read as JSON.") from None
    if not isinstance(values, dict):
        raise InputError(f"{shown(path.name)} is not a {what}: it must be a mapping.")
    return values


def _fits(value: Any, shape: Any) -> bool:
    """Whether plain values have the keys and types of a shape: a type, a tuple of types, a list of one, a mapping."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(name in value and _fits(value[name], shape[name]) for name in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(each, shape[0]) for each in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not abs(value) < 1e300:
        return False
    return isinstance(value, shape) and not (isinstance(value, bool) and bool not in _types(shape))


def _types(shape: Any) -> tuple[Any, ...]:
    return shape if isinstance(shape, tuple) else (shape,)


def with_audit(card: dict[str, Any], values: dict[str, Any], seals: Ledger) -> dict[str, Any]:
    """The card with the results of fresh attackers; the audit must be of exactly this release, and ours.

    values: the result of `AuditResult.to_dict`, or its file's content.
    """
    _refuse_foreign(card, values, "release", "audit", seals)
    result = AuditResult.from_dict(values)
    audited = {str(name) for name in result.leakage["sensitive"] if " & " not in str(name)}
    if audited != set(card["veil"]["hides"]):
        raise InputError("This audit is of other columns than the release hides. Nothing was written.")
    return {**card, "audit": {"valid": result.valid, "verdict": result.verdict(), "profile": result.settings["profile"],
                              "leakage": values["leakage"]}}  # fmt: skip


def with_certificate(card: dict[str, Any], values: dict[str, Any], seals: Ledger) -> dict[str, Any]:
    """The card with a certificate, which must be of the veil that made this release, and ours."""
    _refuse_foreign(card, values, "veil", "certificate", seals)
    certificate = Certificate.from_dict({k: v for k, v in values.items() if k not in ("subject", "seal")})
    return {**card, "certificate": {"text": str(certificate), "bound": certificate.rounded,
                                    "confidence": certificate.confidence, "notion": certificate.notion}}  # fmt: skip


def _refuse_foreign(card: dict[str, Any], values: dict[str, Any], what: str, of: str, seals: Ledger) -> None:
    """Reject an audit or certificate that does not name this subject by SHA-256, or lacks the ledger's seal."""
    subject = values.get("subject")
    if not isinstance(subject, dict) or subject.get(what) != card[what]["sha256"]:
        raise InputError(f"This {of} is not of the {what} that the card is about. Nothing was written.")
    if not seals.sealed(values):
        raise InputError(
            f"This {of} was not made with the ledger of the veil, or was changed since. Make it again with fairveil "
            f"{'audit' if of == 'audit' else 'certify'}, where the ledger is. Nothing was written."
        )


def card_text(card: dict[str, Any]) -> str:
    """The card as Markdown. All texts are escaped: names come from data, and a card may come from anybody."""
    release, veil, measured, earlier = card["release"], card["veil"], card["distortion"], card["earlier_releases"]
    lines = [
        f"# {_md(release['file'])}",
        "",
        f"A censored copy of a table of {release['rows']:,} rows." if release["images"] is None
        else f"Censored copies of {release['rows']:,} images ({_md(release['images'])}).",
        f"It hides **{_md(' & '.join(veil['hides']))}**. Made by fairveil {_md(card['versions']['fairveil'])}.",
        "",
        *(f"**WARNING: this release contradicts its veil.** {_md(text)}\n"
          for text in release["contradicts_the_veil"]),
        "## What was done",
        "",
        *_how(card),
        f"- In this file, as written: {_number(measured['total'])} ({measured['rows_measured']:,} rows measured).",
        f"- Row order: {_md(release['order'])}. Randomness: {_md(release['randomness'])}.",
        f"- Earlier releases of these rows: {earlier['count']}.",
    ]  # fmt: skip
    if release["person"] is not None:
        lines.append(f"- Equal rows of one person, by {_md(release['person'])}, were drawn alike.")
    if earlier["together"]:
        lines.append(f"- All of them together: {_md(earlier['together']['text'])}")
    if release["formulas_neutralised"]:
        lines.append(f"- {_md(release['formulas_neutralised'])} cells that a spreadsheet would execute start with "
                     "an apostrophe.")  # fmt: skip
    for name, count in release["numbers_moved_into_range"].items():
        lines.append(f"- {_md(name)}: {_md(count)} numbers were outside the schema's range and were clipped.")
    lines += [f"- {_md(text)}" for text in release["warnings"]]
    if release["columns"]:
        lines += ["", "| column | role | kind |", "|---|---|---|"]
        lines += [f"| {_md(c['name'])} | {_md(c['role'])} | {_md(c['kind'])} |" for c in release["columns"]]
    if release["drift"]:
        lines += [
            "",
            "## How the columns changed",
            "",
            "Distributions of categories, and of numbers in bins.",
            "",
            "| column | total variation | KS | values before | after | entropy kept |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {_md(d['column'])} | {d['total_variation']:.3f} | "
            f"{'' if d['ks'] is None else format(d['ks'], '.3f')} | "
            f"{d['distinct_before']} | {d['distinct_after']} | {100 * d['entropy_kept']:.0f} % |"
            for d in release["drift"]
        ]  # fmt: skip
    lines += ["", "## What attackers found", ""]
    lines.append(_md(card["audit"]["verdict"]) if card["audit"] else "Not audited yet: `fairveil audit`.")
    lines += ["", "## What presence and absence tell", ""]
    lines.append("Not measured." if release["presence"] is None else _md(release["presence"]))
    lines += ["", "## What is certified", ""]
    lines.append(_md(card["certificate"]["text"]) if card["certificate"] else "Nothing.")
    lines += ["", "## What is not promised", "", *(f"- {_md(text)}" for text in card["limits"]), "", "## Hashes", ""]
    made_with = "veil" if card["matching"] is None else "schema"
    lines += [f"- release (SHA-256): `{release['sha256']}`", f"- {made_with} (SHA-256): `{veil['sha256']}`"]
    lines += ["", "Versions: " + ", ".join(f"{_md(k)} {_md(v)}" for k, v in card["versions"].items()) + "."]
    return "\n".join(lines) + "\n"


def _how(card: dict[str, Any]) -> list[str]:
    """How the release was made, as lines of a list."""
    veil, held, matching = card["veil"], card["veil"]["held_out"], card["matching"]
    budget = f"- Budget (bound on the mean distortion of a row): {_md(_budget(veil['budget']))}. 1 is "
    if matching is not None:
        levels = "; ".join(", ".join(level) for level in matching["levels"])
        return [
            f"{budget}{_md(matching['unit'])}.",
            f"- By matching: rows in {matching['blocks']:,} blocks of similar rows exchanged values at random; "
            f"{100 * matching['moved']:.1f} % of the rows are in blocks that did. Levels of columns, each exchanged "
            f"independently: {_md(levels)}. Numbers were drawn anew within bins.",
        ]
    return [
        f"{budget}{_md(held['unit'])}.",
        f"- Held out in fitting: {held['mean']:.4g}, at most {_bound(held)} with confidence {held['confidence']:.3g} "
        f"({held['rows']:,} rows{', by an asymptotic bound' if held['asymptotic'] else ''}).",
        f"- Encoder: {_md(veil['architecture'])}, {'sees S' if veil['sees_sensitive'] else 'does not see S'}.",
    ]


def _budget(budget: float | dict[str, float] | None) -> str:
    if budget is None:
        return "none"
    if isinstance(budget, dict):
        return ", ".join(f"{value:g} ({kind} columns)" for kind, value in budget.items())
    return f"{budget:g}"


def _count(count: int) -> str:
    return str(count) if count >= _SMALL else f"fewer than {_SMALL}"


def _bound(held: dict[str, Any]) -> str:
    return "unbounded" if held["upper"] is None else f"{held['upper']:.4g}"


def _number(value: float | None) -> str:
    return "not reported" if value is None else f"{value:.4g}"


def _md(text: str) -> str:
    """Escape names, which come from data: they must not act as markup or control a terminal."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(plain.translate(_MARKS).split())
