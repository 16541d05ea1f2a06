"""What some encoders learn before the game, without any adversary.

The mover of `transport` learns from optimal matchings where each row can go: the pairs say what to release for each
row, and the mover learns their distribution. What it has to do with adversaries comes later, when the gates decide
within each budget which rows are moved. Encoders that do not start from the original (`autoencoder`, or those with
`residual=False`) learn to release the row they are shown. The potentials of `partition` start from those of optimal
transport, as far as each budget goes.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fairveil._utils.progress import progress
from fairveil._utils.randomness import seen_slots
from fairveil.encoders import Autoencoder, Encoder, Partition, Transport, build_encoder
from fairveil.encoders.transport.coupling import Coupling, couple
from fairveil.objectives import Distortion
from fairveil.objectives.distortion import Release
from fairveil.training.problem import Problem, Rows

#: How often the validation pairs are looked at, and after how many looks without gain the lessons end.
_LOOKS, _PATIENCE = 15, 4
#: Weight of the past in the average of the mover's weights.
_AVERAGE = 0.99
#: Learning rate of the mover; it falls along the same half cosine as that of the game.
_RATE = 4e-3
#: The chance that the mover does not see a slot in its lessons, and its weight decay: without them it learns the pairs
#: by heart, and knows no good record for a row that was not among them.
_DROPOUT, _DECAY = 0.1, 0.3
_TINY = 1e-12
#: Learning rate of lessons in drawing, and what is left of it at their end.
_DRAWING_RATE, _DRAWING_END = 3e-3, 0.02
#: Rows of a lesson of the autoencoder: what it lacks is steps, not rows, and convolutions are dear.
_DRAWN_AT_ONCE = 16
#: Rounds of Sinkhorn's method, rows at a time, and halvings of the way from no potentials to those of transport.
_SINKHORN_ROUNDS, _DIVIDED_AT_ONCE, _HALVINGS = 200, 4000, 12
#: How much of a budget the first division of groups may take: other rows have to keep within it, too.
_DIVIDED_WITHIN = 0.95


def teach(encoder: Encoder, problem: Problem, train: Rows, validation: Rows, *, seed: int, show_progress: bool) -> None:
    """The lessons of an encoder that needs some."""
    if isinstance(encoder, Transport):
        _teach_mover(encoder, problem, train, validation, seed=seed, show_progress=show_progress)
    elif isinstance(encoder, Partition):
        _divide(encoder, problem, train, validation, seed=seed, show_progress=show_progress)
    elif isinstance(encoder, Autoencoder) or not encoder.spec.residual:
        _reconstruct(encoder, problem, train, seed=seed, show_progress=show_progress)


def _reconstruct(encoder: Encoder, problem: Problem, train: Rows, *, seed: int, show_progress: bool) -> None:
    """One member learns to release what it sees, by least squares; all members go on from there."""
    training, device = problem.training, train.x.device
    pupil = build_encoder(problem.layout, problem.spec, 1)
    pupil.initialise([torch.Generator().manual_seed(seed % 2**63)])
    pupil.to(device)
    generator = torch.Generator(device).manual_seed((seed + 6) % 2**63)
    parameters = pupil.played()
    optimiser = torch.optim.AdamW(parameters, lr=_DRAWING_RATE, weight_decay=0.0, fused=True)
    most = _DRAWN_AT_ONCE if isinstance(encoder, Autoencoder) else training.batch_size
    size = min(most, training.batch_size, len(train))
    # The game may keep its rates to the end, as the paper's do; a picture gets sharp only as the rate falls.
    lessons = replace(training, final_rate=_DRAWING_END)
    with progress(training.lessons, "Learning to draw", show_progress) as report:
        for step in range(1, training.lessons + 1):
            optimiser.param_groups[0]["lr"] = _DRAWING_RATE * lessons.falling((step - 1) / training.lessons)
            batch = train.take(torch.randint(len(train), (size,), generator=generator, device=device)).unpacked()
            drawn = pupil(batch.x, batch.sensitive, pupil.noise(size, generator)).values
            squares = (drawn[0] - batch.x).square().sum(dim=1).mean()
            optimiser.zero_grad(set_to_none=True)
            squares.backward()
            optimiser.step()
            report(step, f"{squares.item():.2f} off" if step % 25 == 0 else "")
    with torch.no_grad():
        for parameter, learned in zip(encoder.carried(), pupil.carried(), strict=True):
            parameter.copy_(learned.expand_as(parameter))


@torch.no_grad()
def _divide(
    encoder: Partition, problem: Problem, train: Rows, validation: Rows, *, seed: int, show_progress: bool
) -> None:
    """Potentials with which every group has the same shares of the records; each budget goes as far towards them as
    validation rows say it can. The game begins there.
    """
    assert train.sensitive is not None
    generator = torch.Generator(train.x.device).manual_seed((seed + 8) % 2**63)
    counts = [torch.bincount(encoder.cell_of(piece.x), minlength=encoder.cells) for piece in train.pieces()]
    shares = torch.stack(counts).sum(dim=0).clamp_min(1)
    group = train.sensitive.argmax(dim=1)
    alike = torch.zeros_like(encoder.potentials[0])
    with progress(len(alike), "Dividing groups", show_progress) as report:
        for number in range(len(alike)):
            own = _some(train.x[group == number], generator)
            if len(own):
                alike[number] = encoder.potentials_of(own, shares / shares.sum(), _SINKHORN_ROUNDS)
            report(number + 1, "")
    # Records are learned from the training rows, which are therefore nearer to them than any others.
    rows = next(validation.pieces())
    noise = encoder.noise(len(rows), generator)
    low, high = torch.zeros_like(encoder.potentials[:, :1, :1]), torch.ones_like(encoder.potentials[:, :1, :1])
    most = _DIVIDED_WITHIN * problem.bounds.values.to(rows.x.device)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        encoder.potentials.copy_(middle * alike)
        spent = problem.bounds.of_rows(problem.distortion.expected(encoder(rows.x, rows.sensitive, noise), rows.x))
        within = (spent.mean(dim=1) <= most).all(dim=1).view(-1, 1, 1)
        low, high = torch.where(within, middle, low), torch.where(within, high, middle)
    encoder.potentials.copy_(low * alike)


def _some(rows: Tensor, generator: torch.Generator) -> Tensor:
    """As many rows as are divided at once, at random."""
    order = torch.randperm(len(rows), generator=generator, device=rows.device)
    return rows[order[:_DIVIDED_AT_ONCE]]


def _teach_mover(
    encoder: Transport, problem: Problem, train: Rows, validation: Rows, *, seed: int, show_progress: bool
) -> None:
    """Match, learn, and open the gates as far as each budget allows on average."""
    generator = np.random.default_rng([seed, 3])
    training = problem.training
    pairs = _coupled(problem, train, generator, training.matchings, "cheapest", show_progress)
    lessons = unseen = _Lessons(train, pairs)
    if _has_pairs(validation, pairs.reference):
        # Matched in one part, and mostly few: their own pairs are only there to tell when to stop.
        unseen = _Lessons(validation, _coupled(problem, validation, generator, 1, pairs.reference, show_progress=False))
    with torch.no_grad():
        encoder.mover.stays.zero_()
        if pairs.reference is not None:
            encoder.mover.stays[pairs.reference] = 1.0
        encoder.mover.levels.copy_(_levels(problem, train, pairs))
    _learn(encoder, problem, lessons, unseen, seed, show_progress)
    encoder.open_gates(_affordable(encoder, problem, train, seed))


def _has_pairs(rows: Rows, reference: int | None) -> bool:
    """Whether there are rows of the reference and others: a few rows may lack a small group."""
    present = np.unique(rows.secrets[0].cpu().numpy())
    return len(present) > 1 and (reference is None or reference in present)


def _coupled(
    problem: Problem,
    rows: Rows,
    generator: np.random.Generator,
    passes: int,
    reference: int | str | None,
    show_progress: bool,
) -> Coupling:
    grouped, distortion = rows.x[:, problem.layout.grouped], problem.distortion
    assert isinstance(distortion, Distortion)

    def cost(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        prices, fixed = distortion.prices(rows.x[torch.from_numpy(sources)])
        total: np.ndarray = torch.addmm(fixed.unsqueeze(1), prices, grouped[torch.from_numpy(targets)].T).cpu().numpy()
        return total

    with progress(1, "Matching groups", show_progress) as report:
        found = couple(cost, rows.secrets[0].cpu().numpy(), generator, size=problem.training.matched_rows,
                       passes=passes, reference=reference)  # fmt: skip
        report(1, f"everyone alike would cost {found.cost:.2f}")
    return found


class _Lessons:
    """Pairs of a row and the record it is to become, with S; kept columns stay the row's own."""

    def __init__(self, rows: Rows, pairs: Coupling) -> None:
        assert rows.sensitive is not None
        self.x, self.sensitive = rows.x, rows.sensitive
        self.sources, self.targets = (torch.from_numpy(i).to(rows.x.device) for i in (pairs.sources, pairs.targets))

    def sample(self, encoder: Transport, size: int, generator: torch.Generator) -> Tensor:
        """Mean of minus the log-likelihood of some pairs, in training: a part of each row is not seen."""
        device = self.x.device
        index = torch.randint(len(self.sources), (size,), generator=generator, device=device)
        row, record = self._pairs(encoder, index)
        hidden = row * seen_slots(len(row), row.shape[1], _DROPOUT, generator, row.dtype)
        return encoder.mover.columns.nats(row, self.sensitive[self.sources[index]], record, hidden).mean()

    def all(self, encoder: Transport) -> Tensor:
        """Mean of minus the log-likelihood of all pairs."""
        row, record = self._pairs(encoder)
        return encoder.mover.columns.nats(row, self.sensitive[self.sources], record).mean()

    def _pairs(self, encoder: Transport, index: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        row, record = (self.x[i[index]][:, encoder.layout.grouped] for i in (self.sources, self.targets))
        return row, encoder.head.as_kept(record, row)


def _learn(
    encoder: Transport, problem: Problem, lessons: _Lessons, unseen: _Lessons, seed: int, show_progress: bool
) -> None:
    training, columns = problem.training, encoder.mover.columns
    generator = torch.Generator(lessons.x.device).manual_seed((seed + 4) % 2**63)
    parameters = list(columns.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=_DECAY, fused=True)
    average = [p.detach().clone() for p in parameters]
    best, least, worse = [p.clone() for p in average], math.inf, 0
    looks = {math.ceil(training.lessons * (i + 1) / _LOOKS) for i in range(_LOOKS)}
    size = min(training.batch_size, len(lessons.sources))
    with progress(training.lessons, "Learning to move", show_progress) as report:
        for step in range(1, training.lessons + 1):
            optimiser.param_groups[0]["lr"] = _RATE * training.falling((step - 1) / training.lessons)
            optimiser.zero_grad(set_to_none=True)
            lessons.sample(encoder, size, generator).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            weight = min(_AVERAGE, step / (step + 9))
            torch._foreach_lerp_(average, [p.detach() for p in parameters], 1 - weight)
            if step in looks:
                value = _judge(encoder, parameters, average, unseen)
                worse = 0 if value < least else worse + 1
                if value < least:
                    least, best = value, [a.clone() for a in average]
                if worse == _PATIENCE:
                    report(training.lessons, f"{least:.2f} nats a record, stopped early")
                    break
            report(step, f"{least:.2f} nats a record" if math.isfinite(least) else "")
    _set(parameters, best)


@torch.no_grad()
def _judge(encoder: Transport, parameters: list[torch.nn.Parameter], average: list[Tensor], unseen: _Lessons) -> float:
    """Nats of the validation pairs under the averaged weights."""
    current = [p.detach().clone() for p in parameters]
    _set(parameters, average)
    value = float(unseen.all(encoder))
    _set(parameters, current)
    return value


def _set(parameters: list[torch.nn.Parameter], values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)


def _levels(problem: Problem, rows: Rows, pairs: Coupling) -> Tensor:
    """Nested sets of columns, as (levels, group width): those first that tell most of S for what it costs to move them.

    Each level costs about as much as the one before; the last is all columns.
    """
    x = rows.x[:, problem.layout.grouped]
    secret = F.one_hot(rows.secrets[0]).to(x.dtype)
    joint = x.T @ secret / len(x)
    apart = joint.sum(dim=1, keepdim=True) * secret.mean(dim=0)
    nats = torch.where(joint > 0, joint * torch.log(joint.clamp_min(_TINY) / apart.clamp_min(_TINY)), 0.0).sum(dim=1)
    sources, targets = (torch.from_numpy(i).to(x.device) for i in (pairs.sources, pairs.targets))
    assert isinstance(problem.distortion, Distortion)
    prices, _ = problem.distortion.prices(rows.x[sources])
    cost = (prices * (x[targets] - x[sources])).mean(dim=0).clamp_min(0.0)
    slices = [slice(group.start, group.stop) for group in problem.layout.groups]
    spent = [float(cost[inside].sum()) for inside in slices]
    worth = [float(nats[inside].sum()) / max(price, _TINY) for inside, price in zip(slices, spent, strict=True)]
    count = problem.spec.levels
    levels = torch.zeros(count, x.shape[1], device=x.device)
    before = 0.0
    for column in sorted(range(len(slices)), key=lambda i: -worth[i]):
        levels[min(int(count * before / max(sum(spent), _TINY)), count - 1) :, slices[column]] = 1.0
        before += spent[column]
    return levels


@torch.no_grad()
def _affordable(encoder: Transport, problem: Problem, rows: Rows, seed: int) -> Tensor:
    """The share of rows that each member can afford to move: (members,)."""
    generator = torch.Generator(rows.x.device).manual_seed((seed + 5) % 2**63)
    order = torch.randperm(len(rows), generator=generator, device=rows.x.device)
    some = rows.take(order[: problem.training.batch_size * 8])
    release = encoder(some.x, some.sensitive, encoder.noise(len(some), generator))
    assert release.atoms is not None
    record = release.atoms[-1]
    moved = problem.distortion.expected(Release(record, record[:, encoder.layout.grouped]), some.x)
    whole = problem.bounds.of_rows(moved).mean(dim=0)
    bound = problem.bounds.values.to(rows.x.device)
    return (bound / whole.clamp_min(1e-9)).amin(dim=1)
