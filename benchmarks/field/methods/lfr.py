"""LFR: Zemel et al., Learning fair representations (2013), by AIF360, for two groups. It is given S."""

from collections.abc import Iterator

import numpy as np

from field.coding import Vectors
from field.protocol import Fitted, Method, Output, Rows, vectors

#: It learns from this many rows: on all of them it takes many minutes.
SOME_ROWS = 1500


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    import pandas as pd
    from aif360.algorithms.preprocessing import LFR
    from aif360.datasets import BinaryLabelDataset

    coder, label = Vectors(train.X), np.unique(train.group)[1]
    some = np.random.default_rng(seed).permutation(len(train))[:SOME_ROWS]

    def wrapped(rows: Rows, index: np.ndarray) -> BinaryLabelDataset:
        x = coder(rows.X)[index]
        y = np.zeros(len(index)) if rows.y is None else rows.y[index]
        table = pd.DataFrame(x).rename(columns=str).assign(S=(rows.group[index] == label) * 1.0, y=y)
        return BinaryLabelDataset(df=table, label_names=["y"], protected_attribute_names=["S"])

    for fairness in (10.0, 50.0):
        model = LFR([{"S": 0}], [{"S": 1}], k=10, Ax=0.01, Ay=1.0, Az=fairness, seed=seed)
        model.fit(wrapped(train, some), maxiter=1000, maxfun=5000)

        def apply(rows: Rows, model: LFR = model) -> Output:
            made = model.transform(wrapped(rows, np.arange(len(rows))))
            return vectors(np.delete(made.features, made.feature_names.index("S"), axis=1))

        yield Fitted(f"Az {fairness:g}", apply)


METHODS = [Method("LFR", fit, "AIF360", told=True, sees=True, two=True, needs=("aif360",))]
