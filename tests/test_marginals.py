"""Distributions of columns before and after: against brute force, and what is said of columns that collapse."""

import numpy as np
import pandas as pd
import pytest
import torch

import fairveil as fv
from fairveil.data.frames import read_table
from fairveil.data.marginals import ColumnDrift, Marginals, collapse_message, largest_drift
from fairveil.data.table_codec import Codec

QUICK = fv.Training(steps=20, rounds=2, pretraining_steps=20)


@pytest.fixture(scope="module")
def frame():
    generator = np.random.default_rng(0)
    n = 1200
    return pd.DataFrame(
        {
            "color": generator.choice(["red", "green", "blue"], n, p=[0.6, 0.3, 0.1]),
            "age": generator.integers(17, 91, n),
            "debt": np.where(generator.random(n) < 0.2, np.nan, generator.exponential(300.0, n).round(1)),
        }
    )


def drifts(before, after, schema=None):
    codec = Codec(schema or fv.Schema.infer(before))
    x, r = (codec.encode(read_table(part).arrow) for part in (before, after))
    layout = codec.schema.layout
    return {d.column: d for d in Marginals.of(layout, x).drift(Marginals.of(layout, r).counts)}


@pytest.mark.filterwarnings("ignore::fairveil.ClippedWarning")
def test_drift_by_brute_force(frame):
    generator = np.random.default_rng(1)
    after = frame.assign(
        color=np.where(generator.random(len(frame)) < 0.5, "red", frame["color"]),
        age=np.where(generator.random(len(frame)) < 0.3, 40, frame["age"]),
    )
    found = drifts(frame, after)
    shares = [part["color"].value_counts(normalize=True) for part in (frame, after)]
    apart = (shares[0] - shares[1].reindex(shares[0].index, fill_value=0.0)).abs().sum() / 2
    assert found["color"].total_variation == pytest.approx(apart, abs=6e-4)
    assert found["color"].ks is None
    ages = np.arange(17, 91)
    ks = np.abs([(frame["age"] <= a).mean() - (after["age"] <= a).mean() for a in ages]).max()
    assert ks - 0.03 < found["age"].ks <= ks + 6e-4  # at the ends of bins only
    assert found["debt"].total_variation == 0
    assert found["debt"].entropy_kept == 1
    assert (found["color"].distinct_before, found["color"].distinct_after) == (3, 3)
    assert largest_drift(tuple(found.values())).column == "age"
    assert found["age"].total_variation > found["color"].total_variation


@pytest.mark.parametrize("bins", [True, False])
def test_a_constant_collapses_and_an_exchange_of_values_does_not(frame, bins):
    schema = fv.Schema.infer(frame) if bins else fv.Schema.infer(frame).without_bins()
    shuffled = drifts(frame, frame.apply(lambda column: column.sample(frac=1, random_state=1).to_numpy()), schema)
    assert not any(d.collapsed for d in shuffled.values())
    assert max(d.total_variation for d in shuffled.values()) < 1e-9
    mostly = np.where(np.random.default_rng(2).random(len(frame)) < 0.71, 33, frame["age"])
    for age in (40, mostly):
        found = drifts(frame, frame.assign(age=age), schema)
        assert [name for name, d in found.items() if d.collapsed] == ["age"]
    message = collapse_message(tuple(found.values()))
    assert "'age'" in message
    assert "'color'" not in message
    assert collapse_message(tuple(shuffled.values())) is None


def test_fit_warns_of_columns_that_collapse(frame):
    s = np.random.default_rng(3).integers(0, 2, len(frame))
    x = frame.drop(columns="debt")
    few = fv.FairEncoder(1e3, architecture=fv.Matrix(n_cells=2), training=QUICK, verbose=False, random_state=0)
    with pytest.warns(fv.CollapseWarning, match="'age'"):
        few.fit(x, sensitive_features=s)
    assert few.drift_.set_index("column").loc["age", "collapsed"]
    with pytest.warns(fv.CollapseWarning, match=r"at budgets \[1000.0\]: .*age"):
        points = fv.FairFrontier(few, [1e3]).fit(x, sensitive_features=s).points_
    assert "age" in points["collapsed"][0]
    assert points["largest_drift"][0] > 0.3
    plain = fv.FairEncoder(2.0, architecture=fv.FeedForward(hidden=(8,)), training=QUICK, verbose=False, random_state=0)
    points = fv.FairFrontier(plain, [2.0]).fit(x, sensitive_features=s).points_
    assert points["collapsed"].tolist() == [""]
    assert points["unit"].str.contains("median").all()


def test_a_file_keeps_unit_and_drift_and_contradictions_are_refused(frame, tmp_path):
    s = np.random.default_rng(3).integers(0, 2, len(frame))
    encoder = fv.FairEncoder(2.0, architecture=fv.FeedForward(hidden=(8,)), training=QUICK, verbose=False)
    encoder.fit(frame, sensitive_features=s).save(tmp_path / "s.veil")
    loaded = fv.load(tmp_path / "s.veil")
    assert loaded.distortion_.measure == "ranks"
    pd.testing.assert_frame_equal(loaded.drift_, encoder.drift_)
    encoder.distortion = "squared"  # a file whose figures are in another unit than its parameters say
    encoder.save(tmp_path / "forged.veil")
    with pytest.raises(fv.VeilFileError, match="manifest"):
        fv.load(tmp_path / "forged.veil")
    good = encoder.distortion_.columns[0].to_dict()
    for wrong in ({"ks": "0"}, {"distinct_after": 2.5}, {"column": 3}, {"total_variation": -1.0}):
        with pytest.raises(ValueError, match="plain numbers"):
            ColumnDrift.from_dict({**good, **wrong})


def test_weights_count_rows_of_the_population(frame):
    codec = Codec(fv.Schema.infer(frame))
    x = codec.encode(read_table(frame).arrow)
    weight = torch.from_numpy(np.where(frame["color"] == "blue", 3.0, 1.0))
    counts = Marginals.of(codec.schema.layout, x, weight).counts
    assert counts[0] == 3 * (frame["color"] == "blue").sum()


def tails(rows, seed):
    """Lognormal, Pareto and zero-inflated numbers; the first row is extreme in all of them."""
    generator = np.random.default_rng(seed)
    s = generator.integers(0, 2, rows)
    x = pd.DataFrame(
        {
            "lognormal": np.exp(1.5 * generator.normal(size=rows) + 0.4 * s).round(2),
            "pareto": generator.pareto(1.1, rows).round(3),
            "count": np.where(generator.random(rows) < 0.7 - 0.2 * s, 0, generator.geometric(0.2, rows)),
        }
    )
    x.iloc[0] = [1e7, 1e9, 20_000]
    return x, s


@pytest.mark.filterwarnings("ignore::fairveil.ClippedWarning")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_heavy_tails_and_one_extreme_row_do_not_decide_whether_a_budget_is_met(seed):
    """`benchmarks/tables.py heavy` is the long version, with files."""
    x, s = tails(1500, seed)
    encoder = fv.FairEncoder(1.2, training=fv.Training(steps=60, rounds=6), verbose=False, random_state=seed)
    encoder.fit(x, sensitive_features=s)
    codec = encoder.veil_.codec
    before = codec.encode_rows(read_table(x).arrow)
    after = codec.encode(read_table(encoder.transform(x)).arrow)
    distortion = fv.objectives.make_distortion("auto", encoder.schema_.layout, "sampled")
    assert float(distortion.of_numbers(after, before.original).sum(dim=1).mean()) <= 1.2
    if seed == 0:
        with pytest.raises(fv.BudgetNotMet):
            fv.FairEncoder(1.2, distortion="squared", training=QUICK, verbose=False, random_state=0).fit(
                x, sensitive_features=s
            )
