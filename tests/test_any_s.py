"""Any S: small problems against the exact optimum, S unseen, many and small groups, numbers, equalized odds."""

import numpy as np
import pandas as pd
import pytest

import fairveil as fv
from fairveil import FairEncoder, InputError, Training, Transport
from fairveil.auditing import probe
from fairveil.theory.channel import information_channel

BRIEF = Training(steps=30, batch_size=128, adversary_hidden=((16,),), rounds=3, pretraining_steps=40)
SMALL = Transport(hidden=(16,), matchings=1, matched_rows=300)


def information(joint: np.ndarray) -> float:
    """I(R; S) of P(s, r), in nats."""
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    return float(np.where(joint > 0, joint * np.log(np.maximum(joint, 1e-300) / apart), 0.0).sum())


@pytest.mark.parametrize("sees", [True, False])
@pytest.mark.parametrize(("cells", "classes"), [(12, 2), (16, 4)])
def test_small_problems_reach_the_exact_optimum(cells, classes, sees):
    generator = np.random.default_rng(cells)
    joint = generator.dirichlet(np.ones(cells), classes) * generator.dirichlet(np.full(classes, 3.0))[:, None]
    drawn = generator.choice(classes * cells, 6000, p=joint.ravel() / joint.sum())
    s, x = drawn // cells, drawn % cells
    width = cells // 4
    X = pd.DataFrame({"a": np.array(list("abcd"))[x // width], "b": np.array(list("stuv"))[x % width]})
    S = pd.Series(np.array(list("vwxyz"))[s], name="s")
    encoder = FairEncoder(0.25, sees_sensitive=sees, verbose=False, random_state=0).fit(X, sensitive_features=S)
    assert encoder.architecture_.name == "matrix"
    cell = encoder.veil_.encoder.cell_of(encoder.veil_.codec.encode_rows(as_arrow(X)).x).numpy()
    channel = encoder.veil_.encoder.channel()[0].detach().numpy().astype(np.float64)
    channel = np.broadcast_to(channel, (classes, cells, cells))
    measured = np.zeros((classes, cells))
    fitted = encoder.fitted_rows_
    np.add.at(measured, (s[fitted], cell[fitted]), 1.0 / fitted.sum())
    costs = np.array([[(i // width != j // width) + (i % width != j % width) for j in range(cells)]
                      for i in range(cells)], dtype=float)  # fmt: skip
    spent = float(np.einsum("sx,sxr,xr->", measured, channel, costs))
    found = information(np.einsum("sx,sxr->sr", measured, channel))
    positive = (measured + 1e-9) / (measured + 1e-9).sum()
    best = information_channel(positive, costs, spent, sees_sensitive=sees, gap=1e-6).value
    original = information(measured)
    assert 0.1 < spent < 0.25
    assert best - 1e-4 <= found <= best + 0.02 * original
    assert found < 0.8 * original


def as_arrow(frame: pd.DataFrame):
    from fairveil.data.frames import read_table

    return read_table(frame).arrow


def told(rows: int = 4000, seed: int = 0) -> tuple[pd.DataFrame, pd.Series, np.ndarray]:
    """X that suggests S: P(S = m | a); S is not a function of X, and b is independent of it."""
    generator = np.random.default_rng(seed)
    a = generator.integers(0, 8, rows)
    male = generator.random(rows) < np.array([0.05, 0.1, 0.3, 0.5, 0.6, 0.7, 0.9, 0.95])[a]
    X = pd.DataFrame({"a": a.astype(str), "b": generator.choice(list("uvwxy"), rows),
                      "c": generator.choice(list("klmno"), rows)})  # fmt: skip
    return X, pd.Series(np.where(male, "m", "f"), name="sex"), a


def test_transport_hides_what_x_tells_of_an_s_that_it_does_not_see():
    X, S, _ = told()
    training = Training(steps=80, batch_size=256, pretraining_steps=150, rounds=3)
    encoder = FairEncoder(0.8, architecture=Transport(hidden=(32,), matchings=2, matched_rows=500), training=training,
                          verbose=False, random_state=0).fit(X, sensitive_features=S)  # fmt: skip
    assert not encoder.veil_.sees_sensitive
    new, s_new, _ = told(seed=1)
    released = encoder.transform(new)
    half = len(new) // 2
    before, after = (probe(x[:half], s_new[:half], x[half:], s_new[half:]) for x in (new, released))
    assert before.auc.value > 0.8
    assert after.auc.value < 0.58
    # Exchanges keep the distribution of every column.
    drift = 0.5 * (released["a"].value_counts(normalize=True) - new["a"].value_counts(normalize=True)).abs().sum()
    assert drift < 0.05


def test_a_veil_that_does_not_see_s_holds_its_score_as_tensors(tmp_path):
    X, S, _ = told(600)
    encoder = FairEncoder(2.0, architecture=SMALL, training=BRIEF, verbose=False, random_state=0, unmet="warn")
    encoder.fit(X, sensitive_features=S).save(tmp_path / "blind.veil")
    again = fv.load(tmp_path / "blind.veil")
    groups = again.veil_.encoder.mover.groups
    assert groups.balanced
    assert float(groups.log_prior.exp().sum()) == pytest.approx(1.0, abs=2e-3)
    assert all(parameter.dtype.is_floating_point for parameter in groups.parameters())
    again.random_state = 0
    pd.testing.assert_frame_equal(again.transform(X), encoder.transform(X))


def test_a_group_of_twenty_rows_is_named_and_moved():
    generator = np.random.default_rng(0)
    group = np.repeat(list("abcdef"), [400, 300, 250, 150, 120, 20])
    X = pd.DataFrame({"x": np.where(generator.random(len(group)) < 0.7, group, "a"),
                      "y": generator.normal(size=len(group)) + (group == "f")})  # fmt: skip
    settings = {"sees_sensitive": True, "training": BRIEF, "verbose": False, "random_state": 0, "unmet": "warn"}
    encoder = FairEncoder(2.5, **settings).fit(X, sensitive_features=pd.Series(group, name="g"))
    assert "1 of them with fewer than 100 rows (the least: 20)" in encoder.architecture_reason_
    encoder = FairEncoder(2.5, architecture=SMALL, **settings).fit(X, sensitive_features=pd.Series(group, name="g"))
    released = encoder.transform(X, sensitive_features=pd.Series(group, name="g"))
    assert (released.loc[group == "f", "x"] != "f").mean() > 0.2


@pytest.mark.parametrize("sees", [True, False])
def test_a_number_is_hidden_in_its_ranges_and_not_only_in_its_mean(sees):
    generator = np.random.default_rng(0)
    age = generator.normal(size=2000)
    # The mean of age is the same for all x: only the spread shows.
    X = pd.DataFrame({"x": np.where(np.abs(age) > 0.8, "far", "near"), "n": generator.choice(list("pqrs"), 2000)})
    encoder = FairEncoder(1.2, architecture=Transport(hidden=(32,), matchings=2, matched_rows=500, cells=4),
                          sees_sensitive=sees, loss="squared", verbose=False, random_state=0,
                          training=Training(steps=60, batch_size=256, pretraining_steps=400, rounds=3))  # fmt: skip
    S = pd.Series(age, name="age")
    encoder.fit(X, sensitive_features=S)
    released = encoder.transform(X, sensitive_features=S if sees else None)
    spread = (S**2).groupby(released["x"].to_numpy()).mean()
    before = (S**2).groupby(X["x"].to_numpy()).mean()
    assert before["far"] - before["near"] > 1.5
    assert abs(spread["far"] - spread["near"]) < 0.35


def test_equalized_odds_hides_s_among_rows_of_equal_truth_only():
    generator = np.random.default_rng(0)
    rows = 2500
    y = generator.integers(0, 2, rows)
    sex = np.where(generator.random(rows) < np.where(y == 1, 0.8, 0.4), "m", "f")
    X = pd.DataFrame({"good": np.where(generator.random(rows) < 0.9, y, 1 - y).astype(str),  # tells y, and S through it
                      "bias": np.where(generator.random(rows) < 0.8, sex, "f"),  # tells S beyond y
                      "n": generator.choice(list("pqrstuvw"), rows)})  # fmt: skip
    S = pd.Series(sex, name="sex")
    encoder = FairEncoder(0.8, architecture=Transport(hidden=(16,), matchings=2, matched_rows=500),
                          fairness="equalized_odds", sees_sensitive=True, verbose=False, random_state=0,
                          training=Training(steps=80, batch_size=256, pretraining_steps=200, rounds=3))  # fmt: skip
    released = encoder.fit(X, y, sensitive_features=S).transform(X, sensitive_features=S)

    def told(column: str, table: pd.DataFrame, value: str) -> float:
        """The gaps between the sexes in the share of a value, summed over y."""
        share = (table[column] == value).groupby([y, sex]).mean().unstack()
        return float((share["m"] - share["f"]).abs().sum())

    assert told("bias", X, "m") > 1.5
    assert told("bias", released, "m") < 0.25
    # What the truth says of S stays: this column told nothing beyond it.
    assert (released["good"] == X["good"]).mean() > 0.9


def test_equalized_odds_needs_the_truth_of_every_row():
    X, S, _ = told(200)
    with pytest.raises(InputError, match="needs the truth"):
        FairEncoder(fairness="equalized_odds", verbose=False).fit(X, sensitive_features=S)
    with pytest.raises(InputError, match="equalized_odds"):
        FairEncoder(fairness="odds", verbose=False).fit(X, sensitive_features=S)


def test_a_solved_channel_is_refused_where_it_would_not_serve_the_aim():
    X, S, _ = told(200)
    with pytest.raises(InputError, match="minimises I"):
        FairEncoder(architecture=fv.Matrix(exact=True), loss="zero_one", verbose=False).fit(X, sensitive_features=S)
