"""Tables of many files, on disk and in a store: read as one table, released as one, and never half."""

import json
import sys
from dataclasses import replace

import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from fairveil._utils.errors import InputError
from fairveil._utils.stores import StoreError, locate
from fairveil.veil.archive import read_archive
from fairveil.workflows import Options, Recipe, audit_file, fit_file, open_source, release_file, tables
from fairveil.workflows.many_files import MANIFEST, digest_of, open_tables
from fairveil.workflows.release import job as asking
from fairveil.workflows.release import tables as streaming
from fairveil.workflows.release.ledger import Ledger
from releases import table

QUIET = Options(show_progress=False, workers=2)


@pytest.fixture
def small(monkeypatch):
    """Many batches and many buckets."""
    monkeypatch.setattr(asking, "_MOST_BATCH", 100)
    monkeypatch.setattr(asking, "_LEAST_BATCH", 100)
    monkeypatch.setattr(asking, "_CELL_BYTES", 2**17)


@pytest.fixture
def memory():
    """The store in memory, empty."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


def split(folder, frame, rows=300, suffix=".parquet", inside="{}"):
    for number, start in enumerate(range(0, len(frame), rows)):
        path = folder / inside.format(number)
        path.mkdir(parents=True, exist_ok=True)
        part = frame.iloc[start : start + rows]
        if suffix == ".csv":
            part.to_csv(path / f"{number}.csv", index=False)
        else:
            part.to_parquet(path / f"{number}.parquet", index=False, row_group_size=70)
    return folder


def release(place, source, target, **options):
    return release_file(source, place / "sex.veil", target, replace(QUIET, **options))


def rows_of(source):
    return pd.concat([t.to_pandas() for t in source.batches(source.names, {}, 64)], ignore_index=True)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_folder_and_a_pattern_are_one_table(tmp_path, suffix):
    frame = table()
    split(tmp_path / "in", frame, suffix=suffix)
    (tmp_path / "in" / "_notes.csv").write_text("not,a,part\n")
    (tmp_path / "in" / "read.me").write_text("not a table")
    whole = rows_of(open_tables(tmp_path / "in"))
    assert len(whole) == 900
    assert whole["role"].tolist() == frame["role"].tolist()
    assert len(rows_of(open_tables(str(tmp_path / "in" / "[01]" / f"*{suffix}")))) == 600
    assert len(rows_of(open_tables(str(tmp_path / "in" / "**" / f"1{suffix}")))) == 300
    with pytest.raises(InputError, match="no CSV or Parquet"):
        open_tables(str(tmp_path / "in" / "*.feather"))


def test_batches_can_start_anywhere(tmp_path):
    split(tmp_path / "in", table(), rows=900)
    [file] = open_tables(tmp_path / "in").files
    every = list(file.batches(file.names, {}, 64))
    for first, last in ((0, 3), (4, 9), (13, None), (99, None)):
        some = list(file.batches(file.names, {}, 64, first=first, last=last))
        assert [part.to_pydict() for part in some] == [part.to_pydict() for part in every[first:last]]


def test_partitions_are_columns(tmp_path):
    frame = table()
    for (sex, town), part in frame.groupby(["sex", "town"]):
        split(tmp_path / "in" / f"sex={sex}" / f"town={town}%20hill", part.drop(columns=["sex", "town"]), 10_000)
    nobody = frame[frame["town"].isna()]
    split(tmp_path / "in" / "sex=f" / "town=__HIVE_DEFAULT_PARTITION__", nobody.drop(columns=["sex", "town"]), 10_000)
    whole = rows_of(open_tables(tmp_path / "in"))
    assert len(whole) == 900
    assert (
        whole["sex"].value_counts().to_dict() == frame["sex"].where(frame["town"].notna(), "f").value_counts().to_dict()
    )
    assert set(whole["town"].dropna()) == {f"{town} hill" for town in frame["town"].dropna()}
    assert whole["town"].isna().sum() == len(nobody)


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    split(tmp_path / "in", table())
    table().drop(columns="role").to_parquet(tmp_path / "in" / "odd.parquet", index=False)
    with pytest.raises(InputError, match="same columns"):
        open_tables(tmp_path / "in")
    (tmp_path / "in" / "odd.parquet").unlink()
    table().to_csv(tmp_path / "in" / "odd.csv", index=False)
    with pytest.raises(InputError, match="csv file"):
        open_tables(tmp_path / "in")


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_many_files_are_released_as_many(place, small, suffix):
    split(place / "in", table(), suffix=suffix)
    card = release(place, place / "in", place / "out")
    assert card["release"]["rows"] == 900
    names = sorted(path.name for path in (place / "out").iterdir())
    assert len(names) > 3
    assert names[0] == MANIFEST
    manifest = json.loads((place / "out" / MANIFEST).read_text())
    assert [file["name"] for file in manifest["files"]] == names[1:]
    assert sum(pq.ParquetFile(place / "out" / name).metadata.num_rows for name in names[1:]) == 900
    assert not pq.ParquetFile(place / "out" / names[1]).schema_arrow.metadata
    ledger = Ledger.of(place / "sex.veil")
    entry = ledger.find(digest_of(open_tables(place / "out")))
    assert entry is not None
    assert entry.sha256 == card["release"]["sha256"]
    assert sorted(ledger.order(entry)) == list(range(900))
    # The ledger knows these rows again, in one file too.
    with pytest.raises(InputError, match="were released"):
        release(place, place / "people.csv", place / "again.csv")
    with pytest.raises(InputError, match="already exists"):
        release(place, place / "in", place / "out", again=True)
    assert not list(place.glob(".*"))


def test_the_order_tells_which_row_is_which(place, small):
    """An audit of many files against many finds their rows; against other files it refuses."""
    split(place / "in", table())
    release(place, place / "in", place / "out")
    result = audit_file(place / "out", place / "in", ["sex"], veil=place / "sex.veil", show_progress=False)
    assert result.seal
    frame = table()
    split(place / "other", frame.iloc[np.r_[1, 0, 2:900]])
    with pytest.raises(InputError, match="not the table"):
        audit_file(place / "out", place / "other", ["sex"], veil=place / "sex.veil", show_progress=False)


def test_a_changed_file_in_a_release_is_not_that_release(place, small):
    split(place / "in", table())
    release(place, place / "in", place / "out")
    first = place / "out" / "part-00000.parquet"
    pq.write_table(pq.read_table(first).slice(1), first)
    assert Ledger.of(place / "sex.veil").find(open_source(place / "out").digest()) is None


def test_the_same_seed_gives_the_same_rows_in_one_file_or_many(place, small, monkeypatch):
    """Draws are keyed by the file and the row: one target or another, one worker or many."""
    monkeypatch.setattr(tables, "together", lambda *_: None)
    split(place / "in", table())
    found = []
    for target, workers in (("a.parquet", 1), ("b", 2), ("c", 8)):
        release(place, place / "in", place / target, seed=3, workers=workers, again=True)
        frame = pd.read_parquet(place / target)
        found.append(frame.sort_values(frame.columns.to_list(), ignore_index=True))
    pd.testing.assert_frame_equal(found[0], found[1])
    assert (place / "b" / MANIFEST).read_bytes() == (place / "c" / MANIFEST).read_bytes()


@pytest.mark.parametrize("stop", ["gather_bucket", "_publish_folder"])
def test_many_files_appear_at_once_or_not_at_all(place, small, monkeypatch, stop):
    split(place / "in", table())
    calls, function = [], getattr(streaming, stop)

    def killed(*arguments):
        calls.append(1)
        if len(calls) == (3 if stop == "gather_bucket" else 1):
            raise KeyboardInterrupt
        return function(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(streaming, stop, killed)
        with pytest.raises(KeyboardInterrupt):
            release(place, place / "in", place / "out")
    assert not (place / "out").exists()
    assert release(place, place / "in", place / "out", resume=True)["release"]["rows"] == 900
    assert len(pd.read_parquet(place / "out")) == 900
    assert release(place, place / "in", place / "out", resume=True)["release"]["rows"] == 900  # nothing to do


def test_from_a_store_to_a_store(place, small, memory):
    for number, path in enumerate(sorted(split(place / "in", table()).rglob("*.parquet"))):
        memory.pipe(f"/plain/{number}.parquet", path.read_bytes())
    card = release(place, "memory://plain", "memory://public/out")
    assert card["release"]["rows"] == 900
    assert card["release"]["file"] == "out"
    found = sorted(name for name in memory.find("/public"))
    assert f"/public/out/{MANIFEST}" in found
    assert "/public/out.card.json" in found
    assert sum(len(pd.read_parquet(memory.open(n))) for n in found if n.endswith(".parquet")) == 900
    ledger = Ledger.of(place / "sex.veil")
    assert ledger.find(digest_of(open_tables("memory://public/out"))) is not None
    assert not list((place / "sex.veil.ledger").glob(".*"))


def test_an_audit_reads_both_tables_from_a_store(place, small, memory, run, monkeypatch):
    """Up to the attacks."""
    for number, path in enumerate(sorted(split(place / "in", table()).rglob("*.parquet"))):
        memory.pipe(f"/plain/{number}.parquet", path.read_bytes())
    release(place, "memory://plain", "memory://public/out")
    seen = []

    def attacks(released, secrets, *_, **named):
        seen.append((released.num_rows, secrets.column_names, named["original"].num_rows))
        raise InputError("read")

    monkeypatch.setattr(sys.modules["fairveil.workflows.audit"], "audit", attacks)
    code, said = run("audit", "memory://public/out", "--original", "memory://plain", "-s", "sex",
                     "--veil", place / "sex.veil")  # fmt: skip
    assert (code, said.strip()) == (2, "fairveil: read")
    assert seen == [(900, ["sex"], 900)]


def test_one_file_in_a_store(place, memory):
    memory.pipe("/in/people.csv", (place / "people.csv").read_bytes())
    release(place, "memory://in/people.csv", "memory://public/one.csv")
    assert len(pd.read_csv(memory.open("/public/one.csv"))) == 900
    assert memory.exists("/public/one.csv.card.md")


def test_a_veil_is_fitted_from_many_files(place, memory):
    """The same rows in one file, in a folder and in a store give the same veil."""
    split(place / "in", table())
    for path in (place / "in").rglob("*.parquet"):
        memory.pipe(f"/in/{path.name}", path.read_bytes())
    recipe = Recipe(("sex",), architecture="feedforward", steps=3, seed=0, show_progress=False)
    table().to_parquet(place / "one.parquet", index=False)
    sources = {"one": place / "one.parquet", "many": place / "in", "store": "memory://in"}
    for name, source in sources.items():
        fit_file(source, place / f"{name}.veil", 1e6, recipe)
    weights = [read_archive(place / f"{name}.veil")[1] for name in sources]
    assert all(torch.equal(weights[0][name], other[name]) for other in weights[1:] for name in weights[0])


def test_in_a_store_the_manifest_comes_last(place, small, memory, monkeypatch):
    split(place / "in", table())
    written = []
    write, copy = type(locate("x")).write, type(locate("x")).copy_to
    monkeypatch.setattr(type(locate("x")), "write", lambda self, *a: (written.append(self.shown), write(self, *a)))
    monkeypatch.setattr(type(locate("x")), "copy_to", lambda self, to: (written.append(to.shown), copy(self, to)))
    release(place, place / "in", "memory://public/out")
    inside = [name for name in written if name.startswith("memory://public/out/")]
    assert inside[-1].endswith(MANIFEST)
    assert sum(name.endswith(MANIFEST) for name in inside) == 1


def test_an_interrupted_release_to_a_store_goes_on(place, small, memory, monkeypatch):
    split(place / "in", table())
    publish = streaming._publish_folder

    def killed(goal, finished, files, manifest):
        names = list(files)
        publish(goal, finished, {name: files[name] for name in names[:2]}, b"")
        memory.rm(f"/public/out/{MANIFEST}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(streaming, "_publish_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            release(place, place / "in", "memory://public/out")
    assert not memory.exists(f"/public/out/{MANIFEST}")
    release(place, place / "in", "memory://public/out", resume=True)
    assert memory.exists(f"/public/out/{MANIFEST}")
    files = [n for n in memory.find("/public/out") if n.endswith(".parquet")]
    assert sum(len(pd.read_parquet(memory.open(n))) for n in files) == 900


@pytest.mark.parametrize("url", ["s3://KEYKEY:HUSHHUSH@bucket/x.parquet", "memory://u:HUSHHUSH@h/x"])
def test_credentials_in_a_path_are_refused_and_not_shown(url):
    with pytest.raises(InputError, match="credentials") as refused:
        locate(url)
    assert "HUSHHUSH" not in str(refused.value)
    assert "KEYKEY" not in str(refused.value)


def test_the_error_of_a_store_is_not_shown(memory, monkeypatch):
    place = locate("memory://secret/x.parquet")

    def refuse(*_):
        raise OSError("AccessDenied for key AKIAHUSHHUSH")

    monkeypatch.setattr(type(memory), "info", refuse)
    with pytest.raises(StoreError) as refused:
        place.is_file()
    assert "HUSH" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_store_without_its_package_is_named():
    with pytest.raises(InputError, match=r"not a path of a store|not installed"):
        locate("nonsense://bucket/x")


def test_the_target_is_not_among_the_inputs(place):
    split(place / "in", table())
    with pytest.raises(InputError, match="in the input folder"):
        release(place, place / "in", place / "in" / "out")
    with pytest.raises(InputError, match="would replace the input"):
        release(place, "memory://in", "memory://in/out")
    with pytest.raises(InputError, match="must be on this machine"):
        release_file(place / "in", "memory://sex.veil", place / "out", QUIET)


def test_a_part_of_an_abandoned_release_is_noticed_at_the_last_moment(place, small, monkeypatch):
    """A task that outlived its driver replaces a part after all parts were checked: its noise is of another secret."""
    split(place / "in", table())
    check_some = streaming.check_some

    def overtaken(work, indices):
        found = check_some(work, indices)
        part = work.part(indices[1]).local
        part.write_bytes(part.read_bytes().replace(work.name.encode(), b"0" * 16))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(streaming, "check_some", overtaken)
        with pytest.raises(InputError, match="damaged or foreign part"):
            release(place, place / "in", place / "out")
    assert not (place / "out").exists()
    release(place, place / "in", place / "out")  # the control
