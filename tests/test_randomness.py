"""Dropout from a few bits: how often, how independent, and by what factor."""

import numpy as np
import pytest
import torch
from scipy import stats

from fairveil._utils.randomness import seen_slots
from fairveil.training.panel import Opponent, Panel


@pytest.mark.parametrize("dropped", [0.001, 0.1, 0.5, 0.9])
def test_slots_are_dropped_as_often_as_asked_and_independently(dropped):
    factors = seen_slots(1000, 37, dropped, torch.Generator().manual_seed(0), torch.float32)
    gone = (factors == 0).numpy()
    assert stats.binomtest(int(gone.sum()), gone.size, dropped).pvalue > 1e-4
    assert factors[~torch.from_numpy(gone)].unique().tolist() == [pytest.approx(1 / (1 - dropped), rel=1e-3)]
    # Four slots share a number of the generator.
    flat = gone.ravel()
    for lag in range(1, 5):
        assert abs(np.corrcoef(flat[:-lag], flat[lag:])[0, 1]) < 5 / np.sqrt(flat.size)


def test_dropout_is_the_same_for_a_seed_and_never_drops_all():
    first, second = (seen_slots(5, 3, 0.5, torch.Generator().manual_seed(1), torch.float64) for _ in range(2))
    assert torch.equal(first, second)
    assert first.dtype == torch.float64
    assert torch.isfinite(seen_slots(5, 3, 0.999999, torch.Generator().manual_seed(1), torch.float32)).all()


def test_adversaries_lose_slots_in_training_alone_in_either_memory_order():
    panel = Panel(6, [Opponent((), 2)], 1, dropout=0.5)
    panel.initialise([torch.Generator().manual_seed(0)])
    rows = torch.rand(2000, 6, generator=torch.Generator().manual_seed(3)) + 1.0
    for released, factors in (
        (rows, seen_slots(2000, 6, 0.5, torch.Generator().manual_seed(2), torch.float32)),
        (rows.t().contiguous().t(), seen_slots(6, 2000, 0.5, torch.Generator().manual_seed(2), torch.float32).t()),
    ):
        assert torch.allclose(panel(released, torch.Generator().manual_seed(2))[0], panel(rows * factors)[0], atol=1e-5)
        torch.testing.assert_close(panel(released)[0], panel(rows)[0])  # but for the order of sums
