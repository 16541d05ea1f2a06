"""What each part of the game is worth on UCI Adult, judged on validation rows. `make ablation`.

python benchmarks/ablation.py                 all variants
python benchmarks/ablation.py NAME [NAME...]  some of them [--seeds 2] [--budgets 1,1.1,1.2]
python benchmarks/ablation.py transport feedforward --case II    both columns hidden: 12 groups
python benchmarks/ablation.py NAME --halves   the encoder is fitted on half of the fitting rows; "AUC new": of LightGBM
                                              models that learn from the other half, "AUC": from the fitted one

Test rows are never touched: encoders are fitted on 80 % of the training rows, fresh LightGBM models learn from the
release of those and are scored on four releases of the other 20 %. Those are 6,512 rows: an AUC is good to about 0.007,
a salary accuracy to 0.4 %, ΔDemP to 0.01 (one standard error; less between variants, which share the rows).
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields, replace

import numpy as np
import pandas as pd

from common import fit_and_judge
from fairveil import FairEncoder, FairFrontier, Training
from fairveil.auditing import probe
from fairveil.datasets import load_adult
from fairveil.datasets.adult import Case
from fairveil.encoders import make_architecture
from fairveil.objectives import AlphaLoss
from variants import PLAYED, PRICES

DRAWS = 4
BUDGETS = (0.7, 1.1, 1.4, 1.8)
VARIANTS: dict[str, dict] = {
    "transport": {},
    "matchings: closeness only": {"shared_weight": 0.0},
    "matchings: shared scores weigh 25": {"shared_weight": 25.0},
    "matchings: of 1000 rows, eight times": {"matched_rows": 1000, "matchings": 8},
    "matchings: of 1000 rows, eight times, closeness only": {
        "matched_rows": 1000, "matchings": 8, "shared_weight": 0.0},
    "adversaries and encoder on different halves of the rows": {},
    "a game on rows that the mover has not seen": {},
    "dropout 0.4 of the mover": {},
    "toward one group": {"toward": "cheapest"},
    "minibatches of 1024, 1000 steps": {"batch_size": 1024, "steps": 1000},
    "three levels of columns": {"levels": 3},
    "whole records only": {"levels": 1},
    "no game: gates as they start": {"steps": 1},
    "five levels of columns": {"levels": 5},
    "pretraining: 500 steps": {"pretraining_steps": 500},
    "pretraining: 3000 steps": {"pretraining_steps": 3000},
    "matchings: of 200 rows": {"matched_rows": 200},
    "matchings: of 2000 rows": {"matched_rows": 2000},
    "three adversary steps": {"adversary_steps": 3},
    "two adversaries": {"adversary_hidden": ((128, 128), (256,))},
    "adversaries drawn anew three times": {"restarts": 3},
    "no average": {"average": 0.0},
    "no warm-up": {"warm_up": 0.0},
    "no spending": {"spending": 0.0},
    "wide adversary: 512-512": {"adversary_hidden": ((512, 512),)},
    "minibatches of 4096": {"batch_size": 4096},
    "gradient-penalised adversaries": {},
    "spectrally bounded adversaries": {},
    "kernel adversaries: 1024 random features": {"adversary_hidden": ((1024,),)},
    "extra-gradient, from the past": {},
    "warm starts along budgets": {},
    "gates of 256 hidden units": {},
    "2000 steps": {"steps": 2000},
    "ten times the weight decay of adversaries": {"adversary_decay": 3.0},
    "adversaries do not see half of the slots, decay 1": {"adversary_dropout": 0.5, "adversary_decay": 1.0},
    "alpha-loss, alpha 2": {"loss": AlphaLoss(2.0)},
    "alpha-loss, alpha 5": {"loss": AlphaLoss(5.0)},
    **{name: {} for name in PRICES},
    "kernel distance as a companion": {},
    "feedforward": {"architecture": "feedforward"},
    "feedforward: adversaries slower, dropout 0.2": {
        "architecture": "feedforward", "adversary_learning_rate": 2e-3, "adversary_dropout": 0.2},
    "feedforward: six adversary steps": {"architecture": "feedforward", "adversary_steps": 6},
}  # fmt: skip


def row(
    name: str, changes: dict, seed: int, budgets: Sequence[float], case: Case, *, halves: bool = False
) -> list[dict]:
    train, _ = load_adult(case)
    number = len(fit_and_judge(len(train))[0])
    fitted, new = (np.sort(part) for part in np.array_split(np.random.default_rng(seed).permutation(number), 2))
    fitted = fitted if halves else np.arange(number)
    parts = [(train.X.iloc[i], train.S.iloc[i], train.targets["salary"].iloc[i]) for i in fit_and_judge(len(train))]
    start = time.monotonic()
    architecture = make_architecture(changes.get("architecture", "transport"))
    own = {field.name for field in fields(architecture)}
    architecture = replace(architecture, **{name: value for name, value in changes.items() if name in own})
    settings = {name: value for name, value in changes.items() if name not in {*own, "architecture", "loss"}}
    training = Training(**{"pretraining_steps": 800, **settings})  # whatever the steps of the game
    frontier = FairFrontier(
        FairEncoder(
            architecture=architecture,
            sees_sensitive=True,
            training=training,
            loss=changes.get("loss", "log"),
            random_state=seed,
            verbose=False,
            handle_unknown="most_frequent",
        ),
        budgets,
    )
    with PLAYED.get(name, nullcontext)():
        frontier.fit(parts[0][0].iloc[fitted], sensitive_features=parts[0][1].iloc[fitted])
    seconds = time.monotonic() - start
    found = []
    for budget in frontier.points_.loc[frontier.points_["met"], "budget"]:
        encoder = frontier.at(budget).set_params(random_state=None)  # with a seed all draws would be the same
        (a, s, y), (b, t, z) = parts
        a = encoder.transform(a, sensitive_features=s)
        b = pd.concat([encoder.transform(b, sensitive_features=t) for _ in range(DRAWS)])
        t, z = pd.concat([t] * DRAWS), pd.concat([z] * DRAWS)
        salary = probe(a, y, b, z, groups=t["sex"])
        hidden, other = (probe(a.iloc[rows], joint(s.iloc[rows]), b, joint(t)) for rows in (fitted, new))
        found.append({"variant": name, "seed": seed, "budget": budget, "spent": encoder.distortion_.mean,
                      "S": hidden.accuracy.value, "AUC": hidden.auc.value if hidden.auc else None,
                      **({"AUC new": other.auc.value} if halves and other.auc else {}),
                      "salary": salary.accuracy.value, "ΔDemP": salary.gap.value, "seconds": seconds})  # fmt: skip
    return found


def joint(s: pd.DataFrame) -> pd.Series:
    return s.agg("|".join, axis=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"any of: {', '.join(VARIANTS)}")
    parser.add_argument("--seeds", type=int, default=1, help="how many of each")
    parser.add_argument("--case", choices=("I", "II"), default="I")
    parser.add_argument("--budgets", type=lambda text: tuple(float(part) for part in text.split(",")), default=BUDGETS)
    parser.add_argument(
        "--halves", action="store_true", help="attackers also learn from rows that are new to the encoder"
    )
    given = parser.parse_args()
    for variant in given.names or list(VARIANTS):
        for seed in range(given.seeds):
            found = pd.DataFrame(row(variant, VARIANTS[variant], seed, given.budgets, given.case, halves=given.halves))
            print(found.round(4).to_string(index=False), flush=True)
