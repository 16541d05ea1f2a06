"""The methods of this package, with their defaults. The values of the trade-off are the same for every table."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import fairveil as fv
from field.protocol import Fitted, Method, Output, Rows

BUDGETS = (0.5, 1.0, 1.5, 2.5, 4.0)
CERTIFIED = (0.05, 0.1, 0.2)
#: The weight of the named task in the task-aware encoder, as in benchmarks/known_task.py.
TASK = 0.2
#: Bounds on a classifier's loss: shares of the way from the loss of a good model to that of guessing by the prior.
SHARES = (0.05, 0.15, 0.3, 0.5, 0.75)
_SETTINGS: dict[str, Any] = {"handle_unknown": "most_frequent", "unmet": "warn", "verbose": False}


def encoder(*, sees: bool, weight: float = 0.0) -> Callable[[Rows, int], Iterator[Fitted]]:
    def fit(train: Rows, seed: int) -> Iterator[Fitted]:
        one = fv.FairEncoder(sees_sensitive=sees, target_weight=weight, random_state=seed, **_SETTINGS)
        frontier = fv.FairFrontier(one, list(BUDGETS))
        frontier.fit(train.X, train.y if weight else None, sensitive_features=train.S)
        for budget in BUDGETS:
            yield Fitted(f"budget {budget:g}", _applied(frontier.at(budget), sees))

    return fit


def _applied(fitted: fv.FairEncoder, sees: bool) -> Callable[[Rows], Output]:
    return lambda rows: Output(fitted.transform(rows.X, sensitive_features=rows.S if sees else None))


def certified(train: Rows, seed: int) -> Iterator[Fitted]:
    for bound in CERTIFIED:
        one = fv.FairEncoder(certified=bound, sees_sensitive=True, random_state=seed,
                             **{**_SETTINGS, "unmet": "raise"})  # fmt: skip
        try:
            one.fit(train.X, sensitive_features=train.S)
        except fv.CertificateNotMet as error:
            warnings.warn(f"{bound:g} is not certified: {error}", stacklevel=2)
            continue
        yield Fitted(f"certified {bound:g}", _applied(one, True), one.certificate_.bound)


def exchange(*, told: bool) -> Callable[[Rows, int], Iterator[Fitted]]:
    """Rows exchange records among themselves. Of a known task, the labels of the fitted rows only are given."""

    def fit(train: Rows, seed: int) -> Iterator[Fitted]:
        for bound in (0.0, 0.1, 0.2, 0.4):

            def apply(rows: Rows, bound: float = bound) -> Output:
                assert rows.S is not None
                assert train.S is not None
                given: dict[str, Any] = {"certified": bound, "random_state": seed, "verbose": False}
                if not told:
                    return Output(fv.exchange(rows.X, sensitive_features=rows.S, **given)[0])
                X, S = (pd.concat(pair, ignore_index=True) for pair in ((train.X, rows.X), (train.S, rows.S)))
                late = np.arange(len(X)) >= len(train)
                labels = pd.Series([*train.truth.tolist(), *[None] * len(rows)], dtype=object)
                released, _ = fv.exchange(X, sensitive_features=S, targets={"task": labels}, within=late, **given)
                return Output(released[late].reset_index(drop=True))

            yield Fitted(f"certified {bound:g}", apply, bound)

    return fit


def classifier(*, sees: bool) -> Callable[[Rows, int], Iterator[Fitted]]:
    def fit(train: Rows, seed: int) -> Iterator[Fitted]:
        best, prior = _losses(train, sees)
        bounds = [round(best + share * (prior - best), 4) for share in SHARES]
        one = fv.FairClassifier(balanced=True, sees_sensitive=sees, random_state=seed, **_SETTINGS)
        frontier = fv.FairFrontier(one, bounds).fit(train.X, train.y, sensitive_features=train.S)
        for bound, share in zip(bounds, SHARES, strict=True):
            model = frontier.at(bound)

            def apply(rows: Rows, model: fv.FairClassifier = model) -> Output:
                return Output(predicted=model.predict(rows.X, sensitive_features=rows.S if sees else None))

            yield Fitted(f"loss {share:g}", apply)

    return fit


def _losses(train: Rows, sees: bool) -> tuple[float, float]:
    """Log-loss of a boosted model on a fifth of the training rows, and of guessing by the prior."""
    from lightgbm import LGBMClassifier
    from sklearn.metrics import log_loss

    from field.coding import Vectors

    assert train.S is not None
    X = train.X.join(train.S.add_prefix("S ")) if sees else train.X
    x, y = Vectors(X)(X), train.truth
    held = np.arange(len(y)) % 5 == 0
    model = LGBMClassifier(n_estimators=100, learning_rate=0.05, num_leaves=15, n_jobs=0, verbose=-1).fit(
        x[~held], y[~held]
    )
    return log_loss(y[held], model.predict_proba(x[held])), log_loss(y, np.full(len(y), y.mean()))


_SOURCE = "this package"
METHODS = [
    Method("universal", encoder(sees=True), _SOURCE, sees=True, ours=True),
    Method("universal, S unseen", encoder(sees=False), _SOURCE, ours=True),
    Method("task-aware", encoder(sees=True, weight=TASK), _SOURCE, told=True, sees=True, ours=True),
    Method("certified", certified, _SOURCE, sees=True, ours=True),
    Method("exchange", exchange(told=False), _SOURCE, sees=True, ours=True),
    Method("exchange, task told", exchange(told=True), _SOURCE, told=True, sees=True, ours=True),
    Method("classifier", classifier(sees=False), _SOURCE, told=True, ours=True),
    Method("classifier, S seen", classifier(sees=True), _SOURCE, told=True, sees=True, ours=True),
]
