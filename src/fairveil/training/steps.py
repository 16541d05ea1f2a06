"""One step of each player: the arithmetic of Algorithm `alg:euclid`, for all members at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairveil.data.rows import Rows
from fairveil.objectives import ConstraintState, Distortion, Loss
from fairveil.objectives.released import ReleasedBatch
from fairveil.training.confidence_bound import DRAWS
from fairveil.training.panel import Panel
from fairveil.training.peers import ALONE, Peers
from fairveil.training.problem import Problem


def panel_losses(
    panel: Panel,
    losses: Sequence[Loss],
    release: ReleasedBatch,
    targets: Sequence[Tensor],
    generator: torch.Generator | None = None,
    importance: Tensor | None = None,
    given: Tensor | None = None,
) -> Tensor:
    """Mean loss of every network on a release: (members, networks). With a generator, dropout is applied.

    importance: how much each row counts, (rows,); only for releases from an alphabet shared by all rows. given: what
    the networks know of each row in addition, (rows, values).
    """
    atoms, weights = release.atoms, release.weights
    assert importance is None or (atoms is not None and atoms.dim() == 2)
    if atoms is not None and weights is not None and atoms.dim() == 3:
        means = _means_over_own_atoms(panel, losses, atoms, weights, targets, generator, given)
    elif atoms is not None and weights is not None and all(loss.discrete for loss in losses) and given is None:
        outputs = panel(atoms.expand(len(weights), -1, -1), generator)
        means = [
            _mean_over_atoms(losses[o.target], output, weights, targets[o.target], importance)
            for o, output in zip(panel.opponents, outputs, strict=True)
        ]
    else:
        means = [
            losses[o.target].rows(output, targets[o.target].expand(len(output), *targets[o.target].shape)).mean(dim=1)
            for o, output in zip(panel.opponents, panel(_with(release.seen, given), generator), strict=True)
        ]
    return torch.stack(means, dim=1)


def _with(seen: Tensor, given: Tensor | None) -> Tensor:
    """A release, (members, rows, width), with what is known of each row in addition."""
    return seen if given is None else torch.cat([seen, given.expand(len(seen), -1, -1)], dim=-1)


def _means_over_own_atoms(
    panel: Panel,
    losses: Sequence[Loss],
    atoms: Tensor,
    weights: Tensor,
    targets: Sequence[Tensor],
    generator: torch.Generator | None,
    given: Tensor | None,
) -> list[Tensor]:
    """Mean loss of every network if each row has its own atoms, exact over their draw: (members,) each.

    Members share the atoms and differ in their probabilities. An atom equal to the row's first one is not evaluated
    again: where many rows have only one choice, that saves most of the work.
    """
    first, others = atoms[0], atoms[1:]
    differs = (others != first).any(dim=-1)
    chance = weights.movedim(-1, 1) / atoms.shape[1]
    of_first = chance[:, 0] + (chance[:, 1:] * ~differs).sum(dim=1)
    chance = torch.cat([of_first, chance[:, 1:][:, differs]], dim=1)
    row = torch.arange(len(first), device=first.device)
    row = torch.cat([row, row.expand_as(differs)[differs]])
    means = []
    seen = torch.cat([first, others[differs]])
    outputs = panel(seen if given is None else torch.cat([seen, given.index_select(0, row)], dim=1), generator)
    for opponent, output in zip(panel.opponents, outputs, strict=True):
        target = targets[opponent.target].index_select(0, row)
        loss = losses[opponent.target].rows(output, target.expand(len(output), *target.shape))
        means.append((chance * loss).sum(dim=1))
    return means


def _mean_over_atoms(loss: Loss, output: Tensor, weights: Tensor, target: Tensor, importance: Tensor | None) -> Tensor:
    """Mean loss over rows and, exactly, over the draw of an atom: output (members, atoms, classes) to (members,)."""
    classes = output.shape[-1]
    every = torch.arange(classes, device=output.device).expand(*output.shape[:-1], classes)
    of_class = loss.rows(output.unsqueeze(-2).expand(*output.shape, classes), every)
    rows = torch.nn.functional.one_hot(target, classes).to(weights.dtype)
    if importance is not None:
        rows = rows * importance.unsqueeze(1)
    mass = torch.einsum("nk,mna->mak", rows, weights) / len(target)
    return (mass * of_class).sum(dim=(1, 2))


def advantages_of(problem: Problem, losses: Tensor) -> Tensor:
    """The gain of each adversary over guessing from the prior, in units of the loss: (members, adversaries)."""
    chance = torch.tensor([problem.targets[o.target].chance for o in problem.opponents], device=losses.device)
    return chance - losses


def strongest(advantage: Tensor, softness: float) -> Tensor:
    """A soft maximum over adversaries, never below 0: (members,).

    Pushing an adversary's loss above chance gains nothing, because a fresh adversary would simply invert its answers.
    """
    return softness * torch.logsumexp(advantage.clamp_min(0.0) / softness, dim=1)


@dataclass(frozen=True)
class Look:
    """The losses of adversaries and predictors on a release, (members, networks)."""

    adversaries: Tensor
    tasks: Tensor | None = None


@dataclass(frozen=True)
class EncoderAim:
    """The encoder's objective () and its parts: violation and spread (members, constraints)."""

    objective: Tensor
    violation: Tensor
    spread: Tensor


def encoder_aim(
    problem: Problem, look: Look, state: ConstraintState, aim: Tensor, release: ReleasedBatch, batch: Rows,
    peers: Peers = ALONE,
) -> EncoderAim:  # fmt: skip
    """-L + lambda task + constraint (`eq:generalopt-oneApp`, `eq:penaltymethodsupp`), summed over members."""
    leak = strongest(advantages_of(problem, look.adversaries), problem.training.softness)
    rows, spread = distortion_of(problem, release, batch.x, peers)
    violation = problem.bounds.violation(peers.mean(rows.mean(dim=1)), aim)
    total = leak + problem.constraint.term(state, violation)
    # Within the bound, distortion has a small value of its own, so that the budget is used even where adversaries
    # happen to find nothing. At the bound this only raises the multiplier by the same amount.
    total = total - problem.training.spending * violation.sum(dim=1)
    if problem.training.drift and problem.signature.sampled and release.weights is None:
        total = total + problem.training.drift * _drift(release, batch.x[:, problem.signature.layout.grouped], peers)
    if look.tasks is not None:
        weights = torch.tensor([task.weight for task in problem.tasks], device=look.tasks.device)
        total = total + look.tasks @ weights
    return EncoderAim(total.sum(), violation, spread)


def _drift(release: ReleasedBatch, original: Tensor, peers: Peers) -> Tensor:
    """The total variation between the released and the original distribution, summed over columns: (members,)."""
    return 0.5 * peers.mean(release.probabilities.mean(dim=1) - original.mean(dim=0)).abs().sum(dim=-1)


def distortion_of(problem: Problem, release: ReleasedBatch, x: Tensor, peers: Peers = ALONE) -> tuple[Tensor, Tensor]:
    """Distortion of each row, averaged over the draw: (members, rows, constraints); and its standard deviation over
    rows as expected on held-out rows: (members, constraints).
    """
    if release.atoms is not None and release.atoms.dim() == 3 and release.weights is not None:
        assert isinstance(problem.distortion, Distortion)
        each = problem.bounds.of_rows(problem.distortion.of_atoms(release.atoms, x))
        rows = torch.einsum("ark,mra->mrk", each, release.weights)
        # Verification averages over a few draws, so part of their own variance remains.
        expected = rows.detach()
        within = torch.einsum("ark,mra->mrk", each.detach().square(), release.weights.detach()) - expected.square()
        return rows, (peers.variance(expected) + peers.mean(within.clamp_min(0.0).mean(dim=1)) / DRAWS).sqrt()
    rows = problem.bounds.of_rows(problem.distortion.expected(release, x))
    if release.squares is None:
        return rows, peers.deviation(rows.detach())
    # A closed form has no variance of its own; the draws that will be verified have.
    drawn = problem.distortion.expected(replace(release, squares=None), x)
    return rows, peers.deviation(problem.bounds.of_rows(drawn).detach())
