"""Certificates: coverage by simulation, a broken bound that fails, worst cases by brute force, refusals."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fairveil import Certificate, FairEncoder, InputError, Matrix, Quantiser, Training, certify
from fairveil.auditing.certificate import contraction
from fairveil.auditing.variation import asymptotic_bound, binomial_bound, hoeffding_bound, interval_bound
from fairveil.metrics import clopper_pearson

RUNS = 1000
LEAST = 0.936  # 1,000 runs at 95 %: a valid bound falls below this once in sixty times at most


def variation(p, q):
    return 0.5 * np.abs(p - q).sum()


@pytest.fixture(scope="module")
def coverage():
    """How often each bound covers a TV of two cells around one half, where chance moves the observed one most."""
    generator = np.random.default_rng(0)
    p, q = np.array([0.65, 0.35]), np.array([0.45, 0.55])
    channel = np.array([[0.95, 0.05], [0.05, 0.95]])
    names = ("binomial", "intervals", "channel", "certify", "certify channel", "plug-in", "too narrow")
    margin = binomial_bound(variation(p, q), 150, 150, 0.05) - variation(p, q)
    reach = contraction(channel)
    hits = dict.fromkeys(names, 0)
    groups = np.repeat([0, 1], [150, 150])
    for _ in range(RUNS):
        a, b = generator.multinomial(150, p), generator.multinomial(150, q)
        cells = np.concatenate([np.repeat([0, 1], a), np.repeat([0, 1], b)])
        plain, exact = variation(p, q), variation(p @ channel, q @ channel)
        seen = variation(a / 150, b / 150)
        hits["binomial"] += binomial_bound(seen, 150, 150, 0.05) >= plain
        hits["intervals"] += interval_bound(a, b, 0.05) >= plain
        through = variation(a / 150 @ channel, b / 150 @ channel)
        hits["channel"] += hoeffding_bound(through, 150, 150, 0.05, (reach, reach)) >= exact
        hits["certify"] += certify(cells, groups, alphabet=2, trained_on=()).bound >= plain
        hits["certify channel"] += certify(cells, groups, alphabet=2, trained_on=(), transition=channel).bound >= exact
        hits["plug-in"] += seen >= plain
        hits["too narrow"] += seen + 0.8 * margin >= plain
    return {name: count / RUNS for name, count in hits.items()}


@pytest.mark.parametrize("bound", ["binomial", "intervals", "channel", "certify", "certify channel"])
def test_certificates_cover_the_truth(coverage, bound):
    assert coverage[bound] >= LEAST


@pytest.mark.parametrize("bound", ["plug-in", "too narrow"])
def test_broken_bounds_fail_the_same_test(coverage, bound):
    assert coverage[bound] < LEAST


@pytest.mark.parametrize("given", [False, True])
def test_the_whole_certificate_covers_the_truth_for_several_groups(given):
    generator = np.random.default_rng(1)
    shares = generator.dirichlet(np.full(4, 3.0), (2, 3))  # (y, group, cell)
    true = max(variation(shares[y, i], shares[y, j]) for y in range(2) for i in range(3) for j in range(i))
    hits = 0
    for _ in range(200):
        y, s = generator.integers(0, 2, 300), generator.integers(0, 3, 300)
        chances = shares[y, s] if given else shares[0, s]
        cells = (generator.random(300)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
        made = certify(cells, s, alphabet=4, trained_on=(), given=y if given else None)
        truth = true if given else max(variation(shares[0, i], shares[0, j]) for i in range(3) for j in range(i))
        hits += made.bound >= truth
    assert hits >= 188
    assert made.notion == ("equalized_odds" if given else "demographic_parity")
    assert len(made.pairs) == (6 if given else 3)


def test_the_linear_program_is_at_least_the_worst_case_by_brute_force():
    generator = np.random.default_rng(2)
    for _ in range(20):
        a, b = generator.multinomial(40, [0.4, 0.3, 0.2, 0.1]), generator.multinomial(30, [0.1, 0.2, 0.3, 0.4])
        each = 1 - 0.05 / 8
        low, high = clopper_pearson(a, 40, each)
        low2, high2 = clopper_pearson(b, 30, each)
        worst = 0.0
        for chosen in product([False, True], repeat=4):
            inside = np.array(chosen)
            most = min(high[inside].sum(), 1 - low[~inside].sum())
            least = max(low2[inside].sum(), 1 - high2[~inside].sum())
            worst = max(worst, most - least)
        bound = interval_bound(a, b, 0.05)
        assert worst - 1e-9 <= bound <= worst + 0.12  # fractional sets of cells cost a little


def test_the_bounds_change_places():
    spread = np.full(8, 500)
    assert binomial_bound(0.0, 4000, 4000, 0.05) < interval_bound(spread, spread, 0.05)
    rare = np.array([9990, 10])
    assert interval_bound(rare, rare, 0.05) < binomial_bound(0.0, 10000, 10000, 0.05)


@pytest.mark.parametrize(("n", "m", "observed"), [(12, 7, 0.2), (30, 20, 0.0), (9, 9, 0.6)])
def test_the_exact_test_against_all_outcomes(n, m, observed):
    """By enumeration of both binomials over a fine grid of probabilities: never below the bound, and close to it."""
    bound = binomial_bound(observed, n, m, 0.05)
    x, y = np.arange(n + 1), np.arange(m + 1)
    small = (x[:, None] / n - y[None, :] / m) <= observed + 1e-12

    def largest(d):
        ps = np.linspace(d, 1, 400)
        return max(stats.binom.pmf(x, n, p) @ small @ stats.binom.pmf(y, m, p - d) for p in ps)

    assert largest(bound) <= 0.05 + 1e-9
    assert largest(bound - 0.06 * np.sqrt(1 / n + 1 / m)) > 0.05


def test_the_exact_test_is_a_third_tighter_than_the_inequality():
    margin = binomial_bound(0.03, 5000, 5000, 0.05) - 0.03
    assert margin < 0.71 * (hoeffding_bound(0.03, 5000, 5000, 0.05) - 0.03)


@pytest.mark.parametrize("far", [0.0, 0.05, 0.3])
def test_the_asymptotic_bound_covers_and_removes_the_excess(far):
    generator = np.random.default_rng(4)
    p = generator.dirichlet(np.full(64, 5.0))
    q = (1 - far) * p + far * np.roll(p, 1)
    true = variation(p, q)
    bounds, plain = [], []
    for _ in range(300):
        a, b = generator.multinomial(5000, p), generator.multinomial(5000, q)
        bounds.append(asymptotic_bound(a, b, 0.05))
        plain.append(variation(a / 5000, b / 5000) + 0.0165)
    assert np.mean(np.array(bounds) >= true) >= 0.94
    if far == 0.0:
        assert np.mean(bounds) < 0.6 * np.mean(plain)


def test_people_with_several_rows_are_the_independent_units():
    """Every person has six equal rows: counted as independent rows, the bound fails."""
    generator = np.random.default_rng(5)
    p, q = np.array([0.65, 0.35]), np.array([0.45, 0.55])
    covered = np.zeros(2)
    person = np.repeat(np.arange(200), 6)
    for _ in range(300):
        s = np.repeat([0, 1], 100)
        cells = (generator.random(200) < np.where(s == 0, p[1], q[1])).astype(int)
        for i, clusters in enumerate((person, None)):
            made = certify(np.repeat(cells, 6), np.repeat(s, 6), alphabet=2, trained_on=(), clusters=clusters)
            covered[i] += made.bound >= variation(p, q)
    assert covered[0] >= 0.94 * 300
    assert covered[1] < 0.9 * 300


def test_values_of_y_without_rows_leave_nothing_to_certify():
    s, y = np.tile([0, 1], 3000), np.repeat([0, 1], 3000)
    cells = np.zeros(6000, dtype=int)
    assert certify(cells, s, alphabet=1, trained_on=(), given=y, given_values=[0, 1]).bound < 0.05
    assert certify(cells, s, alphabet=1, trained_on=(), given=y, given_values=[0, 1, 2]).bound == 1.0
    assert "values of Y that occur" in str(certify(cells, s, alphabet=1, trained_on=(), given=y))


def test_a_channel_that_forgets_all_is_certified_perfectly():
    forget = np.full((3, 3), 1 / 3)
    assert contraction(forget) == 0.0
    cells, s = np.repeat([0, 1], 50), np.repeat(["a", "b"], 50)
    assert certify(cells, s, alphabet=3, trained_on=(), transition=forget).bound == pytest.approx(0.0, abs=1e-12)
    keep = certify(cells, s, alphabet=3, trained_on=(), transition=np.eye(3))
    assert keep.bound == 1.0
    assert str(keep).startswith("Nothing is certified")


def test_only_a_certificate_says_certified_and_it_states_its_terms():
    s = np.repeat([0, 1], 4000)
    made = certify(np.tile(np.arange(4), 2000), s, alphabet=4, trained_on=range(100), rows=range(100, 8100))
    text = str(made)
    assert text.startswith("Certified at confidence 0.95")
    assert "none of them among the 100 used in training" in text
    assert f"at most {made.rounded:.4f}" in text
    assert made.bound <= made.rounded <= made.bound + 1e-4
    assert "independent draws" in text
    again = Certificate.from_dict(made.to_dict())
    assert str(again) == text
    pd.testing.assert_frame_equal(again.pairs, made.pairs)


CELLS, GROUPS = np.array([0, 1] * 20), np.array([0, 1] * 20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trained_on": [3], "rows": range(40)}, "used in training"),
        ({"trained_on": [99]}, "which rows"),
        ({"trained_on": [99], "rows": range(3)}, "row identifiers"),
        ({"trained_on": [99], "rows": [1] * 40}, "occur twice"),
        ({"trained_on": [99], "rows": map(str, range(40))}, "different types"),
        ({"sensitive": np.where(GROUPS == 1, 1.0, np.nan)}, "missing"),
        ({"alphabet": 1}, "outside"),
        ({"alphabet": 0}, "alphabet"),
        ({"cells": CELLS + 0.5}, "whole numbers"),
        ({"sensitive": GROUPS[:10]}, "one length"),
        ({"sensitive": np.zeros(40)}, "one single value"),
        ({"transition": np.eye(3)}, "a row for each"),
        ({"transition": np.ones((2, 2))}, "sum to 1"),
        ({"transition": {0: np.eye(2)}}, "lacks a matrix"),
        ({"given": [1, 2]}, "one length"),
        ({"confidence": 1.5}, "confidence"),
        ({"given": GROUPS, "given_values": [0]}, "does not list"),
        ({"given_values": [0]}, "given= must hold Y"),
        ({"clusters": [1, 2]}, "clusters"),
        ({"clusters": GROUPS, "asymptotic": True}, "leave out"),
    ],
)
def test_bad_input(arguments, message):
    plain = {"cells": CELLS, "sensitive": GROUPS, "alphabet": 2, "trained_on": ()}
    with pytest.raises(InputError, match=message):
        certify(**{**plain, **arguments})


@pytest.fixture(scope="module")
def coded():
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 6000)
    x = pd.DataFrame(
        {"number": (generator.normal(size=6000).clip(-2, 2) + s).round(5), "kind": generator.choice(list("abc"), 6000)}
    )
    training = Training(steps=150, rounds=3, adversary_hidden=((16,),), learning_rate=0.05, batch_size=512)
    encoder = FairEncoder(
        3.0, architecture=Matrix(n_cells=6), sees_sensitive=True, training=training, verbose=False, random_state=0
    )
    return encoder.fit(x[:4000], sensitive_features=s[:4000]), x, s


def test_cells_release_valid_representatives_and_can_be_certified(coded, tmp_path):
    encoder, x, s = coded
    released = encoder.transform(x[4000:], sensitive_features=s[4000:])
    assert len(released.drop_duplicates()) <= 6
    assert set(released["kind"]) <= set("abc")
    made = encoder.certify(x[4000:], sensitive_features=s[4000:])
    cells = released.groupby(["number", "kind"]).ngroup().to_numpy()
    counts = [np.bincount(cells[s[4000:] == group], minlength=6) for group in (0, 1)]
    drawn = variation(counts[0] / counts[0].sum(), counts[1] / counts[1].sum())
    assert made.observed == pytest.approx(drawn, abs=0.05)
    assert (
        made.bound - made.observed < hoeffding_bound(drawn, *(int(c.sum()) for c in counts), 0.05) - drawn
    )  # the exact channel leaves less to chance
    odds = encoder.certify(x[4000:], sensitive_features=s[4000:], y=(x["kind"] == "a")[4000:])
    assert odds.notion == "equalized_odds"
    encoder.save(tmp_path / "code.veil")
    import fairveil

    loaded = fairveil.load(tmp_path / "code.veil")
    assert loaded.transform(x[:50], sensitive_features=s[:50]).shape == (50, 2)
    with pytest.raises(InputError, match="read from a file"):
        loaded.certify(x[4000:], sensitive_features=s[4000:])
    vouched = loaded.certify(x[4000:], sensitive_features=s[4000:], unseen_rows=True)
    assert vouched.bound == pytest.approx(made.bound)
    assert "caller states" in vouched.evidence


def test_a_group_without_rows_leaves_nothing_to_certify(coded):
    encoder, x, s = coded
    some = s[4000:] == 1
    assert encoder.certify(x[4000:][some], sensitive_features=s[4000:][some]).bound == 1.0


def test_where_rows_are_all_alike_the_caller_must_vouch():
    generator = np.random.default_rng(0)
    x, s = pd.DataFrame({"x": generator.choice(list("ab"), 2000)}), generator.integers(0, 2, 2000)
    training = Training(steps=20, rounds=1, adversary_hidden=((),), batch_size=256)
    encoder = FairEncoder(1.0, architecture="matrix", training=training, verbose=False, random_state=0)
    encoder.fit(x, sensitive_features=s)
    with pytest.raises(InputError, match="unseen_rows"):
        encoder.certify(x, sensitive_features=s)
    assert encoder.certify(x, sensitive_features=s, unseen_rows=True).rows == 2000


def test_the_hashes_of_fitted_rows_are_not_pickled(coded):
    import pickle

    encoder, x, s = coded
    again = pickle.loads(pickle.dumps(encoder))
    assert not hasattr(again, "_fitted_rows")
    assert again.transform(x[:5], sensitive_features=s[:5]).equals(encoder.transform(x[:5], sensitive_features=s[:5]))


def test_a_release_of_another_tool_can_be_quantised_and_certified(coded):
    _, x, s = coded
    quantiser = Quantiser(8, random_state=0).fit(x[:4000])
    cells = quantiser.cells_of(x[4000:])
    released = quantiser.transform(x[4000:])
    assert len(released.drop_duplicates()) <= quantiser.n_cells_ <= 8
    assert (released.groupby(["number", "kind"]).ngroup().nunique()) == len(np.unique(cells))
    made = certify(cells, s[4000:], alphabet=quantiser.n_cells_, trained_on=range(4000), rows=range(4000, 6000))
    assert 0.2 < made.observed < made.bound < 1
    with pytest.raises(InputError, match="too few"):
        Quantiser(8).fit(x[:30])
    with pytest.raises(InputError, match="cells"):
        Quantiser(1).fit(x)


def test_small_cells_are_dissolved_one_by_one():
    x = pd.DataFrame({"n": np.random.default_rng(0).normal(size=1000).round(3)})
    quantiser = Quantiser(40, random_state=0).fit(x)
    sizes = np.bincount(quantiser.cells_of(x), minlength=quantiser.n_cells_)
    assert sizes.min() >= 20
    assert quantiser.n_cells_ >= 20


def test_rows_used_in_training_certify_nothing(coded):
    encoder, x, s = coded
    with pytest.raises(InputError, match="used in training"):
        encoder.certify(x[3500:4500], sensitive_features=s[3500:4500])
    with pytest.raises(InputError, match="sensitive_features"):
        encoder.certify(x[4000:], sensitive_features=s[:10])


def test_only_finite_releases_can_be_certified(coded):
    _, x, s = coded
    training = Training(steps=2, rounds=1, adversary_hidden=((4,),))
    free = FairEncoder(1e6, training=training, verbose=False, random_state=0).fit(x[:500], sensitive_features=s[:500])
    with pytest.raises(InputError, match="finite release"):
        free.certify(x[4000:], sensitive_features=s[4000:])
    with pytest.raises(InputError, match="from 2"):
        Matrix(n_cells=1)
