"""Controls: attacks whose outcome is known. If one of them comes out wrong, the audit proves nothing.

- the original data, where it is given: attackers must find S;
- a planted leak: a column that shows S in a fifth of the rows, added to the release: attackers must find it;
- S shuffled: attackers must find nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fairveil.auditing.attackers import Array, Attacker
from fairveil.auditing.inputs import Target
from fairveil.auditing.protocol import Evidence, attempt
from fairveil.auditing.scoring import FOUND, Truth, attack_row, p_values

#: The share of rows in which the planted column shows S.
PLANTED = 0.2
#: Shuffled S counts as found only at this: chance must not throw audits away.
_SURELY = 0.001


def control_rows(
    target: Target,
    attackers: Sequence[Attacker],
    release: Evidence,
    original: Evidence | None,
    *,
    confidence: float,
    seed: int,
    step: Callable[[str], None],
) -> list[dict[str, Any]]:
    """A row for each control and attacker."""
    generator = np.random.default_rng(seed + 1)
    planted = release.plant(_leak(target, generator))
    shuffled = target.values.copy()
    shuffled[target.rows] = generator.permutation(shuffled[target.rows])
    settings: list[tuple[str, Evidence | None, Array | None, str]] = [
        ("original data", original, None, "succeed"),
        ("planted leak", planted, None, "succeed"),
        ("shuffled S", release, shuffled, "fail"),
    ]
    rows = []
    for name, evidence, values, expected in settings:
        if evidence is None:
            continue
        able = [attacker for attacker in attackers if evidence.has(attacker.view) and
                (name != "planted leak" or attacker.view == "values")]  # fmt: skip
        attempts = []
        for attacker in able:
            step(f"control, {name}: {attacker.name}")
            attempts.append(attempt(attacker, evidence, target, seed, values))
        truth = Truth.of(target, evidence.parts, values)
        adjusted = p_values(attempts, truth, seed)
        limit = FOUND if expected == "succeed" else _SURELY
        best = min(range(len(attempts)), key=lambda i: adjusted[i])
        row = attack_row(attempts[best], truth, adjusted[best], confidence)
        found = adjusted[best] <= limit
        rows.append({"control": name, **row, "attacker": attempts[best].name, "expected": expected, "found": found,
                     "passed": found == (expected == "succeed")})  # fmt: skip
    return rows


def failures(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What each failed control means."""
    told = {
        "original data": "Attackers do not find {0!r} in the original data: failing on the release shows nothing.",
        "planted leak": "Attackers do not find a planted leak of {0!r}: there are too few rows for this audit.",
        "shuffled S": "Attackers find {0!r} after it was shuffled: the audit itself is broken. Please report it.",
    }
    return [told[row["control"]].format(row["sensitive"]) for row in rows if not row["passed"]]


def _leak(target: Target, generator: np.random.Generator) -> Array:
    """S in a fifth of the rows, a shuffled S in the others."""
    own = generator.random(len(target.values)) < PLANTED
    return np.where(own, target.values, generator.permutation(target.values))
