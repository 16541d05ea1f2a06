"""What a game is played over: the rows, the players' aims, and how long and how hard they train."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil.data.images import rows_at_once, unpack
from fairveil.data.schema import Layout
from fairveil.encoders import EncoderSpec
from fairveil.encoders.layers import Layer
from fairveil.objectives import Constraint, Distortion, Loss, PredictionLoss
from fairveil.training.panel import Opponent


@dataclass(frozen=True)
class Training:
    """How the game is played, and by which networks.

    steps: encoder steps T. adversary_steps: J, each on fresh draws, before every encoder step. A sampled release is
        drawn anew from the same minibatch; a release of soft vectors has to take another minibatch.
    hidden, noise_dim: the encoder's layers and the noise at its input. normalise: batch norm on hidden layers, of the
        encoder and of adversaries. residual: the network's numbers correct the original; otherwise they replace it.
    adversary_hidden: the layers of each adversary: whole numbers, and for images "conv20", a 3 x 3 convolution of 20
        filters with pooling. adversary_dropout, adversary_decay: the chance that it does not see
        a slot in training and its weight decay, both against learning the training rows by heart.
    restarts: how often one of the adversaries is drawn anew, in turn.
    softness: the encoder faces softness x log sum exp(advantage / softness), a soft maximum over adversaries (nats).
    average: weight of the past in the exponential average of the encoder that is released.
    final_rate: learning rates fall along a half cosine to this fraction. rise: the fraction of the steps over which the
        encoder's rate first rises: adversaries are too young then to be believed.
    spending: what a unit of distortion within the budget is worth to the encoder, in units of the loss, so that it does
        not save what adversaries happen not to ask for.
    rounds: how often validation rows judge the encoder; select_after: from which fraction of the steps a judged
        encoder may be kept (before, its adversaries are too young); the latest within its budget is.
    matchings, matched_rows, lessons: of the transport encoder, before the game: how often all rows are matched with the
        reference group, how many at a time, and the most steps in which the mover learns from the pairs. levels: how
        many nested sets of columns its gates choose from. Encoders that do not start from the original take their
        lessons in drawing it.
    validation, held_out: fractions of the rows that choose the iterate and that bound its distortion.
    """

    steps: int = 1000
    batch_size: int = 1024
    adversary_steps: int = 3
    learning_rate: float = 4e-3
    adversary_learning_rate: float = 4e-3
    hidden: tuple[int, ...] = (128, 128)
    noise_dim: int = 16
    normalise: bool = False
    residual: bool = True
    adversary_hidden: tuple[tuple[Layer, ...], ...] = ((128, 128), (256,))
    adversary_dropout: float = 0.1
    adversary_decay: float = 1.0
    restarts: int = 0
    softness: float = 0.02
    average: float = 0.99
    final_rate: float = 0.05
    rise: float = 0.0
    spending: float = 0.0
    rounds: int = 25
    select_after: float = 0.6
    matchings: int = 8
    matched_rows: int = 1000
    lessons: int = 1000
    levels: int = 3
    validation: float = 0.1
    held_out: float = 0.1

    def falling(self, done: float) -> float:
        """What is left of a learning rate when this fraction of the steps is done: a half cosine to `final_rate`."""
        return self.final_rate + (1 - self.final_rate) * (1 + math.cos(math.pi * done)) / 2

    def __post_init__(self) -> None:
        problems = []
        for name, least in (("steps", 1), ("batch_size", 2), ("adversary_steps", 1), ("rounds", 1),
                            ("matchings", 1), ("matched_rows", 2), ("lessons", 1), ("levels", 1)):  # fmt: skip
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                problems.append(must_be("Training", name, f"a whole number of at least {least}", getattr(self, name)))
        for name in ("restarts", "noise_dim"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 0:
                problems.append(must_be("Training", name, "a whole number of at least 0", getattr(self, name)))
        for name in ("learning_rate", "adversary_learning_rate", "softness", "final_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                problems.append(must_be("Training", name, "a finite number above 0", getattr(self, name)))
        for name in ("average", "select_after", "adversary_dropout", "rise"):
            if not 0 <= getattr(self, name) < 1:
                problems.append(must_be("Training", name, "in [0, 1)", getattr(self, name)))
        for name in ("adversary_decay", "spending"):
            if not 0 <= getattr(self, name) < float("inf"):
                problems.append(must_be("Training", name, "a finite number of at least 0", getattr(self, name)))
        if not (self.validation > 0 and self.held_out > 0 and self.validation + self.held_out < 1):
            problems.append(
                "The 'validation' and 'held_out' parameters of Training must be above 0 and sum to below 1."
            )
        if not self.adversary_hidden:
            problems.append(must_be("Training", "adversary_hidden", "a list of at least one network", ()))
        if not all(_is_layer(layer) for network in self.adversary_hidden for layer in network):
            expected = 'lists of whole numbers above 0 and, for images, of convolutions such as "conv20", these first'
            problems.append(must_be("Training", "adversary_hidden", expected, self.adversary_hidden))
        if problems:
            raise InputError(problems)


def _is_layer(layer: object) -> bool:
    number = layer.removeprefix("conv") if isinstance(layer, str) and layer.startswith("conv") else layer
    return (isinstance(number, int) and number > 0) or (isinstance(number, str) and number.isdigit() and number > "0")


def shortened(training: Training, steps: int) -> Training:
    """The same training in so many steps, with lessons in proportion."""
    return replace(training, steps=steps, lessons=math.ceil(training.lessons * steps / training.steps))


def default_training(architecture: object) -> Training:
    """What suits an architecture: of tables chosen on validation rows of UCI Adult (`benchmarks/ablation.py`)."""
    if architecture == "labels":
        # The adversaries of a finite release are tables, best learned fast and whole.
        return Training(steps=1500, adversary_steps=1, learning_rate=2e-3, adversary_learning_rate=3e-2,
                        adversary_hidden=((),), adversary_dropout=0.0, adversary_decay=0.0)  # fmt: skip
    if architecture == "partition":
        # It starts from transport, so that little is left to learn; its adversaries are tables, too.
        return Training(steps=200, batch_size=2048, adversary_steps=1, learning_rate=3e-3, adversary_learning_rate=3e-2,
                        noise_dim=0, adversary_hidden=((),), adversary_dropout=0.0, adversary_decay=0.0,
                        rounds=10)  # fmt: skip
    if architecture == "transposed":
        return Training(steps=1500, batch_size=256, hidden=(256, 128), noise_dim=100, learning_rate=1e-3,
                        adversary_learning_rate=1e-3, adversary_hidden=(("conv32", "conv64", 256),))  # fmt: skip
    if architecture == "autoencoder":
        return Training(steps=1500, batch_size=64, hidden=(128, 64, 64, 64), noise_dim=256, learning_rate=3e-4,
                        adversary_learning_rate=1e-3, adversary_hidden=(("conv20", "conv40", 40),))  # fmt: skip
    if architecture != "transport":
        return Training()
    # The gates have little to learn, and exact losses to learn it from: one adversary step on fresh rows for each of
    # theirs. More steps on the same rows only teach the adversary these rows by heart.
    return Training(steps=1000, adversary_steps=1, learning_rate=6e-3, adversary_learning_rate=1e-2,
                    adversary_hidden=((128, 128),), adversary_decay=0.3, rise=0.15, spending=0.02)  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """Training rows as tensors.

    x: (rows, width); of images, bytes. sensitive: (rows, K), what an encoder that sees S is shown. secrets: what
    adversaries guess, one tensor a target (the joint value first). tasks: what predictors guess
    (`eq:generalopt-oneApp`), if anything. importance: (rows,), mean 1: how much each row counts to adversaries; all
    alike if None.
    """

    x: Tensor
    sensitive: Tensor | None
    secrets: tuple[Tensor, ...]
    tasks: tuple[Tensor, ...] = ()
    importance: Tensor | None = None

    def __len__(self) -> int:
        return self.x.shape[0]

    def take(self, index: Tensor) -> "Rows":
        """Some of the rows."""
        return Rows(
            self.x.index_select(0, index),
            None if self.sensitive is None else self.sensitive.index_select(0, index),
            tuple(secret.index_select(0, index) for secret in self.secrets),
            tuple(task.index_select(0, index) for task in self.tasks),
            None if self.importance is None else self.importance.index_select(0, index),
        )

    def unpacked(self) -> "Rows":
        """With x as numbers: images are held as bytes."""
        return replace(self, x=unpack(self.x))

    def pieces(self) -> Iterator["Rows"]:
        """A few rows after another, as many as go through a network at once, as numbers."""
        for rows in torch.split(torch.arange(len(self), device=self.x.device), rows_at_once(self.x.shape[1])):
            yield self.take(rows).unpacked()

    def to(self, device: torch.device) -> "Rows":
        """The rows on another device."""
        return Rows(
            self.x.to(device),
            None if self.sensitive is None else self.sensitive.to(device),
            tuple(secret.to(device) for secret in self.secrets),
            tuple(task.to(device) for task in self.tasks),
            None if self.importance is None else self.importance.to(device),
        )


@dataclass(frozen=True)
class Bounds:
    """One bound on the whole distortion, or one for each kind of column; or one on the loss of predictions.

    values: (members, constraints). mixing: (parts, constraints): which parts (of a distortion: categorical and
    continuous; of a prediction: its loss alone) a bound sums.
    names: what each constraint is called. relative: violations are counted in units of the bound, for distortions that
    run into the hundreds, as those of images do.
    """

    values: Tensor
    mixing: Tensor
    names: tuple[str, ...]
    relative: bool = False

    @classmethod
    def of(cls, budgets: Sequence[float | dict[str, float]], *, relative: bool = False) -> "Bounds":
        """From one budget a member: all numbers, or all mappings with the same kinds."""
        first = budgets[0]
        if isinstance(first, dict):
            names = tuple(first)
            rows = [[budget[name] for name in names] for budget in budgets if isinstance(budget, dict)]
            mixing = torch.stack([_PART[name] for name in names], dim=1)
            return cls(torch.tensor(rows, dtype=torch.float32), mixing, names, relative)
        values = torch.tensor([[float(budget)] for budget in budgets if not isinstance(budget, dict)])
        return cls(values, torch.ones(2, 1), ("total",), relative)

    @classmethod
    def of_loss(cls, values: Sequence[float]) -> "Bounds":
        """One bound a member on the loss of its predictions."""
        return cls(torch.tensor([[value] for value in values]), torch.ones(1, 1), ("loss",))

    def violation(self, mean: Tensor, aim: Tensor) -> Tensor:
        """By how much mean distortions exceed what is aimed at: (members, constraints)."""
        return (mean - aim) / self.values.to(mean.device) if self.relative else mean - aim

    def of_rows(self, distortion: Tensor) -> Tensor:
        """(..., rows, parts) to (..., rows, constraints)."""
        return distortion @ self.mixing.to(distortion.device)


_PART = {"categorical": torch.tensor([1.0, 0.0]), "continuous": torch.tensor([0.0, 1.0])}


@dataclass(frozen=True)
class Task:
    """A known task: the weight lambda of its loss, and the outputs its predictor needs."""

    weight: float
    loss: Loss
    outputs: int


@dataclass(frozen=True)
class Problem:
    """The game itself: who plays, for what, under which bounds.

    chances: for each target of S the loss of the best guess that ignores the release.
    outputs: for each target the outputs an adversary needs.
    seeds: for each member the number of its seed; members of one seed start from the same weights.
    """

    layout: Layout
    spec: EncoderSpec
    loss: Loss
    distortion: Distortion | PredictionLoss
    constraint: Constraint
    bounds: Bounds
    chances: tuple[float, ...]
    outputs: tuple[int, ...]
    seeds: tuple[int, ...]
    tasks: tuple[Task, ...] = ()
    training: Training = field(default_factory=Training)

    @property
    def opponents(self) -> tuple[Opponent, ...]:
        """The adversaries: for each target of S one of each shape."""
        return tuple(
            Opponent(hidden, outputs, target)
            for target, outputs in enumerate(self.outputs)
            for hidden in self.training.adversary_hidden
        )

    @property
    def members(self) -> int:
        """How many encoders train at once."""
        return len(self.seeds)
