"""A link planted where unfinished work is kept made `release` and `fit` empty the folder it points to, and exit 0."""

import os

import pytest

from fairveil._utils.errors import InputError
from fairveil.workflows import Options, Recipe, fit_file, release_file
from fairveil.workflows.release import tables as streaming
from fairveil.workflows.release import workspace as unfinished

QUIET = Options(show_progress=False, workers=1)
BRIEF = Recipe(("sex",), architecture="feedforward", steps=5, seed=0, show_progress=False)


@pytest.fixture
def victim(tmp_path_factory):
    folder = tmp_path_factory.mktemp("victim")
    (folder / "thesis.tex").write_text("years of work")
    (folder / "photos").mkdir()
    (folder / "photos" / "1.png").write_text("a photo")
    return folder


def intact(victim):
    return (victim / "thesis.tex").read_text() == "years of work" and (victim / "photos" / "1.png").exists()


def release(place, **options):
    return release_file(
        place / "people.csv", place / "sex.veil", place / "out.csv", Options(workers=1, show_progress=False, **options)
    )


@pytest.mark.parametrize("resume", [False, True])
def test_release_does_not_follow_a_planted_link(place, victim, resume):
    (place / ".out.csv.unfinished").symlink_to(victim)
    with pytest.raises(InputError, match="is a link or not a folder"):
        release(place, resume=resume)
    assert intact(victim)
    assert not (place / "out.csv").exists()


def test_fit_does_not_follow_a_planted_link(place, victim):
    (place / ".new.veil.unfinished").symlink_to(victim)
    with pytest.raises(InputError, match="is a link or not a folder"):
        fit_file(place / "people.csv", place / "new.veil", 1e5, BRIEF)
    assert intact(victim)


@pytest.mark.parametrize("name", ["part-00000000.arrow", "finished", "checkpoint"])
def test_links_inside_the_folder_are_removed_and_not_followed(place, victim, name):
    work = place / ".out.csv.unfinished"
    work.mkdir(mode=0o700)
    (work / name).symlink_to(victim / "thesis.tex" if name != "finished" else victim)
    release(place)
    assert intact(victim)
    assert (place / "out.csv").exists()
    assert not work.exists()


def test_a_folder_with_files_that_are_not_ours_is_left_alone(place):
    work = place / ".out.csv.unfinished"
    work.mkdir(mode=0o700)
    (work / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="1 files that fairveil does not write"):
        release(place)
    assert (work / "thesis.tex").exists()


def test_a_folder_of_somebody_else_is_not_used(place, monkeypatch):
    (place / ".out.csv.unfinished").mkdir(mode=0o700)
    monkeypatch.setattr(unfinished.os, "geteuid", lambda: os.getuid() + 1)
    with (
        pytest.raises(InputError, match="belongs to somebody else"),
        unfinished.workspace(place / "out.csv", {"private": {}}, resume=False),
    ):
        pass


def test_a_folder_that_others_may_write_to_is_not_used(place):
    work = place / ".out.csv.unfinished"
    work.mkdir()
    work.chmod(0o777)
    with pytest.raises(InputError, match="others can write to it"):
        release(place)


def test_files_of_other_targets_are_not_taken_for_ours(place, monkeypatch):
    """Temporary files were removed by a pattern that fitted those of `out.csv.old.csv` too."""
    other = place / f".out.csv.old.csv.{'0' * 16}.partial"
    mine = place / f".out.csv.{'0' * 16}.partial"
    for path in (other, mine):
        path.write_text("unfinished")
    release(place)
    assert other.exists()
    assert not mine.exists()


def test_unfinished_work_of_our_own_is_gone_on_with(place, monkeypatch):
    """The control: what we made ourselves is used, and removed in the end."""

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(streaming, "_gather", interrupted)
        with pytest.raises(KeyboardInterrupt):
            release(place)
    assert (place / ".out.csv.unfinished").exists()
    release(place, resume=True)
    assert (place / "out.csv").exists()
    assert not (place / ".out.csv.unfinished").exists()
