"""Learning-rate schedules."""

import math


def half_cosine(done: float, final: float) -> float:
    """Half-cosine schedule: the learning-rate factor after a fraction `done` of the steps, from 1 down to `final`.

    >>> [round(half_cosine(done, 0.1), 3) for done in (0.0, 0.5, 1.0)]
    [1.0, 0.55, 0.1]
    """
    return final + (1 - final) * (1 + math.cos(math.pi * done)) / 2
