"""Attacks on one sensitive column: the score of each attacker, and the maximum over all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairveil.auditing.attackers import Attacker, battery
from fairveil.auditing.blend import blended
from fairveil.auditing.inputs import Target, distance_from_usual, in_quarters
from fairveil.auditing.protocol import Attempt, Evidence, Terms, Wanted
from fairveil.auditing.scoring import (
    Tried,
    Truth,
    added,
    attack_row,
    flat,
    p_values,
    strongest,
    tail_rows,
    worst_gap,
)


@dataclass(frozen=True)
class Found:
    """Results of all attackers on one sensitive column.

    attempts: on the column itself. rows: one per attempt on any form of it. summary: the maximum. tails: precision on
    the rows with the highest scores.
    """

    attempts: list[Attempt]
    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    tails: list[dict[str, Any]]


def attack_all(
    target: Target, attackers: Sequence[Attacker], seen: Evidence, terms: Terms, *, columns: int = 1
) -> Found:
    """Run every attacker on one column; p-values are adjusted for all attackers and for this many columns.

    A number is also attacked as its quartile and as its distance from the median: a release may hide its mean but
    reveal either of these.
    """
    forms = [(target, list(attackers))]
    if target.classes is None:
        checks = [attacker for attacker in attackers if attacker.checks]
        forms += [(in_quarters(target), checks), (distance_from_usual(target), checks)]
    made = iter(terms.attempts([
        Wanted(f"{form.name}: {attacker.name} on {attacker.view}", attacker, seen, form)
        for form, chosen in forms for attacker in chosen
    ]))  # fmt: skip
    tried = [(Truth.of(form, seen.parts), [next(made) for _ in chosen]) for form, chosen in forms]
    [found] = terms.engine.map(_scored, [(tried, terms.plain, columns)])
    return found


def _scored(tried: Sequence[tuple[Truth, list[Attempt]]], terms: Terms, columns: int) -> Found:
    """Scores, intervals and p-values of attempts on the forms of a column."""
    forms = [Tried(truth, [*attempts, *blended(attempts, truth)]) for truth, attempts in tried]
    adjusted = p_values(forms, terms.seed, columns)
    rows = [
        attack_row(made, each.truth, p, terms.confidence)
        for each, values in zip(forms, adjusted, strict=True)
        for made, p in zip(each.attempts, values, strict=True)
    ]
    gap, predictor = worst_gap(forms[:2], terms.confidence)
    first = forms[0]
    summary = strongest(first.attempts, first.truth, min(map(min, adjusted)), terms.confidence)
    summary |= {**flat("worst_gap", gap), "worst_gap_predictor": predictor}
    tails = tail_rows(first.attempts, first.truth, terms.confidence)
    return Found(list(first.attempts), rows, summary, tails)


def holder_rows(target: Target, seen: Evidence, known: Evidence | None, terms: Terms) -> list[dict[str, Any]]:
    """The attacker who also holds the original data. Not part of the maximum: the originals alone may reveal S.

    added: gain in accuracy (or reduction of the squared error, divided by the variance) over the originals alone, as
    a paired difference per row.
    """
    if known is None or not seen.has("original"):
        return []
    boosting = next(a for a in battery("quick") if a.name == "LightGBM").candidates
    made, alone = terms.attempts([
        Wanted(f"{target.name}: LightGBM on the release and the original", Attacker("LightGBM", "original", boosting),
               seen, target),
        Wanted(f"{target.name}: LightGBM on the original", Attacker("LightGBM", "values", boosting), known, target),
    ])  # fmt: skip
    truth = Truth.of(target, seen.parts)
    [[p_value]] = p_values([Tried(truth, [made])], terms.seed)
    row = attack_row(made, truth, p_value, terms.confidence)
    return [{**row, **flat("added", added(made, alone, truth, terms.confidence))}]
