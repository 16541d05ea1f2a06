"""Bad inputs, each with its own clear error that names what is wrong and shows no value of the data."""

import math

import numpy as np
import pandas as pd
import pytest

import fairveil as fv
from fairveil import FairEncoder, FairFrontier, InputError, Schema, Training
from helpers import QUICK, people

X, S, Y = people(200)
SEX = S["sex"]


def fit(X=X, y=None, sensitive=SEX, **settings):
    settings = {"budget": 1e6, "training": QUICK, "verbose": False, "random_state": 0, **settings}
    return FairEncoder(**settings).fit(X, y, sensitive_features=sensitive)


def duplicated():
    frame = X.copy()
    frame.columns = ["role", "town", "skill", "role"]
    return frame


def renamed():
    frame = X.copy()
    frame.columns = [0, 1, 2, 3]
    return frame


TABLES = {
    "empty frame": (lambda: X[:0], "0 sample"),
    "no columns": (lambda: X[[]], "0 feature"),
    "one row": (lambda: X[:1], "n_samples = 1"),
    "nine rows": (lambda: X[:9], "at least 10"),
    "duplicate names": (duplicated, "'role' occurs 2 times"),
    "names that are no strings": (renamed, "Column names must be strings"),
    "all missing": (lambda: X.assign(town=None), "'town' holds no values"),
    "infinity": (lambda: X.assign(height=np.inf), "'height' holds infinity"),
    "strings among numbers": (lambda: X.assign(height=[1.5, "tall"] * 100), "'height' mixes types"),
    "bytes": (lambda: X.assign(town=[b"x"] * 200), "'town' has the type binary"),
    "objects": (lambda: X.assign(town=[{"a": 1}] * 200), "'town' has the type struct"),
    "lists": (lambda: X.assign(town=[[1, 2]] * 200), "'town' has the type list"),
    "huge numbers": (lambda: X.assign(height=np.linspace(0, 1e18, 200)), "identifier"),
    "a one-dimensional array": (lambda: np.arange(200.0), "2D array"),
    "a five-dimensional array": (lambda: np.zeros((200, 2, 2, 2, 2)), "dim"),
    "images of two channels": (lambda: np.zeros((200, 4, 4, 2)), "1 or 3 channels"),
    "complex numbers": (lambda: np.zeros((200, 2), dtype=complex), "Complex data not supported"),
    "no table": (lambda: "adult.csv", "2D|array"),
    "none": (lambda: None, "array|NoneType"),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables(case):
    make, message = TABLES[case]
    table = make()
    sensitive = SEX[: len(table)] if hasattr(table, "__len__") and not isinstance(table, str) else SEX
    with pytest.raises((InputError, ValueError, TypeError), match=message):
        fit(table, sensitive=sensitive)


def test_identifiers():
    many, secret, _ = people(700)
    with pytest.raises(InputError, match="'name' has 700 distinct values"):
        fit(many.assign(name=[f"person{i}" for i in range(700)]), sensitive=secret["sex"])


def test_several_problems_are_told_at_once():
    bad = X.assign(town=None, height=np.inf, born=[[2000]] * 200)
    with pytest.raises(InputError) as caught:
        fit(bad)
    assert len(caught.value.problems) == 3


SECRETS = {
    "absent": (None, "S is missing"),
    "wrong length": (SEX[:-3], "X has 200 rows, sensitive_features 197"),
    "one class": (["f"] * 200, "a single value"),
    "all missing": (pd.Series([None] * 200, dtype="str"), "holds no values"),
    "no columns": (pd.DataFrame(index=range(200)), "no columns|0"),
    "equal to a column of X": (X["role"], "'role' of X is the sensitive column"),
    "a column of X by other names": (
        X["role"].map({"wife": 0, "husband": 1, "other": 2}),
        "'role' of X is the sensitive",
    ),
    "infinity": (pd.Series([1.0, np.inf] * 100), "infinity"),
    "objects": (pd.Series([{"a": 1}, {"a": 2}] * 100), "which is not a class"),
    "a series of mixed types": (pd.Series([1.5, "tall"] * 100), "'sensitive' mixes types"),
    "three dimensions": (np.zeros((200, 1, 1)), "3 dimensions"),
    "mixed types": (np.array(["f", 1] * 100, dtype=object), "mixes types|string or a number|sensitive"),
}


def test_names_are_no_groups():
    many, _, _ = people(600)
    with pytest.raises(InputError, match="has 600 distinct values"):
        fit(many, sensitive=[f"name{i}" for i in range(600)])


@pytest.mark.parametrize("case", SECRETS)
def test_sensitive_features(case):
    secret, message = SECRETS[case]
    with pytest.raises((InputError, TypeError), match=message) as caught:
        fit(sensitive=secret)
    assert "tall" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        (SEX, "needs numbers"),
        (pd.Series([np.nan] * 200), "holds no values"),
        (pd.Series([1.0, np.inf] * 100), "infinity"),
        (pd.Series([1.0] * 200), "nothing to hide"),
    ],
)
def test_squared_loss_needs_a_number(secret, message):
    with pytest.raises(InputError, match=message):
        fit(sensitive=secret, loss="squared")


PARAMETERS = {
    "negative budget": ({"budget": -1.0}, "'budget'"),
    "zero budget": ({"budget": 0}, "'budget'"),
    "NaN budget": ({"budget": math.nan}, "'budget'"),
    "infinite budget": ({"budget": math.inf}, "'budget'"),
    "budget as text": ({"budget": "1"}, "'budget'"),
    "budget true": ({"budget": True}, "'budget'"),
    "budget of an unknown kind": ({"budget": {"text": 1.0}}, "categorical and continuous"),
    "budget of one kind only": ({"budget": {"categorical": 1.0}}, "categorical and continuous"),
    "negative budget of a kind": ({"budget": {"categorical": -1.0, "continuous": 1.0}}, "'budget'"),
    "unknown architecture": ({"architecture": "transformer"}, "'architecture'"),
    "matrix on numbers": ({"architecture": "matrix"}, "categorical columns only"),
    "gaussian on categories": ({"architecture": "gaussian"}, "columns of numbers"),
    "unknown loss": ({"loss": "hinge"}, "'loss'"),
    "unknown distortion": ({"distortion": "cosine"}, "'distortion'"),
    "hamming on numbers": ({"distortion": "hamming"}, "not defined for numbers"),
    "budgets by kind for one's own distortion": (
        {"budget": {"categorical": 9.0, "continuous": 9.0}, "distortion": lambda a, b: (a - b).abs().sum(-1)},
        "one number",
    ),
    "unknown constraint": ({"constraint": "barrier"}, "'constraint'"),
    "unknown release": ({"release": "raw"}, "'release'"),
    "unknown device": ({"training": Training(device="tpu")}, "'device'"),
    "absent device": ({"training": Training(device="cuda")}, "not available"),
    "bad random state": ({"random_state": "seed"}, "'random_state'"),
    "negative random state": ({"random_state": -1}, "'random_state'"),
    "bad confidence": ({"confidence": 95}, "'confidence'"),
    "unknown handle_unknown": ({"handle_unknown": "ignore"}, "'handle_unknown'"),
    "schema of another kind": ({"schema": {"columns": []}}, "'schema'"),
    "training of another kind": ({"training": {"steps": 3}}, "'training'"),
    "negative target weight": ({"target_weight": -1.0}, "'target_weight'"),
    "y absent with a target weight": ({"target_weight": 1.0}, "task must be given"),
    "unknown sensitive column": ({"sensitive_columns": ["age"], "sensitive": None}, "no such column"),
    "sensitive position out of range": ({"sensitive_columns": [9], "sensitive": None}, "no such column"),
    "checkpoint without a seed": (
        {"training": Training(checkpoint="state"), "random_state": None},
        "random_state to be a whole number",
    ),
    "a frame as budget": ({"budget": X}, "Got a DataFrame instead"),
    "S given twice": ({"sensitive_columns": ["role"]}, "Give S once"),
    "schema for another table": ({"schema": Schema.infer(X[["role", "town"]])}, "not in the schema"),
    "nothing to encode": ({"schema": Schema.infer(X, drop=list(X.columns))}, "no column to encode"),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters(case):
    settings, message = PARAMETERS[case]
    if case == "absent device" and __import__("torch").cuda.is_available():
        settings = {"training": Training(device="mps")}
    with pytest.raises(InputError, match=message):
        fit(**settings)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Y[:-1], "y 199"),
        (pd.Series([1] * 200), "a single value"),
        (pd.Series([1.0, None] * 100), "missing values"),
        (pd.Series([1.0, np.inf] * 100), "infinity"),
    ],
)
def test_targets(target, message):
    with pytest.raises(InputError, match=message):
        fit(y=target, target_weight=1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budgets": []}, "'budgets'"),
        ({"budgets": 1.0}, "'budgets'"),
        ({"budgets": [1.0, -1.0]}, "'budget'"),
        ({"budgets": [1.0, 1.0]}, "twice"),
        ({"budgets": [1.0, {"categorical": 1.0, "continuous": 1.0}]}, "the same form"),
        ({"budgets": [50.0], "n_seeds": 0}, "'n_seeds'"),
        ({"estimator": fv.Quantiser()}, "'estimator'"),
    ],
)
def test_frontiers(settings, message):
    estimator = FairEncoder(training=QUICK, verbose=False, random_state=0)
    with pytest.raises(InputError, match=message):
        FairFrontier(**{"estimator": estimator, **settings}).fit(X, sensitive_features=SEX)


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 0},
        {"batch_size": 2.5},
        {"learning_rate": -1.0},
        {"average": 1.0},
        {"validation": 0.6, "held_out": 0.5},
        {"adversary_hidden": ()},
        {"restarts": -1},
    ],
)
def test_training_settings(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        Training(**settings)


@pytest.fixture(scope="module")
def fitted():
    return fit()


TRANSFORMS = {
    "missing column": (lambda: X.drop(columns="town"), "town"),
    "extra column": (lambda: X.assign(more=1), "more"),
    "other order": (lambda: X[X.columns[::-1]], "order"),
    "unseen category": (lambda: X.assign(role="uncle"), "'role' holds categories that the veil has not seen"),
    "new missing values": (lambda: X.assign(role=None), "'role' has missing values"),
    "changed type": (lambda: X.assign(skill=X["skill"].astype(str)), "'skill' holds string values"),
    "off the grid": (lambda: X.assign(skill=2.5), "'skill' holds numbers off its grid"),
    "infinity": (lambda: X.assign(height=-np.inf), "'height' holds infinity"),
    "no rows": (lambda: X[:0], "0 sample"),
    "an array of too few columns": (lambda: X.to_numpy()[:, :3], "3 features"),
}


@pytest.mark.parametrize("case", TRANSFORMS)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_transform(case, fitted):
    make, message = TRANSFORMS[case]
    with pytest.raises((InputError, ValueError, TypeError), match=message) as caught:
        fitted.transform(make())
    assert "uncle" not in str(caught.value)


def test_the_list_is_long_enough():
    assert len(TABLES) + len(SECRETS) + len(PARAMETERS) + len(TRANSFORMS) >= 40


def test_not_fitted():
    with pytest.raises(Exception, match="not fitted"):
        FairEncoder().transform(X)


def test_errors_are_exported():
    assert issubclass(fv.InputError, ValueError)
    assert issubclass(fv.BudgetNotMet, RuntimeError)
