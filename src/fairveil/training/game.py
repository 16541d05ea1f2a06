"""The state of a game and its updates: adversary steps, encoder steps, evaluation on validation rows."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from fairveil._utils.errors import TrainingFailed
from fairveil._utils.randomness import Seeds
from fairveil._utils.schedules import half_cosine
from fairveil.data.rows import Rows
from fairveil.encoders import Encoder, build_encoder
from fairveil.encoders.heads import Noise
from fairveil.objectives import ConstraintState, Mistakes
from fairveil.objectives.released import ReleasedBatch
from fairveil.training.history import Round
from fairveil.training.panel import Opponent, Panel
from fairveil.training.peers import ALONE, Peers
from fairveil.training.problem import Problem
from fairveil.training.steps import EncoderAim, Look, advantages_of, distortion_of, encoder_aim, panel_losses
from fairveil.training.verification import Verification

#: Safety margin of training below the bound, in standard errors of the held-out mean, beyond the confidence bound.
SAFETY = 2.0


class Game:
    """The state of a game: the players, their optimisers, the constraint, the average and the best iterate.

    peers: the processes that play it together. generator: in the same state in all of them.
    """

    def __init__(self, problem: Problem, seeds: Seeds, device: torch.device, peers: Peers = ALONE) -> None:
        training = problem.training
        self.problem = problem
        self.device = device
        self.peers = peers
        self.generator = seeds.child("game").torch(device)
        # Dropout may depend on how many rows a process has, so that each has its own.
        self.hiding = self.generator if peers.size == 1 else seeds.child("hiding", peers.rank).torch(device)
        self.encoder = build_encoder(problem.architecture, problem.signature, problem.members)
        self.panel = self._panel(problem.opponents, problem.given)
        self.predictors: Panel | None = None
        if problem.tasks:
            heads = [Opponent(training.adversary_hidden[0], t.outputs, i) for i, t in enumerate(problem.tasks)]
            self.predictors = self._panel(heads)
        for number, player in enumerate(self.players):
            player.initialise(_member_generators(problem.seeds, seeds.child("player", number)))
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

    def _panel(self, opponents: Sequence[Opponent], given: int = 0) -> Panel:
        training = self.problem.training
        return Panel(self.encoder.released_width + given, opponents, self.problem.members, training.adversary_dropout,
                     self.problem.signature.layout.shape, normalise=training.adversary_normalise)  # fmt: skip

    def looking(self) -> list[nn.Parameter]:
        """The parameters of adversaries and predictors."""
        return [p for panel in (self.panel, self.predictors) if panel is not None for p in panel.learned()]

    def reset_average(self) -> None:
        """Reset the average and the best iterate to the current weights."""
        for kept in (self.average, self.best):
            for old, parameter in zip(kept, self.encoder.carried(), strict=True):
                old.copy_(parameter.detach())

    @property
    def players(self) -> list[Encoder | Panel]:
        """The encoder, then the networks that see its release."""
        return [self.encoder, self.panel, *([self.predictors] if self.predictors is not None else [])]

    def batch(self, rows: Rows) -> Rows:
        """A minibatch drawn from all rows: the share of this process."""
        each = min(self.problem.training.batch_size, len(rows)) // self.peers.size
        return rows.draw(each * self.peers.size, self.generator, self._share(each))

    def noise(self, batch: Rows) -> Noise:
        """Noise for a whole minibatch, of which `batch` is the share of this process."""
        return self.encoder.noise(len(batch) * self.peers.size, self.generator)

    def _share(self, rows: int) -> slice:
        return slice(self.peers.rank * rows, (self.peers.rank + 1) * rows)

    def schedule(self) -> None:
        """Set the learning rates for this step: half-cosine decay to `final_rate`, with a warm-up for the encoder."""
        training = self.problem.training
        done = self.step / training.steps
        factor = half_cosine(done, training.final_rate)
        risen = min(1.0, done / training.warm_up) if training.warm_up else 1.0
        self.encoder_optimiser.param_groups[0]["lr"] = training.learning_rate * factor * risen
        self.panel_optimiser.param_groups[0]["lr"] = training.adversary_learning_rate * factor

    def turn(self, rows: Rows, aim: Tensor) -> None:
        """J steps of adversaries and predictors, then one of the encoder.

        If a proposal can be drawn from repeatedly, one proposal serves all steps: every adversary step, and the
        encoder's own step, sees a fresh draw. At J = 3 that is one forward pass of the encoder instead of four. If the
        encoder learns only probabilities, the last adversary step and the encoder step share the losses of one draw.
        """
        batch = self.batch(rows)
        own = self._share(len(batch))
        whole = self.noise(batch)
        noise = whole.of_rows(own)
        proposal = self.encoder.propose(batch.x, batch.sensitive, noise)
        shared = self.encoder.learns_chances
        for _ in range(self.problem.training.adversary_steps - shared):
            with torch.no_grad():
                if self.encoder.redraws:
                    seen, other = batch, whole.redrawn(self.generator).of_rows(own)
                    release = self.encoder.release(proposal.detach(), batch.x, other)
                else:
                    seen = self.batch(rows)
                    release = self.encoder(seen.x, seen.sensitive, self.noise(seen).of_rows(own))
            self.adversary_step(self.look(release, seen))
        release = self.encoder.release(proposal, batch.x, noise)
        look = self.look(release, batch)
        parts = encoder_aim(self.problem, look, self.constraint, aim, release, batch, self.peers)
        own_gradients = torch.autograd.grad(parts.objective, self.encoder.played(), retain_graph=shared)
        gradients = self.peers.averaged(own_gradients)
        if shared:
            self.adversary_step(look)
        self.encoder_step(parts, gradients)

    def look(self, release: ReleasedBatch, batch: Rows) -> Look:
        """The training losses of adversaries, and of predictors if there is a task, on a release."""
        found = panel_losses(self.panel, self.problem.losses, release, batch.secrets, self.hiding, batch.importance,
                             batch.given)  # fmt: skip
        found = self.peers.mean(found)
        if self.predictors is None:
            return Look(found)
        tasks = [task.loss for task in self.problem.tasks]
        told = panel_losses(self.predictors, tasks, release, batch.tasks, self.hiding)
        return Look(found, self.peers.mean(told))

    def adversary_step(self, look: Look) -> None:
        """Update adversaries and predictors, with encoders fixed."""
        total = look.adversaries.sum() + (0.0 if look.tasks is None else look.tasks.sum())
        parameters = self.looking()
        _set_gradients(parameters, self.peers.averaged(torch.autograd.grad(total, parameters)))
        self.panel_optimiser.step()

    def encoder_step(self, parts: EncoderAim, gradients: Sequence[Tensor]) -> None:
        """Update all encoders against fixed adversaries; then the constraint and the average."""
        parameters = self.encoder.played()
        _set_gradients(parameters, gradients)
        self.encoder_optimiser.step()
        violation = parts.violation.detach()
        self.constraint = self.problem.constraint.update(self.constraint, violation)
        # A young average decays fast, so that the initial weights lose their influence.
        weight = min(self.problem.training.average, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.encoder.carried()], 1 - weight)
        self.spread = torch.lerp(parts.spread, self.spread, weight if self.step else 0.0)

    def restart_due(self) -> int | None:
        """The index of the adversary to re-initialise at this step, if any."""
        training = self.problem.training
        every = training.steps // (training.restarts + 1)
        number, rest = divmod(self.step, max(every, 1))
        due = rest == 0 and 1 <= number <= training.restarts
        return (number - 1) % len(self.panel.opponents) if due else None

    def restart(self, index: int) -> None:
        """Re-initialise one adversary of every member, and reset its optimiser state."""
        drawn = int(torch.randint(2**31, (1,), generator=self.generator, device=self.device).item())
        for parameter in self.panel.restart(index, _member_generators(self.problem.seeds, Seeds(drawn))):
            self.panel_optimiser.state.pop(parameter, None)

    def averaged(self) -> Encoder:
        """An encoder with the averaged weights."""
        return self.with_weights(self.average)

    def with_weights(self, weights: Sequence[Tensor]) -> Encoder:
        """A frozen copy of the encoder with other weights for the parameters of an iterate."""
        encoder = build_encoder(self.problem.architecture, self.problem.signature, self.problem.members).to(self.device)
        encoder.load_state_dict(self.encoder.state_dict())
        with torch.no_grad():
            for parameter, weight in zip(encoder.carried(), weights, strict=True):
                parameter.copy_(weight)
        return encoder.requires_grad_(False).eval()

    @torch.no_grad()
    def judge(self, rows: Rows, familiar: Rows, verification: Verification, seconds: float) -> None:
        """Evaluate the averaged encoders on validation rows; store each member's latest feasible one.

        familiar: training rows, on which the same encoders are evaluated for comparison.

        Feasible: the held-out bound would be met if held-out rows behaved like these. The latest is stored, not the one
        with the lowest leakage: by then the training adversaries' advantage on new rows is mostly noise, and selecting
        by it discarded the last, slowest steps.
        """
        drawn = self.generator.get_state()
        familiar_mean = self.judged(self.averaged(), familiar)[0]
        self.generator.set_state(drawn)  # with the same draws for both
        mean, spread, found, right = self.judged(self.averaged(), rows)
        # New rows may show more distortion than the training rows, which codebooks and networks have memorised. One
        # standard error of the difference is attributed to chance.
        chance = spread * math.sqrt(1 / len(rows) + 1 / len(familiar))
        self.optimism = (mean - familiar_mean - chance).clamp_min(0.0)
        leak = advantages_of(self.problem, found).amax(dim=1)
        self._refuse_divergence(mean, leak)
        bound = self.problem.bounds.values.to(self.device)
        excess = (mean + verification.margin(mean, spread) - bound).clamp_min(0.0).amax(dim=1)
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
        """On some rows: mean and spread of the distortion, (members, constraints), the adversaries' losses, (members,
        adversaries), and the accuracy of the best adversary for the joint value, (members,), if S is a class.
        """
        joint = [i for i, opponent in enumerate(self.panel.opponents) if opponent.target == 0]
        self.panel.eval()
        means, variances, found, wrong, shares = [], [], [], [], []
        for piece in rows.pieces():
            release = encoder(piece.x, piece.sensitive, encoder.noise(len(piece), self.generator))
            distortion, spread = distortion_of(self.problem, release, piece.x)
            means.append(distortion.mean(dim=1))
            variances.append(spread.square())
            found.append(panel_losses(self.panel, self.problem.losses, release, piece.secrets,
                                      importance=piece.importance, given=piece.given))  # fmt: skip
            if self.problem.loss.discrete:
                mistakes = [Mistakes()] * len(rows.secrets)
                wrong.append(panel_losses(self.panel, mistakes, release, piece.secrets, given=piece.given)[:, joint])
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

    def aim(self, verification: Verification) -> Tensor:
        """A target slightly inside the bound, so that the held-out confidence bound will most likely meet it too."""
        margin = verification.margin(self.problem.bounds.values.to(self.device), self.spread, SAFETY)
        return self.problem.bounds.inside(margin + self.optimism)


def _member_generators(numbers: Sequence[int], seeds: Seeds) -> list[torch.Generator]:
    # Members with the same seed start from the same weights, so that they differ only in their budget.
    return [seeds.child(number).torch() for number in numbers]


def _set_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        # The fused optimiser iterates over memory and ignores strides: it would misread a transposed gradient.
        parameter.grad = gradient.contiguous()


def _adamw(parameters: Iterable[nn.Parameter], rate: float, decay: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(list(parameters), lr=rate, weight_decay=decay, fused=True)
