"""The Gaussian experiment in small: learned noise close to the optimum, better than the diagonal where it may be."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fairveil import AlphaLoss
from fairveil.datasets import gaussian_mixture
from fairveil.paper import gaussian as experiment
from fairveil.theory import gaussian as theory

SHORT = replace(experiment.TRAINING, steps=800, batch_size=1024)


@pytest.fixture(scope="module")
def points():
    mixture = gaussian_mixture(0.75, dimension=8)
    return {
        architecture: experiment.measure(mixture, architecture, 2.0, mechanism)
        for architecture in ("gaussian", "gaussian_full")
        for mechanism in experiment.learn(mixture, architecture, (2.0,), training=SHORT)
    }


def test_learned_noise_is_near_its_optimum(points):
    for point in points.values():
        assert point.distortion == pytest.approx(2.0, rel=0.005)
        assert abs(point.gap) <= (0.002 if point.architecture == "gaussian" else 0.005)


def test_full_covariance_beats_the_diagonal_optimum(points):
    assert points["gaussian_full"].learned < points["gaussian"].optimum - 0.02
    assert points["gaussian_full"].exact < points["gaussian"].exact_optimum


def test_the_figure_and_table_are_written(tmp_path):
    short = replace(experiment.TRAINING, steps=5, rounds=1, select_after=0.0)
    told = []
    settings = {"budgets": (1.0, 4.0), "training": short, "knn": False, "progress": False}
    page = experiment.page(tmp_path, "quick", told.append, **settings)
    page.write(tmp_path, "a command")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gaussian.md", "gaussian.png", "gaussian.quick.json"]
    assert "MAP accuracy" in (tmp_path / "gaussian.md").read_text()
    assert len(page.tables[0].rows) == 8
    assert len(told) == 4
    assert experiment.page(tmp_path, "quick", told.append, **settings) == page  # nothing is computed again
    assert len(told) == 4


def test_the_mixture_is_what_it_says():
    mixture = gaussian_mixture(0.75)
    x, s = mixture.sample(200_000, seed=3)
    assert s.mean() == pytest.approx(0.75, abs=0.005)
    np.testing.assert_allclose(x[s == 1].mean(0), mixture.mean, atol=0.02)
    np.testing.assert_allclose(x[s == 0].var(0), mixture.variance, rtol=0.03)
    accuracy = theory.map_accuracy(theory.separation(mixture.mean, mixture.variance), 0.5)
    assert accuracy == pytest.approx(0.974, abs=0.0005)


@pytest.mark.parametrize("alpha", [0.5, 2.0, math.inf])
def test_every_alpha_loss_leads_to_the_same_noise(alpha):
    mixture = gaussian_mixture(0.5, dimension=8)
    short = replace(experiment.training_against(alpha), steps=800, batch_size=1024)
    (mechanism,) = experiment.learn(mixture, "gaussian", (4.0,), loss=AlphaLoss(alpha), training=short)
    best = theory.water_filling(mixture.mean, mixture.variance, 4.0)
    learned, optimum = (
        theory.minimal_alpha_loss(0.0, 0.5, alpha)
        - theory.minimal_alpha_loss(theory.separation(mixture.mean, mixture.variance, noise), 0.5, alpha)
        for noise in (mechanism.noise, best)
    )
    assert learned == pytest.approx(optimum, rel=0.02)


def test_released_rows_have_the_mechanism_s_moments():
    generator = np.random.default_rng(0)
    mechanism = experiment.Mechanism(np.array([1.0, 0.0]), generator.normal(size=(2, 2)))
    released = mechanism.release(np.zeros((200_000, 2)), seed=1)
    np.testing.assert_allclose(np.cov(released.T), mechanism.noise, atol=0.03)
    assert np.mean(np.sum(released**2, axis=1)) == pytest.approx(mechanism.distortion, rel=0.02)
