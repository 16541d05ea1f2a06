"""Two releases of the same rows at the same time both succeeded, and both cards said that there was none before."""

import subprocess
import sys

import pytest

from fairveil._utils.errors import InputError
from fairveil.workflows import Options, read_card, release_file
from fairveil.workflows.release import tables as streaming
from fairveil.workflows.release.card import card_path
from fairveil.workflows.release.ledger import Ledger

QUIET = Options(show_progress=False, workers=1)


def release(place, target, **options):
    return release_file(
        place / "people.csv", place / "sex.veil", place / target, Options(show_progress=False, workers=1, **options)
    )


@pytest.mark.parametrize("again", [False, True])
def test_a_release_that_was_overtaken_is_noticed(place, monkeypatch, again):
    """The second is made from start to end between the first one's look into the ledger and its entry."""
    hash_file = streaming.sha256_of
    overtaken = []

    def overtake(path):
        if path.name == "finished.csv" and not overtaken:
            overtaken.append(path)
            release(place, "second.csv")
        return hash_file(path)

    monkeypatch.setattr(streaming, "sha256_of", overtake)
    if not again:
        with pytest.raises(InputError, match="100 % of these rows were released"):
            release(place, "first.csv")
        assert not (place / "first.csv").exists()
    else:
        assert release(place, "first.csv", again=True)["earlier_releases"]["count"] == 1
    assert read_card(card_path(place / "second.csv"))["earlier_releases"]["count"] == 0
    assert len(Ledger.of(place / "sex.veil").entries) == 1 + again


def test_of_many_processes_one_wins(place):
    code = """
import sys
from pathlib import Path
from fairveil.workflows import Options, release_file
place = Path(sys.argv[1])
try:
    release_file(place / "people.csv", place / "sex.veil", place / sys.argv[2], Options(show_progress=False, workers=1))
except ValueError as error:
    sys.exit("were released" not in str(error) and str(error))
"""
    running = [subprocess.Popen([sys.executable, "-c", code, str(place), f"{i}.csv"]) for i in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(list(place.glob("[0-9].csv"))) == 1
    assert len(Ledger.of(place / "sex.veil").entries) == 1


def test_two_writers_of_one_target(place, monkeypatch):
    """One of them is told that the other is at work; neither harms the other's file."""
    draw = streaming._draw_part

    def second_comes(*arguments):
        with pytest.raises(InputError, match=r"Another process is writing out\.csv"):
            release(place, "out.csv", again=True)
        draw(*arguments)

    monkeypatch.setattr(streaming, "_draw_part", second_comes)
    release(place, "out.csv")
    assert (place / "out.csv").read_text().count("\n") == 901
