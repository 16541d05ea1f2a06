"""Reweighing: Kamiran and Calders, Data preprocessing techniques for classification without discrimination (2012).

Each row counts P(s) P(y) / P(s, y): under these weights S and the label are independent. A boosted model learns from
them; it does not see S.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from field.coding import Vectors
from field.protocol import Fitted, Method, Output, Rows


def row_weights(group: np.ndarray, y: np.ndarray) -> np.ndarray:
    """P(s) P(y) / P(s, y) of each row."""
    joint = pd.crosstab(group, y, normalize=True)
    expected = np.outer(joint.sum(axis=1), joint.sum(axis=0)) / joint.where(joint > 0)
    at = expected.index.get_indexer(group), expected.columns.get_indexer(y)
    return expected.to_numpy()[at]


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    from lightgbm import LGBMClassifier

    coder = Vectors(train.X)
    model = LGBMClassifier(n_estimators=100, learning_rate=0.06, num_leaves=15, n_jobs=0, verbose=-1)
    model.fit(coder(train.X), train.truth, sample_weight=row_weights(train.group, train.truth))
    yield Fitted("", lambda rows: Output(predicted=np.asarray(model.predict(coder(rows.X)))))


METHODS = [Method("reweighing", fit, "Kamiran and Calders 2012, written from the paper", told=True)]
