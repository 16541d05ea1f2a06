"""The result of an audit: immutable, with tables, a summary for the terminal, and JSON that round-trips."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from fairveil._utils.atomic import write_atomic
from fairveil._utils.errors import InputError, must_be
from fairveil._utils.html import fragment
from fairveil.auditing.certificate import Certificate
from fairveil.auditing.encoder_rows import FITTED, NEW, NOT_STATED
from fairveil.auditing.presence import check_presence, is_notable, presence_sentence
from fairveil.report import absent, shown_interval, shown_number, write_page
from fairveil.report.charts import leakage_axes, marginal_axes

_FORMAT = "fairveil-audit-5"
_FRAMES = ("leakage", "attacks", "tails", "tasks", "rates", "information", "controls", "groups", "presence", "columns",
           "marginals")  # fmt: skip


@dataclass(frozen=True, eq=False)
class AuditResult:
    """Leakage of S in a release according to newly trained attackers, and the utility of the release.

    valid: whether every control had its expected outcome; if not, `reasons` lists the failures, and the other results
        are meaningless.
    leakage: for each sensitive column (and their joint value) the maximum over attackers, with simultaneous confidence
        intervals, and `worst_gap`: the largest ΔDemP of a predictor built from an attacker's scores. `fitted_...`: the
        same for attackers that learned from rows the encoder was fitted on, where the others learned from new rows.
    attacks: every attacker. tails: precision on the 0.2, 0.5 and 1 % of rows with the highest scores, per group.
    tasks: downstream models. rates: their error rates per group, for binary tasks.
    information: mutual information in nats. controls: attacks that had to succeed or fail.
    groups: sizes of the groups of S among the test rows. certificate: the certified bound, if one was given.
    columns: if the original was given, the share of changed cells of each column and the drift of its distribution.
    marginals: these distributions.
    settings: profile, confidence, rows per part, draws, seed, and `learned_from`: "new rows", "rows the encoder was
        fitted on" or "not stated". seconds: duration of each stage.
    subject: the audited file, by SHA-256, if it was checked. seal: who checked it.
    presence: for each group of S, how many more people an attacker is certain about who knows some of their columns and
        counts matching rows of the release (see `presence_rows`); empty without an original table.

    Examples
    --------
    >>> import fairveil as fv
    >>> result = fv.audit(released, S, {"salary": y}, original=X)  # doctest: +SKIP
    >>> print(result.headline())  # doctest: +SKIP
    >>> result.exceeded(auc=0.6, gap=0.1)  # doctest: +SKIP
    >>> result.plot("columns")  # doctest: +SKIP
    >>> result.to_html("audit.html")  # doctest: +SKIP
    """

    valid: bool
    reasons: tuple[str, ...]
    leakage: pd.DataFrame
    attacks: pd.DataFrame
    tails: pd.DataFrame
    tasks: pd.DataFrame
    rates: pd.DataFrame
    information: pd.DataFrame
    controls: pd.DataFrame
    groups: pd.DataFrame
    certified: Certificate | None
    settings: dict[str, Any]
    seconds: dict[str, float]
    subject: dict[str, str] = field(default_factory=dict)
    seal: str = ""
    presence: pd.DataFrame = field(default_factory=pd.DataFrame)
    columns: pd.DataFrame = field(default_factory=pd.DataFrame)
    marginals: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def certificate(self) -> pd.DataFrame:
        """The certificate's bound for each pair of groups; empty without a certificate."""
        return pd.DataFrame() if self.certified is None else self.certified.pairs

    @property
    def found(self) -> bool:
        """Whether any attacker predicts S better than chance, adjusted for the number of attackers."""
        self._refuse_invalid()
        return bool(self.leakage["found"].any())

    @property
    def max_advantage(self) -> float:
        """The largest advantage of any attacker on any sensitive column: accuracy above the majority rate, or R^2."""
        self._refuse_invalid()
        return float(self.leakage["advantage"].max())

    def exceeded(
        self,
        *,
        advantage: float | None = None,
        auc: float | None = None,
        balanced_advantage: float | None = None,
        gap: float | None = None,
    ) -> list[str]:
        """Messages for the limits that leakage exceeds. Only columns with significant leakage are compared.

        Attackers that learned from rows the encoder was fitted on count too, if they find more.

        advantage: accuracy above the majority rate, or R^2. auc: the largest area under a ROC curve.
        balanced_advantage: balanced accuracy above 1/K, in which small groups count as much as large ones. gap: the
        ΔDemP of a predictor built from an attacker's scores.
        """
        self._refuse_invalid()
        limits = {"advantage": advantage, "auc": auc, "balanced_advantage": balanced_advantage, "worst_gap": gap}
        said = {"advantage": "advantage over guessing", "auc": "AUC", "balanced_advantage": "balanced advantage",
                "worst_gap": "worst ΔDemP"}  # fmt: skip
        found = []
        for row in self.leakage.to_dict("records"):
            for name, limit in limits.items():
                values = [row.get(f"{who}{name}") for who in ("", "fitted_") if row.get(f"{who}found") is True]
                value = max((float(value) for value in values if not absent(value)), default=None)
                if limit is not None and value is not None and value > limit:
                    found.append(f"{row['sensitive']!r}: the {said[name]} is {value:.4f}, above {limit:g}.")
        return found

    def _refuse_invalid(self) -> None:
        if not self.valid:
            raise InputError(f"This audit is invalid and says nothing: {' '.join(self.reasons)}")

    def headline(self) -> str:
        """A few plain sentences for a reader who decides about the release: hidden or not, fair, useful, changed."""
        if not self.valid:
            return "Nothing can be said about this release: a control of the audit failed."
        told = [_hidden(row) for row in self.leakage.to_dict("records")]
        for row in self.tasks.drop_duplicates("target").to_dict("records") if len(self.tasks) else []:
            if not absent(row.get("baseline")):
                told.append(f"A model for {row['target']!r} reaches {row['utility']:.3f} if it learns from the release "
                            f"and {row['baseline']:.3f} from the original data.")  # fmt: skip
        if len(self.columns):
            most = self.columns.loc[self.columns["drift"].idxmax()]
            told.append(f"{100 * self.columns['changed'].mean():.0f} % of the cells were changed; the distribution "
                        f"of {most['column']!r} moved most (by {100 * most['drift']:.1f} %).")  # fmt: skip
        return " ".join(told)

    def verdict(self) -> str:
        """A one-paragraph summary for a data curator."""
        if not self.valid:
            return f"INVALID: nothing is reported. {' '.join(self.reasons)}"
        lines = []
        for row in self.leakage.to_dict("records"):
            name = row["sensitive"]
            if "accuracy" in row and not absent(row["accuracy"]):
                how = (
                    f"guesses {name!r} right in {_percent(row, 'accuracy')} of {row['rows']:,} rows, where naming the "
                    f"most frequent value is right in {100 * row['majority']:.1f} %. The largest AUC is "
                    f"{shown_interval(row, 'auc')}"
                )
            else:
                how = f"explains {_percent(row, 'advantage')} of the variance of {name!r}"
            told = "It knows more than chance" if row["found"] else "That is no more than chance"
            worst = shown_interval(row, "worst_gap")
            lines.append(f"The strongest of {row['attackers']} attackers {how}. {told} (p = {row['p_value']:.3f}). A "
                         f"predictor made from an attacker's scores has ΔDemP {worst}.")  # fmt: skip
            if not absent(row.get("fitted_advantage")):
                lines.append(f"Attackers that learn from rows the encoder was fitted on: {_fitted_score(row)}.")
        lines.append(self.learned_from())
        if self.settings.get("repeats"):
            lines.append("WARNING: rows or values repeat as if people had several rows each, and such rows are no "
                         "independent evidence. Say which rows belong together: clusters=, or --person.")  # fmt: skip
        if is_notable(self.presence):
            lines.append(presence_sentence(self.presence))
        if self.certified is not None:
            lines.append(str(self.certified))
        return " ".join(lines)

    def learned_from(self) -> str:
        """From which rows attackers learned, in a sentence."""
        kind, new = self.settings.get("learned_from", NOT_STATED), self.settings.get("new_rows")
        if kind == NEW:
            return "Attackers learned from new rows, on which the encoder was not fitted."
        too_few = f": there are only {new:,} new rows" if isinstance(new, int) else ""
        if kind == FITTED:
            return f"Attackers learned from rows the encoder was fitted on{too_few}. They may find too little."
        return (
            "It is not stated on which rows an encoder was fitted: attackers that learn from those may find too little."
        )

    def summary(self, console: Console | None = None) -> None:
        """Print the verdict and the tables to the terminal."""
        console = console or Console(width=None if Console().is_terminal else 140)
        console.print(self.verdict(), highlight=False, markup=False)  # names are data, not markup
        if not self.valid:
            console.print(self._control_table())
            return
        attacks = RichTable(title="Attacks (test rows)")
        for name in ("sensitive", "attacker", "accuracy", "majority", "AUC", "advantage", "p"):
            attacks.add_column(name, justify="left" if name in ("sensitive", "attacker") else "right")
        for row in self.attacks.to_dict("records"):
            accuracy, auc, advantage = (shown_interval(row, name) for name in ("accuracy", "auc", "advantage"))
            majority, p_value = (shown_number(row.get(name)) for name in ("majority", "p_value"))
            attacker = f"{row['attacker']} ({row['view']})"
            attacks.add_row(escape(row["sensitive"]), attacker, accuracy, majority, auc, advantage, p_value)
        console.print(attacks)
        if not is_notable(self.presence) and len(self.presence):  # otherwise part of the verdict
            console.print(presence_sentence(self.presence), highlight=False, markup=False)
        if len(self.tasks):
            console.print(self._task_table())
        console.print(self._control_table())

    def _control_table(self) -> RichTable:
        controls = RichTable(title="Controls")
        for name in ("control", "sensitive", "attacker", "must", "did", "passed"):
            controls.add_column(name)
        for row in self.controls.to_dict("records"):
            did = "succeed" if row["found"] else "fail"
            controls.add_row(row["control"], escape(row["sensitive"]), row["attacker"], row["expected"], did,
                             "yes" if row["passed"] else "NO")  # fmt: skip
        return controls

    def _task_table(self) -> RichTable:
        table = RichTable(title="Tasks (test rows)")
        for name in ("target", "model", "tested on", "utility", "original data", "sensitive", "ΔDemP", "ΔEO"):
            table.add_column(name, justify="right" if name in ("utility", "original data", "ΔDemP", "ΔEO") else "left")
        for row in self.tasks.to_dict("records"):
            table.add_row(escape(row["target"]), row["model"], row["tested_on"], shown_interval(row, "utility"),
                          shown_interval(row, "baseline"), escape(row["sensitive"]), shown_interval(row, "parity_gap"),
                          shown_interval(row, "odds_gap"))  # fmt: skip
        return table

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values."""
        return {
            "format": _FORMAT,
            "valid": self.valid,
            "reasons": list(self.reasons),
            **{name: _records(getattr(self, name)) for name in _FRAMES},
            "certificate": None if self.certified is None else self.certified.to_dict(),
            "settings": self.settings,
            "seconds": self.seconds,
            "subject": self.subject,
            "seal": self.seal,
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """Convert to JSON; also write it to `path` if given."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        if path is not None:
            write_atomic(Path(path), text.encode())
        return text

    @classmethod
    def from_json(cls, source: str | Path) -> "AuditResult":
        """Read the output of `to_json`: the text itself, or the path of the file."""
        text = (
            source if isinstance(source, str) and source.lstrip().startswith("{") else Path(source).read_text("utf-8")
        )
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError("This is not an audit: it cannot be read as JSON.") from None
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Any) -> "AuditResult":
        """Read the output of `to_dict`. The source is not trusted: malformed values are rejected."""
        if not isinstance(values, dict) or values.get("format") != _FORMAT:
            raise InputError("This is not an audit of this version of fairveil.")
        try:
            frames = {name: _frame(values[name]) for name in _FRAMES}
            certificate = values["certificate"]
            result = cls(
                valid=bool(values["valid"]),
                reasons=tuple(map(str, values["reasons"])),
                certified=None if certificate is None else Certificate.from_dict(certificate),
                settings=dict(values["settings"]),
                seconds=dict(values["seconds"]),
                subject=dict(values["subject"]),
                seal=str(values["seal"]),
                **frames,
            )
            check_presence(result.presence)
            result.verdict()
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise InputError("This is not an audit of this version of fairveil: parts are missing.") from None
        return result

    def _repr_html_(self) -> str:
        """For notebooks: headline and the strongest attackers."""
        if not self.valid:
            return fragment("Audit", self.verdict())
        rows = [["sensitive", "AUC", "accuracy", "majority", "worst ΔDemP found", "p"]]
        for row in self.leakage.to_dict("records"):
            rows.append([str(row["sensitive"]), *(shown_interval(row, name) for name in ("auc", "accuracy")),
                         shown_number(row.get("majority")), shown_interval(row, "worst_gap"),
                         shown_number(row.get("p_value"))])  # fmt: skip
        return fragment("Audit", self.headline(), rows)

    def plot(self, what: Literal["leakage", "columns"] = "leakage") -> Any:
        """Draw every attacker with its interval, or the distribution of every column before and after.

        Returns an array of matplotlib axes: one for each sensitive column, or for each column of the table.
        """
        self._refuse_invalid()
        if what == "leakage":
            return leakage_axes(self.attacks.to_dict("records"))
        if what != "columns":
            raise InputError(must_be("AuditResult.plot", "what", "'leakage' or 'columns'", what))
        if not len(self.marginals):
            raise InputError("There are no columns to compare: the audit was not given the original.")
        return marginal_axes(self.marginals.to_dict("records"))

    def to_html(self, path: str | Path) -> None:
        """Write one self-contained page: verdict, figures, tables and method."""
        write_page(self.to_dict() | {"verdict": self.verdict(), "headline": self.headline()}, Path(path))

    def with_certificate(self, certificate: Certificate) -> "AuditResult":
        """A copy with a certificate for the same release."""
        return replace(self, certified=certificate)


#: The default limits of an audit: they refuse a table from which only the sensitive column was removed.
LIMITS = {"auc": 0.6, "balanced_advantage": 0.1, "gap": 0.1}
#: Up to these AUCs the best attacker counts as harmless, and as weak.
_HARMLESS, _WEAK = 0.55, 0.6


def _hidden(row: dict[Any, Any]) -> str:
    """One sentence on how well one sensitive attribute is hidden."""
    name, gap = row["sensitive"], ""
    if not absent(row.get("worst_gap")):
        gap = f", and a predictor could treat groups differently by {100 * max(row['worst_gap'], 0.0):.1f} points"
    if not row["found"]:
        return f"{name!r} is hidden: no attacker does better than chance{gap}."
    if absent(row.get("auc")):
        return f"{name!r} is visible: an attacker explains {100 * row['advantage']:.1f} % of its variance{gap}."
    auc = float(row["auc"])
    how = "almost hidden" if auc <= _HARMLESS else "weakly visible" if auc <= _WEAK else "visible"
    return f"{name!r} is {how}: the best attacker has an AUC of {auc:.3f} (0.5 is guessing){gap}."


def _records(frame: pd.DataFrame) -> dict[str, Any]:
    """Columns in order, and rows with None for missing values."""
    rows = [[None if absent(value) else value for value in row] for row in frame.astype(object).to_numpy().tolist()]
    return {"columns": [str(name) for name in frame.columns], "rows": rows}


def _frame(values: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(values["rows"], columns=values["columns"])
    return frame.apply(lambda column: column.astype(float) if _numeric(column) else column)


def _numeric(column: pd.Series) -> bool:
    present = [value for value in column if value is not None]
    return bool(present) and len(present) < len(column) and all(isinstance(v, (int, float)) for v in present)


def _fitted_score(row: dict[Any, Any]) -> str:
    """The score of attackers that learned from fitted rows: the AUC or, for numbers, the explained variance."""
    if absent(row.get("fitted_auc")):
        return f"{_percent(row, 'fitted_advantage')} of the variance"
    return f"AUC {shown_interval(row, 'fitted_auc')}"


def _percent(row: dict[Any, Any], name: str) -> str:
    low, high = 100 * row[f"{name}_low"], 100 * row[f"{name}_high"]
    return f"{100 * row[name]:.1f} % [{low:.1f}, {high:.1f}]"
