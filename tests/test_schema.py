"""Schema inference and editing, the layout, and exact round trips through the codec."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairveil import ClippedWarning, Column, InputError, Schema
from fairveil.data.bins import MOST_BINS
from fairveil.data.frames import read_table
from fairveil.data.sensitive import describe_sensitive
from fairveil.data.table_codec import Codec


def mixed(n=300, seed=0):
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "job": generator.choice(["nurse", "clerk", "miner"], n),
            "hurt": pd.array(generator.choice([True, False, None], n), dtype="boolean"),
            "rank": pd.Categorical(generator.choice(["a", "b"], n), categories=["b", "a", "never"]),
            "age": generator.integers(17, 91, n),
            "gain": np.where(generator.random(n) < 0.8, 0, generator.integers(1, 50000, n)),
            "rate": np.round(generator.normal(3, 1, n), 2),
            "debt": np.where(generator.random(n) < 0.3, np.nan, np.round(generator.gamma(2, 100, n), 1)),
            "town": pd.Series(np.where(generator.random(n) < 0.1, None, generator.choice(["x", "y"], n)), dtype="str"),
        }
    )


def round_trip(frame):
    table = read_table(frame)
    codec = Codec(Schema.infer(frame, fewest=1))
    tensor = codec.encode(table.arrow)
    assert torch.isfinite(tensor).all()
    return table.like_origin(codec.decode(tensor))


def test_round_trip_pandas():
    frame = mixed()
    frame.index = np.arange(len(frame)) * 3
    pd.testing.assert_frame_equal(round_trip(frame), frame)


def test_round_trip_polars():
    frame = pl.from_pandas(mixed())
    back = round_trip(frame)
    assert back.schema == frame.schema
    assert back.equals(frame)


def test_round_trip_arrow():
    frame = pa.Table.from_pandas(mixed(), preserve_index=False).replace_schema_metadata()
    back = round_trip(frame)
    assert back.schema.equals(frame.schema)
    assert back.to_pylist() == frame.to_pylist()
    assert back["rank"].chunk(0).dictionary.equals(frame["rank"].chunk(0).dictionary)


def test_round_trip_numpy():
    array = np.random.default_rng(0).integers(0, 50, (100, 3)).astype(np.float64)
    array[3, 1] = np.nan
    np.testing.assert_array_equal(round_trip(array), array)


numbers = st.one_of(
    st.lists(st.integers(-(10**6), 10**6), min_size=12, max_size=40),
    st.lists(st.integers(-(10**6), 10**6).map(lambda v: v / 100), min_size=12, max_size=40),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(numbers)
def test_numbers_survive_exactly_on_their_grid(values):
    frame = pd.DataFrame({"v": values})
    schema = Schema.infer(frame)
    back = round_trip(frame)["v"].to_numpy(dtype=float)
    column = schema["v"]
    if column.kind == "categorical" or (column.upper - column.lower) / column.grid <= 2**20:
        resolution = 0.0 if column.kind == "categorical" else column.grid / 2
        np.testing.assert_allclose(back, np.asarray(values, dtype=float), rtol=0, atol=resolution + 1e-9)


def test_kinds_roles_and_ranges_are_inferred():
    schema = Schema.infer(mixed(), drop=["town"], keep=["rank"], sensitive=["job"], fewest=1)
    assert {c.name: c.kind for c in schema.columns if c.released} == {
        "hurt": "categorical", "rank": "categorical", "age": "integer", "gain": "integer", "rate": "continuous",
        "debt": "continuous"}  # fmt: skip
    assert (schema["age"].lower, schema["age"].upper, schema["age"].grid) == (17.0, 90.0, 1.0)
    assert schema["rate"].grid == pytest.approx(0.01)
    assert schema["debt"].missing
    assert schema["job"].role == "sensitive"
    assert schema["town"].role == "drop"
    assert [c.name for c in schema.seen] == ["hurt", "rank", "age", "gain", "rate", "debt"]


def test_layout_slots_are_contiguous_and_named():
    layout = Schema.infer(mixed()).layout
    assert layout.groups[0].start == 0
    for first, second in zip(layout.groups, layout.groups[1:], strict=False):
        assert first.stop == second.start
    assert len(layout.slot_names) == layout.width == layout.group_width + len(layout.numbers)
    assert len(set(layout.slot_names)) == layout.width


def test_each_row_is_one_hot_in_every_group_and_missing_has_its_own_slot():
    frame = mixed()
    schema = Schema.infer(frame)
    tensor = Codec(schema).encode(read_table(frame).arrow)
    for group in schema.layout.groups:
        assert torch.equal(tensor[:, group.start : group.stop].sum(1), torch.ones(len(frame)))
    debt = next(group for group in schema.layout.groups if group.column.name == "debt")
    assert torch.equal(tensor[:, debt.stop - 1].bool(), torch.tensor(frame["debt"].isna().to_numpy()))


def test_spikes_are_bins_of_their_own_and_bins_are_few():
    generator = np.random.default_rng(0)
    values = np.where(generator.random(5000) < 0.5, 7298, generator.integers(0, 99999, 5000))
    column = Schema.infer(pd.DataFrame({"gain": values}), fewest=1)["gain"]
    bins = column.bins()
    assert [7298.0, 7298.0] in bins.tolist()
    assert len(bins) <= MOST_BINS
    assert bins[0, 0] == column.lower
    assert bins[-1, 1] == column.upper
    np.testing.assert_array_equal(bins[1:, 0], bins[:-1, 1] + column.grid)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_drawing_within_the_bins_of_a_heavy_tail_costs_little(sigma):
    values = np.round(np.exp(np.random.default_rng(0).normal(5, sigma, 20000)), 2)
    column = Schema.infer(pd.DataFrame({"income": values}), fewest=1)["income"]
    bins = column.bins()[np.searchsorted(column.starts, values, side="right") - 1]
    cost = (values - bins.mean(axis=1)) ** 2 + (bins[:, 1] - bins[:, 0]) ** 2 / 12
    assert cost.mean() <= 0.012 * values.var()
    assert len(column.starts) <= 2 * MOST_BINS


def test_json_both_ways_and_edits(tmp_path):
    schema = Schema.infer(mixed())
    assert Schema.from_json(schema.to_json()) == schema
    schema.save(tmp_path / "s.json")
    edited = json.loads((tmp_path / "s.json").read_text())
    edited["columns"][0]["role"] = "drop"
    assert Schema.from_json(json.dumps(edited)) == schema.edit("job", role="drop")
    with pytest.raises(InputError, match="no column 'nobody'"):
        schema.edit("nobody", role="drop")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"role": "hide"}, "unknown role 'hide'"),
        ({"kind": "text"}, "unknown kind 'text'"),
        ({"scale": 0.0}, "scale above 0"),
        ({"grid": -1.0}, "grid above 0"),
        ({"lower": 5.0, "upper": 1.0, "starts": ()}, "lower end above"),
        ({"starts": (20.0, 17.0)}, "rising order|first bin"),
        ({"grid": 1.0, "lower": None, "starts": ()}, "no lower end"),
    ],
)
def test_a_schema_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        Schema.infer(mixed()).edit("age", **change)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"columns": [{"nam": 1}]}', '{"columns": 3}', "nonsense"])
def test_text_that_is_no_schema_is_refused(text):
    with pytest.raises(InputError, match="not a schema"):
        Schema.from_json(text)


def test_all_problems_at_once_with_column_and_remedy():
    frame = mixed()
    codec = Codec(Schema.infer(frame, fewest=1))
    bad = frame.drop(columns="town").assign(
        job=["nurse"] * 298 + ["pilot"] * 2, age=frame["age"].astype(str), rate=np.inf, extra=1
    )
    with pytest.raises(InputError) as caught:
        codec.encode(read_table(bad).arrow)
    text = str(caught.value)
    assert text.startswith("5 problems")
    for part in (
        "'town' is missing",
        "'job'",
        "rows 298, 299",
        "'age' holds string",
        "'rate' holds infinity",
        "'extra'",
    ):
        assert part in text
    assert "pilot" not in text  # no value of the data


def test_unseen_category_as_the_most_frequent():
    frame = mixed()
    schema = Schema.infer(frame)
    strange = read_table(frame.assign(job="pilot")).arrow
    decoded = Codec(schema, "most_frequent").decode(Codec(schema, "most_frequent").encode(strange))
    assert set(decoded["job"].to_pylist()) == {frame["job"].mode()[0]}


def test_numbers_out_of_range_are_clipped_with_a_warning():
    frame = mixed()
    codec = Codec(Schema.infer(frame, fewest=1))
    with pytest.warns(ClippedWarning, match="Column 'age': 300 of 300"):
        decoded = codec.decode(codec.encode(read_table(frame.assign(age=200)).arrow))
    assert set(decoded["age"].to_pylist()) == {int(codec.schema["age"].upper)}


def test_new_missing_values_and_numbers_off_the_grid_are_refused():
    frame = mixed()
    codec = Codec(Schema.infer(frame, fewest=1))
    with pytest.raises(InputError, match="'rate' has missing values"):
        codec.encode(read_table(frame.assign(rate=np.nan)).arrow)
    with pytest.raises(InputError, match="'age' holds numbers off its grid"):
        codec.encode(read_table(frame.assign(age=20.5)).arrow)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1, 2]] * 20, "cannot be encoded"),
        ([None] * 20, "holds no values"),
        ([float("inf")] + [1.0, 2.0, 3.0] * 6, "infinity"),
        ([f"id{i}" for i in range(600)], "600 distinct values"),
        ([float(10**14 * i) for i in range(40)], "identifier"),
        ([1, "one"] * 10, "mixes types"),
    ],
)
def test_columns_that_cannot_be_used_are_named(column, message):
    with pytest.raises(InputError, match=message) as caught:
        Schema.infer(pd.DataFrame({"odd": column}))
    assert "'odd'" in str(caught.value)


def test_range_scale_of_the_paper():
    column = Schema.infer(mixed(), scale="range")["age"]
    assert column.scale == column.upper - column.lower
    assert column.center == column.lower


def test_a_column_by_hand():
    schema = Schema((Column("x", "continuous", family="number"),))
    codec = Codec(schema)
    table = pa.table({"x": [0.123456789, -5.0]})
    np.testing.assert_allclose(codec.decode(codec.encode(table))["x"].to_numpy(), [0.123456789, -5.0], rtol=1e-6)


def test_joint_classes_are_found_and_unseen_combinations_refused():
    seen = pa.table({"a": ["x", "y", "x", "z"], "b": [1, 0, 0, 1]})
    sensitive = describe_sensitive(seen, discrete=True)
    by_hand = [sensitive.joint.index(tuple(combo)) for combo in sensitive.codes(seen).tolist()]
    assert sensitive.classes_of(seen).tolist() == by_hand
    assert len(set(by_hand)) == 4
    with pytest.raises(InputError, match=r"combination of values not seen in fit \(row 1\)"):
        sensitive.classes_of(pa.table({"a": ["x", "z", "y"], "b": [1, 0, 0]}))


def test_bins_are_found_by_the_number_itself_and_not_by_its_tensor():
    column = Column("n", "continuous", family="number", lower=0.0, upper=1e6, grid=0.01, starts=(0.0, 999999.99))
    encoded = Codec(Schema((column,))).encode(pa.table({"n": [999999.98, 999999.99]}))
    assert encoded[:, :2].tolist() == [[1.0, 0.0], [0.0, 1.0]]
