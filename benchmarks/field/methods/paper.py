"""The paper's own setting: soft vectors, the penalty method, a small adversary (`fairveil.paper.adult`)."""

from collections.abc import Iterator
from dataclasses import replace

import fairveil as fv
from fairveil.paper.adult import NETWORK, TRAINING
from field.protocol import Fitted, Method, Output, Rows


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    schema = fv.Schema.infer(train.X, scale="range", fewest=1)
    kinds = {"categorical": 1.0, "continuous": 0.05}
    numbers = set(train.X.select_dtypes("number"))
    kept = [name for name, used in (("categorical", set(train.X) - numbers), ("continuous", numbers)) if used]
    for nats in (1.0, 3.0):
        budget = {name: value for name, value in {**kinds, "categorical": nats}.items() if name in kept}
        one = fv.FairEncoder(budget, architecture=NETWORK, schema=schema, release="probabilities",
                             constraint="penalty", training=replace(TRAINING, steps=1000), random_state=seed,
                             handle_unknown="most_frequent", unmet="warn", verbose=False)  # fmt: skip
        one.fit(train.X, sensitive_features=train.S)
        yield Fitted(f"{nats:g} nats", lambda rows, one=one: Output(one.transform(rows.X)))


METHODS = [Method("the paper's setting", fit, "the paper, by its authors' settings", ours=False)]
