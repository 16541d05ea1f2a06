"""A target on another file system than the veil always failed, also with --resume, and left the private order there."""

import errno
import os
from pathlib import Path

import pytest

from fairveil._utils.errors import InputError
from fairveil.workflows import Options, release_file
from fairveil.workflows.release import tables as streaming
from fairveil.workflows.release.ledger import Ledger

OPTIONS = {"show_progress": False, "workers": 1}


@pytest.fixture
def media(place, monkeypatch):
    """Two folders between which nothing can be renamed."""
    media = [place / "home", place / "stick"]
    for folder in media:
        folder.mkdir()
    (place / "sex.veil").rename(media[0] / "sex.veil")
    rename = os.replace

    def replace(source, target):
        tops = {path.relative_to(place).parts[0] for path in map(Path, (source, target)) if path.is_relative_to(place)}
        if len(tops) > 1:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "replace", lambda self, target: replace(self, target))
    return media


def release(media, **options):
    return release_file(
        media[0].parent / "people.csv", media[0] / "sex.veil", media[1] / "out.csv", Options(**OPTIONS, **options)
    )


def test_a_release_to_another_file_system(media):
    release(media)
    ledger = Ledger.of(media[0] / "sex.veil")
    assert sorted(ledger.order(ledger.entries[0])) == list(range(900))
    assert sorted(path.name for path in media[1].iterdir()) == ["out.csv", "out.csv.card.json", "out.csv.card.md"]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no second file system here")
def test_a_release_to_a_real_second_file_system(place, tmp_path_factory):
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if os.stat(other).st_dev == os.stat(place).st_dev:
            pytest.skip("/dev/shm is the same file system")
        release_file(place / "people.csv", place / "sex.veil", Path(other) / "out.csv", Options(**OPTIONS))
        assert (Path(other) / "out.csv").exists()


def test_a_failure_leaves_no_order_behind(media, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(streaming.Ledger, "enter", full)
        with pytest.raises(OSError, match="No space"):
            release(media)
    assert not [path for path in media[1].rglob("*") if path.name.startswith(("order", "places"))]
    assert not list((media[0] / "sex.veil.ledger").glob("order-*"))
    release(media, resume=True)
    assert (media[1] / "out.csv").exists()


def test_a_ledger_that_cannot_be_written_is_found_before_a_row_is_drawn(media, monkeypatch):
    def drawn(*_):
        raise AssertionError("a row was drawn")

    monkeypatch.setattr(streaming, "_draw_part", drawn)
    make = os.mkdir

    def read_only(path, *arguments, **named):
        if str(path).endswith(".ledger"):
            raise OSError(errno.EROFS, "Read-only file system")
        make(path, *arguments, **named)

    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(InputError, match=r"cannot be written \(Read-only file system\)"):
        release(media)
    assert not list(media[1].iterdir())
