"""A table on disk and a veil fitted to it: what every attack starts from."""

import pytest

from releases import fitted, table, write


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with a table of 900 people and a veil, which no test writes to."""
    folder = tmp_path_factory.mktemp("made")
    fitted(write(folder, table()), folder / "sex.veil")
    return folder


@pytest.fixture
def place(made, tmp_path):
    """A folder of the test's own with the table, and the veil without a ledger."""
    for name in ("people.csv", "sex.veil"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    return tmp_path
