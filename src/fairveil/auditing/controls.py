"""Controls: attacks whose outcome is known. If one of them has the wrong outcome, the audit is invalid.

- the original data, if given: attackers must find S;
- a planted leak, an added column that equals S in a fifth of the rows: attackers must find S;
- a shuffled S: attackers must not find it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairveil.auditing.attackers import Attacker
from fairveil.auditing.inputs import Target
from fairveil.auditing.model import Array
from fairveil.auditing.protocol import Attempt, Evidence, Terms, Wanted
from fairveil.auditing.scoring import FOUND, Tried, Truth, attack_row, p_values

#: The share of rows in which the planted column equals S.
PLANTED = 0.2
#: p-value at which a shuffled S counts as found; low, so that chance rarely invalidates an audit.
_SURELY = 0.001


@dataclass(frozen=True)
class _Planned:
    """A control.

    values: what attackers look for instead of the target's values. expected: whether they must succeed.
    """

    name: str
    evidence: Evidence
    values: Array | None
    expected: bool
    attackers: list[Attacker]

    @property
    def first(self) -> int:
        """How many attackers are tried at first: of a control that must succeed, one of them has to."""
        return (len(self.attackers) + 1) // 2 if self.expected else len(self.attackers)


def control_rows(
    target: Target, attackers: Sequence[Attacker], release: Evidence, original: Evidence | None, terms: Terms
) -> list[dict[str, Any]]:
    """One row per control: the attacker with the smallest p-value; of several, the strongest."""
    generator = np.random.default_rng(terms.seed + 1)
    shuffled = target.values.copy()
    planted = release.plant(_leak(target, generator))
    shuffled[target.rows] = generator.permutation(shuffled[target.rows])
    settings: list[tuple[str, Evidence | None, Array | None, bool]] = [
        ("original data", original, None, True),
        ("planted leak", planted, None, True),
        ("shuffled S", release.on(release.parts), shuffled, False),
    ]
    planned = [_Planned(name, evidence, values, expected, [a for a in attackers if evidence.has(a.view)])
               for name, evidence, values, expected in settings if evidence is not None]  # fmt: skip
    made = _attempts(planned, [one.attackers[: one.first] for one in planned], target, terms)
    rows = _judged(planned, made, target, terms)
    missed = [i for i, row in enumerate(rows) if not row["passed"] and planned[i].first < len(planned[i].attackers)]
    again = [planned[i] for i in missed]
    more = _attempts(again, [one.attackers[one.first :] for one in again], target, terms)
    judged = _judged(again, [made[i] + others for i, others in zip(missed, more, strict=True)], target, terms)
    for i, row in zip(missed, judged, strict=True):
        rows[i] = row
    return rows


def _attempts(
    planned: Sequence[_Planned], chosen: Sequence[Sequence[Attacker]], target: Target, terms: Terms
) -> list[list[Attempt]]:
    """The attempts of some attackers of each control."""
    made = iter(terms.attempts([
        Wanted(f"control, {one.name}: {attacker.name}", attacker, one.evidence, target, one.values)
        for one, attackers in zip(planned, chosen, strict=True) for attacker in attackers
    ]))  # fmt: skip
    return [[next(made) for _ in attackers] for attackers in chosen]


def _judged(
    planned: Sequence[_Planned], made: Sequence[list[Attempt]], target: Target, terms: Terms
) -> list[dict[str, Any]]:
    tasks = [(one.name, Tried(Truth.of(target, one.evidence.parts, one.values), attempts), one.expected, terms.plain)
             for one, attempts in zip(planned, made, strict=True)]  # fmt: skip
    return terms.engine.map(_control, tasks)


def _control(name: str, tried: Tried, expected: bool, terms: Terms) -> dict[str, Any]:
    # Attackers of a control that must succeed may be judged twice, before and after the slower ones are added.
    [adjusted] = p_values([tried], terms.seed, columns=2 if expected else 1)
    rows = [attack_row(made, tried.truth, p, terms.confidence)
            for made, p in zip(tried.attempts, adjusted, strict=True)]  # fmt: skip
    best = min(range(len(rows)), key=lambda i: (adjusted[i], -rows[i]["advantage"]))
    row = rows[best]
    found = adjusted[best] <= (FOUND if expected else _SURELY)
    return {"control": name, **row, "attacker": tried.attempts[best].name,
            "expected": "succeed" if expected else "fail", "found": found, "passed": found == expected}  # fmt: skip


def failures(rows: Sequence[dict[str, Any]], found: Collection[str] = ()) -> list[str]:
    """A message for each failed control.

    found: columns that attackers found in the release. For these, a failure where success was expected does not matter:
    the leak is reported anyway.
    """
    told = {
        "original data": "Attackers do not find {0!r} in the original data: failing on the release shows nothing.",
        "planted leak": "Attackers do not find a planted leak of {0!r}: there are too few rows for this audit.",
        "shuffled S": "Attackers find {0!r} after it was shuffled: the audit itself is broken. Please report it.",
    }
    return [told[row["control"]].format(row["sensitive"]) for row in rows
            if not row["passed"] and (row["expected"] == "fail" or row["sensitive"] not in found)]  # fmt: skip


def _leak(target: Target, generator: np.random.Generator) -> Array:
    """S in a fifth of the rows, a shuffled S in the others."""
    own = generator.random(len(target.values)) < PLANTED
    return np.where(own, target.values, generator.permutation(target.values))
