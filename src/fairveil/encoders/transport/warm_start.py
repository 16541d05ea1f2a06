"""Pretraining of `transport`: the mover learns where each row can go from optimal matchings between groups of S.

The pairs of a matching say what to release for each row, and the mover learns their distribution by maximum likelihood.
The game then only decides which rows are moved within each budget.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fairveil._utils.progress import progress
from fairveil._utils.randomness import seen_slots
from fairveil.data.rows import Rows
from fairveil.encoders.standing import shared_standing, task_standing
from fairveil.encoders.transport.coupling import Coupling, couple
from fairveil.encoders.transport.excess import couple_excess
from fairveil.encoders.transport.groups import Scored
from fairveil.encoders.transport.learning import learn
from fairveil.encoders.warm_start import WarmStart
from fairveil.objectives import Distortion
from fairveil.objectives.released import ReleasedBatch

if TYPE_CHECKING:
    from fairveil.encoders.transport.encoder import TransportEncoder

#: Learning rate of the mover.
_RATE = 4e-3
#: Dropout of input slots in training, towards the population and towards one group, and weight decay: without them the
#: mover memorises the pairs and has no good record for an unseen row.
_DROPOUT, _DROPOUT_TOWARD_ONE, _DECAY = 0.2, 0.1, 0.3
#: Minibatches used to estimate the cost of moving all rows.
_COST_BATCHES = 8
_TINY = 1e-12


def warm_start(encoder: "TransportEncoder", start: WarmStart) -> None:
    """Match, train, and open the gates as far as each budget allows on average."""
    generator = start.seeds.child("matching").numpy()
    encoder.mover.groups.fit(start, encoder.layout.grouped)
    of_train, of_validation = _standings(encoder, start)
    pairs = _coupled(encoder, start, start.train, of_train, generator, encoder.architecture.matchings,
                     encoder.architecture.reference(encoder.signature))  # fmt: skip
    training = unseen = _Pairs(encoder, start.train, pairs)
    if _has_pairs(encoder, start.validation, pairs.reference):
        # Matched in one part, and mostly few: these pairs are used only for early stopping.
        found = _coupled(encoder, start, start.validation, of_validation, generator, 1, pairs.reference,
                         show_progress=False)  # fmt: skip
        unseen = _Pairs(encoder, start.validation, found)
    with torch.no_grad():
        # To a thousandth: the shares of the groups become part of the file, and exact ones would tell counts of rows.
        encoder.mover.stays.zero_()[: len(pairs.stays)] = torch.from_numpy(pairs.stays.round(3)).float()
        encoder.mover.levels.copy_(_levels(encoder, start, pairs))
    _learn(encoder, start, training, unseen)
    encoder.open_gates(_affordable(encoder, start))


def _has_pairs(encoder: "TransportEncoder", rows: Rows, reference: int | None) -> bool:
    """Whether there are rows of the reference and of other groups: a small sample may lack a small group."""
    present = np.unique(encoder.mover.groups.labels(rows, encoder.layout.grouped))
    return len(present) > 1 and (reference is None or reference in present)


def _standings(encoder: "TransportEncoder", start: WarmStart) -> list[np.ndarray | None]:
    """What the matchings of the training and of the validation rows keep; None for nothing."""
    settings, rows = encoder.architecture, start.train.joined(start.validation)
    rows, mass = encoder.mover.groups.ranked(rows, encoder.layout.grouped)
    if rows.tasks and settings.task_weight:
        found = task_standing(rows, settings.task_weight, start.seeds.child("standing").number(), mass)
    elif not rows.tasks and settings.shared_weight:
        found = shared_standing(rows, encoder.layout, settings.shared_weight, mass)
    else:
        return [None, None]
    return list(np.split(found, [len(start.train)]))


def _coupled(
    encoder: "TransportEncoder",
    start: WarmStart,
    rows: Rows,
    standing: np.ndarray | None,
    generator: np.random.Generator,
    passes: int,
    reference: int | str | None,
    *,
    show_progress: bool | None = None,
) -> Coupling:
    grouped, distortion = rows.x[:, encoder.layout.grouped], start.distortion
    assert isinstance(distortion, Distortion)

    def cost(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        prices, fixed = distortion.prices(rows.x[torch.from_numpy(sources)])
        total: np.ndarray = torch.addmm(fixed.unsqueeze(1), prices, grouped[torch.from_numpy(targets)].T).cpu().numpy()
        return total

    shown = start.show_progress if show_progress is None else show_progress
    with progress(1, "Matching groups", shown) as report:
        groups, size = encoder.mover.groups, encoder.architecture.matched_rows
        if isinstance(groups, Scored) and groups.balanced:
            excess = groups.excesses(rows, encoder.layout.grouped)

            def matched(numbers: np.ndarray) -> Coupling:
                return couple_excess(cost, excess, generator, size=size, passes=passes, numbers=numbers,
                                     standing=standing)  # fmt: skip
        else:
            labels = groups.labels(rows, encoder.layout.grouped)

            def matched(numbers: np.ndarray) -> Coupling:
                return couple(cost, labels, generator, size=size, passes=passes, reference=reference, numbers=numbers,
                              standing=standing)  # fmt: skip

        found = _together([matched(part) for part in _strata(rows, groups.labels(rows, encoder.layout.grouped))])
        report(1, f"moving every row would cost {found.cost:.2f}")
    return found


def _strata(rows: Rows, labels: np.ndarray) -> list[np.ndarray]:
    """The indices of the rows to match, each repeated in proportion to its weight: all of them; if adversaries know Y,
    those of each value of Y that several groups have.
    """
    numbers = rows.repeated().cpu().numpy()
    if rows.given is None:
        return [numbers]
    given = rows.given.argmax(dim=1).cpu().numpy()[numbers]
    parts = [numbers[given == value] for value in np.unique(given)]
    return [part for part in parts if len(np.unique(labels[part])) > 1]


def _together(found: list[Coupling]) -> Coupling:
    """The pairs of all strata. Rows stay with the probability of their group among all rows."""
    if len(found) == 1:
        return found[0]
    sizes = np.array([len(each.sources) for each in found], dtype=np.float64)
    width = max(len(each.stays) for each in found)
    stays = np.stack([np.pad(each.stays, (0, width - len(each.stays))) for each in found])
    sources, targets = (np.concatenate([getattr(each, name) for each in found]) for name in ("sources", "targets"))
    shares = sizes / sizes.sum()
    return Coupling(sources, targets, found[0].reference, shares @ stays, float(shares @ [each.cost for each in found]))


class _Pairs:
    """Pairs of a row and its target record, with S; kept columns keep the row's own values."""

    def __init__(self, encoder: "TransportEncoder", rows: Rows, pairs: Coupling) -> None:
        self.x = rows.x
        with torch.no_grad():
            self.sensitive = encoder.mover.groups(rows.x[:, encoder.layout.grouped], rows.sensitive)
        self.sources, self.targets = (torch.from_numpy(i).to(rows.x.device) for i in (pairs.sources, pairs.targets))

    def sample(self, encoder: "TransportEncoder", size: int, generator: torch.Generator) -> Tensor:
        """Mean negative log-likelihood of a minibatch of pairs, for training: part of each row is masked."""
        device = self.x.device
        index = torch.randint(len(self.sources), (size,), generator=generator, device=device)
        row, record = self._pairs(encoder, index)
        dropout = _DROPOUT if encoder.exchanges else _DROPOUT_TOWARD_ONE
        hidden = row * seen_slots(len(row), row.shape[1], dropout, generator, row.dtype)
        return encoder.mover.columns.nats(row, self.sensitive[self.sources[index]], record, hidden).mean()

    def all(self, encoder: "TransportEncoder") -> Tensor:
        """Mean negative log-likelihood of all pairs."""
        row, record = self._pairs(encoder)
        return encoder.mover.columns.nats(row, self.sensitive[self.sources], record).mean()

    def _pairs(self, encoder: "TransportEncoder", index: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        row, record = (self.x[i[index]][:, encoder.layout.grouped] for i in (self.sources, self.targets))
        return row, encoder.head.as_kept(record, row)


def _learn(encoder: "TransportEncoder", start: WarmStart, pairs: _Pairs, unseen: _Pairs) -> None:
    columns = encoder.mover.columns
    generator = start.seeds.child("mover").torch(pairs.x.device)
    size = min(start.batch_size, len(pairs.sources))
    learn(list(columns.parameters()), lambda: pairs.sample(encoder, size, generator), lambda: unseen.all(encoder),
          steps=start.steps, rate=_RATE, decay=_DECAY, final_rate=start.final_rate,
          shown=("Pretraining", "nats per record", start.show_progress))  # fmt: skip


def _levels(encoder: "TransportEncoder", start: WarmStart, pairs: Coupling) -> Tensor:
    """Nested sets of columns, as (levels, group width): first those that reveal most of S relative to their cost.

    Each level adds about the same cost; the last one contains all columns.
    """
    rows, layout = start.train.unweighted(), encoder.layout
    x = rows.x[:, layout.grouped]
    secret = F.one_hot(_classes(encoder, rows)).to(x.dtype)
    joint = x.T @ secret / len(x)
    alone = joint.sum(dim=1, keepdim=True) * secret.mean(dim=0)
    nats = torch.where(joint > 0, joint * torch.log(joint.clamp_min(_TINY) / alone.clamp_min(_TINY)), 0.0).sum(dim=1)
    sources, targets = (torch.from_numpy(i).to(x.device) for i in (pairs.sources, pairs.targets))
    assert isinstance(start.distortion, Distortion)
    prices, _ = start.distortion.prices(start.train.x[sources])
    apart = start.train.x[:, layout.grouped][targets] - start.train.x[:, layout.grouped][sources]
    cost = (prices * apart).mean(dim=0).clamp_min(0.0)
    slices = [slice(group.start, group.stop) for group in layout.groups]
    spent = [float(cost[inside].sum()) for inside in slices]
    worth = [float(nats[inside].sum()) / max(price, _TINY) for inside, price in zip(slices, spent, strict=True)]
    count = encoder.architecture.levels
    levels = torch.zeros(count, x.shape[1], device=x.device)
    before = 0.0
    for column in sorted(range(len(slices)), key=lambda i: -worth[i]):
        levels[min(int(count * before / max(sum(spent), _TINY)), count - 1) :, slices[column]] = 1.0
        before += spent[column]
    return levels


def _classes(encoder: "TransportEncoder", rows: Rows) -> Tensor:
    """The class of S of each row; of a numeric S, the cell."""
    if not rows.secrets[0].is_floating_point():
        return rows.secrets[0]
    return torch.from_numpy(encoder.mover.groups.labels(rows, encoder.layout.grouped)).to(rows.x.device)


@torch.no_grad()
def _affordable(encoder: "TransportEncoder", start: WarmStart) -> Tensor:
    """The share of rows whose gates each member can open within its budget: (members,)."""
    rows = start.train.unweighted()
    generator = start.seeds.child("gates").torch(rows.x.device)
    order = torch.randperm(len(rows), generator=generator, device=rows.x.device)
    some = rows.take(order[: start.batch_size * _COST_BATCHES])
    release = encoder(some.x, some.sensitive, encoder.noise(len(some), generator))
    assert release.atoms is not None
    record = release.atoms[-1]
    moved = start.distortion.expected(ReleasedBatch(record, record[:, encoder.layout.grouped]), some.x)
    grouped = encoder.layout.grouped
    moves = encoder.mover.moves(some.x[:, grouped], some.sensitive, record[:, grouped])
    whole = (moves * start.bounds.of_rows(moved)).mean(dim=0)
    share: Tensor = (start.bounds.values.to(rows.x.device) / whole.clamp_min(1e-9)).amin(dim=1)
    return share
