"""Variants of the game that were tried and are no part of the package: what `ablation.py` plays them with.

Each is a change of one of the package's rooms for as long as a `with` block lasts.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from unittest.mock import patch

import torch
from torch import Tensor, nn

from fairveil.data.layout import Layout
from fairveil.data.rows import Rows
from fairveil.encoders import WarmStart
from fairveil.encoders.layers import BatchedMLP
from fairveil.objectives import distortion
from fairveil.objectives.released import ReleasedBatch
from fairveil.training import Problem
from fairveil.training import game as loop
from fairveil.training.game import Game
from fairveil.training.steps import EncoderAim, Look

#: Weight of the penalty on squared input gradients of adversaries.
PENALTY = 0.1
#: Largest spectral norm of an adversary's layer.
SPECTRAL = 1.5
#: Features of a kernel mean, and how many nats one unit of squared distance between the groups' means is worth.
FEATURES, KERNEL_WEIGHT = 512, 2.0


class CrossFitted(Game):
    """Adversaries learn from one half of the rows, and the encoder is paid on the other half."""

    def turn(self, rows: Rows, aim: Tensor) -> None:
        if not hasattr(self, "halves"):
            self.halves = [rows.take(part) for part in torch.arange(len(rows)).chunk(2)]
        seen, paid = map(self.batch, self.halves)
        with torch.no_grad():
            release = self.encoder(seen.x, seen.sensitive, self.encoder.noise(len(seen), self.generator))
        self.adversary_step(self.look(release, seen))
        noise = self.encoder.noise(len(paid), self.generator)
        release = self.encoder(paid.x, paid.sensitive, noise)
        parts = loop.encoder_aim(self.problem, self.look(release, paid), self.constraint, aim, release, paid)
        self.encoder_step(parts, torch.autograd.grad(parts.objective, self.encoder.played()))


class OnOtherRows(Game):
    """The game is played on the half of the rows that the mover did not learn from (`pretrained_on_half`)."""

    def turn(self, rows: Rows, aim: Tensor) -> None:
        if not hasattr(self, "other"):
            self.other = rows.take(torch.arange(len(rows)).chunk(2)[1])
        super().turn(self.other, aim)


def pretrained_on_half(plain: Callable[..., WarmStart]) -> Callable[..., WarmStart]:
    def start(problem: Problem, train: Rows, *others: object) -> WarmStart:
        return plain(problem, train.take(torch.arange(len(train)).chunk(2)[0]), *others)

    return start


@contextmanager
def on_other_rows() -> Iterator[None]:
    module = import_module("fairveil.training.play")  # the package's attribute of this name is a function
    with played_by(OnOtherRows)(), patch.object(module, "_warm_start", pretrained_on_half(module._warm_start)):
        yield


class PenalisedGradients(Game):
    """Adversaries pay for the squares of their gradients at released rows."""

    def look(self, release: ReleasedBatch, batch: Rows) -> Look:
        self.shown = release.values.detach()
        return super().look(release, batch)

    def adversary_step(self, look: Look) -> None:
        rows = self.shown.clone().requires_grad_()
        outputs = self.panel(rows)
        # The log-odds of a class against all: what all logits have in common says nothing of S.
        odds = torch.stack([(output[..., 0] - output.mean(dim=-1)).sum() for output in outputs]).sum()
        [slope] = torch.autograd.grad(odds, [rows], create_graph=True)
        penalty = PENALTY * slope.square().sum(dim=-1).mean(dim=-1, keepdim=True) / len(outputs)
        super().adversary_step(Look(look.adversaries + penalty, look.tasks))


class BoundedNorms(Game):
    """After each step the layers of adversaries are shrunk to a spectral norm (by power iteration)."""

    def adversary_step(self, look: Look) -> None:
        super().adversary_step(look)
        with torch.no_grad():
            for weight in self.panel.learned():
                if weight.dim() == 3 and min(weight.shape[1:]) > 1:
                    right = torch.ones(weight.shape[0], weight.shape[2], 1)
                    for _ in range(3):
                        left = nn.functional.normalize(weight @ right, dim=1)
                        right = nn.functional.normalize(weight.transpose(1, 2) @ left, dim=1)
                    norm = (left.transpose(1, 2) @ weight @ right).clamp_min(1e-12)
                    weight.mul_((SPECTRAL / norm).clamp_max(1.0))


class RandomFeatures(Game):
    """The first layer of every adversary stays as it was drawn: a kernel machine with random features."""

    def looking(self) -> list[nn.Parameter]:
        frozen = {id(p) for network in self.panel.networks if isinstance(network, BatchedMLP)
                  for p in network.layers[0].parameters()}  # fmt: skip
        return [p for p in super().looking() if id(p) not in frozen]


class Optimistic(Game):
    """Extra-gradient from the past: each player steps along twice its gradient less the one before."""

    def __init__(self, problem: Problem, seed: int, device: torch.device) -> None:
        super().__init__(problem, seed, device)
        self.before: dict[str, list[Tensor]] = {}

    def ahead(self, name: str, gradients: Sequence[Tensor]) -> list[Tensor]:
        now = [gradient.detach().clone() for gradient in gradients]
        last = self.before.get(name, now)
        self.before[name] = now
        return [2 * a - b for a, b in zip(now, last, strict=True)]

    def adversary_step(self, look: Look) -> None:
        parameters = self.looking()
        gradients = self.ahead("adversaries", torch.autograd.grad(look.adversaries.sum(), parameters))
        loop._set_gradients(parameters, gradients)
        self.panel_optimiser.step()

    def encoder_step(self, parts: EncoderAim, gradients: Sequence[Tensor]) -> None:
        super().encoder_step(parts, self.ahead("encoder", gradients))


class AlongBudgets(Game):
    """All members begin with the largest budget and come down to their own over the first half of the game."""

    def aim(self, held_out: int, z: float) -> Tensor:
        own = super().aim(held_out, z)
        done = min(1.0, 2 * self.step / self.problem.training.steps)
        return torch.lerp(own.amax(dim=0, keepdim=True).expand_as(own), own, done)


def priced(prices: Mapping[str, float]) -> Callable[[], AbstractContextManager[object]]:
    """Changes of some columns count more or less: in matchings, in the game and, of categories, in what is verified."""
    plain = distortion._Slots.of

    def weighed(layout: Layout) -> distortion._Slots:
        slots = plain(layout)
        for group in layout.groups:
            for counted in (slots.weight, slots.binned):
                counted[group.start : group.stop] *= prices.get(group.column.name, 1.0)
        return slots

    return lambda: patch.object(distortion._Slots, "of", weighed)


def kernel_companion(plain: Callable[..., EncoderAim]) -> Callable[..., EncoderAim]:
    """The encoder also pays for the distance between the groups' kernel means (random Fourier features)."""
    made: dict[int, tuple[Tensor, Tensor]] = {}

    def aim(
        problem: Problem, look: Look, state: object, bound: Tensor, release: ReleasedBatch, batch: Rows
    ) -> EncoderAim:
        parts = plain(problem, look, state, bound, release, batch)
        atoms, weights = release.atoms, release.weights
        assert atoms is not None
        assert weights is not None
        width = atoms.shape[-1]
        if width not in made:
            generator = torch.Generator().manual_seed(0)
            made[width] = (torch.randn(width, FEATURES, generator=generator) / 2.0,
                           2 * math.pi * torch.rand(FEATURES, generator=generator))  # fmt: skip
        directions, phases = made[width]
        features = torch.cos(atoms @ directions + phases) * math.sqrt(2.0 / FEATURES)
        groups = nn.functional.one_hot(batch.secrets[0]).to(weights.dtype)
        # Each group's mean against that of all rows.
        side = groups / groups.sum(dim=0).clamp_min(1.0) - 1.0 / len(groups)
        apart = torch.einsum("rs,mra,arf->msf", side, weights, features)
        return EncoderAim(parts.objective + KERNEL_WEIGHT * apart.square().sum(), parts.violation, parts.spread)

    return aim


#: Other prices of columns. The last are, for each column, the sum of its mutual information with the others over the
#: mean of these sums; `education` and `education-num`, which say the same, are left out of each other's sum.
PRICES = {
    "family at half price": {"marital-status": 0.5, "relationship": 0.5},
    "family at twice the price": {"marital-status": 2.0, "relationship": 2.0},
    "columns priced by what they tell of others": {
        "relationship": 2.00, "age": 1.22, "workclass": 0.91, "education": 0.84, "marital-status": 1.92,
        "occupation": 1.84, "race": 0.30, "native-country": 0.50, "capital-gain": 0.45, "capital-loss": 0.27,
        "hours-per-week": 0.91, "education-num": 0.84},
}  # fmt: skip


def played_by(kind: type[Game]) -> Callable[[], AbstractContextManager[object]]:
    return lambda: patch("fairveil.training.play.Game", kind)


#: How each variant is played, by its name in `ablation.VARIANTS`.
PLAYED: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "adversaries and encoder on different halves of the rows": played_by(CrossFitted),
    "a game on rows that the mover has not seen": on_other_rows,
    "dropout 0.4 of the mover": lambda: patch("fairveil.encoders.transport.warm_start._DROPOUT", 0.4),
    "gradient-penalised adversaries": played_by(PenalisedGradients),
    "spectrally bounded adversaries": played_by(BoundedNorms),
    "kernel adversaries: 1024 random features": played_by(RandomFeatures),
    "extra-gradient, from the past": played_by(Optimistic),
    "warm starts along budgets": played_by(AlongBudgets),
    "gates of 256 hidden units": lambda: patch("fairveil.encoders.transport.encoder._GATE", (256,)),
    **{name: priced(prices) for name, prices in PRICES.items()},
    "kernel distance as a companion": lambda: patch.object(loop, "encoder_aim", kernel_companion(loop.encoder_aim)),
}
