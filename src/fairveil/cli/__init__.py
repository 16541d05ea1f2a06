"""The command line: parsing only, one thin call per verb.

Exit codes: 0 done, 1 the audit failed its threshold, 2 bad input or usage, 3 internal error, 130 interrupted.
"""

from fairveil.cli.main import main

__all__ = ["main"]
