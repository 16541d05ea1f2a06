"""A resumed release accepted an input that had changed at equal size and time, and parts in each other's place."""

import os
import sys

import pandas as pd
import pytest

from fairveil._utils.errors import InputError
from fairveil.workflows import Options, Recipe, fit_file, release_file
from fairveil.workflows.release import tables as streaming
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.release.parts import metadata_of, open_part

OPTIONS = Options(show_progress=False, workers=1, resume=True)


@pytest.fixture
def interrupted(place, interruption):
    """A release of nine parts that was stopped after the fourth."""
    with interruption(4):
        release(place)
    return place


def release(place):
    return release_file(place / "people.csv", place / "sex.veil", place / "out.csv", OPTIONS)


def rewritten(path, change):
    """The same file with other content, of the same size and time."""
    status = path.stat()
    content = change(path.read_bytes())
    assert len(content) == status.st_size
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def swap_lines(content, one, other):
    lines = content.split(b"\n")
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def test_what_was_interrupted_goes_on_with_the_same_input(interrupted):
    """The control; a copy of the input with another time is the same input."""
    os.utime(interrupted / "people.csv", (1, 1))
    assert release(interrupted)["release"]["rows"] == 900


def test_an_input_that_was_changed_is_noticed(interrupted):
    rewritten(interrupted / "people.csv", lambda content: swap_lines(content, 5, 250))
    with pytest.raises(InputError, match="not the file from which the interrupted release was made"):
        release(interrupted)
    assert not (interrupted / "out.csv").exists()


def test_an_input_that_was_cut_short_is_noticed(interrupted):
    frame = pd.read_csv(interrupted / "people.csv")
    frame.head(250).to_csv(interrupted / "people.csv", index=False)
    with pytest.raises(InputError, match="not the file from which"):
        release(interrupted)


@pytest.mark.parametrize("how", ["swapped", "doubled", "of another release", "damaged"])
def test_parts_that_are_not_in_their_place_are_noticed(interrupted, how, monkeypatch):
    work = interrupted / ".out.csv.unfinished"
    first, second = (work / f"part-{i:08d}.arrow" for i in (0, 1))
    if how == "swapped":
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
    elif how == "doubled":
        second.write_bytes(first.read_bytes())
    elif how == "damaged":
        second.write_bytes(second.read_bytes()[:-50])
    else:
        monkeypatch.setattr(streaming, "_refuse_changed", lambda *_: None)
        text = first.read_bytes()
        name = metadata_of(open_part(first))[b"release"]
        first.write_bytes(text.replace(name, b"0" * len(name)))
    with pytest.raises(InputError, match=r"damaged or foreign part|not the file from which"):
        release(interrupted)
    assert not (interrupted / "out.csv").exists()


def test_every_row_is_there_once_even_if_parts_say_otherwise(interrupted, monkeypatch):
    """Without the comparison with the input: the places of the rows are looked at for themselves."""
    monkeypatch.setattr(streaming, "_refuse_changed", lambda *_: None)
    work = interrupted / ".out.csv.unfinished"
    (work / "part-00000001.arrow").write_bytes((work / "part-00000000.arrow").read_bytes())
    with pytest.raises(InputError, match="damaged or foreign part"):
        release(interrupted)


def test_a_finished_release_of_other_rows_is_not_taken_for_this_one(place):
    release(place)
    before = (place / "out.csv").read_bytes()
    release(place)  # the control: there is nothing to do
    assert (place / "out.csv").read_bytes() == before
    rewritten(place / "people.csv", lambda content: swap_lines(content, 5, 250))
    with pytest.raises(InputError, match="were released"):
        release(place)
    assert len(Ledger.of(place / "sex.veil").entries) == 1


def test_an_interrupted_fit_notices_a_changed_input(place, monkeypatch):
    playing = sys.modules["fairveil.training.play"]  # the package's name `play` is the function
    save = playing.save_checkpoint

    def stop(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    recipe = Recipe(("sex",), architecture="feedforward", steps=2, seed=0, resume=True, show_progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(playing, "save_checkpoint", stop)
        with pytest.raises(KeyboardInterrupt):
            fit_file(place / "people.csv", place / "new.veil", 1e6, recipe)
    rewritten(place / "people.csv", lambda content: swap_lines(content, 5, 250))
    with pytest.raises(InputError, match="other settings or another input"):
        fit_file(place / "people.csv", place / "new.veil", 1e6, recipe)
