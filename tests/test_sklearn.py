"""The scikit-learn contract, on real (tiny) training."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairveil import ClippedWarning, FairEncoder, FairFrontier, Quantiser, Training
from fairveil.baselines.noise import GaussianNoise, LaplaceNoise
from helpers import QUICK, people

TINY = Training(steps=2, batch_size=16, adversary_steps=1, adversary_hidden=((4,),), rounds=1)
# The first column of whatever the checks pass is the sensitive one, and it is a number: hence squared loss. They pass
# as few as ten rows, which verify no budget, so the budget is one that no release can exceed.
ESTIMATORS = [
    FairEncoder(1e9, sensitive_columns=[0], loss="squared", training=TINY, verbose=False, random_state=0),
    FairFrontier(
        FairEncoder(sensitive_columns=[0], loss="squared", training=TINY, verbose=False, random_state=0), [1e8, 1e9]
    ),
    LaplaceNoise(random_state=0),
    Quantiser(4, min_rows_per_cell=1, random_state=0),
    GaussianNoise(random_state=0),
]


def expected_failures(estimator):
    if not isinstance(estimator, (FairEncoder, FairFrontier)):
        return {}
    return {
        "check_sample_weights_pandas_series": "a frame is given back by the names of its columns, which must be texts",
        "check_sample_weight_equivalence_on_dense_data": "holds for the means that a random training minimises "
        "(tests/test_weights.py), not for its draws",
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore::fairveil.ClippedWarning")
def test_estimator_checks(estimator, check):
    check(estimator)


def test_lazy_frames_are_collected(small):
    import polars as pl

    X, S, _ = small
    lazy = pl.from_pandas(X).lazy()
    fitted = encoder().fit(lazy, sensitive_features=pl.from_pandas(S[["sex"]]).lazy())
    released = fitted.transform(lazy)
    assert isinstance(released, pl.DataFrame)
    assert released.schema == lazy.collect_schema()


def encoder(**settings):
    return FairEncoder(**{"budget": 50.0, "training": QUICK, "verbose": False, "random_state": 0, **settings})


def test_clone_keeps_every_parameter(small):
    original = encoder(loss="zero_one", sees_sensitive=True, confidence=0.9)
    assert clone(original).get_params() == original.get_params()


def test_set_output(small):
    X, S, _ = small
    fitted = encoder().set_output(transform="polars").fit(X, sensitive_features=S["sex"])
    assert type(fitted.transform(X)).__module__.startswith("polars")
    array = np.random.default_rng(0).normal(size=(100, 2))
    wrapped = encoder(budget=1e6).set_output(transform="pandas").fit(array, sensitive_features=array[:, 0] > 0)
    assert list(wrapped.transform(array).columns) == ["x0", "x1"]


def test_pipeline_and_grid_search_with_metadata_routing():
    X, S, y = people(400)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(
            encoder(handle_unknown="most_frequent").set_fit_request(sensitive_features=True),
            OneHotEncoder(handle_unknown="ignore"),
            LogisticRegression(max_iter=200),
        )
        search = GridSearchCV(pipeline, {"fairencoder__budget": [40.0, 60.0]}, cv=2)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClippedWarning)
            search.fit(X, y, sensitive_features=S["sex"])
        assert set(search.cv_results_["param_fairencoder__budget"]) == {40.0, 60.0}
        assert len(search.predict(X)) == len(X)


def test_pipeline_with_an_encoder_that_sees_s():
    X, S, y = people(400)
    with sklearn.config_context(enable_metadata_routing=True):
        sees = encoder(sees_sensitive=True)
        sees.set_fit_request(sensitive_features=True).set_transform_request(sensitive_features=True)
        pipeline = make_pipeline(sees, OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=200))
        pipeline.fit(X, y, sensitive_features=S["sex"])
        assert len(pipeline.predict(X, sensitive_features=S["sex"])) == len(X)


def test_pipeline_without_routing_when_s_is_inside_x():
    X, S, y = people(400)
    both = X.assign(sex=S["sex"])
    pipeline = make_pipeline(
        encoder(sensitive_columns=["sex"]), OneHotEncoder(handle_unknown="ignore"), LogisticRegression()
    )
    assert len(pipeline.fit(both, y).predict(both)) == len(X)


def test_feature_names_in(small):
    X, S, _ = small
    fitted = encoder().fit(X, sensitive_features=S["sex"])
    assert fitted.feature_names_in_.tolist() == list(X.columns)
    assert fitted.n_features_in_ == X.shape[1]
    assert isinstance(fitted.transform(X), pd.DataFrame)


@pytest.mark.filterwarnings("ignore::fairveil.BudgetWarning", "ignore::fairveil.ClippedWarning")
def test_a_budget_that_few_rows_cannot_verify_does_not_end_a_cross_validation():
    X, S, y = people(160)
    with sklearn.config_context(enable_metadata_routing=True):
        chosen = encoder(budget=2.0, handle_unknown="most_frequent", unmet="warn")
        chosen = chosen.set_fit_request(sensitive_features=True)
        pipeline = make_pipeline(chosen, OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=200))
        scores = cross_val_score(pipeline, X, y, cv=3, params={"sensitive_features": S["sex"]}, error_score="raise")
    assert np.isfinite(scores).all()
    fitted = encoder(budget=2.0, unmet="warn").fit(X, sensitive_features=S["sex"])
    assert not fitted.distortion_.met  # it is fitted, and marked
