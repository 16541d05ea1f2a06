"""What each part of the game is worth on UCI Adult, case I, judged on validation rows. `make ablation`.

python benchmarks/ablation.py                 all variants
python benchmarks/ablation.py NAME [NAME...]  some of them

Test rows are never touched: encoders are fitted on 80 % of the training rows, fresh LightGBM models learn from the
release of those and are scored on four releases of the other 20 %. Those are 6,512 rows: an AUC is good to about 0.007,
a salary accuracy to 0.4 %, ΔDemP to 0.01 (one standard error; less between variants, which share the rows).
"""

import argparse
import time
from dataclasses import replace

import numpy as np
import pandas as pd

from fairveil import FairFrontier, Training
from fairveil.auditing import probe
from fairveil.datasets import load_adult

BUDGETS = (0.8, 1.2, 1.7, 2.4)
DRAWS = 4
DEFAULT = Training()
VARIANTS: dict[str, dict] = {
    "default": {},
    "twice the steps": {"steps": 2000},
    "adversaries: no dropout": {"adversary_dropout": 0.0},
    "adversaries: dropout 0.3": {"adversary_dropout": 0.3},
    "adversaries: slower, dropout 0.2": {"adversary_learning_rate": 2e-3, "adversary_dropout": 0.2},
    "adversaries: decay 0.1": {"adversary_decay": 0.1},
    "adversaries: six steps": {"adversary_steps": 6},
    "adversaries: faster": {"adversary_learning_rate": 8e-3},
    "adversaries: small": {"adversary_hidden": ((64,), (64,)), "adversary_dropout": 0.3},
    "adversaries: wider": {"adversary_hidden": ((256, 256), (512,))},
    "adversaries: one": {"adversary_hidden": ((128, 128),)},
    "encoder: wider": {"hidden": (256, 256)},
    "encoder: slower": {"learning_rate": 2e-3},
    "batch 2048": {"batch_size": 2048},
    "restarts": {"restarts": 4},
}


def row(name: str, changes: dict, seed: int = 0) -> list[dict]:
    train, _ = load_adult("I")
    order = np.random.default_rng(0).permutation(len(train))
    judge, fit = np.sort(order[: len(order) // 5]), np.sort(order[len(order) // 5 :])
    parts = [(train.X.iloc[i], train.S.iloc[i], train.targets["salary"].iloc[i]) for i in (fit, judge)]
    start = time.monotonic()
    settings = {k: v for k, v in changes.items() if k in Training.__dataclass_fields__}
    others = {k: v for k, v in changes.items() if k not in settings}
    frontier = FairFrontier(BUDGETS, sees_sensitive=True, training=replace(DEFAULT, **settings), random_state=seed,
                            progress=False, unseen="most_frequent", **others)  # fmt: skip
    frontier.fit(parts[0][0], sensitive_features=parts[0][1])
    seconds = time.monotonic() - start
    found = []
    for budget in frontier.points_.loc[frontier.points_["met"], "budget"]:
        encoder = frontier.encoder(budget)
        (a, s, y), (b, t, z) = parts
        a = encoder.transform(a, sensitive_features=s)
        b = pd.concat([encoder.transform(b, sensitive_features=t) for _ in range(DRAWS)])
        t, z = pd.concat([t] * DRAWS), pd.concat([z] * DRAWS)
        sex, salary = probe(a, s["sex"], b, t["sex"]), probe(a, y, b, z, groups=t["sex"])
        found.append({"variant": name, "budget": budget, "spent": encoder.distortion_.mean, "sex AUC": sex.auc.value,
                      "salary": salary.accuracy.value, "ΔDemP": salary.gap.value, "seconds": seconds})  # fmt: skip
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"any of: {', '.join(VARIANTS)}")
    for variant in parser.parse_args().names or list(VARIANTS):
        print(pd.DataFrame(row(variant, VARIANTS[variant])).round(4).to_string(index=False), flush=True)
