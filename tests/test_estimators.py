"""The estimators on small tables: frames in and out, S in every form, tasks, reproducibility, files."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import fairveil as fv
from fairveil import FairEncoder, FairFrontier, Schema
from fairveil._utils.randomness import Seeds
from fairveil.data.frames import read_table
from fairveil.estimators.training import split_rows
from fairveil.objectives import make_distortion
from fairveil.objectives.released import ReleasedBatch
from fairveil.training.confidence_bound import DRAWS
from helpers import QUICK, people, rank_cost


def quick(budget=50.0, **settings):
    return FairEncoder(budget, **{"training": QUICK, "verbose": False, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def fitted(small):
    X, S, _ = small
    return quick().fit(X, sensitive_features=S["sex"])


def test_pandas_in_pandas_out(fitted, small):
    X = small[0].set_index(np.arange(len(small[0])) + 7)
    released = fitted.transform(X)
    assert isinstance(released, pd.DataFrame)
    assert list(released.columns) == list(X.columns)
    assert (released.dtypes == X.dtypes).all()
    assert released.index.equals(X.index)
    for name in ("role", "town"):
        assert set(released[name].dropna()) <= set(X[name].dropna())
    assert released["skill"].between(0, 9).all()
    assert not released.equals(X)


def test_polars_and_arrow_in_the_same_out(small):
    X, S, _ = small
    frame = pl.from_pandas(X)
    encoder = quick().fit(frame, sensitive_features=pl.Series("sex", S["sex"].to_list()))
    released = encoder.transform(frame)
    assert isinstance(released, pl.DataFrame)
    assert released.schema == frame.schema
    table = pa.Table.from_pandas(X, preserve_index=False).replace_schema_metadata()
    released = quick().fit(table, sensitive_features=pa.array(S["sex"])).transform(table)
    assert isinstance(released, pa.Table)
    assert released.schema.equals(table.schema)


def test_numpy_in_numpy_out():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 3)).astype(np.float32)
    released = quick(1e4).fit(X, sensitive_features=(X[:, 0] > 0)).transform(X)
    assert isinstance(released, np.ndarray)
    assert released.dtype == np.float32
    assert released.shape == X.shape


@pytest.mark.parametrize("form", [list, np.asarray, pd.Series, lambda v: pd.DataFrame({"sex": v})])
def test_sensitive_features_in_any_form(small, form):
    X, S, _ = small
    encoder = quick().fit(X, sensitive_features=form(S["sex"].to_list()))
    assert len(encoder.veil_.sensitive.joint) == 2


def test_several_sensitive_columns_are_hidden_jointly(small):
    X, S, _ = small
    encoder = quick(training=replace(QUICK, per_column_adversaries=True), sees_sensitive=True).fit(
        X, sensitive_features=S
    )
    assert len(encoder.veil_.sensitive.joint) == 6
    assert encoder.transform(X, sensitive_features=S).shape == X.shape
    strange = S.assign(region="space")
    with pytest.raises(fv.InputError, match="not seen"):
        encoder.transform(X, sensitive_features=strange)


def test_missing_values_of_s_are_a_class_of_their_own(small):
    X, S, _ = small
    holes = S["sex"].where(np.arange(len(S)) % 5 != 0)
    assert len(quick().fit(X, sensitive_features=holes).veil_.sensitive.joint) == 3


def test_continuous_s(small):
    X, _, _ = small
    encoder = quick(loss="squared", sees_sensitive=True)
    secret = X["height"] + np.random.default_rng(0).normal(size=len(X))
    released = encoder.fit(X, sensitive_features=secret).transform(X, sensitive_features=secret)
    assert released.shape == X.shape
    assert not encoder.veil_.sensitive.discrete


def test_missing_values_of_a_continuous_s_are_hidden_too(small):
    X, _, _ = small
    secret = (X["height"] * 2.0).where(np.arange(len(X)) % 4 != 0)
    assert quick(loss="squared").fit(X, sensitive_features=secret).veil_.sensitive.width == 3


def test_an_array_for_a_fitted_frame_is_read_by_position(small, fitted):
    X = small[0]
    with pytest.warns(UserWarning, match="valid feature names"):
        released = fitted.transform(X.to_numpy())
    pd.testing.assert_frame_equal(pd.DataFrame(released, columns=X.columns).astype(X.dtypes), fitted.transform(X))


def test_s_inside_x_is_not_released(small):
    X, S, _ = small
    both = X.assign(sex=S["sex"])
    for sees in (False, True):
        encoder = quick(sensitive_columns=["sex"], sees_sensitive=sees).fit(both)
        released = encoder.transform(both)
        assert list(released.columns) == list(X.columns)
        assert encoder.get_feature_names_out().tolist() == list(X.columns)


def test_sees_sensitive_needs_s_and_the_other_refuses_it(small, fitted):
    X, S, _ = small
    sees = quick(sees_sensitive=True).fit(X, sensitive_features=S["sex"])
    with pytest.raises(fv.InputError, match=r"transform\(X, sensitive_features=S\)"):
        sees.transform(X)
    with pytest.raises(fv.InputError, match="599"):
        sees.transform(X, sensitive_features=S["sex"][:-1])
    with pytest.raises(fv.InputError, match="S is not seen here"):
        fitted.transform(X, sensitive_features=S["sex"])


def test_the_papers_soft_release(small):
    X, S, _ = small
    encoder = quick(release="probabilities", constraint="penalty").fit(X, sensitive_features=S["sex"])
    released = encoder.transform(X)
    assert list(released.columns) == encoder.get_feature_names_out().tolist()
    role = [name for name in released.columns if name.startswith("role=")]
    np.testing.assert_allclose(released[role].sum(axis=1), 1.0, rtol=1e-5)


def test_budgets_by_kind_bound_each_kind(small):
    X, S, _ = small
    encoder = quick({"categorical": 3.0, "continuous": 40.0}).fit(X, sensitive_features=S["sex"])
    parts = encoder.distortion_.parts
    assert parts["categorical"].bound == 3.0
    assert parts["categorical"].upper <= 3.0
    assert parts["continuous"].bound == 40.0


def test_training_is_reproducible_and_leaves_global_state_alone(small):
    X, S, _ = small
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    first, second, third = (quick(random_state=seed).fit(X, sensitive_features=S["sex"]) for seed in (3, 3, 4))
    weights = [list(e.veil_.encoder.parameters()) for e in (first, second, third)]
    assert all(torch.equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(weights[0], weights[2], strict=True))
    assert first.distortion_ == second.distortion_
    pd.testing.assert_frame_equal(first.transform(X), second.transform(X))
    quick(random_state=None).fit(X, sensitive_features=S["sex"]).transform(X)
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])


def test_draws_repeat_with_an_int_and_differ_without(small, fitted):
    X = small[0]
    pd.testing.assert_frame_equal(fitted.transform(X), fitted.transform(X))
    fresh = quick(random_state=None)._adopt(
        fv.estimators.training.Trained(fitted.veil_, fitted.distortion_, fitted.history_)
    )
    fresh.n_features_in_, fresh.feature_names_in_ = fitted.n_features_in_, fitted.feature_names_in_
    assert not fresh.transform(X).equals(fresh.transform(X))
    generator = np.random.default_rng(0)
    moving = fresh.set_params(random_state=generator)
    assert not moving.transform(X).equals(moving.transform(X))


def test_budget_is_hard():
    X, S, _ = people(2000)
    never_learns = fv.AugmentedLagrangian(rho=1e-9, rate=0.0)
    encoder = FairEncoder(0.02, constraint=never_learns, verbose=False, random_state=0, training=QUICK)
    with pytest.raises(fv.BudgetNotMet, match=r"200 held-out rows .* above the budget of 0.02"):
        encoder.fit(X, sensitive_features=S["sex"])
    assert not hasattr(encoder, "veil_")


def test_too_few_rows_to_verify_a_budget_is_said(small):
    X, S, _ = small
    with pytest.raises(fv.BudgetNotMet, match=r"with 100 rows: 10 of them are held out.*at least 300 rows"):
        quick(1.0).fit(X[:100], sensitive_features=S["sex"][:100])


def test_distortion_is_that_of_the_table_as_returned(small, fitted):
    X = small[0].iloc[split_rows(len(small[0]), QUICK.completed({}), Seeds(0).child("split")).held_out.numpy()]
    encoder, schema = copy.copy(fitted).set_params(random_state=None), fitted.schema_  # other draws each time
    totals = []
    for _ in range(100):
        released = encoder.transform(X)
        total = (released["role"] != X["role"]).astype(float) + (released["town"].fillna("?") != X["town"].fillna("?"))
        for name in ("skill", "height"):
            total += rank_cost(schema[name], X[name], released[name])
        totals.append(total.mean())
    codec = fitted.veil_.codec
    after = codec.encode(read_table(released).arrow)
    before = codec.encode_rows(read_table(X).arrow).original
    counted = make_distortion("auto", schema.layout, "sampled").realised(
        ReleasedBatch(after, after[:, schema.layout.grouped]), before
    )
    assert np.allclose(counted.sum(dim=1).numpy(), total, atol=1e-4)
    # What `fit` measured is a mean over a few draws of the same rows.
    spread = np.std(totals) * np.sqrt(1 / DRAWS + 1 / 100)
    assert np.mean(totals) == pytest.approx(fitted.distortion_.mean, abs=4 * spread)


def test_history_is_typed_and_complete(fitted):
    frame = fitted.history_.to_frame()
    assert len(frame) == QUICK.rounds
    assert frame["step"].iloc[-1] == QUICK.steps
    assert frame["chosen"].any()


def test_save_and_load(tmp_path, small, fitted):
    X = small[0]
    path = tmp_path / "sex.veil"
    fitted.save(path)
    loaded = fv.load(path).set_params(random_state=0)
    pd.testing.assert_frame_equal(loaded.transform(X), fitted.transform(X))
    assert loaded.distortion_ == fitted.distortion_
    assert loaded.history_ == fitted.history_
    assert loaded.schema_ == fitted.schema_
    kept = {"budget", "loss", "training", "architecture", "constraint", "confidence"}
    assert {n: loaded.get_params()[n] for n in kept} == {n: fitted.get_params()[n] for n in kept}


def test_every_parameter_that_is_no_code_survives_a_file(tmp_path, small):
    X, S, _ = small
    own = {"distortion": lambda a, b: (a - b).abs().sum(-1), "constraint": fv.Penalty(rho=2.0)}
    encoder = quick(np.float64(900.0), loss=fv.AlphaLoss(np.inf), sees_sensitive=True, unmet="warn", **own)
    with pytest.warns(fv.BudgetWarning, match="at most inf"):  # nothing limits the function, and the rows are few
        encoder.fit(X, sensitive_features=S["sex"])
    encoder.save(tmp_path / "a.veil")
    loaded = fv.load(tmp_path / "a.veil")
    for name in ("budget", "loss", "constraint", "training", "sees_sensitive"):
        assert getattr(loaded, name) == getattr(encoder, name)
    assert loaded.distortion == "custom"
    loaded.set_params(random_state=0)
    pd.testing.assert_frame_equal(
        loaded.transform(X, sensitive_features=S["sex"]), encoder.transform(X, sensitive_features=S["sex"])
    )


def test_an_edited_schema_is_obeyed(small):
    X, S, _ = small
    schema = Schema.infer(X).edit("role", role="drop").edit("skill", role="keep")
    schema = schema.edit("height", lower=100.0, upper=250.0, starts=())
    released = quick(schema=schema).fit(X, sensitive_features=S["sex"]).transform(X)
    assert list(released.columns) == ["town", "skill", "height"]
    assert released["skill"].equals(X["skill"])


def test_constant_column_passes_unchanged(small):
    X, S, _ = small
    released = (
        quick().fit(X.assign(one="same", two=3), sensitive_features=S["sex"]).transform(X.assign(one="same", two=3))
    )
    assert set(released["one"]) == {"same"}
    assert set(released["two"]) == {3}


def test_progress_goes_to_standard_error(small, capsys):
    X, S, _ = small
    quick(verbose=True).fit(X, sensitive_features=S["sex"])
    shown = capsys.readouterr()
    assert "Training: 12/12 steps" in shown.err
    assert not shown.out
    quick(verbose=False).fit(X, sensitive_features=S["sex"])
    assert not capsys.readouterr().err


def test_a_batch_with_narrower_types_still_holds_what_is_released():
    generator = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "c": pd.Categorical(generator.choice(["a", "b", "c"], 400)),
            "n": generator.integers(0, 1000, 400),
            "code": pd.Categorical(generator.choice([10, 20, 40], 400)),
        }
    )
    loud = quick(1e4, architecture="feedforward").fit(X, sensitive_features=generator.integers(0, 2, 400))
    with torch.no_grad():
        loud.veil_.encoder.network.layers[-1].weight.mul_(200.0)  # changes everything
    batch = X[X["n"] < 100].copy()
    batch = batch.assign(
        c=batch["c"].where(batch["c"] != "c").cat.remove_categories("c").fillna("a"), n=batch["n"].astype("int8")
    )
    with pytest.warns(fv.ClippedWarning):  # all of its numbers are small
        released = loud.transform(batch)
    assert not released.isna().any().any()
    assert "c" in set(released["c"])
    assert released["n"].max() > 127
    assert set(released["code"]) <= {10, 20, 40}
    with pytest.warns(fv.ClippedWarning):
        frame = loud.transform(pa.Table.from_pandas(batch, preserve_index=False))
    assert not any(column.null_count for column in frame.columns)
    with pytest.warns(fv.ClippedWarning):
        array = loud.transform(
            pl.from_pandas(batch.assign(code=batch["code"].astype(int))).with_columns(pl.col("n").cast(pl.Int8))
        )
    assert array.null_count().to_numpy().sum() == 0


def test_text_arrays_are_not_cut():
    X = np.array([["a", "husband"], ["b", "wife"], ["a", "wife"]] * 40)
    encoder = quick(sensitive_columns=[0]).fit(X)
    assert set(encoder.transform(np.array([["a", "wife"]] * 60)).ravel()) <= {"husband", "wife"}


def test_kept_columns_keep_every_digit(small):
    X, S, _ = small
    exact = X.assign(weight=np.random.default_rng(0).normal(size=len(X)) * 1e5)
    schema = Schema.infer(exact, keep=["weight"])
    released = quick(schema=schema).fit(exact, sensitive_features=S["sex"]).transform(exact)
    assert released["weight"].equals(exact["weight"])


def test_a_kept_copy_of_s_is_refused_and_roles_name_s(small):
    X, S, _ = small
    both = X.assign(sex=S["sex"])
    with pytest.raises(fv.InputError, match="'sex' of X is the sensitive column"):
        quick(schema=Schema.infer(both, keep=["sex"])).fit(both, sensitive_features=S["sex"])
    by_role = quick(schema=Schema.infer(both, sensitive=["sex"])).fit(both)
    assert list(by_role.transform(both).columns) == list(X.columns)
    with pytest.raises(fv.InputError, match="Give S once"):
        quick(schema=Schema.infer(both, sensitive=["sex"])).fit(both, sensitive_features=S["region"])


def test_what_a_narrow_range_takes_away_is_counted(small):
    X, S, _ = small
    plain = quick(schema=Schema.infer(X)).fit(X, sensitive_features=S["sex"]).distortion_
    column = Schema.infer(X)["height"]
    narrow = Schema.infer(X).edit("height", lower=column.lower, upper=column.lower + 1.0, starts=())
    with pytest.warns(fv.ClippedWarning):
        clipped = quick(schema=narrow).fit(X, sensitive_features=S["sex"]).distortion_
    assert clipped.parts["continuous"].mean > plain.parts["continuous"].mean + 1.0


def test_soft_hamming_is_the_chance_that_a_draw_differs():
    schema = Schema.infer(pd.DataFrame({"a": ["x", "y"] * 10}))
    rows, p = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    distortion = fv.objectives.make_distortion("hamming", schema.layout, "probabilities")
    release = fv.objectives.distortion.ReleasedBatch(p, p)
    assert distortion.expected(release, rows)[0, 0].item() == distortion.realised(release, rows)[0, 0].item() == 0.5


def test_a_failed_fit_leaves_no_older_veil(small):
    X, S, _ = small
    encoder = quick().fit(X, sensitive_features=S["sex"])
    with pytest.raises(fv.BudgetNotMet):
        encoder.set_params(budget=1e-6).fit(X, sensitive_features=S["sex"])
    assert not hasattr(encoder, "veil_")
    frontier = FairFrontier(FairEncoder(training=QUICK, verbose=False, random_state=0), [50.0]).fit(
        X, sensitive_features=S["sex"]
    )
    with pytest.raises(fv.BudgetNotMet, match=r"None of the budgets is met|before anything is hidden"):
        frontier.set_params(budgets=[1e-6]).fit(X, sensitive_features=S["sex"])
    assert not hasattr(frontier, "points_")


def test_one_budget_by_kind_on_a_table_of_numbers():
    X = np.random.default_rng(0).normal(size=(400, 2))
    assert quick({"continuous": 900.0}).fit(X, sensitive_features=X[:, 0] > 0).distortion_.met
