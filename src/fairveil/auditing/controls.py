"""Controls: attacks whose outcome is known. If one of them comes out wrong, the audit proves nothing.

- the original data, where it is given: attackers must find S;
- a planted leak: a column that shows S in a fifth of the rows, added to the release: attackers must find it;
- S shuffled: attackers must find nothing.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from fairveil.auditing.attackers import Array, Attacker
from fairveil.auditing.inputs import Target
from fairveil.auditing.protocol import Evidence, Terms, attempt
from fairveil.auditing.scoring import FOUND, Tried, Truth, attack_row, p_values

#: The share of rows in which the planted column shows S.
PLANTED = 0.2
#: Shuffled S counts as found only at this: chance must not throw audits away.
_SURELY = 0.001


def control_rows(
    target: Target, attackers: Sequence[Attacker], release: Evidence, original: Evidence | None, terms: Terms
) -> list[dict[str, Any]]:
    """A row for each control: the attacker that came nearest to finding S."""
    generator = np.random.default_rng(terms.seed + 1)
    shuffled = target.values.copy()
    planted = release.plant(_leak(target, generator))
    shuffled[target.rows] = generator.permutation(shuffled[target.rows])
    settings: list[tuple[str, Evidence | None, Array | None, bool]] = [
        ("original data", original, None, True),
        ("planted leak", planted, None, True),
        ("shuffled S", release, shuffled, False),
    ]
    return [
        _control(name, target, [a for a in attackers if evidence.has(a.view)], evidence, values, expected, terms)
        for name, evidence, values, expected in settings
        if evidence is not None
    ]


def _control(
    name: str, target: Target, attackers: Sequence[Attacker], evidence: Evidence, values: Array | None, expected: bool,
    terms: Terms,
) -> dict[str, Any]:  # fmt: skip
    attempts = []
    for attacker in attackers:
        terms.step(f"control, {name}: {attacker.name}")
        attempts.append(attempt(attacker, evidence, target, terms.seed, values))
    truth = Truth.of(target, evidence.parts, values)
    [adjusted] = p_values([Tried(truth, attempts)], terms.seed)
    best = int(np.argmin(adjusted))
    row = attack_row(attempts[best], truth, adjusted[best], terms.confidence)
    found = adjusted[best] <= (FOUND if expected else _SURELY)
    return {"control": name, **row, "attacker": attempts[best].name, "expected": "succeed" if expected else "fail",
            "found": found, "passed": found == expected}  # fmt: skip


def failures(rows: Sequence[dict[str, Any]], found: Collection[str] = ()) -> list[str]:
    """What each failed control means.

    found: columns that attackers found in the release. Where they succeeded, it does not matter that they failed
    elsewhere: a leak is reported all the same.
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
