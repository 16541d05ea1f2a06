"""The batch function: the same rows for the same secret and identity in any engine, and unrelated ones otherwise."""

import importlib.util
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fairveil as fv
from fairveil._utils.errors import InputError
from fairveil._utils.randomness import SystemRandom
from fairveil._utils.stores import Location, locate
from fairveil.veil import batch_function as shipping
from releases import table

SECRET = bytes(range(32))


@pytest.fixture(scope="module")
def veil(made):
    return fv.load(made / "sex.veil").veil_


@pytest.fixture(scope="module")
def rows():
    return pa.Table.from_pandas(table().assign(number=np.arange(900)), preserve_index=False)


def test_rows_by_their_numbers_are_the_same_in_any_batches_and_order(veil, rows):
    function = veil.batch_function(row_id="number", secret=SECRET, keep_row_id=True)
    whole = function(rows).to_pandas()
    order = np.random.default_rng(0).permutation(900)
    parts = [function(rows.take(pa.array(order[i : i + 130]))) for i in range(0, 900, 130)]
    again = pa.concat_tables(parts).to_pandas().sort_values("number", ignore_index=True)
    pd.testing.assert_frame_equal(whole, again)


def test_a_repeated_batch_gives_the_same_bytes_and_others_do_not(veil, rows):
    function = veil.batch_function(secret=SECRET)
    first = function(rows, batch=3)
    assert first.equals(pickle.loads(pickle.dumps(function))(rows, batch=3))
    others = [
        function(rows, batch=4), function(rows, batch="3"),
        veil.batch_function(secret=SECRET[::-1])(rows, batch=3), veil.batch_function()(rows, batch=3),
    ]  # fmt: skip
    assert all(not first.equals(other) for other in others)
    assert first.schema.equals(function.schema)


def test_other_rows_by_the_same_name_get_unrelated_noise(veil, rows):
    """As if a file were changed between two attempts: the noise must not cancel."""
    function = veil.batch_function(secret=SECRET)
    changed = rows.set_column(0, rows.column_names[0], rows[0].take(pa.array([1, 0, *range(2, 900)])))
    assert not function(rows, batch=0).slice(2).equals(function(changed, batch=0).slice(2))


def test_equal_rows_with_different_numbers_are_drawn_apart(veil, rows):
    """The control of the identity: by content alone, equal rows would all get one draw."""
    alike = pa.concat_tables([rows.slice(0, 1)] * 300).set_column(
        rows.column_names.index("number"), "number", pa.array(np.arange(300))
    )
    keyed = veil.batch_function(row_id="number")(alike).to_pandas()
    system = veil.apply(alike.select(keyed.columns.to_list()), alike.select(["sex"]), SystemRandom()).to_pandas()
    kinds = [len(drawn.drop_duplicates()) for drawn in (keyed, system)]
    assert min(kinds) > 0.6 * max(kinds) > 10


def test_it_agrees_in_distribution_with_transform(made, veil, rows):
    encoder = fv.load(made / "sex.veil")
    frame = rows.drop_columns(["number"]).to_pandas()
    plain = encoder.transform(frame)
    keyed = veil.batch_function(row_id="number")(rows).to_pandas()
    for name in ("role", "skill"):
        shares = [part[name].value_counts(normalize=True, dropna=False) for part in (plain, keyed)]
        assert shares[0].sub(shares[1], fill_value=0.0).abs().max() < 0.08


def test_the_veil_is_read_once_per_process(veil, rows, monkeypatch):
    shipped = pickle.dumps(veil.batch_function(secret=SECRET))
    reads, read = [], shipping.read_archive
    monkeypatch.setattr(shipping, "read_archive", lambda content: (reads.append(1), read(content))[1])
    shipping._read.clear()
    for number in range(5):
        pickle.loads(shipped)(rows, batch=number)
    assert len(reads) == 1


def test_the_secret_is_not_shown(veil):
    function = veil.batch_function(secret=SECRET, row_id="number")
    assert SECRET.hex() not in repr(function)
    assert str(SECRET) not in repr(function)
    assert function.secret == SECRET
    assert len(veil.batch_function().secret) == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.drop_columns(["role"]), "no column 'role'"),
        (lambda rows: rows.drop_columns(["sex"]), "no column 'sex'"),
        (lambda rows: rows.drop_columns(["number"]), "no column 'number'"),
        (lambda rows: _numbered(rows, [0, *range(899)]), "repeats in 1 rows"),
        (lambda rows: _numbered(rows, [None, *range(899)]), "missing in 1 rows"),
        (lambda rows: _numbered(rows, np.arange(900) / 2), "whole numbers or text"),
    ],
)
def test_bad_batches_are_refused(veil, rows, change, message):
    with pytest.raises(InputError, match=message):
        veil.batch_function(row_id="number")(change(rows))


def _numbered(rows, numbers):
    return rows.set_column(rows.column_names.index("number"), "number", pa.array(numbers))


def test_rows_without_identity_are_refused(veil, rows):
    with pytest.raises(InputError, match="Name each batch"):
        veil.batch_function()(rows)
    with pytest.raises(InputError, match="at least 16 bytes"):
        veil.batch_function(secret=b"short")
    with pytest.raises(InputError, match="is released"):
        veil.batch_function(row_id="role")


def test_without_columns_that_are_not_released_nothing_changes(veil, rows):
    function = veil.batch_function(secret=SECRET, row_id="number")
    assert function(rows).equals(function(rows.drop_columns(["hired"]).append_column("hired", rows["hired"])))
    extra = function(rows.append_column("diary", rows["role"]))
    assert extra.equals(function(rows))
    assert "diary" not in extra.column_names


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray_data_gives_the_same_rows(veil, rows, tmp_path):
    """In a process of its own: a cluster must not be left behind in the test process."""
    function = veil.batch_function(row_id="number", secret=SECRET, keep_row_id=True)
    (tmp_path / "function").write_bytes(pickle.dumps(function))
    _write_rows(locate(tmp_path / "rows.arrow"), rows)
    code = """
import logging, pickle, sys
import pyarrow as pa, ray, ray.data
ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
folder = sys.argv[1]
function = pickle.load(open(folder + "/function", "rb"))
rows = pa.ipc.open_file(folder + "/rows.arrow").read_all()
data = ray.data.from_arrow([rows.slice(i, 300) for i in (0, 300, 600)])
found = data.map_batches(function, batch_format="pyarrow", batch_size=200)
whole = pa.concat_tables(ray.get(found.to_arrow_refs())).sort_by("number")
with pa.OSFile(folder + "/found.arrow", "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
    writer.write_table(whole)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = pa.ipc.open_file(str(tmp_path / "found.arrow")).read_all()
    assert found.to_pandas().equals(function(rows).to_pandas())


@pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="Spark needs pyspark and Java",
)
def test_spark_gives_the_same_rows(veil, rows, tmp_path):
    function = veil.batch_function(row_id="number", secret=SECRET, keep_row_id=True)
    (tmp_path / "function").write_bytes(pickle.dumps(function))
    rows.to_pandas().to_parquet(tmp_path / "rows.parquet")
    code = """
import pickle, sys
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
folder = sys.argv[1]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
function = pickle.load(open(folder + "/function", "rb"))
schema = from_arrow_schema(function.schema.append(pa.field("number", pa.int64())))
data = spark.read.parquet(folder + "/rows.parquet").repartition(3)
data.mapInArrow(function.record_batches, schema).toPandas().to_parquet(folder + "/found.parquet")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYSPARK_PYTHON": sys.executable})  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = pd.read_parquet(tmp_path / "found.parquet").sort_values("number", ignore_index=True)
    pd.testing.assert_frame_equal(found, function(rows).to_pandas(), check_dtype=False)


def _write_rows(location: Location, rows: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    location.write(sink.getvalue())
