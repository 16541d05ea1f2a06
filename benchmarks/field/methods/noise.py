"""Laplace and Gaussian noise, by this package's mechanisms."""

from collections.abc import Callable, Iterator

import pandas as pd

from fairveil.baselines.noise import GaussianNoise, LaplaceNoise, NoiseTransformer
from fairveil.data.schema import Schema
from field.protocol import Fitted, Method, Output, Rows


def mechanism(kind: type[NoiseTransformer]) -> Callable[[Rows, int], Iterator[Fitted]]:
    def fit(train: Rows, seed: int) -> Iterator[Fitted]:
        schema = Schema.infer(train.X, fewest=1)
        for budget in (1.0, 4.0):
            one = kind(budget, schema=schema, random_state=seed).fit(train.X)
            yield Fitted(f"distortion {budget:g}", lambda rows, one=one: Output(one.transform(known(rows.X, train.X))))

    return fit


def known(X: pd.DataFrame, train: pd.DataFrame) -> pd.DataFrame:
    """Rows whose categories all occur in training: others become the most frequent one."""
    text = [name for name in X if name not in set(X.select_dtypes("number"))]
    return X.assign(**{name: X[name].where(X[name].isin(set(train[name])), train[name].mode()[0]) for name in text})


METHODS = [Method("Laplace noise", mechanism(LaplaceNoise), "this package"),
           Method("Gaussian noise", mechanism(GaussianNoise), "this package")]  # fmt: skip
