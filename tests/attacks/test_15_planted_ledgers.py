"""A ledger folder that somebody planted, open to all, was used, and its files could be read by all."""

import os
import stat

import pytest

from fairveil._utils.errors import InputError
from fairveil.workflows import Options, release_file
from fairveil.workflows.release import ledger as ledgers
from fairveil.workflows.release.ledger import Ledger


def release(place):
    return release_file(
        place / "people.csv", place / "sex.veil", place / "out.csv", Options(show_progress=False, workers=1)
    )


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o750])
def test_a_ledger_that_is_open_to_others_is_not_used(place, mode):
    folder = place / "sex.veil.ledger"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(InputError, match="open to others"):
        release(place)
    assert not (place / "out.csv").exists()
    folder.chmod(0o700)
    release(place)


def test_a_ledger_that_is_a_link_is_not_used(place, tmp_path_factory):
    (place / "sex.veil.ledger").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(InputError, match="not a folder of yours"):
        release(place)


def test_a_ledger_of_somebody_else_is_not_used(place, monkeypatch):
    (place / "sex.veil.ledger").mkdir(mode=0o700)
    monkeypatch.setattr(ledgers.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(InputError, match="not a folder of yours"):
        release(place)


def test_all_that_is_private_is_the_owners_alone(place, state_folder):
    old = os.umask(0)
    try:
        release(place)
    finally:
        os.umask(old)
    folder = place / "sex.veil.ledger"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    private = [*folder.iterdir(), *(state_folder / "ledgers").iterdir()]
    assert len(private) >= 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"key": "00", "releases": 3}',
        "[" * 100_000,
        '{"format": "fairveil-ledger-3", "veil": "x", "key": "zz", "releases": []}',
    ],
)
def test_a_damaged_ledger_is_not_taken_for_an_empty_one(place, content):
    release(place)
    [book] = (place / "sex.veil.ledger").glob("book-*.json")
    book.write_text(content)
    with pytest.raises(InputError, match="cannot be read"):
        Ledger.of(place / "sex.veil")
