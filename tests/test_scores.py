"""Scores that codes keep: against ridge regressions column by column, and on columns that have nothing in common."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from fairveil import Column, Schema
from fairveil.data.rows import Rows
from fairveil.encoders.scores import centred, learn_scores, shared_scores, task_scores, with_steps

LAYOUT = Schema(tuple(Column(f"c{i}", "continuous", family="number", lower=-9.0, upper=9.0) for i in range(5))).layout


def rows_of(shared: float, seed: int = 0) -> Rows:
    """Three columns have a cause in common, two have none; the first is also shifted by S."""
    generator = np.random.default_rng(seed)
    x, s = generator.normal(size=(4000, 5)), generator.integers(0, 2, 4000)
    x[:, :3] += shared * generator.normal(size=(4000, 1))
    x[:, 0] += 3.0 * s
    seen = torch.eye(2)[s]
    return Rows(torch.from_numpy(x).float(), seen, (torch.from_numpy(s),))


def test_shared_scores_are_the_main_directions_of_ridge_regressions():
    """Column by column, of numbers with their steps, predicted from all others; every prediction has variance 1."""
    rows, weights = rows_of(1.0), torch.tensor([1.0, 0.5, 1.0, 2.0, 1.0])
    slots = np.r_[np.arange(5), np.repeat(np.arange(5), 8)]  # the column of each slot
    roots = np.sqrt(weights.double().numpy())
    x = centred(with_steps(rows.x, LAYOUT).double(), rows.sensitive).numpy() * roots[slots]
    predicted = np.empty((len(x), 5))
    for column in range(5):
        ridge = Ridge(1.5e-3 * len(x), fit_intercept=False).fit(x[:, slots != column], x[:, column])
        predicted[:, column] = ridge.predict(x[:, slots != column])
    predicted /= np.sqrt((predicted**2).mean(axis=0) + 1e-4)
    left, _, _ = np.linalg.svd(predicted, full_matrices=False)
    found, _ = shared_scores(rows, LAYOUT, weights, 2)
    inner = torch.atanh((found.of(rows.x, LAYOUT) / found.heights).double().clamp(-0.9999, 0.9999))
    alike = np.corrcoef(np.c_[centred(inner, rows.sensitive).numpy()[:, ::-1], left[:, :2]].T)[:2, 2:]
    np.testing.assert_allclose(np.abs(np.diag(alike)), 1.0, atol=0.01)


def test_columns_without_anything_in_common_have_scores_that_hardly_vary():
    spread = []
    for rows in (rows_of(0.0), rows_of(1.0)):
        scores = learn_scores(rows, LAYOUT, torch.ones(5), 1.0, cells=10)
        spread.append(float(centred(scores.of(rows.x, LAYOUT), rows.sensitive).var(dim=0).sum()))
    assert spread[0] < 0.02 < 0.5 < spread[1]


@pytest.mark.parametrize(("cells", "expected"), [(8, 1), (25, 2), (200, 3)])
def test_more_cells_keep_more_scores(cells, expected):
    assert len(learn_scores(rows_of(1.0), LAYOUT, torch.ones(5), 1.0, cells).heights) == expected


def test_a_score_of_two_classes_is_their_probability():
    """tanh(z / 2) = 2 p - 1, with the log-odds z of the true model; what S adds is left out."""
    generator = np.random.default_rng(0)
    rows = rows_of(0.0)
    x = rows.x.numpy()
    own = generator.random(len(x)) < 1.0 / (1.0 + np.exp(-(2.0 * x[:, 3] - 1.0)))
    scores = task_scores(rows, torch.from_numpy(own.astype(np.int64)), LAYOUT).of(rows.x, LAYOUT)[:, 0].numpy()
    assert np.abs(scores - np.tanh((2.0 * x[:, 3] - 1.0) / 2)).mean() < 0.08


def test_scores_are_centred_within_groups():
    rows = rows_of(1.0)
    scores = centred(rows.x, rows.sensitive)
    for group in (0, 1):
        assert scores[rows.sensitive[:, group] == 1].mean(dim=0).abs().max() < 1e-5
