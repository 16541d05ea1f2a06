"""ExponentiatedGradient (Agarwal et al. 2018; fairlearn) over LightGBM: S in training only."""

from collections.abc import Iterator

import numpy as np

from field.coding import Vectors
from field.protocol import Fitted, Method, Output, Rows


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from lightgbm import LGBMClassifier

    coder = Vectors(train.X)
    x = coder(train.X)
    for bound in (0.01, 0.05):
        base = LGBMClassifier(n_estimators=60, learning_rate=0.1, num_leaves=15, n_jobs=0, verbose=-1)
        model = ExponentiatedGradient(base, DemographicParity(difference_bound=bound), max_iter=20)
        model.fit(x, train.truth, sensitive_features=train.group)

        def apply(rows: Rows, model: ExponentiatedGradient = model) -> Output:
            return Output(predicted=np.asarray(model.predict(coder(rows.X), random_state=seed)).astype(int))

        yield Fitted(f"bound {bound:g}", apply)


METHODS = [Method("ExponentiatedGradient", fit, "fairlearn", told=True, needs=("fairlearn",))]
