"""Transport where S is not seen: what exchanges of the excess hide and cost, against exact solutions."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from fairveil._utils.randomness import Seeds
from fairveil.data.frames import read_table
from fairveil.data.schema import Schema
from fairveil.encoders import Signature, Transport, build_encoder
from fairveil.encoders.transport.excess import couple_excess
from fairveil.encoders.transport.groups import CellsOfNumbers, Groups, Scored, cells_of, make_groups, nearest
from helpers import people


def problem(seed: int = 0, rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Excess of mean zero and distances of a few points."""
    generator = np.random.default_rng(seed)
    excess = generator.normal(size=rows)
    place = generator.normal(size=(rows, 2))
    return excess - excess.mean(), np.abs(place[:, None] - place[None]).sum(axis=2)


def channel(excess: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """P(released row | row) if each row draws one of its pairs, and takes the other's place with a / (a + b)."""
    n = len(excess)
    chosen = np.zeros((n, n))
    np.add.at(chosen, (sources, targets), 1.0)
    chosen /= chosen.sum(axis=1, keepdims=True).clip(min=1.0)
    own = np.abs(excess)
    moved = chosen * own[:, None] / (own[:, None] + own[None])
    return moved + np.diag(1.0 - moved.sum(axis=1))


def least_cost(excess: np.ndarray, distance: np.ndarray) -> float:
    """The least cost of exchanges that balance the excess: transport of the excess, by linear programming."""
    above, below = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
    price = 2.0 * distance[np.ix_(above, below)] / (excess[above][:, None] - excess[below][None])
    rows = np.kron(np.eye(len(above)), np.ones(len(below)))
    columns = np.kron(np.ones(len(above)), np.eye(len(below)))
    found = linprog(price.ravel(), A_eq=np.vstack([rows, columns])[:-1],
                    b_eq=np.concatenate([excess[above], -excess[below]])[:-1] / len(excess))  # fmt: skip
    return float(found.fun)


@pytest.mark.parametrize("seed", range(3))
def test_exchanges_balance_the_excess_at_the_least_cost_and_keep_the_distribution(seed):
    excess, distance = problem(seed)
    repeated = np.repeat(np.arange(len(excess)), 100)  # enough pieces to divide a row's excess
    found = couple_excess(
        lambda a, b: distance[np.ix_(a, b)], excess, np.random.default_rng(seed), size=len(repeated), numbers=repeated
    )
    released = channel(excess, found.sources, found.targets)
    shown = excess @ released / released.sum(axis=0)
    assert np.abs(shown).max() < 0.03 * np.abs(excess).max()
    assert np.abs(released.sum(axis=0) - 1.0).max() < 0.03
    assert found.cost == pytest.approx(least_cost(excess, distance), rel=0.02)
    # The test can fail: without the weights a / (a + b), rows of large excess would show.
    careless = np.where(np.eye(len(excess)) > 0, 0.5, 0.0) + 0.5 * (released > 0) / (released > 0).sum(axis=1)[:, None]
    assert np.abs(excess @ careless / careless.sum(axis=0)).max() > 0.1 * np.abs(excess).max()


def test_no_exchange_with_one_sign_only():
    found = couple_excess(lambda a, b: np.zeros((len(a), len(b))), np.ones(10), np.random.default_rng(0))
    assert len(found.sources) == 0
    assert found.cost == 0.0


def blind(classes: int, **settings: object):
    frame, _, _ = people(300)
    schema = Schema.infer(read_table(frame), fewest=1)
    names = tuple(f"s{i}" for i in range(classes))
    encoder = build_encoder(Transport(hidden=(8,), **settings), Signature(schema.layout, groups=names), 2)  # type: ignore[arg-type]
    encoder.initialise([torch.Generator().manual_seed(i) for i in range(2)])
    return schema, encoder


def test_a_row_and_its_partner_are_asked_with_chances_that_sum_to_one():
    schema, encoder = blind(2)
    groups = encoder.mover.groups
    assert isinstance(groups, Scored)
    assert groups.balanced
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        groups.log_prior.copy_(torch.tensor([0.4, 0.6]).log())
        for layer in groups.layers:
            layer.weight.normal_(0.0, 0.5, generator=generator)
    rows = torch.zeros(200, schema.layout.group_width)
    for group in schema.layout.groups:
        rows[torch.arange(200), group.start + torch.randint(group.width, (200,), generator=generator)] = 1.0
    excess = groups.excess(rows)
    above, below = rows[excess[:, 0] > 0], rows[excess[:, 0] < 0]
    size = min(len(above), len(below))
    assert size > 20
    above, below = above[:size], below[:size]
    one, seen_by_one = groups.of_pair(groups.excess(above), below)
    other, seen_by_other = groups.of_pair(groups.excess(below), above)
    assert torch.allclose(one + other, torch.ones(size, 1), atol=1e-5)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(seen_by_one, seen_by_other, strict=True))
    balance = one * groups.excess(below) + (1 - one) * groups.excess(above)  # what the row of the pair is released as
    assert balance.shape == (size, 1)
    assert float(groups.of_pair(groups.excess(above), above)[0].abs().max()) == 0.0  # never to the same side


def test_groups_follow_from_what_the_encoder_sees():
    schema = Schema.infer(read_table(people(300)[0]), fewest=1)
    width = schema.layout.group_width
    seen = make_groups(Signature(schema.layout, sensitive_width=3, groups=("a", "b", "c")), width, 5)
    number = make_groups(Signature(schema.layout, sensitive_width=1, sensitive_discrete=False), width, 5)
    several = make_groups(Signature(schema.layout, groups=("a", "b", "c")), width, 5)
    assert type(seen) is Groups
    assert seen.width == 3
    assert isinstance(number, CellsOfNumbers)
    assert number.width == 5
    assert isinstance(several, Scored)
    assert several.width == 5
    assert several.classes == 3
    points = torch.tensor([[0.0], [0.9], [2.2]])
    assert nearest(points, torch.tensor([[0.0], [1.0], [2.0]])).argmax(dim=1).tolist() == [0, 1, 2]


def test_ranges_of_a_number_hold_about_equally_many_rows_whatever_its_tails():
    generator = np.random.default_rng(0)
    start = SimpleNamespace(seeds=Seeds(0))
    for values in (generator.normal(size=4000), generator.exponential(size=4000)):
        points = torch.from_numpy(values).float()[:, None]
        shares = nearest(points, cells_of(points, 8, start)).mean(dim=0)
        assert float(shares.min()) > 0.08
        assert float(shares.max()) < 0.18
