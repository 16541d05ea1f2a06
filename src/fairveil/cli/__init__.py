"""The command line: parsing only, one thin call a verb. Exit codes: 0 done, 2 bad input or usage, 3 internal error."""

from fairveil.cli.main import main

__all__ = ["main"]
