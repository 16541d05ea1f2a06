"""Releases that are interrupted, killed, or meet a full disk: nothing is lost, doubled or half-written."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fairveil._utils.errors import InputError
from fairveil.workflows import Options, release_file
from fairveil.workflows.release import job as asking
from fairveil.workflows.release import tables as streaming
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.release.workspace import workspace

QUIET = Options(show_progress=False, workers=1)


def released(place, target="out.parquet", source="people.csv", **options):
    card = release_file(place / source, place / "sex.veil", place / target, replace(QUIET, **options))
    path = place / target
    return (pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)), card


def test_rows_are_drawn_once_whatever_interrupts(place, monkeypatch):
    options = replace(QUIET, memory=64, resume=True)
    monkeypatch.setattr(asking, "_MOST_BATCH", 100)
    monkeypatch.setattr(asking, "_LEAST_BATCH", 100)
    draw = streaming._draw_part

    def interrupted(release, rows, encoded, index, *hashes):
        if index == 4:
            raise KeyboardInterrupt
        draw(release, rows, encoded, index, *hashes)

    monkeypatch.setattr(streaming, "_draw_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        release_file(place / "people.csv", place / "sex.veil", place / "out.csv", options)
    work = place / ".out.csv.unfinished"
    drawn = {path.name: path.read_bytes() for path in work.glob("part-*")}
    kept = {int(name.removeprefix("part-").removesuffix(".arrow")) for name in drawn}
    assert {0, 1, 2, 3} <= kept <= {0, 1, 2, 3, 5}  # the next one may have been under way
    assert not (place / "out.csv").exists()
    again = []
    monkeypatch.setattr(streaming, "_draw_part", lambda *a: (again.append(a[3]), draw(*a)))
    card = release_file(place / "people.csv", place / "sex.veil", place / "out.csv", options)
    assert set(again) == set(range(9)) - kept
    assert card["release"]["rows"] == 900
    assert not work.exists()
    order = Ledger.of(place / "sex.veil").order(Ledger.of(place / "sex.veil").entries[0])
    assert sorted(order) == list(range(900))
    # Rows hashed before and after the interruption are known again: the key outlived it.
    with pytest.raises(InputError, match=r"About 100 % of these rows"):
        released(place, "second.csv")
    # To resume what is finished is to do nothing.
    before = (place / "out.csv").read_bytes()
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", options)
    assert (place / "out.csv").read_bytes() == before


def test_interrupted_work_is_not_resumed_with_other_settings(place, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(streaming, "_draw_part", interrupted)
    for options in (replace(QUIET, resume=True), replace(QUIET, resume=True, keep_order=True)):
        kind = InputError if options.keep_order else KeyboardInterrupt
        with pytest.raises(kind):
            release_file(place / "people.csv", place / "sex.veil", place / "out.csv", options)


@pytest.mark.parametrize("where", ["_draw_part", "TableWriter.write", "Ledger.enter"])
def test_a_full_disk_leaves_the_old_file(place, monkeypatch, where):
    (place / "out.csv").write_text("old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    owner, _, name = where.rpartition(".")
    monkeypatch.setattr(getattr(streaming, owner) if owner else streaming, name, full)
    with pytest.raises(OSError, match="No space"):
        released(place, "out.csv")
    assert (place / "out.csv").read_text() == "old"
    assert not list(place.glob("*.partial"))


def test_one_of_two_writers_wins(place):
    with (
        workspace(place / "out.csv", {"private": {}}, resume=False),
        pytest.raises(InputError, match="Another process is writing"),
    ):
        released(place, "out.csv")
    released(place, "out.csv")


def test_work_that_is_killed_goes_on(tmp_path):
    """`make stress` does this a hundred times."""
    script = Path(__file__).parent.parent / "benchmarks" / "release.py"
    done = subprocess.run([sys.executable, str(script), "kill", "--trials", "2"], capture_output=True, text=True,
                          check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "after --resume every one of 6,000 rows is there once" in done.stdout
