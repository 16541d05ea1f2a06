"""Maximum likelihood with a moving average of the weights and early stopping: for networks learned before the game."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fairveil._utils.progress import progress
from fairveil._utils.schedules import half_cosine

#: Number of evaluations on validation rows, and of evaluations without improvement before early stopping.
_EVALUATIONS, _PATIENCE = 15, 4
#: Decay of the moving average of the weights.
_AVERAGE = 0.99


def learn(
    parameters: Sequence[nn.Parameter],
    sample: Callable[[], Tensor],
    evaluate: Callable[[], Tensor],
    *,
    steps: int,
    rate: float,
    decay: float,
    final_rate: float,
    shown: tuple[str, str, bool],
) -> None:
    """Minimise `sample` (a minibatch's loss) and keep the averaged weights with the least `evaluate`.

    shown: the name of the step and the unit of the loss, for progress lines, and whether to show them.
    """
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)
    average = [p.detach().clone() for p in parameters]
    best, least, worse = [p.clone() for p in average], math.inf, 0
    evaluated = {math.ceil(steps * (i + 1) / _EVALUATIONS) for i in range(_EVALUATIONS)}
    title, unit, show_progress = shown
    with progress(steps, title, show_progress) as report:
        for step in range(1, steps + 1):
            optimiser.param_groups[0]["lr"] = rate * half_cosine((step - 1) / steps, final_rate)
            optimiser.zero_grad(set_to_none=True)
            sample().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            weight = min(_AVERAGE, step / (step + 9))
            torch._foreach_lerp_(average, [p.detach() for p in parameters], 1 - weight)
            if step in evaluated:
                value = _with(parameters, average, evaluate)
                worse = 0 if value < least else worse + 1
                if value < least:
                    least, best = value, [a.clone() for a in average]
                if worse == _PATIENCE:
                    report(steps, f"{least:.2f} {unit}, stopped early")
                    break
            report(step, f"{least:.2f} {unit}" if math.isfinite(least) else "")
    _set(parameters, best)


@torch.no_grad()
def _with(parameters: Sequence[nn.Parameter], values: Sequence[Tensor], evaluate: Callable[[], Tensor]) -> float:
    """The value of `evaluate` under other weights."""
    current = [p.detach().clone() for p in parameters]
    _set(parameters, values)
    found = float(evaluate())
    _set(parameters, current)
    return found


def _set(parameters: Sequence[nn.Parameter], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
