"""Controls: attacks whose outcome is known. If one of them has the wrong outcome, the audit is invalid.

- the original data, if given: attackers must find S;
- a planted leak, an added column that equals S in a fifth of the rows: attackers must find S;
- a shuffled S: attackers must not find it.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from fairveil.auditing.attackers import Attacker
from fairveil.auditing.inputs import Target
from fairveil.auditing.model import Array
from fairveil.auditing.protocol import Attempt, Evidence, Terms, attempt
from fairveil.auditing.scoring import FOUND, Tried, Truth, attack_row, p_values

#: The share of rows in which the planted column equals S.
PLANTED = 0.2
#: p-value at which a shuffled S counts as found; low, so that chance rarely invalidates an audit.
_SURELY = 0.001


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
    return [
        _control(name, target, [a for a in attackers if evidence.has(a.view)], evidence, values, expected, terms)
        for name, evidence, values, expected in settings
        if evidence is not None
    ]


def _control(
    name: str, target: Target, attackers: Sequence[Attacker], evidence: Evidence, values: Array | None, expected: bool,
    terms: Terms,
) -> dict[str, Any]:  # fmt: skip
    attempts: list[Attempt] = []
    truth, adjusted = Truth.of(target, evidence.parts, values), [1.0]
    for group in _in_turn(attackers) if expected else [attackers]:
        for attacker in group:
            terms.step(f"control, {name}: {attacker.name}")
            attempts.append(attempt(attacker, evidence, target, terms.seed, values))
        [adjusted] = p_values([Tried(truth, attempts)], terms.seed, columns=2 if expected else 1)
        if expected and min(adjusted) <= FOUND:
            break
    rows = [attack_row(made, truth, p, terms.confidence) for made, p in zip(attempts, adjusted, strict=True)]
    best = min(range(len(rows)), key=lambda i: (adjusted[i], -rows[i]["advantage"]))
    row = rows[best]
    found = adjusted[best] <= (FOUND if expected else _SURELY)
    return {"control": name, **row, "attacker": attempts[best].name, "expected": "succeed" if expected else "fail",
            "found": found, "passed": found == expected}  # fmt: skip


def _in_turn(attackers: Sequence[Attacker]) -> list[Sequence[Attacker]]:
    """The attackers in two groups, the faster one first: of a control that must succeed, one attacker has to."""
    half = (len(attackers) + 1) // 2
    return [attackers[:half], attackers[half:]]


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
