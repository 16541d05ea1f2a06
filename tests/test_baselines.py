"""Each baseline does what its paper claims, on problems whose answer is known."""

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression

from fairveil._utils.errors import InputError
from fairveil.baselines import ALFR, FFVAE, LAFTR, Zhang
from fairveil.baselines.common import Batch
from fairveil.baselines.zhang import projected
from fairveil.metrics import demographic_parity_gap, equalized_odds_gap

SETTINGS = {"steps": 1500, "learning_rate": 2e-3}


def merit_and_group(n: int = 8000, seed: int = 0):
    """y follows merit u and group s, both shown by several noisy columns. The best guess goes by the group."""
    generator = np.random.default_rng(seed)
    s, u = generator.integers(0, 2, n), generator.integers(0, 2, n)
    y = (generator.random(n) < np.array([[0.05, 0.65], [0.4, 0.95]])[u, s]).astype(int)
    columns = {f"u{i}": u + generator.normal(0, 0.5, n) for i in range(4)}
    columns |= {f"s{i}": s + generator.normal(0, 1.2, n) for i in range(6)}
    return pd.DataFrame(columns), y, s


def truth_depends_on_group(n: int = 8000, seed: int = 0):
    """y is likelier in one group; columns show y with the same noise in both, and others the group.

    By the former alone odds are equal and one is right in 80 %; the best guess leans on the group as well.
    """
    generator = np.random.default_rng(seed)
    s = generator.integers(0, 2, n)
    y = (generator.random(n) < np.where(s == 1, 0.75, 0.25)).astype(int)
    columns = {f"y{i}": y + generator.normal(0, 1.2, n) for i in range(4)}
    columns |= {f"s{i}": s + generator.normal(0, 1.0, n) for i in range(6)}
    return pd.DataFrame(columns), y, s


def scores(predicted, y, s):
    odds = equalized_odds_gap(predicted, y, s, resamples=20)
    return {
        "accuracy": float((predicted == y).mean()),
        "parity": demographic_parity_gap(predicted, s, resamples=20).value,
        "odds": odds.total.value,
    }


def told(table, s, rows=4000):
    """AUC-like: how often a fresh linear model, and a fresh boosted one, guess s right on new rows."""
    models = LogisticRegression(max_iter=500), LGBMClassifier(n_estimators=50, n_jobs=0, verbose=-1)
    x = table.to_numpy()
    return max((m.fit(x[:rows], s[:rows]).predict(x[rows:]) == s[rows:]).mean() for m in models)


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: ALFR([0.0, 100.0], **k),
        lambda **k: LAFTR([0.0, 30.0], **k),
        lambda **k: Zhang([0.0, 0.005], "demographic_parity", **k),
    ],
)
def test_demographic_parity_at_a_price(make):
    """The best guess goes by the group; with an adversary it nearly does not, and is still better than guessing."""
    X, y, s = merit_and_group()
    model = make(seeds=7, **SETTINGS).fit(X, y, sensitive_features=s)
    # The middle of seven: these games do not always come to rest.
    each = [scores(model.predict(X, model.weights[1], seed), y, s) for seed in range(7)]
    strict = {name: float(np.median([one[name] for one in each])) for name in each[0]}
    free = scores(LogisticRegression().fit(X, y).predict(X), y, s)
    assert free["parity"] > 0.4
    assert strict["parity"] < 0.25 * free["parity"]
    assert strict["accuracy"] > 0.58


@pytest.mark.parametrize("make", [lambda **k: ALFR([0.0], **k), lambda **k: LAFTR([0.0], **k)])
def test_without_weight_they_are_plain_classifiers(make):
    X, y, s = merit_and_group()
    model = make(**SETTINGS).fit(X, y, sensitive_features=s)
    free = scores(LogisticRegression().fit(X, y).predict(X), y, s)
    found = scores(model.predict(X, 0.0), y, s)
    assert found["accuracy"] > free["accuracy"] - 0.02
    assert found["parity"] > 0.8 * free["parity"]


@pytest.mark.parametrize(
    "make", [lambda **k: LAFTR([30.0], "equalized_odds", **k), lambda **k: Zhang([0.05], "equalized_odds", **k)]
)
def test_equalized_odds_leave_the_difference_that_is_true(make):
    """Guessing by what shows y has equal odds, 80 % accuracy, and rates that differ by 0.3 between the groups."""
    X, y, s = truth_depends_on_group()
    model = make(**SETTINGS).fit(X, y, sensitive_features=s)
    found = scores(model.predict(X, model.weights[0]), y, s)
    free = scores(LogisticRegression().fit(X, y).predict(X), y, s)
    assert free["odds"] > 0.4
    assert found["odds"] < 0.5 * free["odds"]
    assert found["parity"] > 0.2
    assert found["accuracy"] > 0.77


def test_equal_opportunity_looks_at_positives_alone():
    """Its gain is that of groups among rows of the last class, whatever the others do."""
    model = LAFTR([1.0], "equal_opportunity", gain="absolute", steps=1)
    X, y, s = merit_and_group(400)
    model.fit(X, y, sensitive_features=s)
    code = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0))
    s_hot = torch.eye(2)[[0, 1, 0, 1, 0, 1]]
    y_hot = torch.eye(2)[[1, 1, 1, 1, 0, 0]]
    right = (model.adversary["guess"](code).softmax(-1) * s_hot).sum(-1)[0]
    expected = 0.5 * (right[[0, 2]].mean() + right[[1, 3]].mean())
    assert model.gains(code, Batch(torch.zeros(6, 2), s_hot, y_hot)).item() == pytest.approx(expected.item(), rel=1e-5)


def test_laftr_weighs_groups_alike_whatever_their_size():
    """An adversary that always says the large group gains 1/2, not the large group's share."""
    X, y, s = merit_and_group(400)
    model = LAFTR([1.0], gain="absolute", steps=1).fit(X, y, sensitive_features=s)
    with torch.no_grad():
        for parameter in model.adversary.parameters():
            parameter.zero_()
        model.adversary["guess"].layers[-1].bias[..., 0] = 50.0
    s_hot = torch.eye(2)[[0, 0, 0, 0, 1]]
    batch = Batch(torch.zeros(5, 2), s_hot, torch.eye(2)[[0, 1, 0, 1, 0]])
    assert model.gains(torch.randn(1, 5, 8), batch).item() == pytest.approx(0.5)


def test_the_projection_takes_out_what_helps_the_adversary():
    generator = torch.Generator().manual_seed(0)
    wanted = [torch.randn(3, 4, 2, generator=generator), torch.randn(3, 1, 2, generator=generator)]
    helped = [torch.randn(3, 4, 2, generator=generator), torch.randn(3, 1, 2, generator=generator)]
    alpha = torch.tensor([0.0, 0.5, 2.0])
    moved = projected(wanted, helped, alpha)
    for member in range(3):
        g, h, m = (torch.cat([t[member].flatten() for t in parts]) for parts in (wanted, helped, moved))
        torch.testing.assert_close(m, g - (g @ h) / (h @ h) * h - alpha[member] * h)
        assert float(m @ h) == pytest.approx(float(-alpha[member] * (h @ h)), abs=1e-4)


def test_the_adversary_learns_how_far_to_stretch_a_prediction():
    X, y, s = merit_and_group(1000)
    model = Zhang([0.0], "demographic_parity", steps=50).fit(X, y, sensitive_features=s)
    assert (model.adversary["stretch"].factor - 1.0).abs().min() > 1e-3


def test_a_member_does_not_depend_on_its_company():
    X, y, s = merit_and_group(1000)
    alone = LAFTR([1.0], steps=30).fit(X, y, sensitive_features=s)
    among = LAFTR([0.0, 1.0, 2.0], seeds=2, steps=30).fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(alone.represent(X, 1.0), among.represent(X, 1.0, seed=0), atol=1e-5)
    assert np.abs(among.represent(X, 1.0, seed=1).to_numpy() - alone.represent(X, 1.0).to_numpy()).max() > 0.01


def test_ffvae_hides_what_is_named_when_it_is_used():
    """Two sensitive columns: without its own latents each is hidden, with them it is there; the other stays."""
    generator = np.random.default_rng(0)
    n = 8000
    S = pd.DataFrame({"a": generator.integers(0, 2, n), "b": generator.integers(0, 2, n)})
    u = generator.normal(size=n)
    shown = {f"x{name}": 2.0 * S[name] + generator.normal(0, 0.4, n) for name in S}
    X = pd.DataFrame({**shown, "u": u, "mixed": u + S["a"] - S["b"] + generator.normal(0, 0.3, n)})
    model = FFVAE([20.0], steps=2500, learning_rate=3e-3).fit(X, (u > 0).astype(int), sensitive_features=S)
    assert told(model.represent(X, 20.0, hide=[]), S["a"].to_numpy()) > 0.9
    for hidden, other in (("a", "b"), ("b", "a")):
        table = model.represent(X, 20.0, hide=[hidden])
        assert told(table, S[hidden].to_numpy()) < 0.7
        assert told(table, S[other].to_numpy()) > 0.9
    both = model.represent(X, 20.0)
    assert max(told(both, S[name].to_numpy()) for name in S) < 0.7
    assert told(both, (u > 0).astype(int)) > 0.8
    with pytest.raises(InputError, match="no sensitive column"):
        model.represent(X, 20.0, hide=["c"])


def test_bad_input():
    X, y, s = merit_and_group(100)
    for make in (lambda: LAFTR([1.0], "parity"), lambda: Zhang([1.0], "parity")):
        with pytest.raises(InputError, match="fairness"):
            make()
    with pytest.raises(InputError, match="y 99"):
        ALFR([1.0], steps=1).fit(X, y[:-1], sensitive_features=s)
