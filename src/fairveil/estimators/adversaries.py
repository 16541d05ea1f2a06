"""What adversaries look for and what they know: ranges of a numeric S, and the truth for equalized odds."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil.estimators.inputs import Prepared
from fairveil.estimators.targets import read_target
from fairveil.objectives import LogLoss, Loss
from fairveil.training import Target

FAIRNESS = ("demographic_parity", "equalized_odds")
#: Ranges of a numeric S.
_RANGES = 8


def check_fairness(owner: str, fairness: Any) -> None:
    """Raise InputError unless it is one of the two definitions."""
    if fairness not in FAIRNESS:
        raise InputError(must_be(owner, "fairness", " or ".join(map(repr, FAIRNESS)), fairness))


def given_truth(prepared: Prepared, y: Any, loss: Loss) -> Prepared:
    """The same rows, with adversaries that know Y (equalized odds): a release should say nothing of S beyond Y.

    y: of all rows of the caller's table.
    """
    if y is None:
        raise InputError("fairness='equalized_odds' needs the truth: fit(X, y, sensitive_features=S).")
    truth, classes = read_target(y, len(prepared.counted))
    truth = truth[torch.from_numpy(prepared.counted)]
    rows = prepared.rows
    mass = torch.ones(len(rows)) if rows.weight is None else rows.weight.float()
    targets = tuple(
        replace(target, chance=chance_given(target.loss or loss, secret, truth, mass))
        for target, secret in zip(prepared.targets, rows.secrets, strict=True)
    )
    one_hot = torch.nn.functional.one_hot(truth, len(classes)).to(torch.float32)
    return replace(prepared, rows=replace(rows, given=one_hot), targets=targets)


def chance_given(loss: Loss, secret: Tensor, given: Tensor, mass: Tensor) -> float:
    """The minimum loss of an adversary that sees no release, but `given`. mass: the weight of each row."""
    total = 0.0
    for value in range(int(given.max()) + 1):
        part = given == value
        if part.any():
            total += float(mass[part].sum() / mass.sum()) * float(loss.chance(secret[part], mass[part]))
    return total


def with_ranges(prepared: Prepared) -> Prepared:
    """With adversaries for the ranges of each number of S in addition to those of the numbers: a release may be
    independent of S in its mean only.
    """
    rows = prepared.rows
    mass = torch.ones(len(rows)) if rows.weight is None else rows.weight.float()
    given = torch.zeros(len(rows), dtype=torch.int64) if rows.given is None else rows.given.argmax(dim=1)
    secrets, targets = list(rows.secrets), list(prepared.targets)
    for values in rows.secrets[0].T:
        edges = np.unique(np.quantile(values.numpy(), np.arange(1, _RANGES) / _RANGES))
        codes = torch.from_numpy(np.digitize(values.numpy(), edges))
        _, codes = torch.unique(codes, return_inverse=True)
        if int(codes.max()) == 0:
            continue
        secrets.append(codes)
        targets.append(Target(int(codes.max()) + 1, chance_given(LogLoss(), codes, given, mass), LogLoss()))
    return replace(prepared, rows=replace(rows, secrets=tuple(secrets)), targets=tuple(targets))
