"""The losses against their closed forms (Table `table:gaploss`, Proposition `thm:alpha`)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch.nn import functional as F

from fairveil import InputError
from fairveil.objectives import AlphaLoss, LogLoss, SquaredLoss, ZeroOneLoss, make_loss

ALPHAS = [0.2, 0.5, 0.9, 1.0, 1.1, 2.0, 5.0, 50.0, math.inf]


def arimoto_minimum(posterior: np.ndarray, alpha: float) -> float:
    """Least expected alpha-loss for one posterior, by Arimoto's (correct) expression."""
    if alpha == 1.0:
        return float(-(posterior * np.log(posterior)).sum())
    if math.isinf(alpha):
        return float(1.0 - posterior.max())
    entropy = alpha / (1.0 - alpha) * math.log((posterior**alpha).sum() ** (1.0 / alpha))
    return float(alpha / (alpha - 1.0) * (1.0 - math.exp((1.0 - alpha) / alpha * entropy)))


def expected_loss(loss: AlphaLoss, posterior: np.ndarray, logits: np.ndarray) -> float:
    classes = torch.arange(len(posterior))
    rows = loss.rows(torch.tensor(logits).expand(len(posterior), -1), classes)
    return float((torch.tensor(posterior) * rows).sum())


@pytest.mark.parametrize("alpha", [a for a in ALPHAS if not math.isinf(a)])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_minimiser_is_the_tilted_posterior_and_minimum_is_arimotos(alpha, classes):
    posterior = np.random.default_rng(classes).dirichlet(np.full(classes, 2.0))
    loss = AlphaLoss(alpha)
    found = minimize(lambda z: expected_loss(loss, posterior, z), np.zeros(classes), method="BFGS", tol=1e-10)
    tilted = posterior**alpha / (posterior**alpha).sum()
    assert found.fun == pytest.approx(arimoto_minimum(posterior, alpha), abs=1e-6)
    assert expected_loss(loss, posterior, np.log(tilted)) == pytest.approx(arimoto_minimum(posterior, alpha), abs=1e-9)
    if alpha < 10:  # with a larger alpha the minimum is too flat to locate its place by function values
        np.testing.assert_allclose(np.exp(found.x - np.logaddexp.reduce(found.x)), tilted, atol=2e-3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6), st.sampled_from(ALPHAS))
def test_no_guess_beats_the_arimoto_minimum(weights, alpha):
    posterior = np.array(weights) / sum(weights)
    generator = np.random.default_rng(0)
    least = arimoto_minimum(posterior, alpha)
    for _ in range(20):
        assert expected_loss(AlphaLoss(alpha), posterior, generator.normal(size=len(weights)) * 3) >= least - 1e-9


def test_limits_are_exact():
    logits, target = torch.randn(50, 4, dtype=torch.float64), torch.randint(4, (50,))
    log_p = F.log_softmax(logits, -1).gather(1, target[:, None]).squeeze(1)
    torch.testing.assert_close(AlphaLoss(1.0).rows(logits, target), -log_p)
    torch.testing.assert_close(AlphaLoss(math.inf).rows(logits, target), 1 - log_p.exp())
    torch.testing.assert_close(AlphaLoss(1 + 1e-7).rows(logits, target), -log_p, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(AlphaLoss(1e7).rows(logits, target), 1 - log_p.exp(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(LogLoss().rows(logits, target), F.cross_entropy(logits, target, reduction="none"))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_gradient_in_single_precision_is_the_closed_form(alpha):
    log_p = torch.log(torch.linspace(0.01, 0.99, 50)).requires_grad_()
    AlphaLoss(alpha).of_log_probability(log_p).sum().backward()
    power = 1.0 if math.isinf(alpha) else (alpha - 1.0) / alpha
    torch.testing.assert_close(log_p.grad, -torch.exp(power * log_p.detach()), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("alpha", [0.01, *ALPHAS])
@pytest.mark.parametrize("size", [1.0, 1e2, 1e4, 1e30])
def test_values_and_gradients_stay_finite_at_extreme_logits(alpha, size):
    logits = (torch.tensor([[1.0, -1.0, 0.5], [-1.0, 1.0, 0.0]]) * size).requires_grad_()
    rows = AlphaLoss(alpha).rows(logits, torch.tensor([1, 1]))
    rows.sum().backward()
    assert torch.isfinite(rows).all()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_chance_is_the_loss_of_the_best_constant_guess(alpha):
    target = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    prior = np.array([0.6, 0.3, 0.1])
    assert float(AlphaLoss(alpha).chance(target)) == pytest.approx(arimoto_minimum(prior, alpha), abs=1e-9)


def test_zero_one_decides_by_the_largest_logit_and_its_surrogate_has_the_same_best_rule():
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    assert ZeroOneLoss().decisions(logits, torch.tensor([0, 0])).tolist() == [0.0, 1.0]
    sure = torch.tensor([[50.0, -50.0]])
    posterior = torch.tensor([0.7, 0.3])
    surrogate = sum(posterior[s] * ZeroOneLoss().rows(sure, torch.tensor([s])) for s in range(2))
    assert float(surrogate) == pytest.approx(0.3)


def test_squared_loss_is_least_at_the_conditional_mean():
    target = torch.randn(1000, 2, dtype=torch.float64)
    guess = target.mean(0, keepdim=True).requires_grad_()
    loss = SquaredLoss().rows(guess.expand(1000, 2), target).mean()
    loss.backward()
    torch.testing.assert_close(guess.grad, torch.zeros_like(guess.grad), atol=1e-9, rtol=0)
    assert loss.item() == pytest.approx(float(SquaredLoss().chance(target)))


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, "two"])
def test_alpha_must_be_positive(alpha):
    with pytest.raises(InputError, match="alpha"):
        AlphaLoss(alpha)


def test_losses_by_name():
    assert make_loss("zero_one") == ZeroOneLoss()
    assert make_loss(AlphaLoss(3.0)) == AlphaLoss(3.0)
    with pytest.raises(InputError, match="loss"):
        make_loss("hinge")
