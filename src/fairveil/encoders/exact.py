"""The optimal channel of a small alphabet, solved instead of learned."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from fairveil.encoders.warm_start import WarmStart
from fairveil.objectives import Distortion
from fairveil.theory.channel import information_channel

if TYPE_CHECKING:
    from fairveil.encoders.matrix import MatrixEncoder

#: Counts added to every pair of S and a record: a record that some group has not had in the training rows may occur.
_UNSEEN = 0.1
#: Nats within which the solver reaches the optimum, and the least probability that is stored.
_GAP, _LEAST = 1e-6, 1e-9


def solve(encoder: "MatrixEncoder", start: WarmStart) -> None:
    """Set the channel of every member to the one of least I(R; S) within its budget, for the training rows.

    The budget is approached from inside by what held-out rows need to confirm it.
    """
    distortion, rows = start.distortion, start.train
    assert isinstance(distortion, Distortion)
    joint = _joint(encoder, start)
    prices, fixed = distortion.prices(encoder.table)
    costs = torch.addmm(fixed.unsqueeze(1), prices, encoder.table[:, encoder.layout.grouped].T).double().numpy()
    sees = rows.sensitive is not None
    bounds = start.bounds.values[:, 0].double()
    channels = [_channel(joint, costs, float(bound), sees) for bound in bounds]
    spread = torch.tensor([[_spread(joint, costs, channel)] for channel in channels])
    inside = (bounds - start.margin(spread)[:, 0].double()).clamp_min(0.05 * bounds)
    found = np.stack([_channel(joint, costs, float(bound), sees) for bound in inside])
    with torch.no_grad():
        encoder.logits.copy_(torch.from_numpy(np.log(np.maximum(found, _LEAST))).float())


def _joint(encoder: "MatrixEncoder", start: WarmStart) -> NDArray[np.float64]:
    """P(s, record), (classes, cells)."""
    rows = start.train
    classes = int(torch.cat([rows.secrets[0], start.validation.secrets[0]]).max()) + 1
    classes = max(classes, encoder.signature.sensitive_width)
    cell = encoder.cell_of(rows.x) + rows.secrets[0] * encoder.cells
    weight = None if rows.weight is None else rows.weight.double()
    counts = torch.bincount(cell, weight, classes * encoder.cells).double() + _UNSEEN
    return (counts / counts.sum()).reshape(classes, encoder.cells).numpy()


def _channel(
    joint: NDArray[np.float64], costs: NDArray[np.float64], bound: float, sees_sensitive: bool
) -> NDArray[np.float64]:
    """T(record | record[, s]): (classes or 1, cells, cells)."""
    found = information_channel(joint, costs, bound, sees_sensitive=sees_sensitive, gap=_GAP).transition
    return found if sees_sensitive else found[None]


def _spread(joint: NDArray[np.float64], costs: NDArray[np.float64], channel: NDArray[np.float64]) -> float:
    """The standard deviation of a row's mean distortion."""
    share = joint if len(channel) > 1 else joint.sum(axis=0, keepdims=True)
    each = (channel * costs).sum(axis=2)
    mean = float((share * each).sum())
    return float(np.sqrt(max((share * (each - mean) ** 2).sum(), 0.0)))
