"""The Gaussian experiment in small: learned noise close to the optimum, better than the diagonal where it may be."""

from dataclasses import replace

import numpy as np
import pytest

from fairveil.datasets import gaussian_mixture
from fairveil.paper import gaussian as experiment
from fairveil.theory import gaussian as theory

SHORT = replace(experiment.TRAINING, steps=1200, batch_size=1024)


@pytest.fixture(scope="module")
def points():
    mixture = gaussian_mixture(0.75, dimension=8)
    return {
        architecture: experiment.measure(mixture, architecture, 2.0, mechanism, knn=False)
        for architecture in ("gaussian", "gaussian_full")
        for mechanism in experiment.learn(mixture, architecture, (2.0,), training=SHORT)
    }


def test_learned_noise_is_near_its_optimum(points):
    for point in points.values():
        assert point.distortion == pytest.approx(2.0, rel=0.02)
        assert -0.002 <= point.gap <= 0.005


def test_full_covariance_beats_the_diagonal_optimum(points):
    assert points["gaussian_full"].learned < points["gaussian"].optimum - 0.02
    assert points["gaussian_full"].exact < points["gaussian"].exact_optimum


def test_the_figure_and_table_are_written(tmp_path):
    short = replace(experiment.TRAINING, steps=5, rounds=1, select_after=0.0)
    points = experiment.run(tmp_path, budgets=(1.0, 4.0), training=short, knn=False, progress=False)
    assert len(points) == 8
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gaussian.json", "gaussian.md", "gaussian.png"]
    assert "MAP accuracy" in (tmp_path / "gaussian.md").read_text()


def test_the_mixture_is_what_it_says():
    mixture = gaussian_mixture(0.75)
    x, s = mixture.sample(200_000, seed=3)
    assert s.mean() == pytest.approx(0.75, abs=0.005)
    np.testing.assert_allclose(x[s == 1].mean(0), mixture.mean, atol=0.02)
    np.testing.assert_allclose(x[s == 0].var(0), mixture.variance, rtol=0.03)
    accuracy = theory.map_accuracy(theory.separation(mixture.mean, mixture.variance), 0.5)
    assert accuracy == pytest.approx(0.999, abs=0.0005)
