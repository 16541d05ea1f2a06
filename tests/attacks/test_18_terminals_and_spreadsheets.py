"""Terminal escapes from data in `inspect` and `card`, markup that crashed them, formulas in headers and cells."""

import json

import pyarrow as pa
import pytest

from fairveil._utils.errors import InputError
from fairveil.workflows import Options, card_path, release_file
from fairveil.workflows.writing import neutralised
from releases import fitted, table, write

QUIET = Options(show_progress=False, workers=1)


@pytest.mark.parametrize("name", ["[/b]", "[red]town", "town[/]", "[link=http://x]t"])
def test_markup_in_names_is_text(tmp_path, run, name):
    path = write(tmp_path, table().rename(columns={"town": name}))
    code, said = run("inspect", path, "-s", "sex")
    assert code == 0
    assert name in said.replace("\n", "")


@pytest.mark.parametrize("escape", ["\x1b[31mtown", "\x9b31mtown", "to\x07wn"])
def test_escapes_do_not_reach_the_terminal(tmp_path, run, escape):
    path = write(tmp_path, table().rename(columns={"town": escape}))
    code, said = run("inspect", path, "-s", "sex")
    assert code == 2
    assert not {"\x1b", "\x9b", "\x07"} & set(said)
    code, said = run("inspect", tmp_path / f"no{escape}.csv")
    assert code == 2
    assert not {"\x1b", "\x9b", "\x07"} & set(said)


def test_a_card_with_escapes_is_shown_without_them(place, run):
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", QUIET)
    path = card_path(place / "out.csv")
    card = json.loads(path.read_text())
    for part in ("order", "randomness"):
        card["release"][part] = "\x1b[2J\x1b]0;owned\x07\x9b31m"
    card["limits"] = ["\x1b[8mhidden"]
    path.write_text(json.dumps(card))
    for options in ((), ("--json",)):
        code, said = run("card", place / "out.csv", *options)
        assert code == 0
        assert not {"\x1b", "\x9b", "\x07"} & set(said)


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+town", "-town", "@town", " =town"])
def test_a_header_that_a_spreadsheet_runs_is_not_written(tmp_path, name):
    path = write(tmp_path, table().rename(columns={"town": name}))
    fitted(path, tmp_path / "sex.veil")
    with pytest.raises(InputError, match="spreadsheet would run the name of column"):
        release_file(path, tmp_path / "sex.veil", tmp_path / "out.csv", QUIET)
    release_file(path, tmp_path / "sex.veil", tmp_path / "out.parquet", QUIET)  # which no spreadsheet runs


@pytest.mark.parametrize(
    "cell", ["=1+1", "\n=1+1", "\r=1", "\t=1", "  =1", " \n +1", "@x", "-2+3", "\uff1d1+1", "\uff20x", "\nx"]
)
def test_cells_that_a_spreadsheet_runs_are_neutralised(cell):
    safe, count = neutralised(pa.table({"text": [cell]}))
    assert safe["text"].to_pylist() == [f"'{cell}"]
    assert count == 1


@pytest.mark.parametrize("cell", ["plain", "a=b", "x-1", "'=1", " text", "1-2"])
def test_other_cells_are_not(cell):
    """The control."""
    safe, count = neutralised(pa.table({"text": [cell]}))
    assert safe["text"].to_pylist() == [cell]
    assert count == 0
