"""The groups between which `transport` moves rows: classes of S, ranges of a number, or scores where S is not seen.

Where the encoder sees a class, groups are the classes. Where it sees numbers, they are cells of these numbers. Where it
sees X only, S shows in a release only through q(x) = P(s | x), which a network computes:

- Two classes. R is independent of S if and only if E[q(X) | R] = P(S = 1): the excess e(x) = q(x) - P(S = 1) must
  average to zero among all rows that are released as the same record. Two rows of opposite excess a and -b are
  balanced by an exchange in which the first takes the other's record with probability a / (a + b), and the second the
  first's with b / (a + b). So the excess itself is transported, from rows above the prior to rows below; a row close to
  the prior hardly moves. (If q is 0 or 1, this is the exchange between the classes.)
- Several classes. Groups are cells of the vector of probabilities.
"""

import math
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from fairveil._utils.randomness import seen_slots
from fairveil.data.rows import Rows
from fairveil.encoders.architecture import Signature
from fairveil.encoders.transport.learning import learn
from fairveil.encoders.warm_start import WarmStart

#: Hidden layers of the network that scores rows, its learning rate, dropout and weight decay.
_HIDDEN, _RATE, _DROPOUT, _DECAY = (128, 64), 4e-3, 0.2, 0.1
#: Rows from which cells are learned.
_FOR_CELLS = 8000


class Groups(nn.Module):
    """Classes of S, as the encoder sees them.

    width: of what mover and gates see in place of S. balanced: whether rows are divided by the sign of their excess, so
    that the probability of a move depends on the record that is offered.
    """

    balanced = False

    def __init__(self, signature: Signature) -> None:
        super().__init__()
        self.width = signature.sensitive_width
        self.classes = max(len(signature.groups), self.width)

    def forward(self, row: Tensor, sensitive: Tensor | None) -> Tensor:
        """What mover and gates see in place of S: (rows, width)."""
        assert sensitive is not None
        return sensitive

    def fit(self, start: WarmStart, grouped: slice) -> None:
        """Learn whatever divides the rows."""

    @torch.no_grad()
    def labels(self, rows: Rows, grouped: slice) -> NDArray[np.int64]:
        """The group of each row."""
        found: NDArray[np.int64] = self(rows.x[:, grouped], rows.sensitive).argmax(dim=1).cpu().numpy()
        return found

    def ranked(self, rows: Rows, grouped: slice) -> tuple[Rows, NDArray[np.float64] | None]:
        """The rows with their groups in place of S, within which matchings keep ranks; and how much each row counts."""
        labels = torch.from_numpy(self.labels(rows, grouped))
        if rows.given is not None:
            labels = labels * rows.given.shape[1] + rows.given.argmax(dim=1).cpu()
        one_hot = F.one_hot(labels).to(rows.x.dtype)
        replaced = replace(rows.to(torch.device("cpu")), secrets=(labels,), sensitive=one_hot)
        return replaced, self.mass(rows, grouped)

    def mass(self, rows: Rows, grouped: slice) -> NDArray[np.float64] | None:
        """How much of each row is matched; None for all alike."""
        return None

    def of_pair(self, asked: Tensor, record: Tensor) -> tuple[Tensor, list[Tensor]]:
        """For a row and the record offered to it: the probability with which its gate is asked, and what the gate sees
        of the pair in addition to both records, the same from both sides: (rows, 1) each.

        asked: from `Mover.propose`.
        """
        return asked, []


class CellsOfNumbers(Groups):
    """Cells of a numeric S: for one number, ranges of about equal size."""

    def __init__(self, signature: Signature, cells: int) -> None:
        super().__init__(signature)
        self.centres = nn.Parameter(torch.zeros(cells, signature.sensitive_width))
        self.width = cells

    def forward(self, row: Tensor, sensitive: Tensor | None) -> Tensor:
        """One-hot cells."""
        assert sensitive is not None
        return nearest(sensitive, self.centres)

    def fit(self, start: WarmStart, grouped: slice) -> None:
        """Cells of the training rows."""
        assert start.train.sensitive is not None
        with torch.no_grad():
            self.centres.copy_(cells_of(start.train.unweighted().sensitive, len(self.centres), start))


class Scored(Groups):
    """Groups by a network's P(s | x), for an encoder that sees X only.

    log_prior: (classes,), of the classes of S. centres: for several classes, the cells' probabilities.
    """

    def __init__(self, signature: Signature, width: int, cells: int) -> None:
        super().__init__(signature)
        # A numeric S that is not seen is scored by its ranges.
        self.classes = len(signature.groups) or cells
        self.balanced = self.classes == 2
        sizes = [width, *_HIDDEN, self.classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.log_prior = nn.Parameter(torch.zeros(self.classes))
        self.ranges = nn.Parameter(torch.zeros(0 if signature.groups else cells, 1))
        self.width = 3 if self.balanced else cells
        self.centres = nn.Parameter(torch.zeros(0 if self.balanced else cells, self.classes))

    def logits(self, row: Tensor) -> Tensor:
        """Of P(s | x): (rows, classes)."""
        for layer in self.layers[:-1]:
            row = F.leaky_relu(layer(row), 0.01)
        found: Tensor = self.layers[-1](row)
        return found

    def excess(self, row: Tensor) -> Tensor:
        """P(s = 1 | x) - P(s = 1): (rows, 1)."""
        return self.logits(row).softmax(dim=1)[:, 1:] - self.log_prior.exp()[1]

    def deviation(self, row: Tensor) -> Tensor:
        """P(s | x) - P(s) in units in which squares add up to what the row reveals of S (chi squared)."""
        prior = self.log_prior.exp()
        return (self.logits(row).softmax(dim=1) - prior) / prior.sqrt()

    def forward(self, row: Tensor, sensitive: Tensor | None) -> Tensor:
        """Two classes: below and above the prior, one-hot, and the excess. Several: one-hot cells."""
        if not self.balanced:
            return nearest(self.deviation(row), self.centres)
        excess = self.excess(row)
        above = (excess > 0.0).to(row.dtype)
        return torch.cat([1.0 - above, above, excess], dim=1)

    @torch.no_grad()
    def of_pair(self, asked: Tensor, record: Tensor) -> tuple[Tensor, list[Tensor]]:
        """For a row of excess a and a record of excess -b: a / (a + b), and 0 unless their signs differ; then the sum
        and the smaller of both. asked: the row's excess.
        """
        if not self.balanced:
            return asked, []
        own, offered = asked.abs(), -asked.sign() * self.excess(record)
        chance = torch.where(offered > 0.0, own / (own + offered).clamp_min(1e-9), 0.0)
        offered = offered.clamp_min(0.0)
        return chance, [own + offered, torch.minimum(own, offered)]

    def mass(self, rows: Rows, grouped: slice) -> NDArray[np.float64] | None:
        """The absolute excess."""
        if not self.balanced:
            return None
        excess = np.abs(self.excesses(rows, grouped))
        return excess if rows.weight is None else excess * rows.weight.double().cpu().numpy()

    @torch.no_grad()
    def excesses(self, rows: Rows, grouped: slice) -> NDArray[np.float64]:
        """The excess of each row, for two classes."""
        found: NDArray[np.float64] = self.excess(rows.x[:, grouped])[:, 0].double().cpu().numpy()
        return found

    @torch.no_grad()
    def labels(self, rows: Rows, grouped: slice) -> NDArray[np.int64]:
        """The group of each row; for two classes, 1 above the prior."""
        shown = self(rows.x[:, grouped], None)
        found: NDArray[np.int64] = (shown[:, :2] if self.balanced else shown).argmax(dim=1).cpu().numpy()
        return found

    @torch.no_grad()
    def fit(self, start: WarmStart, grouped: slice) -> None:
        """Learn P(s | x), and the cells of several classes."""
        if self.ranges.numel():
            self.ranges.copy_(cells_of(start.train.unweighted().secrets[0][:, :1], len(self.ranges), start))
        train, validation = (self._classes_of(rows.unweighted()) for rows in (start.train, start.validation))
        shares = torch.bincount(train, minlength=self.classes).double()
        # To a thousandth: exact shares would tell counts of rows.
        self.log_prior.copy_((shares / shares.sum()).round(decimals=3).clamp_min(1e-3).log().float())
        self._learn(start, grouped, train, validation)
        if not self.balanced:
            deviation = self.deviation(start.train.unweighted().x[:, grouped])
            self.centres.copy_(cells_of(deviation, len(self.centres), start))

    def _classes_of(self, rows: Rows) -> Tensor:
        secret = rows.secrets[0]
        return nearest(secret[:, :1], self.ranges).argmax(dim=1) if self.ranges.numel() else secret

    def _learn(self, start: WarmStart, grouped: slice, train: Tensor, validation: Tensor) -> None:
        generator = start.seeds.child("score").torch(train.device)
        x, x_new = start.train.unweighted().x[:, grouped], start.validation.unweighted().x[:, grouped]
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            layer.weight.normal_(0.0, math.sqrt(2.0 / layer.in_features), generator=generator)
            layer.bias.zero_()

        def sample() -> Tensor:
            index = torch.randint(len(x), (min(start.batch_size, len(x)),), generator=generator, device=x.device)
            row = x[index]
            hidden = row * seen_slots(len(row), row.shape[1], _DROPOUT, generator, row.dtype)
            return F.cross_entropy(self.logits(hidden), train[index])

        with torch.enable_grad():
            learn(list(self.layers.parameters()), sample, lambda: F.cross_entropy(self.logits(x_new), validation),
                  steps=start.steps, rate=_RATE, decay=_DECAY, final_rate=start.final_rate,
                  shown=("Scoring", "nats of S", start.show_progress))  # fmt: skip


def make_groups(signature: Signature, width: int, cells: int) -> Groups:
    """The groups for an encoder's inputs. width: of the columns' slots. cells: for numbers and vectors of scores."""
    if not signature.sensitive_width:
        return Scored(signature, width, cells)
    return Groups(signature) if signature.sensitive_discrete else CellsOfNumbers(signature, cells)


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    """The closest centre of each point, one-hot: (points, centres)."""
    return F.one_hot(torch.cdist(points, centres).argmin(dim=1), len(centres)).to(points.dtype)


def cells_of(points: Tensor | None, cells: int, start: WarmStart) -> Tensor:
    """Centres of cells: of one number, of ranges that hold about equally many points; of vectors, by k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    assert points is not None
    values = points.double().cpu().numpy()
    if values.shape[1] == 1:
        # The medians of equal parts: midpoints of ranges would be pulled outwards by the tails.
        found = np.quantile(values, (np.arange(cells) + 0.5) / cells)[:, None]
    else:
        seeds = start.seeds.child("cells")
        some = seeds.numpy().permutation(len(values))[:_FOR_CELLS]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than cells: some are equal
            found = KMeans(cells, n_init=3, random_state=seeds.number() % 2**31).fit(values[some]).cluster_centers_
    return torch.from_numpy(found).float()
