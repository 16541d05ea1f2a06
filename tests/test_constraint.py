"""Both constraints on convex problems whose primal and dual solutions are known."""

import pytest
import torch

from fairveil import AugmentedLagrangian, InputError, Penalty
from fairveil.objectives import make_constraint

# min (x - 3)^2 subject to x <= b has x = b and multiplier 2 (3 - b) while b < 3, and x = 3, multiplier 0 beyond.
BOUNDS = torch.tensor([[1.0], [2.5], [5.0]])


def solve(constraint, steps, rate, noise=0.0):
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(3, 1, requires_grad=True)
    state = constraint.start(3, 1)
    for _ in range(steps):
        violation = x - BOUNDS + noise * torch.randn(3, 1, generator=generator)
        objective = (x - 3.0).square().sum() + constraint.term(state, violation).sum()
        (gradient,) = torch.autograd.grad(objective, x)
        with torch.no_grad():
            x -= rate * gradient
        state = constraint.update(state, (x - BOUNDS).detach())
    return x.detach(), state


def test_augmented_lagrangian_finds_the_primal_and_the_dual_solution():
    x, state = solve(AugmentedLagrangian(rho=2.0, rate=0.05), 4000, 0.05)
    torch.testing.assert_close(x, torch.tensor([[1.0], [2.5], [3.0]]), atol=1e-3, rtol=0)
    torch.testing.assert_close(state.multiplier, torch.tensor([[4.0], [1.0], [0.0]]), atol=1e-2, rtol=0)


def test_augmented_lagrangian_holds_under_minibatch_noise():
    x, _ = solve(AugmentedLagrangian(rho=2.0, rate=0.02), 6000, 0.01, noise=0.2)
    torch.testing.assert_close(x, torch.tensor([[1.0], [2.5], [3.0]]), atol=0.1, rtol=0)


def test_penalty_ends_outside_by_multiplier_over_two_rho():
    x, state = solve(Penalty(rho=10.0, growth=1.0), 4000, 0.02)
    expected = torch.tensor([[13.0 / 11.0], [28.0 / 11.0], [3.0]])  # (3 + rho b) / (1 + rho)
    torch.testing.assert_close(x, expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(x[:2] - BOUNDS[:2], state.multiplier[:2] / (2 * 10.0), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("growth", "expected"), [(1.2, 5.0 * 1.2**3), (0.5, 5.0 * 0.5**3)])
def test_penalty_schedule_grows_or_decays(growth, expected):
    constraint = Penalty(rho=5.0, growth=growth, every=10)
    state = constraint.start(1, 1)
    for _ in range(30):
        state = constraint.update(state, torch.zeros(1, 1))
    assert float(state.rho) == pytest.approx(expected, rel=1e-4)


def test_growing_penalty_approaches_the_bound():
    x, _ = solve(Penalty(rho=1.0, growth=2.0, every=400, largest=40.0), 6000, 0.01)
    assert float(x[0] - BOUNDS[0]) < 0.06


def test_one_step_of_the_augmented_lagrangian_by_hand():
    constraint = AugmentedLagrangian(rho=4.0, rate=0.5, smoothing=0.0)
    state = constraint.start(1, 1)
    state = constraint.update(state, torch.tensor([[0.3]]))
    assert float(state.multiplier) == pytest.approx(0.5 * 4.0 * 0.3)
    # (max(0, 0.6 + 4 * 0.1)^2 - 0.6^2) / 8
    assert float(constraint.term(state, torch.tensor([[0.1]]))) == pytest.approx((1.0 - 0.36) / 8)
    assert float(constraint.term(state, torch.tensor([[-9.0]]))) == pytest.approx(-0.36 / 8)
    assert float(constraint.update(state, torch.tensor([[-9.0]])).multiplier) == 0.0


def test_constraints_by_name():
    assert make_constraint("penalty") == Penalty()
    with pytest.raises(InputError, match="constraint"):
        make_constraint("barrier")
