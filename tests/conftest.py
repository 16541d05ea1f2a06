"""Fixtures that several test files share."""

from contextlib import contextmanager

import pytest

from fairveil.workflows.release import job as asking
from fairveil.workflows.release import tables as streaming
from helpers import people
from releases import fitted, table, write


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory, monkeypatch):
    """Where ledgers are noted: a folder of each test's own, so that copies of a veil do not meet."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("FAIRVEIL_STATE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def small():
    """(X, S, y) of 600 people."""
    return people()


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


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a verb in this process: its exit code, and all that it said."""
    from fairveil.cli import main

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["fairveil", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    return call


@pytest.fixture
def interruption(monkeypatch):
    """Releases in parts of 100 rows; within `interruption(n)`, one is stopped before its part n."""
    monkeypatch.setattr(asking, "_MOST_BATCH", 100)
    monkeypatch.setattr(asking, "_LEAST_BATCH", 100)
    draw = streaming._draw_part

    @contextmanager
    def stopped(part):
        def stop(*arguments):
            if arguments[3] == part:
                raise KeyboardInterrupt
            draw(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(streaming, "_draw_part", stop)
            with pytest.raises(KeyboardInterrupt):
                yield

    return stopped
