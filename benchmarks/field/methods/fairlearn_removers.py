"""fairlearn's CorrelationRemover, and its prototypes (Zemel et al. 2013, for any number of groups)."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from field.coding import Vectors
from field.protocol import Fitted, Method, Output, Rows, vectors

#: Prototypes learn from this many rows: on all of them they take many minutes.
SOME_ROWS = 1500


def correlation(train: Rows, seed: int) -> Iterator[Fitted]:
    """Sensitive columns are centred here: with two or more, fairlearn subtracts one common mean from all of them."""
    from fairlearn.preprocessing import CorrelationRemover

    coder, levels = Vectors(train.X), np.unique(train.group)[1:]
    centre = (train.group[:, None] == levels).mean(axis=0)

    def table(rows: Rows) -> pd.DataFrame:
        secret = (rows.group[:, None] == levels) - centre
        return pd.DataFrame(np.hstack([coder(rows.X), secret])).rename(columns=str)

    whole = table(train)
    names = list(whole)[-len(levels) :]
    for alpha in (0.5, 1.0):
        remover = CorrelationRemover(sensitive_feature_ids=names, alpha=alpha).fit(whole)
        yield Fitted(f"alpha {alpha:g}", lambda rows, remover=remover: vectors(remover.transform(table(rows))))


def prototypes(train: Rows, seed: int) -> Iterator[Fitted]:
    from fairlearn.preprocessing import PrototypeRepresentationLearner

    coder = Vectors(train.X)
    some = np.random.default_rng(seed).permutation(len(train))[:SOME_ROWS]
    x = coder(train.X)[some]
    for weight in (1.0, 20.0):
        learner = PrototypeRepresentationLearner(5, 0.01, 1.0, weight, random_state=seed, max_iter=40)
        learner.fit(x, train.truth[some], sensitive_features=train.group[some])

        def apply(rows: Rows, learner: PrototypeRepresentationLearner = learner) -> Output:
            return vectors(learner.transform(coder(rows.X)))

        yield Fitted(f"fairness {weight:g}", apply)


METHODS = [
    Method("CorrelationRemover", correlation, "fairlearn", sees=True, needs=("fairlearn",)),
    Method("prototypes", prototypes, "fairlearn", told=True, needs=("fairlearn",)),
]
