"""Releases of files: whole or not at all, once, and with nothing in them but their rows."""

import json
import os
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy import stats

import fairveil as fv
from fairveil._utils.atomic import sha256_of
from fairveil._utils.errors import InputError
from fairveil._utils.randomness import KeyedStream, RowStream, SystemRandom, normal
from fairveil.data import images
from fairveil.data.columns import Column
from fairveil.data.frames import read_table
from fairveil.data.table_codec import Codec
from fairveil.objectives import make_distortion
from fairveil.objectives.released import ReleasedBatch
from fairveil.workflows import Options, audit_file, read_card, release_file
from fairveil.workflows.reading import open_table
from fairveil.workflows.release import job as asking
from fairveil.workflows.release import tables as streaming
from fairveil.workflows.release.card import card_path
from fairveil.workflows.release.ledger import Entry, Ledger
from fairveil.workflows.release.sketch import SIZE, Sketch, row_hashes
from fairveil.workflows.writing import neutralised
from helpers import QUICK, rank_cost
from releases import CANARY_NUMBER, CANARY_TEXT, advantage, fitted, proposed, table, write

QUIET = Options(show_progress=False, workers=1)


def released(place, target="out.parquet", source="people.csv", **options):
    card = release_file(place / source, place / "sex.veil", place / target, replace(QUIET, **options))
    path = place / target
    return (pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)), card


@pytest.mark.parametrize("target", ["out.parquet", "out.csv"])
def test_a_release_has_the_columns_the_types_and_the_values_of_the_schema(place, target):
    out, card = released(place, target)
    original = table()
    schema = fv.load(place / "sex.veil").schema_
    assert list(out.columns) == [name for name in original.columns if name != "sex"]
    assert len(out) == len(original) == card["release"]["rows"]
    assert set(out["role"]) <= set(schema["role"].categories)
    assert out["skill"].dtype.kind == "i"
    assert out["height"].between(schema["height"].lower, schema["height"].upper).all()
    assert out["town"].isna().any()
    assert card["release"]["sha256"] == sha256_of(place / target)


def test_the_budget_holds_on_the_file_as_it_is_read_back(place):
    out, card = released(place, keep_order=True)
    encoder = fv.load(place / "sex.veil")
    codec = Codec(encoder.schema_, "most_frequent")
    seen = [column.name for column in encoder.schema_.seen]
    before, after = (read_table(frame[seen]).arrow for frame in (pd.read_csv(place / "people.csv"), out))
    original = codec.original(before, codec.encode(before))
    written = codec.original(after, codec.encode(after))
    measured = make_distortion("auto", encoder.schema_.layout, "sampled").realised(
        ReleasedBatch(written, written[..., encoder.schema_.layout.grouped]), original
    )
    mean = float(measured.sum(dim=1).mean())
    [entry] = Ledger.of(place / "sex.veil").entries
    assert mean == pytest.approx(sum(entry.distortion.values()), rel=1e-6)
    assert card["distortion"]["total"] == pytest.approx(mean, abs=0.02)
    # Read as it is: cells that differ, and the distance between ranks by its formula.
    raw = pd.read_csv(place / "people.csv")
    changed = sum((raw[n].fillna("-") != out[n].fillna("-")).mean() for n in ("role", "town", "hired"))
    moved = sum(
        rank_cost(encoder.schema_[n], raw[n], out[n]).mean() for n in ("skill", "height")
    )  # the canary's height is part of it
    assert mean == pytest.approx(changed + moved, rel=1e-4)


def test_the_same_rows_are_not_released_twice_without_a_word(place):
    released(place, "first.parquet")
    with pytest.raises(InputError, match=r"About 100 % of these rows were released"):
        released(place, "second.parquet")
    assert not (place / "second.parquet").exists()
    shuffled = write(place, table().sample(frac=1.0, random_state=1), "shuffled.parquet")
    with pytest.raises(InputError, match="were released"):
        released(place, "second.parquet", shuffled.name)
    other = write(place, table(900, seed=9), "other.csv")
    released(place, "other.parquet", other.name)
    _, card = released(place, "second.parquet", again=True)
    together = card["earlier_releases"]["together"]
    assert together["releases"] == 2
    assert 0.3 < together["one"] <= 1.0
    assert "all 2 together" in together["text"]


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("values", [3, 1000])
def test_the_ledger_knows_how_much_was_released_before(place, shared, values):
    """Whether rows are all different, or people are often alike."""
    codes = np.random.default_rng(0).integers(0, values, (120_000, 9))
    ledger = Ledger.of(place / "sex.veil")
    ledger.prepare()
    cut = int(60_000 * (1 - shared))
    first, second = (
        sum((Sketch.of(row_hashes(part[i : i + 7000], ledger.key)) for i in range(0, 60_000, 7000)), Sketch.empty())
        for part in (codes[:60_000], codes[cut : cut + 60_000])
    )
    assert len(first.hashes) == SIZE
    with ledger.locked():
        ledger.enter(Entry("first", "0" * 64, 60_000, True, "", "", None, tuple(first.hashes.tolist()),
                           tuple(first.counts.tolist())))  # fmt: skip
    share, releases = ledger.earlier(second, "second")
    assert share == pytest.approx(shared, abs=0.05)
    assert releases == (shared > 0)
    assert ledger.earlier(second, "first") == (0.0, 0)


def test_every_order_is_equally_likely(place, monkeypatch):
    """Through buckets and batches: where the first row ends up, and who comes first."""
    small = write(place, table(60), "small.csv")
    monkeypatch.setattr(asking, "_LEAST_BATCH", 16)
    monkeypatch.setattr(asking, "_MOST_BATCH", 16)
    monkeypatch.setattr(asking, "_CELL_BYTES", 2**20)  # several buckets
    ends = []
    for _ in range(60):
        job = asking.Job(open_table(small), fv.load(place / "sex.veil"), place / "sex.veil",
                            place / "x.csv", replace(QUIET, again=True, memory=64, unverified=True))  # fmt: skip
        assert job.buckets > 3
        told = streaming.release_table(job, lambda told: None)
        ledger = Ledger.of(place / "sex.veil")
        order = ledger.order(ledger.find(told.sha256))
        assert sorted(order) == list(range(60))
        ends += [(np.flatnonzero(order < 6) + 0.5) / 60]
    # 60 x 6 places of the first six rows are uniform.
    assert stats.kstest(np.concatenate(ends), "uniform").pvalue > 1e-4


def test_a_sorted_input_tells_nothing_by_its_order(place):
    order = table().sort_values("sex")
    write(place, order, "sorted.csv")
    out, _ = released(place, "kept.parquet", "sorted.csv", keep_order=True)
    secret = order["sex"].to_numpy()
    found, chance = advantage(np.arange(len(out)), secret)
    assert found > chance  # the defence is off
    released(place, "shuffled.parquet", "sorted.csv", again=True)
    ledger = Ledger.of(place / "sex.veil")
    place_of = ledger.order(ledger.find(sha256_of(place / "shuffled.parquet")))
    found, chance = advantage(np.arange(len(out)), secret[place_of])
    assert found < chance


def test_a_parquet_release_holds_rows_and_nothing_else(place):
    frame = table()
    # The leak, as pandas writes it: an index in which S can be read, and statistics of every row group.
    careless = place / "careless.parquet"
    frame.drop(columns="sex").set_index(pd.Index(frame["sex"], name="i")).sort_index().to_parquet(
        careless, row_group_size=300
    )
    leaky = pq.ParquetFile(careless)
    assert b"pandas" in leaky.schema_arrow.metadata
    assert leaky.metadata.row_group(0).column(0).statistics is not None
    released(place)
    file = pq.ParquetFile(place / "out.parquet")
    assert not file.schema_arrow.metadata
    assert file.metadata.metadata is None
    for group in range(file.metadata.num_row_groups):
        for i in range(file.metadata.num_columns):
            column = file.metadata.row_group(group).column(i)
            assert column.statistics is None
            assert not column.has_dictionary_page
    assert str(place).encode() not in (place / "out.parquet").read_bytes()


def test_values_of_single_rows_are_in_nothing_that_is_written(place):
    released(place, "out.csv")
    released(place, "out.parquet", again=True)
    result = audit_file(place / "out.csv", place / "people.csv", ["sex"], ["hired"], show_progress=False)
    result.to_html(place / "audit.html")
    result.to_json(place / "audit.json")
    needles = [CANARY_TEXT, str(CANARY_NUMBER)]
    written = [p for p in place.rglob("*") if p.is_file() and p.name != "people.csv"]
    assert len(written) > 8
    for path in written:
        content = path.read_bytes()
        for needle in needles:
            assert needle.encode() not in content, path.name
    schema = fv.load(place / "sex.veil").schema_
    assert schema["height"].upper < 300
    # The defence off: a schema of all that occurs holds both.
    loose = fv.Schema.infer(table().drop(columns="sex"), fewest=1).to_json()
    assert CANARY_TEXT in loose
    assert str(CANARY_NUMBER)[:6] in loose


def test_decimals_and_types_do_not_come_from_the_input(place):
    """S in the third decimal, in the type of a column, in a missing cell: all gone."""
    frame = table()
    man = (frame["sex"] == "m").to_numpy()
    frame["height"] = frame["height"] + np.where(man, 0.001, 0.002)
    write(place, frame, "decimals.csv")
    out, _ = released(place, "out.parquet", "decimals.csv", keep_order=True)
    told = np.round(frame["height"] * 1000).astype(int) % 10
    found, chance = advantage(told.to_numpy(), frame["sex"].to_numpy())
    assert found > chance
    last = np.round(out["height"] * 1000).astype(int) % 10
    assert (last == 0).all()
    assert out["height"].dtype == np.float64


def test_truth_values_and_columns_that_are_dropped(tmp_path):
    frame = table().assign(member=np.arange(900) % 3 == 0, note=[[i] for i in range(900)])
    plain = write(tmp_path, frame.drop(columns="note"))
    schema = proposed(plain)
    assert schema["member"].family == "boolean"
    schema = fv.Schema((*schema.columns, Column("note", "categorical", "drop")))
    fitted(plain, tmp_path / "sex.veil", schema)
    path = write(tmp_path, frame, "people.parquet")
    release_file(path, tmp_path / "sex.veil", tmp_path / "out.parquet", QUIET)
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert out["member"].dtype == bool
    assert "note" not in out


def test_formulas_are_neutralised_in_text_but_numbers_are_not():
    cells = pa.table({"text": ["=1+1", "+x", "-y", "@z", "plain", None], "number": [-1, 2, 3, 4, 5, 6]})
    safe, count = neutralised(cells)
    assert safe["text"].to_pylist() == ["'=1+1", "'+x", "'-y", "'@z", "plain", None]
    assert safe["number"].to_pylist() == [-1, 2, 3, 4, 5, 6]
    assert count == 4


def test_a_column_without_a_role_stops_the_run(place):
    write(place, table().assign(extra=1), "more.csv")
    with pytest.raises(InputError, match=r"'extra' of more\.csv has no role"):
        released(place, "out.csv", "more.csv")
    write(place, table().drop(columns="skill"), "fewer.csv")
    with pytest.raises(InputError, match="'skill' is missing"):
        released(place, "out.csv", "fewer.csv")
    assert not list(place.glob("*out*"))


def test_identifiers_pass_only_by_an_explicit_word_and_are_audited(tmp_path):
    frame = table()
    generator = np.random.default_rng(0)
    frame.insert(0, "name", [f"{s}{i:05d}" for s, i in zip(frame["sex"], generator.permutation(900), strict=True)])
    path = write(tmp_path, frame)
    with pytest.raises(InputError, match="'name' of the schema has no role yet"):
        proposed(path)
    schema = proposed(write(tmp_path, frame.drop(columns="name"), "nameless.csv"))
    schema = fv.Schema((Column("name", "categorical", "pass"), *schema.columns))
    fitted(path, tmp_path / "sex.veil", schema)
    release_file(path, tmp_path / "sex.veil", tmp_path / "out.csv", QUIET)
    out = pd.read_csv(tmp_path / "out.csv")
    assert sorted(out["name"]) == sorted(frame["name"])
    result = audit_file(tmp_path / "out.csv", path, ["sex"], show_progress=False)
    assert result.max_advantage > 0.3  # the first letter of the name is S


def test_the_noise_of_a_file_is_the_operating_systems(place):
    one, _ = released(place, "a.parquet", keep_order=True)
    two, _ = released(place, "b.parquet", keep_order=True, again=True)
    assert not one.equals(two)
    first, card = released(place, "c.parquet", keep_order=True, again=True, seed=4)
    second, _ = released(place, "d.parquet", keep_order=True, again=True, seed=4)
    assert first.equals(second)
    assert "INSECURE" in card["release"]["randomness"]
    assert "seed" not in json.dumps(read_card(card_path(place / "a.parquet"))).lower()


_SOURCES = [SystemRandom(), KeyedStream(b"key"), RowStream(b"key", np.arange(600, dtype=np.uint16).reshape(300, 2))]


@pytest.mark.parametrize("source", _SOURCES, ids=lambda source: type(source).__name__)
def test_noise_has_the_right_distribution_and_never_comes_again(source):
    assert stats.kstest(source.uniform(300, 100).numpy().ravel(), "uniform").pvalue > 1e-4
    assert stats.kstest(normal(source, 300, 100).numpy().ravel(), "norm").pvalue > 1e-4
    assert not np.array_equal(source.uniform(300, 4).numpy(), source.uniform(300, 4).numpy())
    keys = source.keys(300)
    assert len(np.unique(keys)) == 300
    assert keys.max() < 2**63


def test_a_card_tells_what_was_done_and_is_markup_free(place):
    frame = table().rename(columns={"town": "<b>|town"})
    path = write(place, frame, "odd.csv")
    fitted(path, place / "odd.veil")
    release_file(path, place / "odd.veil", place / "odd-out.csv", QUIET)
    text = (place / "odd-out.csv.card.md").read_text()
    assert "&lt;b&gt;\\|town" in text
    assert "not differential privacy" in text
    assert re.search(r"SHA-256\): `[0-9a-f]{64}`", text)


def test_images_are_released_without_names_times_or_metadata(tmp_path):
    generator = np.random.default_rng(0)
    folder = tmp_path / "faces"
    folder.mkdir()
    sex = generator.choice(["f", "m"], 60)
    names = [f"{s}-{i:03d}.jpg" for i, s in enumerate(sex)]
    for i, name in enumerate(names):
        image = Image.fromarray(generator.integers(0, 255, (8, 8, 3), dtype=np.uint8))
        exif = Image.Exif()
        exif[0x010E] = f"a portrait of {sex[i]}"
        image.save(folder / name, exif=exif)
        os.utime(folder / name, (1e9 + 1e6 * (sex[i] == "f"), 1e9 + 1e6 * (sex[i] == "f")))
    labels = write(tmp_path, pd.DataFrame({"file": names, "sex": sex}), "labels.csv")
    arrays = images.read_folder(folder)[0]
    encoder = fv.FairEncoder(
        1e3, architecture="feedforward", sees_sensitive=True, training=QUICK, verbose=False, random_state=0
    )
    encoder.fit(arrays, sensitive_features=pd.DataFrame({"sex": sex}))
    encoder.save(tmp_path / "face.veil")
    card = release_file(folder, tmp_path / "face.veil", tmp_path / "out", QUIET, labels)
    out = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in out] == [f"{i:02d}.png" for i in range(1, 61)]
    assert {path.stat().st_mtime for path in out} == {946_684_800.0}
    for path in out:
        with Image.open(path) as image:
            assert not image.getexif()
            assert not image.info
            assert image.size == (8, 8)
    assert card["release"]["rows"] == 60
    with pytest.raises(InputError, match="already exists"):
        release_file(folder, tmp_path / "face.veil", tmp_path / "out", QUIET, labels)
    with pytest.raises(InputError, match=r"100 % of these images"):
        release_file(folder, tmp_path / "face.veil", tmp_path / "twice", QUIET, labels)
    assert not (tmp_path / "twice").exists()
    ledger = Ledger.of(tmp_path / "face.veil")
    order = ledger.order(ledger.entries[0])
    found, chance = advantage(np.arange(60), sex[order])
    assert found < chance


def test_missing_cells_are_values_and_are_hidden_like_any_other(tmp_path):
    """The only leak is which cells are empty. Copied, they tell S; drawn by a trained veil, they do not."""
    generator = np.random.default_rng(0)
    sex = generator.choice(["f", "m"], 4000)
    told = generator.random(4000) < np.where(sex == "f", 0.6, 0.1)
    frame = pd.DataFrame({"a": np.where(told, None, generator.choice(["x", "y"], 4000)),
                          "b": generator.choice(["u", "v", "w"], 4000), "sex": sex})  # fmt: skip
    path = write(tmp_path, frame)
    training = fv.Training(steps=150, pretraining_steps=150)
    encoder = fv.FairEncoder(
        1.0,
        architecture="transport",
        sees_sensitive=True,
        schema=proposed(path),
        training=training,
        random_state=0,
        verbose=False,
    )
    encoder.fit(pd.read_csv(path))
    encoder.save(tmp_path / "sex.veil")
    release_file(path, tmp_path / "sex.veil", tmp_path / "out.parquet", replace(QUIET, keep_order=True))
    out = pd.read_parquet(tmp_path / "out.parquet")
    for values, hidden in ((frame["a"], False), (out["a"], True)):
        gap = abs(values.isna()[sex == "f"].mean() - values.isna()[sex == "m"].mean())
        error = 4 * np.sqrt(0.25 / 4000 * 4)
        assert (gap < error) == hidden
    assert out["a"].isna().any()
