"""The secret of a release: made at its start, stored in the ledger, destroyed at its end."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairveil._utils.errors import InputError
from fairveil._utils.randomness import ReleaseSecret
from fairveil.workflows.release.job import Options
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.release.workspace import FINAL_ERRORS

_NAME = re.compile("[0-9a-f]{16}")


@contextmanager
def release_secret(ledger: Ledger, name: str, options: Options, *, resumed: bool) -> Iterator[ReleaseSecret]:
    """The secret of this release. It is destroyed when the release is finished, unless the options keep it, and when
    the release failed with an error that a retry cannot fix. After any other interruption it stays for `resume`.
    """
    if options.seed is not None:
        yield ReleaseSecret.of_seed(options.seed)
        return
    secret = ledger.secret(name)
    if secret is None:
        if resumed:
            raise InputError("The ledger no longer holds the secret of the interrupted release, so its rows cannot be "
                             "drawn as before. Omit --resume to start again.")  # fmt: skip
        secret = ReleaseSecret.new()
        ledger.store_secret(name, secret)
    try:
        yield secret
    except FINAL_ERRORS:
        ledger.destroy_secret(name)
        raise
    if not options.keep_secret:
        ledger.destroy_secret(name)


def abandon(ledger: Ledger, plan: dict[str, Any]) -> None:
    """Destroy the secret of an interrupted release that is not resumed. plan: of the interrupted release."""
    name = str(plan["private"].get("release"))
    finished = any(entry.release == name for entry in ledger.entries)
    if _NAME.fullmatch(name) and not (finished and plan.get("keep_secret")):
        ledger.destroy_secret(name)
