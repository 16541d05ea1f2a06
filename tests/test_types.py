"""Dates, times, decimals, booleans and categories keep their types, in every library and file format."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairveil as fv
from fairveil import InputError
from fairveil.data.types import arrow_type, from_numbers, from_pattern, is_type, text_pattern, to_numbers, to_pattern
from fairveil.workflows import Options, Recipe, fit_file, fit_frontier, inspect_file, open_table, release_file
from helpers import QUICK

ROWS = 400
GENERATOR = np.random.default_rng(0)
SEX = GENERATOR.choice(["f", "m"], ROWS)
DAYS = [dt.date(2020, 1, 1) + dt.timedelta(int(day)) for day in GENERATOR.integers(0, 700, ROWS)]
MINUTES = [dt.datetime(2021, 5, 3) + dt.timedelta(minutes=int(m)) for m in GENERATOR.integers(0, 50_000, ROWS)]
TIMES = [dt.time(int(s) // 3600, int(s) // 60 % 60, int(s) % 60) for s in GENERATOR.integers(0, 86_400, ROWS)]
PRICES = [Decimal(int(cents)) / 100 for cents in GENERATOR.integers(100, 9_000, ROWS)]
WORDS = GENERATOR.choice(["red", "green", "blue"], ROWS)
COUNTS = GENERATOR.integers(0, 40, ROWS)
GAPS = np.arange(ROWS) % 17 == 0


def released(frame):
    """The output of `transform` after a short fit."""
    encoder = fv.FairEncoder(1e6, training=QUICK, sees_sensitive=True, verbose=False, random_state=0)
    return encoder.fit(frame, sensitive_features=SEX).transform(frame, sensitive_features=SEX)


PANDAS = {
    "dates as objects": pd.Series(DAYS),
    "datetime64[ns]": pd.Series(pd.to_datetime(MINUTES)).astype("datetime64[ns]"),
    "datetime64[s]": pd.Series(pd.to_datetime(MINUTES)).astype("datetime64[s]"),
    "with a zone": pd.Series(pd.to_datetime(MINUTES)).dt.tz_localize("Europe/Berlin", ambiguous=True),
    "with gaps": pd.Series(pd.to_datetime(MINUTES)).mask(GAPS),
    "timedelta": pd.Series(pd.to_timedelta(COUNTS, unit="h")),
    "times as objects": pd.Series(TIMES),
    "decimals": pd.Series(PRICES),
    "bool": pd.Series(COUNTS > 20),
    "boolean": pd.Series(COUNTS > 20, dtype="boolean").mask(GAPS),
    "Int64": pd.Series(COUNTS, dtype="Int64").mask(GAPS),
    "int8": pd.Series(COUNTS, dtype="int8"),
    "UInt16": pd.Series(COUNTS, dtype="UInt16"),
    "Float64": pd.Series(COUNTS / 4, dtype="Float64").mask(GAPS),
    "float32": pd.Series(COUNTS / 4, dtype="float32"),
    "string": pd.Series(WORDS, dtype="string").mask(GAPS),
    "category": pd.Series(WORDS, dtype="category"),
    "ordered category": pd.Series(pd.Categorical(WORDS, ["red", "green", "blue"], ordered=True)),
    "category of numbers": pd.Series(COUNTS % 3, dtype="category"),
    "arrow int": pd.Series(COUNTS, dtype="int64[pyarrow]").mask(GAPS),
    "arrow bool": pd.Series(COUNTS > 20, dtype="bool[pyarrow]").mask(GAPS),
    "arrow string": pd.Series(WORDS, dtype="string[pyarrow]"),
    "arrow text": pd.Series(WORDS, dtype=pd.ArrowDtype(pa.string())).mask(GAPS),
    "arrow date": pd.Series(DAYS, dtype="date32[pyarrow]").mask(GAPS),
    "arrow timestamp": pd.Series(MINUTES, dtype="timestamp[us][pyarrow]"),
    "arrow zone": pd.Series(MINUTES, dtype=pd.ArrowDtype(pa.timestamp("ms", "UTC"))),
    "arrow time": pd.Series(TIMES, dtype=pd.ArrowDtype(pa.time64("us"))),
    "arrow duration": pd.Series(pd.to_timedelta(COUNTS, unit="s")).astype("duration[s][pyarrow]"),
    "arrow decimal": pd.Series(PRICES, dtype=pd.ArrowDtype(pa.decimal128(8, 2))),
}


def other(frame):
    """Add a column to the one under test, so that there is always something to encode."""
    return frame.assign(word=WORDS) if isinstance(frame, pd.DataFrame) else frame.with_columns(pl.Series("word", WORDS))


@pytest.mark.parametrize("name", PANDAS)
def test_pandas_types_stay(name):
    frame = other(PANDAS[name].to_frame("value"))
    out = released(frame)
    pd.testing.assert_series_equal(out.dtypes, frame.dtypes)
    kinds = {type(value) for value in frame["value"].dropna()}
    assert {type(value) for value in out["value"].dropna()} <= kinds
    low, high = (frame["value"].dropna().astype(object).agg(end) for end in ("min", "max"))
    assert len(out) == len(frame)
    if not isinstance(frame["value"].dtype, pd.CategoricalDtype):  # rounded ends of a range may lie slightly outside
        assert out["value"].dropna().astype(object).between(low, high).mean() > 0.9


POLARS = {
    "Date": pl.Series(DAYS),
    "Datetime": pl.Series(MINUTES).cast(pl.Datetime("ms")),
    "Datetime with a zone": pl.Series(MINUTES).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
    "Time": pl.Series(TIMES),
    "Duration": pl.Series([dt.timedelta(hours=int(h)) for h in COUNTS]).cast(pl.Duration("ms")),
    "Decimal": pl.Series(PRICES, dtype=pl.Decimal(8, 2)),
    "Enum": pl.Series(WORDS).cast(pl.Enum(["red", "green", "blue", "white"])),
    "Categorical": pl.Series(WORDS).cast(pl.Categorical),
    "Boolean": pl.Series(COUNTS > 20),
    "UInt8": pl.Series(COUNTS).cast(pl.UInt8),
    "Date with gaps": pl.Series([None if gap else day for gap, day in zip(GAPS, DAYS, strict=True)], dtype=pl.Date),
}


@pytest.mark.parametrize("name", POLARS)
def test_polars_types_stay(name):
    frame = other(pl.DataFrame({"value": POLARS[name]}))
    assert released(frame).schema == frame.schema


@pytest.mark.parametrize("kind", [
    pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "Europe/Berlin"),
    pa.time32("s"), pa.time64("ns"), pa.duration("ms"), pa.decimal128(9, 3), pa.decimal256(40, 2),
])  # fmt: skip
def test_arrow_types_stay(kind):
    numbers = pa.chunked_array([pa.array(COUNTS if pa.types.is_date(kind) else COUNTS * 60_000_000)])
    if pa.types.is_decimal(kind):
        numbers = pa.chunked_array([pa.array(COUNTS / 4)])
    table = pa.table({"value": from_numbers(numbers, kind), "word": WORDS})
    assert released(table).schema == table.schema
    assert to_numbers(table["value"]).to_numpy().tolist() == numbers.to_numpy().tolist()
    assert arrow_type(str(kind)) == kind


def test_a_release_keeps_the_resolution():
    """Timestamps in whole minutes or hours stay so, and dates stay dates."""
    frame = pd.DataFrame({"when": pd.to_datetime(MINUTES), "day": DAYS, "word": WORDS})
    out = released(frame)
    assert (out["when"].dt.second == 0).all()
    assert (out["when"] != frame["when"]).any()
    assert all(type(day) is dt.date for day in out["day"])
    hours = frame.assign(when=frame["when"].dt.floor("h"))
    assert (released(hours)["when"].dt.minute == 0).all()


def test_long_spans_of_seconds_lie_on_a_clock():
    """Seconds would need too many steps, so the grid uses a coarser unit of time."""
    seconds = pd.Timestamp("1990-01-01") + pd.to_timedelta(GENERATOR.integers(0, 10**9, ROWS), unit="s")
    out = released(pd.DataFrame({"when": seconds, "word": WORDS}))
    assert (out["when"].dt.second == 0).all()
    column = fv.Schema.infer(pd.DataFrame({"when": seconds}))["when"]
    assert (column.upper - column.lower) / column.grid <= 2**22


@pytest.mark.parametrize("wrong", [
    pd.Series(range(ROWS)), pd.Series(pd.to_datetime(DAYS)), pd.Series(DAYS).astype(str), pd.Series(PRICES),
])  # fmt: skip
def test_another_type_is_refused(wrong):
    frame = pd.DataFrame({"day": DAYS, "word": WORDS})
    encoder = fv.FairEncoder(1e6, training=QUICK, verbose=False, random_state=0).fit(frame, sensitive_features=SEX)
    with pytest.raises(InputError, match="'day' holds"):
        encoder.transform(frame.assign(day=wrong))


TEXTS = {
    "2020-01-02": "%Y-%m-%d",
    "2020-01-02 03:04": "%Y-%m-%d %H:%M",
    "2020-01-02T03:04:05": "%Y-%m-%dT%H:%M:%S",
    "2020-01-02 03:04:05.123": "%Y-%m-%d %H:%M:%S.fff",
    "2020-01-02T03:04:05.123456": "%Y-%m-%dT%H:%M:%S.ffffff",
    "03:04": "%H:%M",
    "03:04:05.250": "%H:%M:%S.fff",
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_read_and_written_alike(text):
    cells = pa.chunked_array([[text, None]])
    pattern = text_pattern(cells)
    assert pattern == TEXTS[text]
    numbers, wrong = from_pattern(cells, pattern)
    assert not wrong
    assert to_pattern(from_numbers(numbers, arrow_type(pattern)), pattern, 1.0).to_pylist() == [text, None]


@pytest.mark.parametrize("text", ["2020-02-30", "02.01.2020", "25:00", "2020-01-02 3:04", "12", "", "2020-01-02Z"])
def test_other_texts_are_no_moments(text):
    assert text_pattern(pa.chunked_array([[text]])) is None


@pytest.mark.parametrize(
    "name", ["timestamp[h]", "date", "decimal128(99, 2)", "time64[s]", "%d", "timestamp[s, tz=a b]"]
)
def test_forged_types_are_refused(name):
    assert not is_type(name)
    with pytest.raises(InputError, match="unknown type"):
        fv.Schema((fv.Column("a", "continuous", family="number", type=name),))


def table():
    return pd.DataFrame({
        "born": [day.isoformat() for day in DAYS],
        "seen": [moment.strftime("%Y-%m-%d %H:%M") for moment in MINUTES],
        "hour": [f"{count % 24:02d}:00" for count in COUNTS],
        "fee": [f"{price:.2f}" for price in PRICES],
        "word": WORDS,
        "sex": SEX,
    })  # fmt: skip


def veil_of(path, folder):
    target = folder / "sex.veil"
    fit_file(path, target, 1e6, Recipe(("sex",), architecture="feedforward", steps=3, seed=0, show_progress=False))
    return target


def test_a_csv_file_keeps_its_dates(tmp_path):
    source = tmp_path / "people.csv"
    table().to_csv(source, index=False)
    types = {column.name: column.type for column in inspect_file(open_table(source), ("sex",)).schema().columns}
    assert types == {"born": "%Y-%m-%d", "seen": "%Y-%m-%d %H:%M", "hour": "%H:%M", "fee": None, "word": None,
                     "sex": None}  # fmt: skip
    veil = veil_of(source, tmp_path)
    release_file(source, veil, tmp_path / "out.csv", Options(show_progress=False))
    out = pd.read_csv(tmp_path / "out.csv", dtype=str)
    assert out["born"].str.fullmatch(r"\d{4}-\d{2}-\d{2}").all()
    assert out["seen"].str.fullmatch(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}").all()
    assert out["hour"].str.fullmatch(r"\d{2}:00").all()
    assert pd.to_datetime(out["born"]).between("2019-10-01", "2022-03-01").all()
    # Released to Parquet, the same columns have Parquet's date and time types.
    release_file(source, veil, tmp_path / "out.parquet", Options(show_progress=False, again=True))
    schema = pq.read_schema(tmp_path / "out.parquet")
    assert [schema.field(name).type for name in ("born", "seen", "hour")] == [pa.date32(), pa.timestamp("us"),
                                                                              pa.time64("us")]  # fmt: skip


def test_a_parquet_file_keeps_its_types(tmp_path):
    source = tmp_path / "people.parquet"
    columns = {
        "born": pa.array(DAYS), "seen": pa.array(MINUTES, pa.timestamp("ms", "UTC")),
        "hour": pa.array(TIMES, pa.time32("s")), "fee": pa.array(PRICES, pa.decimal128(7, 2)),
        "wait": pa.array(COUNTS * 60, pa.duration("s")), "ok": pa.array(COUNTS > 9), "word": pa.array(WORDS),
        "sex": pa.array(SEX),
    }  # fmt: skip
    pq.write_table(pa.table(columns), source)
    veil = veil_of(source, tmp_path)
    release_file(source, veil, tmp_path / "out.parquet", Options(show_progress=False))
    out, before = pq.read_schema(tmp_path / "out.parquet"), pq.read_schema(source)
    release_file(source, veil, tmp_path / "out.csv", Options(show_progress=False, again=True))
    assert set(pd.read_csv(tmp_path / "out.csv")["wait"] % 60) == {0}
    kept = [name for name in columns if name not in ("sex", "wait")]  # Parquet itself knows no durations
    assert {name: out.field(name).type for name in kept} == {name: before.field(name).type for name in kept}


def test_dates_on_disk_are_audited(tmp_path, run):
    source = tmp_path / "people.csv"
    table().to_csv(source, index=False)
    veil = veil_of(source, tmp_path)
    assert run("release", source, "--veil", veil, "-o", tmp_path / "out.csv", "--quiet")[0] == 0
    code, told = run("audit", tmp_path / "out.csv", "--original", source, "-s", "sex", "--quiet")
    assert code in (0, 1), told


def test_dates_where_the_veil_has_numbers_are_refused(tmp_path, run):
    numbers, dates = tmp_path / "a.parquet", tmp_path / "b.parquet"
    plain = table()[["word", "sex"]].assign(born=COUNTS)
    plain.to_parquet(numbers)
    plain.assign(born=DAYS).to_parquet(dates)
    veil = veil_of(numbers, tmp_path)
    code, told = run("release", dates, "--veil", veil, "-o", tmp_path / "out.csv", "--quiet")
    assert code == 2
    assert "'born'" in told
    bad = tmp_path / "bad.csv"
    table().assign(born="soon").to_csv(bad, index=False)
    veil = veil_of(_csv(tmp_path), tmp_path)
    code, told = run("release", bad, "--veil", veil, "-o", tmp_path / "out.csv", "--quiet")
    assert code == 2
    assert "'born'" in told
    assert "soon" not in told


def _csv(folder):
    path = folder / "good.csv"
    table().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("ns"), pa.time64("us"), pa.duration("s")])
def test_numbers_beyond_any_calendar_are_clipped(kind):
    """A forged schema may have any range."""
    for number in (1e17, -1e17, 3e9):
        found = from_numbers(pa.chunked_array([[number]]), kind)
        assert found.type == kind
        assert found.null_count == 0


def test_a_frontier_of_a_file_with_dates(tmp_path):
    source = tmp_path / "people.csv"
    table().to_csv(source, index=False)
    recipe = Recipe(("sex",), architecture="feedforward", steps=3, seed=0, show_progress=False)
    points = fit_frontier(source, tmp_path / "veils", [1e5, 1e6], recipe, ["word"])
    assert points["S accuracy"].notna().all()
