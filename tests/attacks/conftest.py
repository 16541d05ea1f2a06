"""What several attacks share."""

import pytest


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
