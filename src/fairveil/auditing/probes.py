"""A fresh model is trained on released training rows and scored once on released test rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairveil._utils.errors import InputError
from fairveil.metrics import Estimate, accuracy, demographic_parity_gap, roc_auc, weighted_auc

_SETTINGS: dict[str, Any] = {
    "n_estimators": 200,
    "learning_rate": 0.08,
    "num_leaves": 31,
    "verbose": -1,
    "n_jobs": 0,  # what OMP_NUM_THREADS says; by default LightGBM ignores it
    "deterministic": True,
    "force_row_wise": True,
}


_FEWEST_OF_A_CLASS = 20
#: With more training rows, trees are not compared with a linear model: they no longer overfit.
_FEW_ROWS = 20_000


@dataclass(frozen=True)
class Probe:
    """The scores of a newly trained model on a release.

    majority: the share of the most frequent class among the test rows, the accuracy of guessing. auc: for two classes
    only. mean_auc: one class against the others, averaged with the shares of the classes; for two classes, the AUC;
    None if the test rows hold one class only. gap: ΔDemP of the predictions between the groups, if given.
    """

    accuracy: Estimate
    majority: float
    auc: Estimate | None
    mean_auc: Estimate | None
    gap: Estimate | None
    predicted: np.ndarray


def probe(
    train: pd.DataFrame,
    train_truth: Any,
    test: pd.DataFrame,
    test_truth: Any,
    *,
    groups: Any = None,
    seed: int = 0,
    linear: bool = False,
    draws: int = 1,
) -> Probe:
    """Fit 200 trees of 31 leaves on the training rows and score them on the test rows.

    linear: in small tables, where such trees overfit, use a logistic regression instead if it has the smaller log-loss
    on a fifth of the training rows. draws: how many draws of the same rows follow one another in `train`.

    Classes with fewer than 20 training rows are not predicted: no leaf could hold them, and a booster that includes
    them ends below the majority rate. Their test rows count as errors.
    """
    if len(train) != len(train_truth) or len(test) != len(test_truth):
        raise InputError("Each release needs as many rows as its truth.")
    labels = pd.Series(np.asarray(train_truth))
    learnable = labels.map(labels.value_counts()).to_numpy() >= _FEWEST_OF_A_CLASS
    if labels[learnable].nunique() < 2:
        raise InputError(f"A probe needs two classes of at least {_FEWEST_OF_A_CLASS} training rows.")
    names, coded = np.unique(labels[learnable], return_inverse=True)
    truth = pd.Series(np.asarray(test_truth))
    known = {name: code for code, name in enumerate(names.tolist())}
    expected = truth.map(known).fillna(-1).astype(int).to_numpy()
    seen_train, seen_test = _one_hot(train, test)
    model = _chosen(seen_train[learnable], coded, seed, draws) if linear else _trees(seed)
    model.fit(seen_train[learnable], coded)
    scores = np.asarray(model.predict_proba(seen_test))
    predicted = scores.argmax(axis=1)
    known_test = expected >= 0
    return Probe(
        accuracy(predicted, expected),
        float(truth.value_counts(normalize=True).iloc[0]),
        roc_auc(scores[:, 1], expected == 1) if len(names) == 2 else None,
        weighted_auc(scores[known_test], expected[known_test]) if len(set(expected[known_test])) > 1 else None,
        None if groups is None else demographic_parity_gap(names[predicted], np.asarray(groups)).largest(),
        names[predicted],
    )


def _trees(seed: int) -> Any:
    import lightgbm

    return lightgbm.LGBMClassifier(**_SETTINGS, random_state=seed)


def _chosen(x: np.ndarray, codes: np.ndarray, seed: int, draws: int) -> Any:
    """Trees or a logistic regression: the one that, trained on the other rows, predicts a fifth of them better."""
    from sklearn.metrics import log_loss

    if len(x) > _FEW_ROWS:
        return _trees(seed)
    # All draws of a row are on one side: otherwise a model that memorises rows would look best.
    own = np.tile(np.random.default_rng(seed).permutation(len(x) // draws), draws)
    test, train = np.flatnonzero(own < len(x) // draws // 5), np.flatnonzero(own >= len(x) // draws // 5)
    every = np.arange(int(codes.max()) + 1)
    if len(np.unique(codes[train])) < len(every):
        return _trees(seed)
    losses = {}
    for name, model in {"trees": _trees(seed), "linear": _linear()}.items():
        shares = model.fit(x[train], codes[train]).predict_proba(x[test])
        losses[name] = log_loss(codes[test], shares, labels=every)
    return _linear() if losses["linear"] < losses["trees"] else _trees(seed)


def _linear() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))


def _one_hot(train: pd.DataFrame, test: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Both tables as numbers: text columns one-hot over the categories of both, numbers unchanged."""
    both = pd.concat([train, test], ignore_index=True)
    coded = pd.get_dummies(both, columns=list(both.select_dtypes(exclude="number").columns), dtype=np.float32)
    array = coded.to_numpy(dtype=np.float64)
    return array[: len(train)], array[len(train) :]
