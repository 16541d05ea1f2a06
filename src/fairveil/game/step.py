"""One step of each player: the arithmetic of Algorithm `alg:euclid`, for all members at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairveil.adversaries import Panel
from fairveil.encoders import Encoder
from fairveil.game.problem import Problem, Rows
from fairveil.objectives import ConstraintState, Loss
from fairveil.objectives.distortion import Release


def panel_losses(
    panel: Panel,
    losses: Sequence[Loss],
    released: Tensor,
    targets: Sequence[Tensor],
    generator: torch.Generator | None = None,
) -> Tensor:
    """Mean loss of every network on a release: (members, networks). With a generator, in training (slots dropped)."""
    columns = []
    for opponent, output in zip(panel.opponents, panel(released, generator), strict=True):
        truth = targets[opponent.target]
        truth = truth.expand(output.shape[0], *truth.shape)
        columns.append(losses[opponent.target].rows(output, truth).mean(dim=1))
    return torch.stack(columns, dim=1)


def advantages(
    problem: Problem,
    panel: Panel,
    released: Tensor,
    secrets: Sequence[Tensor],
    generator: torch.Generator | None = None,
) -> Tensor:
    """What each adversary gains over guessing from the prior, in units of the loss: (members, adversaries)."""
    losses = panel_losses(panel, [problem.loss] * len(secrets), released, secrets, generator)
    chance = torch.tensor([problem.chances[o.target] for o in panel.opponents], device=losses.device)
    return chance - losses


def strongest(advantage: Tensor, softness: float) -> Tensor:
    """A soft maximum over adversaries, never below 0: (members,).

    Pushing an adversary's loss above chance earns nothing, because a fresh one would simply turn its answers round.
    """
    return softness * torch.logsumexp(advantage.clamp_min(0.0) / softness, dim=1)


@dataclass(frozen=True)
class EncoderAim:
    """The encoder's objective and what it is made of: objective (), violation and spread (members, constraints)."""

    objective: Tensor
    violation: Tensor
    spread: Tensor


def encoder_aim(
    problem: Problem,
    encoder: Encoder,
    panel: Panel,
    predictors: Panel | None,
    state: ConstraintState,
    aim: Tensor,
    batch: Rows,
    generator: torch.Generator,
) -> EncoderAim:
    """-L + lambda task + constraint (`eq:generalopt-oneApp`, `eq:penaltymethodsupp`), summed over members."""
    release: Release = encoder(batch.x, batch.sensitive, encoder.noise(len(batch), generator))
    advantage = advantages(problem, panel, release.values, batch.secrets, generator)
    leak = strongest(advantage, problem.training.softness)
    rows = problem.bounds.of_rows(problem.distortion.expected(release, batch.x))
    violation = rows.mean(dim=1) - aim
    total = leak + problem.constraint.term(state, violation)
    if predictors is not None:
        losses = panel_losses(predictors, [task.loss for task in problem.tasks], release.values, batch.tasks)
        weights = torch.tensor([task.weight for task in problem.tasks], device=losses.device)
        total = total + losses @ weights
    return EncoderAim(total.sum(), violation, rows.detach().std(dim=1))
