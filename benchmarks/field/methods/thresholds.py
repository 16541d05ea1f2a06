"""ThresholdOptimizer (Hardt et al. 2016; fairlearn): a boosted model that sees S, and thresholds for each group."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from field.coding import Vectors
from field.protocol import Fitted, Method, Output, Rows


def with_sensitive(rows: Rows) -> pd.DataFrame:
    """X beside S."""
    assert rows.S is not None
    return rows.X.join(rows.S.add_prefix("S "))


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    from fairlearn.postprocessing import ThresholdOptimizer
    from lightgbm import LGBMClassifier

    whole = with_sensitive(train)
    coder = Vectors(whole)
    x, learn = coder(whole), np.random.default_rng(seed).random(len(train)) < 0.7
    model = LGBMClassifier(n_estimators=100, learning_rate=0.06, num_leaves=15, n_jobs=0, verbose=-1)
    model.fit(x[learn], train.truth[learn])
    for slack in (0.0, 0.02, 0.05, 0.1):
        post = ThresholdOptimizer(estimator=model, constraints="demographic_parity", prefit=True, tol=slack or None,
                                  predict_method="predict_proba")  # fmt: skip
        post.fit(x[~learn], train.truth[~learn], sensitive_features=train.group[~learn])

        def apply(rows: Rows, post: ThresholdOptimizer = post) -> Output:
            guess = post.predict(coder(with_sensitive(rows)), sensitive_features=rows.group, random_state=seed)
            return Output(predicted=np.asarray(guess).astype(int))

        yield Fitted(f"slack {slack:g}", apply)


METHODS = [Method("ThresholdOptimizer", fit, "fairlearn", told=True, sees=True, needs=("fairlearn",))]
