"""Matchings between groups against brute force, closed forms and an exact solver."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import wasserstein_distance

from fairveil.data.frames import read_table
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Codec
from fairveil.encoders.transport.coupling import couple
from fairveil.objectives import make_distortion
from fairveil.objectives.released import ReleasedBatch
from helpers import people


def on_a_line(x: np.ndarray, power: float = 1.0):
    return lambda sources, targets: np.abs(x[sources][:, None] - x[targets][None]) ** power


def test_a_matching_is_the_cheapest_of_all():
    generator = np.random.default_rng(0)
    prices = generator.random((12, 12))
    classes = np.repeat([0, 1], 6)
    found = couple(lambda s, t: prices[np.ix_(s, t)], classes, generator, reference=0, size=6)
    # Six rows are fewer than a matching takes at least, so they are repeated: the mean is over fractions of pairs, and
    # no matching of whole pairs can be cheaper.
    whole = min(np.mean([prices[6 + i, j] for i, j in enumerate(order)]) for order in permutations(range(6)))
    assert found.cost * 2 == pytest.approx(whole, rel=1e-6)
    assert set(found.sources) == set(range(6, 12))


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_on_a_line_the_sorted_rows_are_paired(power):
    generator = np.random.default_rng(1)
    x = np.concatenate([generator.normal(size=400), generator.normal(1.0, 2.0, 400)])
    found = couple(on_a_line(x, power), np.repeat([0, 1], 400), generator, reference=0)
    assert found.cost * 2 == pytest.approx(np.mean(np.abs(np.sort(x[:400]) - np.sort(x[400:])) ** power), rel=1e-9)
    assert sorted(found.targets) == list(range(400))  # every row of the reference once: its distribution exactly
    if power == 1.0:
        assert found.cost * 2 == pytest.approx(wasserstein_distance(x[:400], x[400:]), rel=1e-9)


def test_parts_come_close_to_the_exact_transport_of_the_whole():
    generator = np.random.default_rng(2)
    cells = 5
    shares = np.array([[0.4, 0.3, 0.15, 0.1, 0.05], [0.05, 0.1, 0.2, 0.25, 0.4]])
    classes = np.repeat([0, 1], [6000, 3000])
    x = np.concatenate([generator.choice(cells, 6000, p=shares[0]), generator.choice(cells, 3000, p=shares[1])])
    price = generator.random((cells, cells))
    np.fill_diagonal(price, 0.0)
    p, q = (np.bincount(x[classes == c], minlength=cells) / np.sum(classes == c) for c in (1, 0))
    rows, columns = np.kron(np.eye(cells), np.ones(cells)), np.kron(np.ones(cells), np.eye(cells))
    exact = linprog(price.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q])).fun / 3
    found = couple(lambda s, t: price[np.ix_(x[s], x[t])], classes, generator, size=500, passes=4)
    assert found.reference == 0
    assert exact <= found.cost * 1.01
    assert found.cost <= 1.1 * exact
    released = np.bincount(x[found.targets], minlength=cells) / len(found.targets)
    assert np.abs(released - q).sum() < 0.03


def test_the_cheapest_reference_is_taken():
    generator = np.random.default_rng(3)
    # A class in the middle: both others move there, rather than one of them twice as far.
    x = np.concatenate([generator.normal(m, 0.1, 400) for m in (0.0, 5.0, 10.0)])
    classes = np.repeat([0, 1, 2], 400)
    assert couple(on_a_line(x), classes, generator).reference == 1
    # Many small classes scattered about a common cloud: everyone moves a little into all of it.
    x = generator.normal(size=2000)
    same = couple(on_a_line(x), generator.integers(0, 8, 2000), generator)
    assert same.cost < 0.2


def test_a_reference_of_all_rows_leaves_each_class_its_own_share():
    generator = np.random.default_rng(4)
    classes = np.repeat([0, 1], [900, 300])
    found = couple(on_a_line(10.0 * classes), classes, generator, reference=None, size=300)
    assert found.stays.tolist() == [0.75, 0.25]
    assert np.all(classes[found.sources] != classes[found.targets])
    assert set(zip(found.sources, found.targets, strict=True)) == set(zip(found.targets, found.sources, strict=True))
    assert found.cost == pytest.approx(10 * 2 * 0.75 * 0.25)
    three = np.repeat([0, 1, 2], [600, 300, 300])
    found = couple(on_a_line(1.0 * (three == 0)), three, generator, reference=None, size=300)
    assert found.stays.tolist() == [0.5, 0.25, 0.25]
    assert set(found.sources) == set(range(1200))
    partners = three[found.targets[three[found.sources] == 1]]
    assert np.mean(partners == 0) == pytest.approx(2 / 3, abs=0.09)  # as the others' shares: 0.5 and 0.25
    assert found.cost == pytest.approx(2 * 0.5 * 0.5, rel=0.05)
    assert couple(on_a_line(1.0 * three), three, generator, reference=2).stays.tolist() == [0.0, 0.0, 1.0]


def test_a_small_class_is_repeated_and_counts_by_its_rows():
    generator = np.random.default_rng(5)
    classes = np.repeat([0, 1], [990, 10])
    found = couple(on_a_line(classes.astype(float)), classes, generator)
    assert len(found.sources) >= 300
    assert found.cost == pytest.approx(0.01)


def test_prices_are_the_distortion_of_every_possible_release():
    frame, _, _ = people(60)
    schema = Schema.infer(read_table(frame))
    x = Codec(schema).encode(read_table(frame).arrow)
    for name in ("auto", "squared"):
        distortion = make_distortion(name, schema.layout, "sampled")
        assert distortion.is_linear
        prices, fixed = distortion.prices(x)
        for j in (0, 7, 31):
            other = x[j].expand_as(x)
            chances = other[:, schema.layout.grouped]
            whole = distortion.expected(ReleasedBatch(other, chances), x).sum(dim=-1)
            assert torch.allclose((prices * chances).sum(dim=1) + fixed, whole, atol=1e-4)
    assert not make_distortion("cross_entropy", schema.layout, "sampled").is_linear
    assert not make_distortion("auto", schema.without_bins().layout, "sampled").is_linear
