"""What a release tells by the presence and absence of rows, measured while it is written, for its card."""

import numpy as np
import pandas as pd
import pyarrow as pa

from fairveil.auditing.facts import Facts, Matches, default_facts
from fairveil.auditing.inputs import make_target
from fairveil.auditing.presence import KnownPeople, presence_rows, presence_sentence
from fairveil.auditing.protocol import Terms, split_rows
from fairveil.data.frames import plain_column
from fairveil.data.kinds import FEWEST_OF_A_GROUP
from fairveil.workflows.release.job import TableJob
from fairveil.workflows.sampling import sample_rows

#: People who are looked up in the release; fewer than the second number would be described one by one.
_MOST_PEOPLE, FEWEST_PEOPLE = 20_000, 1000


class PresenceCount:
    """A sample of people of the input, and how many released rows match their known columns.

    The release is counted as it is written, in the memory of the sample.
    """

    def __init__(self, job: TableJob, people: pa.Table, facts: Facts) -> None:
        self._job, self._people = job, people
        self._matches = Matches(facts, facts.codes(people))

    @classmethod
    def of(cls, job: TableJob, rows: int) -> "PresenceCount | None":
        """None if the input lacks S, has too few rows, or no column that could be known."""
        hidden = [column.name for column in job.sensitive.columns]
        if rows < FEWEST_PEOPLE or set(hidden) != set(job.sensitive_names):
            return None
        people = sample_rows(job.source, job.columns, job.held_as, _MOST_PEOPLE, seed=0).table
        names = list(job.options.known) or default_facts(people, job.released_names)
        return cls(job, people, Facts.of(names, people, people)) if names else None

    def add(self, released: pa.Table) -> None:
        """Count rows of the release."""
        names = self._matches.facts.names
        self._matches.add(pa.table({name: plain_column(released[name]) for name in names}))

    def told(self) -> str | None:
        """The sentence for the card; None if a group is too small for its figures to be told."""
        people = KnownPeople.of(self._matches, self._people)
        secrets = self._job.sensitive.merged(self._people.select(self._job.sensitive_names))
        rows = []
        for name in secrets.column_names:
            target = make_target(name, secrets[name])
            codes = None if target.classes is None else target.values.astype(np.int64)
            if codes is not None and (target.classes == 1 or np.bincount(codes).min() < FEWEST_OF_A_GROUP):
                return None
            parts = split_rows(None, codes, len(self._people), _MOST_PEOPLE, 0)
            rows += presence_rows(target, people, parts, Terms())
        return presence_sentence(pd.DataFrame(rows)) or None
