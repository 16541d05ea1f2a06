"""The secret of a release: where it lives, when it is destroyed, and that it alone decides every draw."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fairveil._utils.errors import InputError
from fairveil._utils.randomness import KeyedStream, ReleaseSecret
from fairveil.workflows import Options, open_table, open_veil, release_file, tables
from fairveil.workflows.release import job as asking
from fairveil.workflows.release.drawing import BatchKeys, Read, draw_batch, file_key
from fairveil.workflows.release.job import Job
from fairveil.workflows.release.ledger import Ledger

QUIET = Options(show_progress=False, workers=1)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(asking, "_MOST_BATCH", 100)
    monkeypatch.setattr(asking, "_LEAST_BATCH", 100)


def release(place, target="out.parquet", **options):
    return release_file(place / "people.csv", place / "sex.veil", place / target, replace(QUIET, **options))


def stopped(interruption, place, after=5, **options):
    """A release that is interrupted before part `after`."""
    with interruption(after):
        release(place, **options)


def secrets_in(place):
    return sorted((place / "sex.veil.ledger").glob("secret-*"))


def test_it_is_destroyed_when_the_release_is_finished(place):
    release(place)
    assert not secrets_in(place)


def test_it_lives_in_the_ledger_only_while_it_is_needed(place, interruption):
    stopped(interruption, place)
    [path] = secrets_in(place)
    assert path.stat().st_mode & 0o077 == 0
    secret = path.read_bytes()
    assert len(secret) == 32
    for other in (p for p in place.rglob("*") if p.is_file() and p != path):
        content = other.read_bytes()
        assert secret not in content, other.name
        assert secret.hex().encode() not in content, other.name
    release(place, resume=True)
    assert not secrets_in(place)


def test_a_part_that_is_drawn_again_has_the_same_bytes(place, interruption):
    """As after a lost disk, or by a second worker: no row is ever drawn with other noise."""
    stopped(interruption, place)
    work = place / ".out.parquet.unfinished"
    before = {path.name: path.read_bytes() for path in work.glob("part-*.arrow")}
    for name in ("part-00000001.arrow", "part-00000003.arrow"):
        (work / name).unlink()
    stopped(interruption, place, after=8, resume=True)
    assert len(before) >= 5
    assert {name: (work / name).read_bytes() for name in before} == before


def test_a_new_start_draws_from_a_new_secret_and_destroys_the_old_one(place, interruption):
    stopped(interruption, place)
    [old] = secrets_in(place)
    stopped(interruption, place)
    [new] = secrets_in(place)
    assert old.name != new.name


def test_an_error_that_a_retry_cannot_fix_destroys_it(place):
    release(place)
    with pytest.raises(InputError, match="were released"):
        release(place, "second.parquet")
    assert not secrets_in(place)


def test_without_it_nothing_is_resumed(place, interruption):
    stopped(interruption, place)
    secrets_in(place)[0].unlink()
    with pytest.raises(InputError, match="no longer holds the secret"):
        release(place, resume=True)
    release(place)


def test_a_kept_secret_repeats_every_draw(place):
    """Every released row is reconstructed from the secret, the input row and the order: no row was drawn otherwise."""
    card = release(place, keep_secret=True)
    assert "kept the secret" in card["release"]["randomness"]
    ledger = Ledger.of(place / "sex.veil")
    [entry] = ledger.entries
    secret = ledger.secret(entry.release)
    assert secret is not None
    job = Job(open_table(place / "people.csv"), open_veil(place / "sex.veil"), place / "sex.veil", place / "x.parquet",
              QUIET)  # fmt: skip
    drawn = []
    for at, table in job.source.placed_batches(job.columns, job.held_as, job.batch_rows):
        read = Read.of(job, at, table, ledger.key)
        drawn.append(draw_batch(job, read, BatchKeys.of(file_key(secret, 0), at), b"").rows.to_pandas())
    whole = pd.concat(drawn, ignore_index=True).iloc[ledger.order(entry)].reset_index(drop=True)
    released = pd.read_parquet(place / "out.parquet")
    pd.testing.assert_frame_equal(whole[released.columns], released)
    # The control: with any other secret hardly a batch is the same.
    other = ReleaseSecret.new()
    redrawn = draw_batch(job, read, BatchKeys.of(file_key(other, 0), at), b"").rows.to_pandas()
    assert not redrawn.equals(drawn[-1])


def test_no_release_is_drawn_from_a_known_secret(place, monkeypatch):
    """Two releases of the same rows, in the same order: their noise is unrelated."""
    monkeypatch.setattr(tables, "together", lambda *_: None)
    for name in ("one.parquet", "two.parquet"):
        release(place, name, again=True, keep_order=True)
    one, two = (pd.read_parquet(place / name) for name in ("one.parquet", "two.parquet"))
    assert (one["height"] != two["height"]).mean() > 0.5


def test_a_seed_gives_the_same_file_with_any_number_of_workers(place, monkeypatch):
    monkeypatch.setattr(tables, "together", lambda *_: None)
    contents = set()
    for workers in (1, 2, 8):
        target = f"out{workers}.parquet"
        release(place, target, seed=5, workers=workers, again=True)
        contents.add((place / target).read_bytes())
    assert len(contents) == 1


def test_the_plan_names_the_release_and_holds_no_secret(place, interruption):
    stopped(interruption, place)
    plan = json.loads((place / ".out.parquet.unfinished" / "plan.json").read_text())
    assert set(plan["private"]) == {"release"}


def test_streams_of_different_keys_are_uniform_and_uncorrelated():
    secret = ReleaseSecret.of_seed(1)
    draws = np.stack([KeyedStream(secret.key("draw", 0, i)).bytes(200, 50).ravel() for i in range(40)]).astype(float)
    assert abs(draws.mean() - 127.5) < 5 * 73.9 / np.sqrt(draws.size)
    correlation = np.corrcoef(draws)[np.triu_indices(40, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(draws.shape[1])


def test_keys_depend_on_purpose_and_place():
    secret = ReleaseSecret.of_seed(1)
    keys = {secret.key(*place) for place in (("draw", 1, 23), ("draw", 12, 3), ("deal", 1, 23), ("draw", 1), ("d", 1))}
    assert len(keys) == 5
    assert secret.value.hex() not in repr(secret)
    assert repr(secret.value) not in repr(secret)
