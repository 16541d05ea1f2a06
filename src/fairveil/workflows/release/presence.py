"""What a release tells by the presence and absence of rows, measured while it is written, for its card."""

import math
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

from fairveil.auditing.facts import Counts, Facts, Matches, default_facts
from fairveil.auditing.inputs import make_target
from fairveil.auditing.presence import KnownPeople, presence_rows, presence_sentence
from fairveil.auditing.protocol import Terms, split_rows
from fairveil.data.frames import plain_column
from fairveil.data.kinds import FEWEST_OF_A_GROUP
from fairveil.workflows.reading import Place
from fairveil.workflows.release.job import TableJob

#: People who are looked up in the release; fewer than the second number would be described one by one.
_MOST_PEOPLE, FEWEST_PEOPLE = 20_000, 1000
_KEY, _FILE, _ROW = "\x00key", "\x00file", "\x00row"


def people_among(job: TableJob, batches: Iterable[tuple[Place, pa.Table]], rows: int) -> pa.Table | None:
    """The people among some batches who belong to a uniform sample of the input, with their keys and places.

    rows: of the whole input. Each row draws a key from the place of its batch, so that any division of the input into
    tasks gives the same people. Keys above a limit that leaves a few too many are dropped at once.
    """
    limit = (_MOST_PEOPLE + 6.0 * math.sqrt(_MOST_PEOPLE)) / rows
    found = []
    for place, table in batches:
        keys = np.random.default_rng([place.file, place.start]).random(table.num_rows)
        own = np.flatnonzero(keys < limit)
        places = np.full(len(own), place.file), place.start + own
        some = table.take(pa.array(own)).append_column(_KEY, pa.array(keys[own]))
        found.append(some.append_column(_FILE, pa.array(places[0])).append_column(_ROW, pa.array(places[1])))
    return pa.concat_tables(found) if found else None


def people_of(found: Iterable[pa.Table | None]) -> pa.Table:
    """The sample: the smallest keys of all pieces, in the order of the input."""
    together = pa.concat_tables([table for table in found if table is not None])
    chosen = np.argsort(together[_KEY].to_numpy(), kind="stable")[:_MOST_PEOPLE]
    some = together.take(pa.array(chosen)).sort_by([(_FILE, "ascending"), (_ROW, "ascending")])
    return some.drop_columns([_KEY, _FILE, _ROW]).combine_chunks()


class PresenceCount:
    """A sample of people of the input, and how many released rows match their known columns.

    The release is counted as it is written, in the memory of the sample. matches: what counts them; on a cluster,
    tasks do, and their counts are added here.
    """

    def __init__(self, job: TableJob, people: pa.Table, facts: Facts) -> None:
        self._job, self._people = job, people
        self.matches = Matches(facts, facts.codes(people))

    @classmethod
    def of(cls, job: TableJob, rows: int, sample: Callable[[], pa.Table] | None = None) -> "PresenceCount | None":
        """None if the input lacks S, has too few rows, or no column that could be known.

        sample: draws people from the input; by default, in one pass over it.
        """
        hidden = [column.name for column in job.sensitive.columns]
        if rows < FEWEST_PEOPLE or set(hidden) != set(job.sensitive_names):
            return None
        if sample is None:
            batches = job.source.placed_batches(job.columns, job.held_as, job.batch_rows)
            people = people_of([people_among(job, batches, rows)])
        else:
            people = sample()
        names = list(job.options.known) or default_facts(people, job.released_names)
        return cls(job, people, Facts.of(names, people, people)) if names else None

    def add(self, released: pa.Table) -> None:
        """Count rows of the release."""
        self.matches.include(counted(self.matches, released))

    def told(self) -> str | None:
        """The sentence for the card; None if a group is too small for its figures to be told."""
        people = KnownPeople.of(self.matches, self._people)
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


def counted(matches: Matches, released: pa.Table) -> Counts:
    """How often the people's known columns occur in some rows of a release."""
    return matches.counted(pa.table({name: plain_column(released[name]) for name in matches.facts.names}))
