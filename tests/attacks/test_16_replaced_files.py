"""Temporary files were followed as links; reports, cards and releases could replace the original or the veil."""

import pytest

from fairveil._utils.atomic import refuse_overwriting, replacing, sha256_of, write_atomic
from fairveil._utils.errors import InputError
from fairveil.workflows import Options, Recipe, fit_file, fit_frontier, release_file
from releases import table, write

QUIET = Options(show_progress=False, workers=1)


def test_a_planted_temporary_file_is_not_followed(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 16)  # even if its name could be known
    (tmp_path / f".report.html.{'0' * 16}.partial").symlink_to(victim)
    with pytest.raises(FileExistsError), replacing(tmp_path / "report.html") as partial:
        partial.write_text("report")
    assert victim.read_text() == "precious"


def test_the_old_name_of_a_temporary_report_is_not_followed(tmp_path):
    from fairveil.report import page

    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".report.html.partial").symlink_to(victim)
    page.write_atomic(tmp_path / "report.html", b"report")
    assert victim.read_text() == "precious"
    assert (tmp_path / "report.html").read_text() == "report"


def test_a_target_that_is_a_link_is_replaced_and_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out").symlink_to(victim)
    write_atomic(tmp_path / "out", b"new")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "out").is_symlink()


def as_input(place, how):
    """The input under a name that the release, or its card, would take."""
    if how == "the same path":
        return place / "people.csv"
    if how == "a link":
        (place / "link.csv").symlink_to(place / "people.csv")
        return place / "link.csv"
    if how == "a hard link":
        (place / "hard.csv").hardlink_to(place / "people.csv")
        return place / "hard.csv"
    return place / ".." / place.name / "people.csv"


@pytest.mark.parametrize("how", ["the same path", "a link", "a hard link", "a way around"])
def test_a_release_does_not_replace_its_input(place, how):
    before = sha256_of(place / "people.csv")
    with pytest.raises(InputError, match="release would replace the input"):
        release_file(place / "people.csv", place / "sex.veil", as_input(place, how), QUIET)
    assert sha256_of(place / "people.csv") == before


def test_a_card_does_not_replace_an_input(place):
    source = (place / "people.csv").rename(place / "out.csv.card.json")
    with pytest.raises(InputError, match="card would replace the input"):
        release_file(source, place / "sex.veil", place / "out.csv", QUIET)


def test_fit_and_frontier_do_not_replace_what_they_read(tmp_path):
    recipe = Recipe(("sex",), architecture="feedforward", steps=2, show_progress=False)
    source = write(tmp_path, table())
    odd = source.rename(tmp_path / "people.veil")
    with pytest.raises(InputError, match="veil would replace the input"):
        fit_file(odd, odd, 1e5, recipe)
    (tmp_path / "veils").mkdir()
    inside = odd.rename(tmp_path / "veils" / "frontier.csv")
    with pytest.raises(InputError, match=r"frontier\.csv would replace the input"):
        fit_frontier(inside, tmp_path / "veils", [1e5], recipe)


def run(monkeypatch, *arguments):
    from fairveil.cli import main

    monkeypatch.setattr("sys.argv", ["fairveil", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("option", ["--report", "--save"])
@pytest.mark.parametrize("victim", ["people.csv", "out.csv", "sex.veil", "out.csv.card.json"])
def test_an_audit_replaces_nothing_that_it_reads(place, monkeypatch, option, victim):
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", QUIET)
    before = sha256_of(place / victim)
    code = run(
        monkeypatch,
        "audit",
        place / "out.csv",
        "--original",
        place / "people.csv",
        "-s",
        "sex",
        "--veil",
        place / "sex.veil",
        option,
        place / victim,
    )
    assert code == 2
    assert sha256_of(place / victim) == before


def test_two_outputs_are_two_files(tmp_path):
    with pytest.raises(InputError, match="the same file"):
        refuse_overwriting({"report": tmp_path / "a", "result": tmp_path / "b" / ".." / "a"}, {})
    refuse_overwriting({"report": tmp_path / "a", "result": None}, {"input": tmp_path / "c", "veil": None})
