"""The final steps of a release: enter it into the ledger, write its card, and rename it."""

from collections.abc import Callable

from fairveil.workflows.release.job import Options, ReleaseSummary
from fairveil.workflows.release.ledger import Entry, Ledger
from fairveil.workflows.release.sketch import Sketch

#: Called when a release is complete but not yet renamed: an exception stops the release.
BeforeNaming = Callable[[ReleaseSummary], None]


def hand_over(
    told: ReleaseSummary, sketch: Sketch, publish: Callable[[], None], ledger: Ledger, name: str, plan: str,
    options: Options, what: str, before_naming: BeforeNaming,
) -> None:  # fmt: skip
    """Enter a finished release into the ledger and publish it; if either fails, neither takes effect.

    publish: gives the release its final name. name, plan: of the release in the ledger. what: "rows" or "images", for
    messages.
    """
    try:
        # From here on no other process can enter a release: the card is still correct when the file gets its name.
        with ledger.locked():
            told.overlap, told.earlier_releases = ledger.earlier(sketch, name)
            if not options.again:
                ledger.refuse_repeated(sketch, name, what)
            before_naming(told)
            hashes, counts = (tuple(int(value) for value in values) for values in (sketch.hashes, sketch.counts))
            ledger.enter(Entry(name, told.sha256, told.rows, not options.keep_order, plan, told.original,
                               told.distortion, hashes, counts))  # fmt: skip
            publish()
    except BaseException:
        if ledger.find(told.sha256) is None:
            ledger.forget_order(name)
        raise
