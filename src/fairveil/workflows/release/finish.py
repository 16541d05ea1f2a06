"""The end of every release: into the ledger, onto the card, and only then under its name."""

from collections.abc import Callable
from pathlib import Path

from fairveil._utils.atomic import put_in_place
from fairveil.workflows.release.job import Options, ReleaseSummary
from fairveil.workflows.release.ledger import Entry, Ledger
from fairveil.workflows.release.sketch import Sketch

#: Called when a release is complete and has not yet its name: what it raises stops the release.
BeforeNaming = Callable[[ReleaseSummary], None]


def hand_over(
    told: ReleaseSummary, sketch: Sketch, finished: Path, target: Path, ledger: Ledger, name: str, plan: str,
    options: Options, what: str, before_naming: BeforeNaming,
) -> None:  # fmt: skip
    """Enter a finished release into the ledger and give it its name; if either fails, neither has happened.

    name, plan: of the release in the ledger. what: "rows" or "images", for messages.
    """
    try:
        # From here on nobody else enters a release: what is on the card is so when the file gets its name.
        with ledger.locked():
            told.overlap, told.earlier_releases = ledger.earlier(sketch, name)
            if not options.again:
                ledger.refuse_repeated(sketch, name, what)
            before_naming(told)
            hashes, counts = (tuple(int(value) for value in values) for values in (sketch.hashes, sketch.counts))
            ledger.enter(Entry(name, told.sha256, told.rows, not options.keep_order, plan, told.original,
                               told.distortion, hashes, counts))  # fmt: skip
            put_in_place(finished, target)
    except BaseException:
        if ledger.find(told.sha256) is None:
            ledger.forget_order(name)
        raise
