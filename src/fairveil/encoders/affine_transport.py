"""Affine optimal transport in a code: every group moves to the common barycentre, then noise where groups still differ.

Rows become codes (principal components). Each group of S, described by its mean and covariance, is moved by the optimal
transport between Gaussians to the Bures barycentre of all groups: of all affine maps that make these moments equal, the
one of least squared distance. What a budget leaves is spent on Gaussian noise, by `theory.transport.group_noise`. It is
a closed form: several budgets take seconds.

It is the paper's affine scheme (Section `sec:gmm`) for S seen, in a code, for any number of groups of any covariances;
for two groups of equal covariance, the optimal one (`theory.gaussian.informed_noise`) once the budget covers the shift.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairveil._utils.errors import BudgetNotMet
from fairveil._utils.randomness import Seeds
from fairveil.data.images import ImageSchema
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.encoders.architecture import Architecture, Signature, check_sizes
from fairveil.encoders.code import CodeEncoder, code_problem, most_components
from fairveil.encoders.heads import Noise
from fairveil.encoders.warm_start import WarmStart
from fairveil.objectives import Distortion
from fairveil.objectives.released import ReleasedBatch
from fairveil.theory.transport import barycentre, group_noise, transport_map

Array = NDArray[np.float64]

#: Candidates for the shrinkage of covariances: rows that the common covariance counts for, per component.
_SHRINKAGES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: Folds of the cross-validation, and the variance added to every direction, relative to the mean one.
_FOLDS, _RIDGE = 2, 1e-6
#: Rounds in which noise is scaled to what clipping leaves of it, and the largest factor.
_CALIBRATIONS, _MOST_CALIBRATED = 2, 2.0
#: Rounds of the search for how far to go if a budget does not cover the transport.
_HALFWAYS = 20


@dataclass(frozen=True)
class AffineTransport(Architecture):
    """Moves the groups of S to their barycentre by affine maps of principal components, and adds noise: a closed form.

    For images, sensors, embeddings and tables of numbers. It needs sees_sensitive=True and classes; no game is played
    unless `Training(steps=...)` asks for one, which then continues from the closed form.

    Parameters
    ----------
    n_components : int
        Maximum number of principal components that are released. What they leave out counts against the budget: a small
        budget needs more components.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(3.0, architecture=fv.AffineTransport(n_components=60), sees_sensitive=True)
    """

    name: ClassVar[str] = "affine_transport"
    training: ClassVar[Mapping[str, Any]] = {
        "steps": None,  # no game
        "batch_size": 512,
        "learning_rate": 2e-3,
        "adversary_learning_rate": 2e-3,
        "adversary_hidden": ((256, 256), (128, 128)),
        "adversary_decay": 0.1,
        "warm_up": 0.1,
    }

    n_components: int = 128

    def __post_init__(self) -> None:
        check_sizes(self, n_components=1)

    @property
    def uses_bins(self) -> bool:
        """Numbers are moved as they are."""
        return False

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """It needs numbers, squared distances, and groups of S that it sees."""
        if not signature.sees_classes:
            return "has a separate map for each group of S, so it needs sees_sensitive=True and a discrete S."
        return code_problem(signature, distortion)

    def fitted(self, rows: Rows, schema: Schema | ImageSchema, seeds: Seeds) -> Self:
        """With no more components than the rows have."""
        return replace(self, n_components=most_components(self.n_components, rows))

    def build(self, signature: Signature, members: int) -> "AffineTransportEncoder":
        """The maps and the noise."""
        return AffineTransportEncoder(self, signature, members, self.n_components)


class AffineTransportEncoder(CodeEncoder):
    """A code u of group s is released as offset_s + matrix_s u + factor e, with e standard normal.

    Parameters: `offset` (members, groups, m), `matrix` (members, groups, m, m), `factor` (members, m, m).
    """

    def __init__(self, architecture: Architecture, signature: Signature, members: int, components: int) -> None:
        super().__init__(architecture, signature, members, components)
        groups, m = signature.sensitive_width if signature.sees_classes else 1, components
        self.offset = nn.Parameter(torch.zeros(members, groups, m))
        self.matrix = nn.Parameter(torch.zeros(members, groups, m, m))
        self.factor = nn.Parameter(torch.zeros(members, m, m))

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """The identity, without noise."""
        with torch.no_grad():
            self.offset.zero_()
            self.factor.zero_()
            self.matrix.copy_(torch.eye(self.components).expand_as(self.matrix))

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The expected code of each row: (members, rows, m)."""
        return self.affine(self.encode(rows), sensitive)

    def affine(self, codes: Tensor, sensitive: Tensor | None) -> Tensor:
        """Codes moved by the map of their group: (members, rows, m). Without S there is one group."""
        if sensitive is None or not self.signature.sees_classes:
            return codes @ self.matrix[:, 0].transpose(-1, -2) + self.offset
        moved = torch.zeros(self.members, *codes.shape, dtype=codes.dtype, device=codes.device)
        group = sensitive.argmax(dim=1)
        for number in range(self.matrix.shape[1]):
            own = (group == number).nonzero()[:, 0]
            if len(own):
                part = codes[own] @ self.matrix[:, number].transpose(-1, -2) + self.offset[:, number, None]
                moved = moved.index_copy(1, own, part)
        return moved

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Add the noise and decode."""
        drawn = proposal + noise.normal @ self.factor.transpose(-1, -2)
        power = self.factor.square().sum(dim=-1).unsqueeze(1)
        return self.released(drawn, proposal, power, rows)

    @torch.no_grad()
    def warm_start(self, start: WarmStart) -> None:
        """The closed form: components, transport and noise, from training rows; the distortion from validation rows."""
        train, validation = start.train.unweighted(), start.validation.unweighted()
        self.learn_components(train, start.seeds.child("components"))
        codes, scale = self._raw(train), self.shared_scale.cpu().double().numpy()
        judged, left_out = self._raw(validation), self.costs(validation).cpu().double().numpy()
        if self.signature.sees_classes:
            seed = start.seeds.child("shrinkage").number()
            found = transport_of(codes, groups_of(train), self.offset.shape[1], seed)
            moved = np.square(found.moved(judged, groups_of(validation)) - judged).sum(axis=1)
        else:
            found, moved = no_transport(codes, groups_of(train)), np.zeros(len(judged))
        far, rest = _shared_out(start, left_out, moved)
        self._refuse_unreachable(start, float(left_out.mean()))
        for member, share in enumerate(far):
            self._set_maps(member, *found.part_way(float(share)), scale)
        self.calibrate(start, rest, lambda trace: group_noise(*found.residual, trace) / np.outer(scale, scale))

    def calibrate(self, start: WarmStart, rest: Array, noise_of: Callable[[float], Array]) -> None:
        """Add noise of which, as released, validation rows show no more than the bounds leave.

        Clipping to valid values removes some of the noise. rest: the trace to begin with, per member. noise_of: the
        covariance for a trace, on the scale of codes.
        """
        rows = start.validation.unweighted()
        generator = start.seeds.child("calibration").torch(rows.x.device)
        self.factor.zero_()
        without = self.distances(rows, generator)[1].mean(dim=1).numpy()
        shapes = {int(member): noise_of(float(rest[member])) / rest[member] for member in np.flatnonzero(rest > 0)}
        trace, most = rest, _MOST_CALIBRATED * rest
        for turn in range(_CALIBRATIONS + 1):
            for member, shape in shapes.items():
                self._set_noise(member, trace[member] * shape)
            if turn < _CALIBRATIONS:
                (first, expected), (second, _) = (self.distances(rows, generator) for _ in range(2))
                left = _lowest(start, _spread(first, second, start.draws)) - without
                added = expected.mean(dim=1).numpy() - without
                trace = np.clip(trace * left / np.maximum(added, 1e-12), 0.0, most)

    def _raw(self, rows: Rows) -> Array:
        """Codes in units of the rows, in double precision."""
        return np.asarray((self.codes(rows) * self.shared_scale).cpu().double().numpy())

    def _set_maps(self, member: int, matrices: Array, offsets: Array, scale: Array) -> None:
        self.matrix[member].copy_(torch.from_numpy(matrices * scale / scale[:, None]))
        self.offset[member].copy_(torch.from_numpy(offsets / scale))

    def _set_noise(self, member: int, covariance: Array) -> None:
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        self.factor[member].copy_(torch.from_numpy(vectors * np.sqrt(np.maximum(values, 0.0))))

    def _refuse_unreachable(self, start: WarmStart, left_out: float) -> None:
        if float(start.bounds.values.max()) <= left_out:
            raise BudgetNotMet(
                f"{self.components} principal components leave out {left_out:.4g} of a row on average, before anything "
                "is hidden, which uses up the budget. Raise n_components or the budget."
            )


def _shared_out(start: WarmStart, left_out: Array, moved: Array) -> tuple[Array, Array]:
    """How far each member goes towards the barycentre, in [0, 1], and what is then left for noise: (members,) each.

    left_out, moved: the squared distances of validation rows from their codes, and from there to their transport.
    """
    squares = np.ones(len(start.bounds.values))  # a part of the way costs its square
    for _ in range(_HALFWAYS):  # the margin depends on how far rows move
        spread = np.sqrt(np.var(left_out) + 2 * squares * np.cov(left_out, moved)[0, 1] + squares**2 * np.var(moved))
        left = _lowest(start, torch.from_numpy(spread)) - left_out.mean()
        squares = (squares + np.clip(left / max(float(moved.mean()), 1e-300), 0.0, 1.0)) / 2
    squares = np.where(squares > 0.999, 1.0, squares)
    return np.sqrt(squares), np.where(squares < 1.0, 0.0, np.maximum(left - moved.mean(), 0.0))


def _lowest(start: WarmStart, spread: Tensor) -> Array:
    """The lowest target of each member among its bounds that count numbers: (members,).

    spread: the standard deviation of a row's distortion, (members,).
    """
    bounds = start.bounds
    aims = bounds.inside(start.margin(spread.float()[:, None].expand_as(bounds.values)))
    return np.asarray(aims[:, bounds.mixing[1] > 0].amin(dim=1).double().numpy())


def _spread(first: Tensor, second: Tensor, draws: int) -> Tensor:
    """Standard deviation of a row's distance averaged over draws, from two draws of each row: (members,)."""
    a, b = first - first.mean(dim=1, keepdim=True), second - second.mean(dim=1, keepdim=True)
    shared = (a * b).mean(dim=1)
    single = ((a.square() + b.square()) / 2).mean(dim=1)
    return (shared + (single - shared) / draws).clamp_min(0.0).sqrt()


def groups_of(rows: Rows) -> NDArray[np.int64]:
    """The group of each row: the class of S; one group for all if S is a number."""
    joint = rows.secrets[0]
    return np.asarray(joint.cpu().numpy()) if joint.dtype == torch.long else np.zeros(len(rows), dtype=np.int64)


@dataclass(frozen=True)
class GroupTransport:
    """The affine map of each group to the barycentre, x -> center + T_s (x - m_s), and how groups differ afterwards.

    means: (groups, d); matrices: (groups, d, d); center: (d,). residual: means, covariances and weights of the groups
    after maps that were fitted to other rows.
    """

    means: Array
    matrices: Array
    center: Array
    residual: tuple[Array, Array, Array]

    def moved(self, codes: Array, groups: NDArray[np.int64]) -> Array:
        """Codes after their group's map."""
        out = np.empty_like(codes)
        for number in np.unique(groups):
            own = groups == number
            out[own] = self.center + (codes[own] - self.means[number]) @ self.matrices[number].T
        return out

    def part_way(self, far: float) -> tuple[Array, Array]:
        """Matrices and offsets of the maps that go this share of the way."""
        matrices = (1.0 - far) * np.eye(len(self.center)) + far * self.matrices
        ends = self.center - np.einsum("sij,sj->si", self.matrices, self.means)
        return matrices, far * ends


def transport_of(codes: Array, groups: NDArray[np.int64], count: int, seed: int) -> GroupTransport:
    """Transport of `count` groups to their barycentre, with shrunk covariances.

    The shrinkage has the largest likelihood of rows that the covariances were not estimated from. The residual is
    measured crosswise: rows of one half are moved by maps fitted to the other.
    """
    folds = np.random.default_rng(seed).permutation(len(codes)) % _FOLDS
    parts = [_Groups.of(codes[folds != fold], groups[folds != fold], count) for fold in range(_FOLDS)]
    rows = [(codes[folds == fold], groups[folds == fold]) for fold in range(_FOLDS)]
    scores = [
        sum(part.log_likelihood(*held, shrinkage) for part, held in zip(parts, rows, strict=True))
        for shrinkage in _SHRINKAGES
    ]
    shrinkage = _SHRINKAGES[int(np.argmax(scores))]
    crosswise = np.empty_like(codes)
    for fold, part in enumerate(parts):
        crosswise[folds == fold] = part.transport(shrinkage).moved(*rows[fold])
    after, whole = _Groups.of(crosswise, groups, count), _Groups.of(codes, groups, count)
    residual = (after.means, after.covariances(shrinkage), after.shares)
    return replace(whole.transport(shrinkage), residual=residual)


def no_transport(codes: Array, groups: NDArray[np.int64]) -> GroupTransport:
    """For an encoder that does not see the groups: one map, the identity, and how the groups differ."""
    width, found = codes.shape[1], _Groups.of(codes, groups, int(groups.max()) + 1)
    residual = (found.means, found.covariances(1.0), found.shares)
    return GroupTransport(np.zeros((1, width)), np.eye(width)[None], np.zeros(width), residual)


@dataclass(frozen=True)
class _Groups:
    """Moments of the groups: sizes (groups,), means (groups, d), own covariances (groups, d, d), the common one."""

    sizes: Array
    means: Array
    own: Array
    common: Array

    @classmethod
    def of(cls, codes: Array, groups: NDArray[np.int64], count: int) -> "_Groups":
        width = codes.shape[1]
        sizes, means = np.zeros(count), np.tile(codes.mean(axis=0), (count, 1))
        own = np.zeros((count, width, width))
        for number in range(count):
            rows = codes[groups == number]
            sizes[number] = len(rows)
            if len(rows):
                means[number] = rows.mean(axis=0)
                own[number] = (rows - means[number]).T @ (rows - means[number]) / len(rows)
        common = np.tensordot(sizes / sizes.sum(), own, axes=1)
        return cls(sizes, means, own, common + _RIDGE * np.trace(common) / width * np.eye(width))

    @property
    def shares(self) -> Array:
        return np.asarray(self.sizes / self.sizes.sum())

    def covariances(self, shrinkage: float) -> Array:
        """Shrunk towards the common covariance, which counts for `shrinkage` rows per component."""
        rows = shrinkage * len(self.common) + 1.0
        share = (self.sizes / (self.sizes + rows))[:, None, None]
        return np.asarray(share * self.own + (1.0 - share) * self.common)

    def log_likelihood(self, codes: Array, groups: NDArray[np.int64], shrinkage: float) -> float:
        """Of other rows, up to a constant."""
        total = 0.0
        for number, covariance in enumerate(self.covariances(shrinkage)):
            apart = codes[groups == number] - self.means[number]
            if len(apart):
                values, vectors = np.linalg.eigh(covariance)
                values = np.maximum(values, _RIDGE * np.trace(self.common) / len(self.common))
                total -= len(apart) * np.log(values).sum() / 2 + (np.square(apart @ vectors) / values).sum() / 2
        return float(total)

    def transport(self, shrinkage: float) -> GroupTransport:
        covariances = self.covariances(shrinkage)
        target = barycentre(covariances, self.shares)
        matrices = np.stack([transport_map(covariance, target) for covariance in covariances])
        center = self.shares @ self.means
        return GroupTransport(self.means, matrices, center, (self.means, covariances, self.shares))
