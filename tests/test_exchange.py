"""Exchange of records: exact probabilities by enumeration and simulation, costs against exact solvers, bad input."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.optimize import linear_sum_assignment

import fairveil as fv
from fairveil import BudgetNotMet, InputError, exchange
from fairveil._utils.randomness import KeyedStream
from fairveil.matching.pairs import match, pair_costs
from fairveil.matching.shares import assign, exchange_counts, round_table


def stream(number):
    return KeyedStream(b"test", number.to_bytes(4, "big"))


def table_of(rows, generator, groups=2):
    s = generator.integers(0, groups, rows)
    return pd.DataFrame({
        "size": np.round(generator.normal(size=rows) + s, 2),
        "kind": generator.choice(list("abc"), rows, p=[0.5, 0.3, 0.2]),
        "like": np.where(generator.random(rows) < 0.8, s.astype(str), "none"),
    }), s  # fmt: skip


@pytest.mark.parametrize("sizes", [(3, 5), (1, 2, 4), (1, 1, 1, 7), (20, 31, 8)])
def test_rounded_tables_keep_sums_and_expectations(sizes):
    sizes = np.array(sizes)
    wanted = np.outer(sizes, sizes) / sizes.sum()
    drawn = np.array([exchange_counts(sizes, stream(i)) for i in range(600)])
    assert (drawn.sum(axis=1) == sizes).all()
    assert (drawn.sum(axis=2) == sizes).all()
    assert np.abs(drawn - wanted).max() < 1.0
    assert np.abs(drawn.mean(axis=0) - wanted).max() < 5 * 0.5 / np.sqrt(600)


def test_a_table_of_whole_numbers_is_left_alone():
    whole = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert (round_table(whole, stream(0)) == whole).all()


@pytest.mark.parametrize("sizes", [(2, 3), (1, 2, 3), (1, 5)])
def test_every_record_is_equally_likely_to_go_to_every_group(sizes):
    """The certificate itself, by simulation with cells for single records: a mistake of a few percent is visible."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    points = np.arange(len(groups), dtype=np.float32)[:, None]  # so that the matching is far from random
    from fairveil.matching.exchange import _permutation

    runs, got = 1500, np.zeros((len(sizes), len(groups)))
    for i in range(runs):
        record = _permutation(points, groups, stream(i))
        assert sorted(record) == list(range(len(groups)))
        np.add.at(got, (groups, record), 1)
    shares = got / runs / np.array(sizes)[:, None]
    assert np.abs(shares - 1 / len(groups)).max() < 5 * np.sqrt(0.25 / runs / min(sizes))


def test_rows_that_take_part_are_drawn_uniformly():
    groups = np.repeat([0, 1], [10, 20])
    moved = np.zeros(30)
    for i in range(600):
        receives, gives = assign(exchange_counts(np.array([10, 20]), stream(i)), groups, stream(10_000 + i))
        assert np.bincount(receives).tolist() == np.bincount(gives).tolist() == [10, 20]
        moved += receives != groups
    assert np.abs(moved[:10] / 600 - 2 / 3).max() < 0.09
    assert np.abs(moved[10:] / 600 - 1 / 3).max() < 0.09


def test_matchings_are_close_to_the_exact_optimum():
    generator = np.random.default_rng(0)
    points = generator.normal(size=(3000, 4)).astype(np.float32)
    first, second = np.arange(1500), np.arange(1500, 3000)
    cost = np.square(points[first][:, None] - points[second][None]).sum(axis=2)
    row, column = linear_sum_assignment(cost)
    one, other = match(points, first, second, stream(0))
    assert sorted(one) == first.tolist()
    assert sorted(other) == second.tolist()
    found = pair_costs(points, one, other).mean()
    assert cost[row, column].mean() - 1e-5 <= found <= 1.06 * cost[row, column].mean()
    blocks = pair_costs(points, *match(points, first, second, stream(0), rounds=0)).mean()
    assert found < 0.9 * blocks


def test_the_released_table_has_the_same_records_and_hides_the_group():
    x, s = table_of(3000, np.random.default_rng(1))
    released, certificate = exchange(x, sensitive_features=s, certified=0.0, random_state=0, verbose=False)
    assert certificate.bound == 0.0
    assert certificate.kind == "construction"
    assert "by construction" in str(certificate)
    pd.testing.assert_frame_equal(
        released.sort_values(list(x)).reset_index(drop=True), x.sort_values(list(x)).reset_index(drop=True)
    )
    tells = [
        pd.crosstab(frame["like"], s, normalize="columns").diff(axis=1)[1].abs().sum() / 2 for frame in (x, released)
    ]
    assert tells[0] > 0.7
    assert tells[1] < 0.06


@pytest.mark.parametrize("certified", [0.02, 0.3])
def test_rows_that_stay_are_counted(certified):
    x, s = table_of(1000, np.random.default_rng(2), groups=3)
    x["row"] = np.arange(1000)
    _, certificate = exchange(x, sensitive_features=s, certified=certified, random_state=1, verbose=False)
    assert certified - 0.004 <= certificate.bound <= certified
    assert len(certificate.pairs) == 3
    # The rows of a group that can never move are at most that share.
    stay = np.ones(1000, dtype=bool)
    for seed in range(2, 8):
        again, _ = exchange(x, sensitive_features=s, certified=certified, random_state=seed, verbose=False)
        stay &= again["row"].to_numpy() == x["row"].to_numpy()
    assert stay.mean() < certified + 0.05


def test_a_budget_is_kept_exactly_and_costs_the_certificate():
    x, s = table_of(2000, np.random.default_rng(3))
    bounds = []
    for budget in (0.2, 0.6):
        _, certificate = exchange(x, sensitive_features=s, certified=None, budget=budget, random_state=0, verbose=False)
        spent = float(certificate.evidence.rsplit(" ", 1)[1].rstrip("."))
        assert 0.5 * budget < spent <= budget
        bounds.append(certificate.bound)
    assert bounds[0] > bounds[1] > 0
    with pytest.raises(BudgetNotMet, match="Raise the budget"):
        exchange(x, sensitive_features=s, certified=0.0, budget=0.01, random_state=0, verbose=False)


def test_exchange_within_values_of_y_certifies_equalized_odds():
    generator = np.random.default_rng(4)
    x, s = table_of(3000, generator)
    y = np.where(generator.random(3000) < 0.3 + 0.4 * s, "yes", "no")
    x["y"] = y
    released, certificate = exchange(x, sensitive_features=s, certified=0.0, within=y, random_state=0, verbose=False)
    assert (released["y"] == y).all()
    assert certificate.notion == "equalized_odds"
    assert certificate.bound == 0.0
    for value in ("yes", "no"):
        inside = y == value
        table = pd.crosstab(released["like"][inside], s[inside], normalize="columns")
        assert table.diff(axis=1)[1].abs().sum() / 2 < 0.09


def test_a_known_target_is_kept():
    """The target depends on a number relative to its group; without the target, matchings follow the noise columns."""
    generator = np.random.default_rng(5)
    s = generator.integers(0, 2, 2000)
    z = generator.normal(size=2000)
    x = pd.DataFrame({"a": z + 3 * s, **{f"n{i}": generator.normal(size=2000) for i in range(12)}})
    y = pd.Series(np.where(z > 0, "yes", "no"))
    y[::5] = None  # a missing label is predicted
    agree = []
    for targets in (None, {"y": y}):
        released, _ = exchange(x, sensitive_features=s, certified=0.0, targets=targets, random_state=0, verbose=False)
        relative = released["a"] - np.where(released["a"] > 1.5, 3, 0)
        agree.append(np.mean((relative > 0) == (z > 0)))
    assert agree[1] > 0.9
    assert agree[1] > agree[0] + 0.05


def test_types_of_the_caller_and_repeated_draws():
    x, s = table_of(300, np.random.default_rng(6))
    x["when"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(300), unit="D")
    x["kind"] = x["kind"].astype("category")
    one, _ = exchange(x, sensitive_features=s, random_state=3, verbose=False)
    pd.testing.assert_series_equal(one.dtypes, x.dtypes)
    pd.testing.assert_index_equal(one.index, x.index)
    two, _ = exchange(x, sensitive_features=s, random_state=3, verbose=False)
    pd.testing.assert_frame_equal(one, two)
    other, _ = exchange(x, sensitive_features=s, random_state=4, verbose=False)
    assert not other.equals(one)
    drawn = [exchange(x, sensitive_features=s, verbose=False)[0] for _ in range(2)]
    assert not drawn[0].equals(drawn[1])
    frame, _ = exchange(pl.from_pandas(x), sensitive_features=s, random_state=3, verbose=False)
    assert isinstance(frame, pl.DataFrame)
    assert frame.columns == list(x)
    array, _ = exchange(x[["size"]].to_numpy(), sensitive_features=s, random_state=3, verbose=False)
    assert sorted(array[:, 0]) == sorted(x["size"])


def test_images_are_exchanged_as_wholes():
    generator = np.random.default_rng(7)
    images, s = generator.integers(0, 255, (120, 6, 6, 3), dtype=np.uint8), np.arange(120) % 3
    released, certificate = exchange(images, sensitive_features=s, certified=0.0, random_state=0, verbose=False)
    assert released.dtype == np.uint8
    assert released.shape == images.shape
    assert {image.tobytes() for image in released} == {image.tobytes() for image in images}
    assert certificate.bound == 0.0


def test_the_certificate_survives_a_round_trip():
    x, s = table_of(200, np.random.default_rng(8))
    _, made = exchange(x, sensitive_features=s, random_state=0, verbose=False)
    assert str(fv.Certificate.from_dict(made.to_dict())) == str(made)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"certified": 1.0}, "certified"),
        ({"certified": -0.1}, "certified"),
        ({"certified": "a"}, "certified"),
        ({"certified": None}, "needs an upper bound"),
        ({"budget": float("nan")}, "budget"),
        ({"target_weight": -1}, "target_weight"),
        ({"sensitive_features": [0, 1]}, "sensitive_features"),
        ({"sensitive_features": [0] * 40}, "single value"),
        ({"within": [0, 1]}, "clusters|within"),
        ({"targets": {"y": [1, 2]}}, "target 'y'"),
        ({"random_state": "x"}, "random_state"),
    ],
)
def test_bad_input(arguments, message):
    x, _ = table_of(40, np.random.default_rng(9))
    plain = {"sensitive_features": [0, 1] * 20, "verbose": False}
    with pytest.raises(InputError, match=message):
        exchange(x, **{**plain, **arguments})
