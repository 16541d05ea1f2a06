"""Where the frontier of transport ends, without any network.

Every row is released as the row of the reference group with which an exact matching pairs it: no mover, no gate, no
adversary. On validation rows of UCI Adult, as in `ablation.py`.

python benchmarks/matched.py    for matchings of several sizes, and with other prices of columns

Such a release tells of sex only what the two samples differ by. What it keeps of salary is a yardstick for encoders
that make one group look like the other row by row. It is no bound: a mover learns from many matchings.
"""

import numpy as np
import pandas as pd
import torch

from common import fit_and_judge
from fairveil.auditing import probe
from fairveil.data.frames import read_table
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Codec
from fairveil.datasets import load_adult
from fairveil.encoders.transport.coupling import couple
from fairveil.objectives import make_distortion
from variants import PRICES, priced

#: Matchings of the rows that judge: each row is released so many times, as there are few of them.
DRAWS = 3
NUMBERS = ("capital-gain", "capital-loss", "hours-per-week", "education-num")
ALL_PRICES: dict[str, dict[str, float]] = {
    "as they are": {},
    "numbers at twice the price": dict.fromkeys(NUMBERS, 2.0),
    "numbers at half price": dict.fromkeys(NUMBERS, 0.5),
    "race, country and class of work at a third": dict.fromkeys(("race", "native-country", "workclass"), 1 / 3),
    **PRICES,
}


def matched(prices: dict[str, float], size: int) -> dict[str, float]:
    train, _ = load_adult("I")
    schema = Schema.infer(train.X)
    x = Codec(schema).encode(read_table(train.X).arrow)
    secret = (train.S["sex"] == "Female").to_numpy().astype(int)
    plain = make_distortion("auto", schema.layout, "sampled")
    with priced(prices)():
        distortion = make_distortion("auto", schema.layout, "sampled")
    generator = np.random.default_rng(1)

    def released(rows: np.ndarray) -> tuple[np.ndarray, float]:
        """For each of the rows the one that is released for it, and the mean distortion at plain prices."""
        own, groups = x[rows], x[rows][:, schema.layout.grouped]

        def cost(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
            dear, fixed = distortion.prices(own[sources])
            return torch.addmm(fixed.unsqueeze(1), dear, groups[targets].T).numpy()

        pairs = couple(cost, secret[rows], generator, size=size, reference=0)
        shown = rows.copy()
        shown[pairs.sources] = rows[pairs.targets]
        dear, fixed = plain.prices(own[pairs.sources])
        return shown, float((fixed + (dear * groups[pairs.targets]).sum(dim=1)).sum()) / len(rows)

    fit, judge = fit_and_judge(len(train))
    learned, spent = released(fit)
    judged = np.concatenate([released(judge)[0] for _ in range(DRAWS)])
    true, learning, judging = np.tile(judge, DRAWS), train.X.iloc[learned], train.X.iloc[judged]
    sex, salary = train.S["sex"], train.targets["salary"]
    found = probe(learning, sex.iloc[fit], judging, sex.iloc[true])
    task = probe(learning, salary.iloc[fit], judging, salary.iloc[true], groups=sex.iloc[true])
    assert found.auc is not None
    return {"distortion": spent, "AUC": found.auc.value, "salary": task.accuracy.value, "ΔDemP": task.gap.value}


if __name__ == "__main__":
    rows = [{"prices": "as they are", "rows matched": size, **matched({}, size)} for size in (250, 500, 2000)]
    rows += [{"prices": name, "rows matched": 1000, **matched(prices, 1000)} for name, prices in ALL_PRICES.items()]
    print(pd.DataFrame(rows).round(4).to_string(index=False))
