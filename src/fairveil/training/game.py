"""The loop: J adversary steps, one encoder step, now and then a judgement on validation rows."""

import hashlib
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from fairveil._utils.errors import TrainingFailed
from fairveil._utils.progress import progress
from fairveil.encoders import Encoder, build_encoder
from fairveil.objectives import ConstraintState, Mistakes
from fairveil.objectives.distortion import Release
from fairveil.training.checkpoint import load_checkpoint, save_checkpoint
from fairveil.training.history import History, Round
from fairveil.training.panel import Opponent, Panel
from fairveil.training.problem import Problem, Rows
from fairveil.training.steps import EncoderAim, Look, advantages_of, distortion_of, encoder_aim, panel_losses
from fairveil.training.teaching import teach

#: How many standard errors of the held-out mean training stays inside the bound, beyond the confidence bound itself.
_SAFETY = 2.0
#: Training never aims below this fraction of a bound, however few rows verify it.
_LOWEST_AIM = 0.5
#: Seconds between checkpoints, at most, where rounds are long.
_SAVED_EVERY = 300.0


@dataclass(frozen=True)
class Outcome:
    """The chosen encoder of every member, and how it came about."""

    encoder: Encoder
    history: History


class Game:
    """The state of a game: the players, their optimisers, the constraint, the average and the best so far."""

    def __init__(self, problem: Problem, seed: int, device: torch.device) -> None:
        training = problem.training
        self.problem = problem
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.encoder = build_encoder(problem.layout, problem.spec, problem.members)
        self.panel = self._panel(problem.opponents)
        self.predictors: Panel | None = None
        if problem.tasks:
            heads = [Opponent(training.adversary_hidden[0], t.outputs, i) for i, t in enumerate(problem.tasks)]
            self.predictors = self._panel(heads)
        for player in self.players:
            player.initialise(_member_generators(problem.seeds, seed))
            player.to(device)
        self.encoder_optimiser = _adamw(self.encoder.played(), training.learning_rate, 0.0)
        self.panel_optimiser = _adamw(self.looking(), training.adversary_learning_rate, training.adversary_decay)
        self.average = [p.detach().clone() for p in self.encoder.carried()]
        self.best = [p.clone() for p in self.average]
        self.least_excess = torch.full((problem.members,), math.inf, device=device)
        self.spread = torch.zeros_like(problem.bounds.values, device=device)
        self.optimism = torch.zeros_like(self.spread)
        start = problem.constraint.start(problem.members, len(problem.bounds.names))
        self.constraint = ConstraintState(*(t.to(device) for t in (start.multiplier, start.smoothed, start.rho)))
        self.step = 0
        self.rounds: list[Round] = []

    def _panel(self, opponents: Sequence[Opponent]) -> Panel:
        training = self.problem.training
        return Panel(self.encoder.released_width, opponents, self.problem.members, training.adversary_dropout,
                     self.problem.layout.shape, normalise=training.normalise)  # fmt: skip

    def looking(self) -> list[nn.Parameter]:
        """The parameters of all who look at the release."""
        return [p for panel in (self.panel, self.predictors) if panel is not None for p in panel.learned()]

    def forget(self) -> None:
        """Take the encoder's weights as they are now for its average and its best so far."""
        for kept in (self.average, self.best):
            for old, parameter in zip(kept, self.encoder.carried(), strict=True):
                old.copy_(parameter.detach())

    @property
    def players(self) -> list[Encoder | Panel]:
        """The encoder, then those who look at its release."""
        return [self.encoder, self.panel, *([self.predictors] if self.predictors is not None else [])]

    def batch(self, rows: Rows) -> Rows:
        """A minibatch drawn from all rows."""
        size = min(self.problem.training.batch_size, len(rows))
        return rows.take(torch.randint(len(rows), (size,), generator=self.generator, device=self.device)).unpacked()

    def schedule(self) -> None:
        """Set the learning rates for this step: a half cosine down to `final_rate`; the encoder's rises first."""
        training = self.problem.training
        done = self.step / training.steps
        factor = training.falling(done)
        risen = min(1.0, done / training.rise) if training.rise else 1.0
        self.encoder_optimiser.param_groups[0]["lr"] = training.learning_rate * factor * risen
        self.panel_optimiser.param_groups[0]["lr"] = training.adversary_learning_rate * factor

    def turn(self, rows: Rows, aim: Tensor) -> None:
        """J steps of those who look at the release, then one of the encoder.

        One proposal serves them all where it can be drawn from again: every adversary step sees fresh draws of it, and
        the encoder's own step another. At J = 3 that is one pass of the network instead of four. Where the encoder
        learns nothing but chances, the last adversary step and its own share one look at one draw.
        """
        batch = self.batch(rows)
        noise = self.encoder.noise(len(batch), self.generator)
        proposal = self.encoder.propose(batch.x, batch.sensitive, noise)
        shared = self.encoder.learns_chances
        for _ in range(self.problem.training.adversary_steps - shared):
            with torch.no_grad():
                if self.encoder.redraws:
                    seen, other = batch, noise.redrawn(self.generator)
                    release = self.encoder.release(proposal.detach(), batch.x, other)
                else:
                    seen = self.batch(rows)
                    release = self.encoder(seen.x, seen.sensitive, self.encoder.noise(len(seen), self.generator))
            self.adversary_step(self.look(release, seen))
        release = self.encoder.release(proposal, batch.x, noise)
        look = self.look(release, batch)
        parts = encoder_aim(self.problem, look, self.constraint, aim, release, batch)
        gradients = torch.autograd.grad(parts.objective, self.encoder.played(), retain_graph=shared)
        if shared:
            self.adversary_step(look)
        self.encoder_step(parts, gradients)

    def look(self, release: Release, batch: Rows) -> Look:
        """What adversaries, and predictors if there is a task, make of a release in training."""
        losses = [self.problem.loss] * len(batch.secrets)
        found = panel_losses(self.panel, losses, release, batch.secrets, self.generator, batch.importance)
        if self.predictors is None:
            return Look(found)
        tasks = [task.loss for task in self.problem.tasks]
        return Look(found, panel_losses(self.predictors, tasks, release, batch.tasks, self.generator))

    def adversary_step(self, look: Look) -> None:
        """All who look at the release improve on it, for fixed encoders."""
        total = look.adversaries.sum() + (0.0 if look.tasks is None else look.tasks.sum())
        parameters = self.looking()
        _set_gradients(parameters, torch.autograd.grad(total, parameters))
        self.panel_optimiser.step()

    def encoder_step(self, parts: EncoderAim, gradients: Sequence[Tensor]) -> None:
        """All encoders improve against the fixed adversaries; then the constraint and the average move."""
        parameters = self.encoder.played()
        _set_gradients(parameters, gradients)
        self.encoder_optimiser.step()
        violation = parts.violation.detach()
        self.constraint = self.problem.constraint.update(self.constraint, violation)
        # A young average follows fast, so that it does not remember the start.
        weight = min(self.problem.training.average, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.encoder.carried()], 1 - weight)
        self.spread = torch.lerp(parts.spread, self.spread, weight if self.step else 0.0)

    def restart_due(self) -> int | None:
        """Which adversary, if any, is drawn anew at this step."""
        training = self.problem.training
        every = training.steps // (training.restarts + 1)
        number, rest = divmod(self.step, max(every, 1))
        due = rest == 0 and 1 <= number <= training.restarts
        return (number - 1) % len(self.panel.opponents) if due else None

    def restart(self, index: int) -> None:
        """Draw one adversary of every member anew and let its optimiser forget."""
        seed = int(torch.randint(2**31, (1,), generator=self.generator, device=self.device).item())
        for parameter in self.panel.restart(index, _member_generators(self.problem.seeds, seed)):
            self.panel_optimiser.state.pop(parameter, None)

    def averaged(self) -> Encoder:
        """An encoder with the averaged weights."""
        return self.with_weights(self.average)

    def with_weights(self, weights: Sequence[Tensor]) -> Encoder:
        """A frozen encoder like this one, with other weights where the game is played."""
        encoder = build_encoder(self.problem.layout, self.problem.spec, self.problem.members).to(self.device)
        encoder.load_state_dict(self.encoder.state_dict())
        with torch.no_grad():
            for parameter, weight in zip(encoder.carried(), weights, strict=True):
                parameter.copy_(weight)
        return encoder.requires_grad_(False).eval()

    @torch.no_grad()
    def judge(self, rows: Rows, familiar: Rows, held_out: int, z: float, seconds: float) -> None:
        """Judge the averaged encoders on validation rows; remember each member's latest feasible one.

        familiar: training rows, to see what the same encoders show there.

        Feasible: the held-out bound would be met if held-out rows behaved like these. The latest, not the one that
        leaks least: what training adversaries find on new rows is mostly noise by then, and choosing by it threw away
        the last, slowest steps.
        """
        drawn = self.generator.get_state()
        familiar_mean = self.judged(self.averaged(), familiar)[0]
        self.generator.set_state(drawn)  # with the same draws for both
        mean, spread, found, right = self.judged(self.averaged(), rows)
        # New rows may show more distortion than those of the training, which records and networks know by heart. A
        # standard error of the difference is put down to chance.
        chance = spread * math.sqrt(1 / len(rows) + 1 / len(familiar))
        self.optimism = (mean - familiar_mean - chance).clamp_min(0.0)
        leak = advantages_of(self.problem, found).amax(dim=1)
        self._refuse_divergence(mean, leak)
        bound = self.problem.bounds.values.to(self.device)
        excess = (mean + z * spread / math.sqrt(held_out) - bound).clamp_min(0.0).amax(dim=1)
        mature = self.step >= self.problem.training.select_after * self.problem.training.steps
        chosen = ((excess == 0) | (excess < self.least_excess)) & mature
        self.least_excess = torch.where(chosen, excess, self.least_excess)
        for best, average in zip(self.best, self.average, strict=True):
            best.copy_(torch.where(chosen.view(-1, *[1] * (average.dim() - 1)), average, best))
        for member in range(self.problem.members):
            self.rounds.append(
                Round(
                    self.step,
                    member,
                    tuple(mean[member].tolist()),
                    tuple(bound[member].tolist()),
                    tuple(self.constraint.multiplier[member].tolist()),
                    float(leak[member]),
                    bool(excess[member] == 0),
                    bool(chosen[member]),
                    seconds,
                    None if right is None else float(right[member]),
                )
            )

    def judged(self, encoder: Encoder, rows: Rows) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Of some rows: mean and spread of the distortion, (members, constraints), the adversaries' losses, (members,
        adversaries), and how often the best adversary of the joint value is right, (members,), where that is a class.
        """
        losses = [self.problem.loss] * len(rows.secrets)
        joint = [i for i, opponent in enumerate(self.panel.opponents) if opponent.target == 0]
        self.panel.eval()
        means, variances, found, wrong, shares = [], [], [], [], []
        for piece in rows.pieces():
            release = encoder(piece.x, piece.sensitive, encoder.noise(len(piece), self.generator))
            distortion, spread = distortion_of(self.problem, release, piece.x)
            means.append(distortion.mean(dim=1))
            variances.append(spread.square())
            found.append(panel_losses(self.panel, losses, release, piece.secrets, importance=piece.importance))
            if self.problem.loss.discrete:
                wrong.append(panel_losses(self.panel, [Mistakes()] * len(losses), release, piece.secrets)[:, joint])
            shares.append(len(piece) / len(rows))
        self.panel.train()
        weight = torch.tensor(shares, device=self.device).view(-1, 1, 1)
        mean, variance, loss = ((weight * torch.stack(each)).sum(dim=0) for each in (means, variances, found))
        right = 1.0 - (weight * torch.stack(wrong)).sum(dim=0).amin(dim=1) if wrong else None
        return mean, variance.sqrt(), loss, right

    def _refuse_divergence(self, mean: Tensor, leak: Tensor) -> None:
        lost = (~(torch.isfinite(mean).all(dim=1) & torch.isfinite(leak))).nonzero().flatten().tolist()
        if lost:
            raise TrainingFailed(
                f"Training diverged by step {self.step} for {len(lost)} of {self.problem.members} encoders. Lower "
                "learning_rate or adversary_learning_rate in training=Training(...)."
            )

    def aim(self, held_out: int, z: float) -> Tensor:
        """A little inside the bound: so far that the held-out confidence bound will most likely fit under it too."""
        bound = self.problem.bounds.values.to(self.device)
        margin = (z + _SAFETY) * self.spread / math.sqrt(held_out)
        return torch.maximum(bound - margin - self.optimism, _LOWEST_AIM * bound)


def play(
    problem: Problem,
    train: Rows,
    validation: Rows,
    *,
    held_out: int,
    z: float,
    seed: int,
    device: torch.device,
    show_progress: bool = False,
    checkpoint: Path | None = None,
) -> Outcome:
    """Play the game to its end and return each member's chosen encoder.

    held_out, z: the rows that will verify the distortion and the normal quantile of their confidence bound; they set
    how far inside the bound training aims. With `checkpoint`, the state is saved after the lessons, after every round
    and now and then between, and a game that was interrupted goes on from there exactly as if it had not been.
    """
    game = Game(problem, seed, device)
    train, validation = train.to(device), validation.to(device)
    familiar = train.take(torch.arange(min(len(train), len(validation)), device=device))
    training = problem.training
    fingerprint = _fingerprint(problem, train, validation, (held_out, z), seed)
    if checkpoint is not None and checkpoint.exists():
        load_checkpoint(game, checkpoint, fingerprint)
    else:
        teach(game.encoder, problem, train, validation, seed=seed, show_progress=show_progress)
        game.forget()
        if checkpoint is not None:
            save_checkpoint(game, checkpoint, fingerprint)
    judged_at = {round(training.steps * (i + 1) / training.rounds) for i in range(training.rounds)}
    before = game.rounds[-1].seconds if game.rounds else 0.0
    start = saved = time.monotonic()
    with progress(training.steps, "Training", show_progress) as report:
        while game.step < training.steps:
            game.schedule()
            index = game.restart_due()
            if index is not None:
                game.restart(index)
            game.turn(train, game.aim(held_out, z))
            game.step += 1
            note = ""
            if game.step in judged_at:
                game.judge(validation, familiar, held_out, z, before + time.monotonic() - start)
                note = _note(game)
            if checkpoint is not None and (note or time.monotonic() - saved > _SAVED_EVERY):
                save_checkpoint(game, checkpoint, fingerprint)
                saved = time.monotonic()
            report(game.step, note)
    return Outcome(game.with_weights(game.best), History(tuple(game.rounds)))


def _member_generators(seeds: Sequence[int], seed: int) -> list[torch.Generator]:
    # Members of one seed start alike, so that what sets them apart is their budget alone.
    return [torch.Generator().manual_seed((seed + 7919 * number) % 2**63) for number in seeds]


def _set_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        # The fused optimiser walks memory and takes no notice of strides: a transposed gradient would be misread.
        parameter.grad = gradient.contiguous()


def _adamw(parameters: Iterable[nn.Parameter], rate: float, decay: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(list(parameters), lr=rate, weight_decay=decay, fused=True)


def _note(game: Game) -> str:
    last = game.rounds[-game.problem.members :]
    feasible = sum(r.feasible for r in last)
    return f"{feasible} of {len(last)} within the budget"


def _fingerprint(problem: Problem, train: Rows, validation: Rows, verification: tuple[int, float], seed: int) -> str:
    """Tells games apart, so that a checkpoint is not continued with other data or settings."""
    digest = hashlib.sha256()
    for rows in (train, validation):
        for tensor in (rows.x, *rows.secrets, *rows.tasks, *([] if rows.importance is None else [rows.importance])):
            digest.update(tensor.detach().cpu().numpy().tobytes())
    digest.update(problem.bounds.values.numpy().tobytes())
    digest.update(repr((problem.bounds.names, problem.layout)).encode())
    architecture = problem.spec.architecture
    if isinstance(architecture, nn.Module):
        for parameter in architecture.parameters():
            digest.update(parameter.detach().cpu().numpy().tobytes())
    # A function is known by its name: its address changes with every run.
    name = architecture if isinstance(architecture, str) else getattr(architecture, "__qualname__", type(architecture))
    spec = replace(problem.spec, architecture=str(name))
    measure = problem.distortion.name
    settings = (problem.training, spec, problem.loss, problem.constraint, problem.seeds, problem.tasks, measure)
    digest.update(repr((settings, verification, seed)).encode())
    return digest.hexdigest()
