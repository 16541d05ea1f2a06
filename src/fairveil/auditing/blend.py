"""A blend of attackers: the average of the few whose combination predicts validation rows best."""

from collections.abc import Sequence

import numpy as np

from fairveil.auditing.model import Array, loss_of
from fairveil.auditing.protocol import Attempt
from fairveil.auditing.scoring import Truth

#: The maximum number of attackers in a blend. They are added one by one, and one attacker can be added repeatedly.
_MOST_STEPS = 12
#: The smallest probability that enters a logarithm.
_LEAST = 1e-6


def blended(attempts: Sequence[Attempt], truth: Truth) -> list[Attempt]:
    """One more attempt, the average of several; none if no combination is better than the best attacker alone.

    Probabilities are averaged as logarithms, numbers as they are. Members are chosen on validation rows, so the blend
    is tested on test rows like any other attacker.
    """
    validation = [_to_average(attempt.validation) for attempt in attempts]
    members: list[int] = []
    total, best = np.zeros_like(validation[0]), np.inf
    for _ in range(_MOST_STEPS):
        losses = [loss_of(_averaged(total + one, len(members) + 1), truth.validation) for one in validation]
        chosen = int(np.argmin(losses))
        if losses[chosen] >= best:
            break
        best = losses[chosen]
        members.append(chosen)
        total = total + validation[chosen]
    if len(set(members)) < 2:
        return []
    test = np.sum([_to_average(attempts[member].test) for member in members], axis=0)
    return [Attempt("blend", "everything", _averaged(total, len(members)), _averaged(test, len(members)))]


def _to_average(predicted: Array) -> Array:
    return predicted if predicted.ndim == 1 else np.asarray(np.log(np.clip(predicted, _LEAST, 1.0)))


def _averaged(total: Array, count: int) -> Array:
    if total.ndim == 1:
        return np.asarray(total / count)
    shifted = np.exp((total - total.max(axis=1, keepdims=True)) / count)
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
