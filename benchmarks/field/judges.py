"""Judges of a release: attackers and task models that no method was trained against.

Attackers are found by a random search over LightGBM, forests, networks, linear models and linear models with crosses.
The configuration with the best AUC on validation rows is scored once on test rows. The search is made twice: from the
rows that the method was fitted on and from rows that are new to it; the larger AUC counts. The former attacker is also
scored on new rows: by this, a value of a method's trade-off is chosen.

Task models of three families learn from the released fitted rows; the family is chosen on validation rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import fairveil as fv
from fairveil.auditing.attackers import Boosting, Sklearn
from fairveil.auditing.crosses import Crosses
from fairveil.auditing.networks import Network
from fairveil.metrics import equalized_odds_gap, weighted_auc
from field.coding import Vectors, codes
from field.data import PARTS, Table
from field.protocol import Rows

Model = Any
#: Rows of a family that takes long on more.
_MOST_ROWS = 20_000
#: Share of the rows to learn from on which models are chosen.
_VALIDATION = 0.2
#: Groups with fewer test rows are left out of ΔDemP: their rates are noise.
SMALL = 50


@dataclass(frozen=True)
class View:
    """One released table as models see it: vectors and codes of rows to learn from, to choose by and to score."""

    vectors: tuple[np.ndarray, ...]
    codes: tuple[np.ndarray, ...]


def view(learn: pd.DataFrame, *others: pd.DataFrame) -> View:
    """Vectors and codes whose scales and categories come from the first table."""
    coder = Vectors(learn)
    made = tuple(coder(table).astype(np.float32) for table in (learn, *others))
    return View(made, tuple(codes(learn, *others)))


def search(seed: int, tries: int) -> list[tuple[str, Callable[[int], Model]]]:
    """Configurations of the random search: a name, and what makes the model for a number of classes."""
    draw = np.random.default_rng(seed)
    families = [_boosting, _linear, _forest, _network, _crosses]
    # Trees are the strongest on tables: every second configuration is of LightGBM.
    order = [families[0] if i % 2 == 0 else families[1 + (i // 2) % 4] for i in range(tries)]
    return [family(draw, i) for i, family in enumerate(order)]


def _boosting(draw: np.random.Generator, seed: int) -> tuple[str, Callable[[int], Model]]:
    leaves, rate, share = (
        int(draw.choice([4, 8, 15, 31, 63])),
        float(draw.choice([0.03, 0.06, 0.12])),
        draw.choice([0.5, 1.0]),
    )
    return f"LightGBM, {leaves} leaves, rate {rate}", lambda k: Boosting(k, leaves, rate, 400, seed, share=float(share))


def _linear(draw: np.random.Generator, seed: int) -> tuple[str, Callable[[int], Model]]:
    strength = float(10.0 ** draw.uniform(-2.5, 1.0))
    return f"linear, C {strength:.2g}", lambda k: Sklearn(
        LogisticRegression(C=strength, max_iter=300), k, _MOST_ROWS, seed
    )


def _forest(draw: np.random.Generator, seed: int) -> tuple[str, Callable[[int], Model]]:
    kind = RandomForestClassifier if draw.random() < 0.5 else ExtraTreesClassifier
    leaf, share = int(draw.choice([2, 5, 10, 20])), float(draw.choice([0.1, 0.3]))
    model = kind(150, min_samples_leaf=leaf, max_features=share, random_state=seed)
    return f"{kind.__name__}, leaf {leaf}", lambda k: Sklearn(model, k, _MOST_ROWS, seed)


def _network(draw: np.random.Generator, seed: int) -> tuple[str, Callable[[int], Model]]:
    hidden = [(64,), (128, 64), (256, 128)][int(draw.integers(3))]
    rate, dropout = float(draw.choice([1e-3, 3e-3])), float(draw.choice([0.1, 0.3]))
    return f"network {hidden}", lambda k: Network(hidden, classes=k, rate=rate, dropout=dropout, batch=256, seed=seed)


def _crosses(draw: np.random.Generator, seed: int) -> tuple[str, Callable[[int], Model]]:
    return "linear with crosses", lambda k: Crosses(k, seed)


#: Families of task models, with settings that suit most tables.
FAMILIES: dict[str, Callable[[int], Model]] = {
    "LightGBM": lambda k: Boosting(k, 15, 0.06, 400, 0),
    "linear": lambda k: Sklearn(LogisticRegression(C=0.3, max_iter=300), k, _MOST_ROWS, 0),
    "network": lambda k: Network((64,), classes=k, batch=256, seed=0),
}


def mean_auc(chances: np.ndarray, truth: np.ndarray) -> float:
    """One class against the others, averaged with the shares of the classes; for two classes, the AUC."""
    return weighted_auc(chances, truth).value


def attack(learn: pd.DataFrame, secret: np.ndarray, judged: Mapping[str, tuple[pd.DataFrame, np.ndarray]], *, seed: int,
           tries: int) -> dict[str, Any]:  # fmt: skip
    """Of the attacker with the best AUC on validation rows: its AUC on each judged part, and which it is."""
    first, held = _divide(len(learn), seed)
    seen = view(learn.iloc[first], learn.iloc[held], *(table for table, _ in judged.values()))
    known, every = np.unique(secret, return_inverse=True)
    best: tuple[float, str, Any, tuple[np.ndarray, ...]] = (-1.0, "", None, ())
    for name, make in search(seed, tries):
        x = seen.codes if name == "linear with crosses" else seen.vectors
        model = make(len(known)).fit(x[0], every[first].astype(float), x[1], every[held].astype(float))
        found = mean_auc(model.predict(x[1]), every[held])
        if found > best[0]:
            best = (found, name, model, x)
    row: dict[str, Any] = {"by": best[1]}
    for (part, (_, truth)), x in zip(judged.items(), best[3][2:], strict=True):
        scored = np.isin(truth, known)  # a group without rows to learn from cannot be found
        row[part] = mean_auc(best[2].predict(x)[scored], np.searchsorted(known, truth[scored]))
    return row


def learn_task(tables: Mapping[str, pd.DataFrame], y: np.ndarray, seed: int,
               families: Sequence[str] = tuple(FAMILIES)) -> tuple[dict[str, dict[str, np.ndarray]], str]:  # fmt: skip
    """Predictions of new and test rows by each family, and the family with the best accuracy on validation rows."""
    first, held = _divide(len(y), seed)
    seen = view(tables["fit"].iloc[first], tables["fit"].iloc[held], tables["new"], tables["test"]).vectors
    made, right = {}, {}
    for name in families:
        model = FAMILIES[name](2).fit(seen[0], y[first].astype(float), seen[1], y[held].astype(float))
        right[name] = float((model.predict(seen[1]).argmax(axis=1) == y[held]).mean())
        made[name] = {part: model.predict(x).argmax(axis=1) for part, x in zip(PARTS[1:], seen[2:], strict=True)}
    return made, max(right, key=lambda name: right[name])


def parity_gap(predicted: np.ndarray, S: pd.DataFrame) -> float:
    """ΔDemP of 0/1 predictions: the largest difference of rates between groups, over the sensitive columns."""
    gaps = [0.0]
    for name in S:
        rates = pd.Series(predicted).groupby(S[name].to_numpy()).agg(["mean", "size"])
        kept = rates.loc[rates["size"] >= SMALL, "mean"]
        gaps.append(float(kept.max() - kept.min()) if len(kept) > 1 else 0.0)
    return max(gaps)


def task_scores(predicted: Mapping[str, np.ndarray], parts: Mapping[str, Rows]) -> dict[str, float]:
    """Accuracy and gaps of predictions of the named task, on new rows (to choose by) and on test rows."""
    scores: dict[str, float] = {}
    for part, prefix in (("new", "choose "), ("test", "")):
        rows, guess = parts[part], np.asarray(predicted[part])
        assert rows.S is not None
        odds = equalized_odds_gap(guess, rows.truth, rows.group, resamples=2).total
        scores |= {f"{prefix}accuracy": float((guess == rows.truth).mean()),
                   f"{prefix}ΔDemP": parity_gap(guess, rows.S),
                   f"{prefix}ΔEO": float("nan") if odds is None else odds.value}  # fmt: skip
    return scores


def drift(before: pd.DataFrame, after: pd.DataFrame) -> float | None:
    """The largest total variation between a column before and after; None where the release has other columns."""
    if list(before) != list(after):
        return None
    old, new = codes(before, after)
    return max(float(np.abs(np.bincount(a.astype(int), minlength=60) / len(a) -
                            np.bincount(b.astype(int), minlength=60) / len(b)).sum() / 2)
               for a, b in zip(old.T, new.T, strict=True))  # fmt: skip


def judge_tables(tables: Mapping[str, pd.DataFrame], table: Table, seed: int, tries: int) -> dict[str, Any]:
    """Everything that is measured of a release."""
    parts = table.parts
    judged = {part: (tables[part], parts[part].group) for part in PARTS}
    fitted = attack(*judged["fit"], {part: judged[part] for part in ("new", "test")}, seed=seed, tries=tries)
    new = attack(*judged["new"], {"test": judged["test"]}, seed=seed, tries=tries)
    made, chosen = learn_task(tables, parts["fit"].truth, seed)
    unnamed = {}
    for name, truth in table.unnamed.items():
        other, family = learn_task(tables, truth["fit"], seed, ["LightGBM"])
        unnamed[name] = float((other[family]["test"] == truth["test"]).mean())
    return {
        "attack": {"auc": max(fitted["test"], new["test"]), "choose auc": fitted["new"], "from fitted": fitted["test"],
                   "from new": new["test"], "by": fitted["by"] if fitted["test"] >= new["test"] else new["by"]},
        "task": {"family": chosen, **task_scores(made[chosen], parts)},
        "families": {name: task_scores(guess, parts) for name, guess in made.items()},
        "unnamed": unnamed,
        "drift": drift(parts["test"].X, tables["test"]),
    }  # fmt: skip


def battery(tables: Mapping[str, pd.DataFrame], table: Table) -> dict[str, Any]:
    """The strongest attacker of a quick audit, which learns from fitted rows and is chosen on new ones."""
    result = fv.audit(
        pd.concat([tables[part] for part in PARTS], ignore_index=True),
        np.concatenate([table.parts[part].group for part in PARTS]),
        split=np.repeat(["train", "validation", "test"], [len(tables[part]) for part in PARTS]), verbose=False,
    )  # fmt: skip
    strongest = result.attacks.sort_values("auc").iloc[-1]
    return {"auc": float(strongest["auc"]), "by": f"{strongest['attacker']}, {strongest['view']}",
            "valid": bool(result.valid)}  # fmt: skip


def _divide(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from and to choose by."""
    order = np.random.default_rng(seed + 101).permutation(rows)
    held = int(_VALIDATION * rows)
    return np.sort(order[held:]), np.sort(order[:held])
