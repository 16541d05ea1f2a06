"""The points of a frontier: fresh models on the releases of each budget, and the recommended one."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from fairveil._utils.atomic import replacing, write_atomic
from fairveil._utils.engine import HERE, Engine
from fairveil._utils.errors import InputError
from fairveil._utils.progress import Reporter, progress
from fairveil.auditing import Probe, probe
from fairveil.auditing.encoder_rows import FEWEST_NEW, FITTED, NEW
from fairveil.data.frames import plain_column
from fairveil.data.schema import Schema
from fairveil.estimators import FairFrontier
from fairveil.metrics import Estimate, share
from fairveil.report.charts import points_figure
from fairveil.report.frontier import write_points
from fairveil.training.confidence_bound import Achieved

#: The files of a frontier besides its veils.
FRONTIER_FILES = ("frontier.csv", "frontier.json", "frontier.png", "frontier.html")
#: The title of the stage in which releases are scored.
SCORING = "Scoring releases"
#: S counts as hidden where the AUC of the fresh attacker is at most this, and its upper limit at most the audit's.
HIDDEN_AUC, MOST_AUC = 0.55, 0.6
RULE = (
    f"The smallest budget that is met and at which a fresh attacker's AUC on S is at most {HIDDEN_AUC:g} (the upper "
    f"end of its interval at most {MOST_AUC:g}, the default limit of an audit)."
)
_FORMAT = "fairveil-frontier-1"
#: Draws of each row from which fresh models learn.
_DRAWS = 5
#: Group rates are shown for groups of at least this many rows.
_FEWEST = 20


@dataclass
class Judge:
    """Fresh models for S (its joint value) and the targets, tested on rows that no encoder was fitted on.

    secret: the joint class of S in each row. fitted: positions of the rows that encoders were fitted on. train, test:
    of those for training and testing models. seconds: how long the original took.
    """

    table: pa.Table
    secret: NDArray[np.str_]
    fitted: NDArray[np.int64]
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    targets: tuple[str, ...]
    show_progress: bool
    seconds: float = 0.0

    @classmethod
    def of(
        cls, table: pa.Table, secret: NDArray[np.str_], fitted: NDArray[np.int64], new: NDArray[np.int64],
        targets: Sequence[str], *, show_progress: bool,
    ) -> "Judge":  # fmt: skip
        """Models learn from half of the new rows (in random order), or from the fitted rows if these are too few."""
        train, test = np.split(new, [len(new) // 2]) if len(new) >= FEWEST_NEW else (fitted, new)
        return cls(table, secret, fitted, np.sort(train), np.sort(test), tuple(targets), show_progress)

    @property
    def _new(self) -> bool:
        """Whether models learn from rows that no encoder was fitted on."""
        return not np.array_equal(self.train, self.fitted)

    @property
    def _models(self) -> int:
        """Models per release."""
        return 1 + self._new + len(self.targets)

    def expected(self, releases: int) -> float:
        """Roughly the seconds for so many releases, from the time that the original took."""
        once, fitted = len(self.train), len(self.fitted) if self._new else 0
        return releases * self.seconds * (_DRAWS * once + fitted) / (once + fitted)

    def original(self, schema: Schema) -> dict[str, Any]:
        """The point of the original data, at budget 0."""
        start = time.monotonic()
        seen = self.table.select([column.name for column in schema.released])
        with progress(self._models, "Scoring the original", self.show_progress, unit="models") as report:
            scores = self._scores(seen, [], report)
        self.seconds = time.monotonic() - start
        return {"budget": 0.0, "distortion": 0.0, "upper": 0.0, "met": True, "reason": "", **scores}

    def releases(
        self, frontier: FairFrontier, table: pa.Table, seed: int, engine: Engine = HERE
    ) -> list[dict[str, Any]]:
        """One point per budget; those that are not met have a reason instead of scores."""
        rows = frontier.points_.to_dict("records")
        met = [number for number, row in enumerate(rows) if row["met"]]
        total = self._models * len(met)
        with progress(total, SCORING, self.show_progress, unit="models") as report:
            inside = engine is HERE  # only there, single models can be told
            tasks = [
                (self, frontier.estimators_[number], table, seed,
                 partial(_later, report, self._models * done, f"budget {rows[number]['budget']:g}") if inside else None)
                for done, number in enumerate(met)
            ]  # fmt: skip
            finished = 0

            def told(number: int) -> None:
                nonlocal finished
                finished += not inside
                report(self._models * (number if inside else finished))

            scores = dict(zip(met, engine.map(_scores_of, tasks, told), strict=True))
        points = []
        for number, (row, encoder) in enumerate(zip(rows, frontier.estimators_, strict=True)):
            point = {name: row[name] for name in ("budget", "distortion", "upper", "largest_drift",
                                                  "drifted_column", "collapsed")}  # fmt: skip
            point |= {"met": bool(row["met"]), "reason": "" if row["met"] else unmet_reason(encoder.distortion_)}
            points.append(point | scores.get(number, {}))
        return points

    def scores_of(self, encoder: Any, table: pa.Table, seed: int, step: Callable[[int], None]) -> dict[str, Any]:
        """Scores of models on releases of one encoder."""
        encoder.set_params(random_state=None)  # each draw anew
        more = [encoder.transform(table.take(pa.array(self.train))) for _ in range(_DRAWS - 1)]
        scores = self._scores(encoder.transform(table), more, step)
        encoder.set_params(random_state=seed)
        return scores

    def _scores(self, released: pa.Table, more: Sequence[pa.Table], step: Callable[[int], None]) -> dict[str, Any]:
        """Scores of models on released test rows. more: further draws of the training rows."""
        frame, *others = map(_plain_frame, (released, *more))
        train, test = pd.concat([frame.iloc[self.train], *others]), frame.iloc[self.test]
        draws = 1 + len(more)
        hidden, told = np.tile(self.secret[self.train], draws), self.secret[self.test]
        found = familiar = probe(train, hidden, test, told, linear=True, draws=draws)
        step(1)
        if self._new:
            familiar = probe(frame.iloc[self.fitted], self.secret[self.fitted], test, told, linear=True)
            step(2)
        values: dict[str, Any] = {
            **_estimate("S AUC", found.mean_auc), **_estimate("S accuracy", found.accuracy),
            "S majority": found.majority, **_estimate("S AUC from fitted rows", familiar.mean_auc),
            "learned from": NEW if self._new else FITTED,
        }  # fmt: skip
        rates = {}
        for number, name in enumerate(self.targets, 2 + self._new):
            truth = self.table[name].to_pandas().astype(str).to_numpy()
            without = [column for column in frame.columns if column != name]
            task = probe(train[without], np.tile(truth[self.train], draws), test[without], truth[self.test],
                         groups=told, linear=True, draws=draws)  # fmt: skip
            assert task.gap is not None
            values |= {**_estimate(f"{name} accuracy", task.accuracy), f"{name} majority": task.majority,
                       **_estimate(f"{name} ΔDemP", task.gap)}  # fmt: skip
            rates[name] = self._rates(task, truth)
            step(number)
        return {**values, "rates": rates}

    def _rates(self, task: Probe, truth: NDArray[Any]) -> list[dict[str, Any]]:
        """For a target of two values, how often each group is predicted the larger one."""
        values = np.unique(truth)
        if len(values) != 2:
            return []
        groups = self.secret[self.test]
        found = []
        for group in np.unique(groups):
            own = groups == group
            if own.sum() >= _FEWEST:
                rate = share(task.predicted[own] == values[1])
                found.append({"group": str(group), "predicted": str(values[1]), "rows": int(own.sum()),
                              "rate": rate.value, "low": rate.low, "high": rate.high})  # fmt: skip
        return found


def _estimate(name: str, found: Estimate | None) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name} low": None, f"{name} high": None}
    return {name: found.value, f"{name} low": found.low, f"{name} high": found.high}


def _plain_frame(table: pa.Table) -> pd.DataFrame:
    """A frame for models that take numbers and categories only: dates and times as numbers, missing numbers as -1."""
    frame = pa.table({name: plain_column(table[name]) for name in table.column_names}).to_pandas()
    return frame.assign(**{name: frame[name].fillna(-1) for name in frame.select_dtypes("number")})


def _scores_of(
    judge: Judge, encoder: Any, table: pa.Table, seed: int, step: Callable[[int], None] | None
) -> dict[str, Any]:
    return judge.scores_of(encoder, table, seed, step or (lambda done: None))


def _later(report: Reporter, before: int, note: str, done: int) -> None:
    report(before + done, note)


def unmet_reason(achieved: Achieved) -> str:
    """Why a budget is not met, and what would help."""
    if achieved.bound is None:
        return "A bound on the categorical or the continuous columns is not met."
    if achieved.lost > achieved.bound:
        return (
            f"{achieved.lost:.3g} is spent before anything is hidden (draws within bins, numbers beyond the ranges, "
            "rare values). A larger budget is needed."
        )
    if achieved.mean > achieved.bound:
        return f"The distortion on held-out rows is {achieved.mean:.3g}. More steps or a larger budget may help."
    return (
        f"The distortion is {achieved.mean:.3g}, but {achieved.rows:,} held-out rows only show that it is at most "
        f"{achieved.upper:.3g}. More rows or a larger budget are needed."
    )


@dataclass(frozen=True)
class Recommendation:
    """A budget and the reason for it; None if no budget is met. hidden: whether S is hidden there, by the rule."""

    budget: float | None
    reason: str
    hidden: bool = False


def recommend(points: Sequence[dict[str, Any]]) -> Recommendation:
    """Apply `RULE` to the points of a frontier.

    >>> at = {"met": True, "S AUC low": 0.5}
    >>> points = [{**at, "budget": 1.0, "S AUC": 0.58, "S AUC high": 0.60}, {**at, "budget": 2.0, "S AUC": 0.53,
    ...           "S AUC high": 0.55}]
    >>> recommend(points).budget
    2.0
    """
    met = [point for point in points if point["met"] and point["budget"] > 0 and point["S AUC"] is not None]
    if not met:
        return Recommendation(None, "No budget is met: raise the budgets, give more rows, or train for more steps.")
    hidden = [point for point in met if point["S AUC"] <= HIDDEN_AUC and point["S AUC high"] <= MOST_AUC]
    if hidden:
        least = min(hidden, key=lambda point: point["budget"])
        return Recommendation(least["budget"], f"The smallest budget at which S is hidden: the AUC of a fresh attacker "
                              f"is {_shown(least)}, where 0.5 is guessing.", hidden=True)  # fmt: skip
    best = min(met, key=lambda point: point["S AUC"])
    return Recommendation(best["budget"], f"No budget hides S well enough (AUC at most {HIDDEN_AUC:g}): this one "
                          f"leaves the least, {_shown(best)}. Try larger budgets.")  # fmt: skip


def _shown(point: dict[str, Any]) -> str:
    return f"{point['S AUC']:.3f} [{point['S AUC low']:.3f}, {point['S AUC high']:.3f}]"


@dataclass(frozen=True)
class Frontier:
    """The points of a frontier that was learned from a file, as plain values, with the recommendation."""

    file: str
    hides: tuple[str, ...]
    targets: tuple[str, ...]
    points: tuple[dict[str, Any], ...]
    recommended: Recommendation

    @classmethod
    def of(
        cls, file: str, hides: Sequence[str], targets: Sequence[str], points: Sequence[dict[str, Any]]
    ) -> "Frontier":
        """With a recommendation from the points."""
        chosen = recommend(points)
        marked = tuple(_marked(point, chosen, hides) for point in points)
        return cls(file, tuple(hides), tuple(targets), marked, chosen)

    def frame(self) -> pd.DataFrame:
        """One row per point: numbers, whether it is recommended, and the reason for this or for an unmet budget."""
        return pd.DataFrame([{k: v for k, v in point.items() if k not in ("rates", "veil")} for point in self.points])

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "format": _FORMAT, "file": self.file, "hides": list(self.hides), "targets": list(self.targets),
            "rule": RULE, "recommended": asdict(self.recommended),
            "points": [{name: _finite(value) for name, value in point.items()} for point in self.points],
        }  # fmt: skip

    def write(self, folder: Path) -> None:
        """Write `FRONTIER_FILES`."""
        with replacing(folder / "frontier.csv") as partial:
            self.frame().to_csv(partial, index=False)
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"
        write_atomic(folder / "frontier.json", text.encode())
        with replacing(folder / "frontier.png") as partial:
            points_figure(self.to_dict()).savefig(partial, dpi=130, format="png")
        write_points(self.to_dict(), folder / "frontier.html")


def _finite(value: Any) -> Any:
    """JSON has no infinity: a bound that claims nothing is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _marked(point: dict[str, Any], chosen: Recommendation, hides: Sequence[str]) -> dict[str, Any]:
    own = point["budget"] == chosen.budget and point["budget"] > 0
    veil = veil_name(hides, point["budget"]) if point["met"] and point["budget"] > 0 else None
    return {**point, "recommended": own, "reason": chosen.reason if own else point["reason"], "veil": veil}


def veil_name(hides: Sequence[str], budget: float) -> str:
    """The file of a veil in a frontier's folder."""
    safe = "-".join("".join(c if c.isalnum() or c in "._" else "_" for c in name) for name in hides)
    return f"{safe}-{budget:g}.veil"


def read_frontier(folder: str | Path) -> dict[str, Any]:
    """The content of a folder's `frontier.json`. The file may have been changed: malformed content is refused."""
    from fairveil.workflows.release.card import read_json

    path = Path(folder) / "frontier.json"
    values = read_json(path, "frontier", "fairveil frontier writes one.")
    points = values.get("points")
    right = values.get("format") == _FORMAT and isinstance(points, list) and all(map(_is_point, points))
    if not right or not _is_advice(values.get("recommended")) or not _texts(values, ("hides", "targets")):
        raise InputError(f"{path.name} is not a frontier of this version of fairveil.")
    return values


def _is_point(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("met"), bool):
        return False
    numbers = [value.get("budget"), value.get("distortion"), value.get("upper") or 0.0]
    return all(isinstance(n, (int, float)) and abs(n) < 1e300 for n in numbers) and isinstance(value.get("reason"), str)


def _is_advice(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("reason"), str):
        return False
    return isinstance(value.get("budget"), (int, float, type(None))) and isinstance(value.get("hidden"), bool)


def _texts(values: dict[str, Any], names: Sequence[str]) -> bool:
    return all(isinstance(values.get(n), list) and all(isinstance(t, str) for t in values[n]) for n in names)
