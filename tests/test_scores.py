"""Scores that codes keep: against ridge regressions column by column, and on columns that have nothing in common."""

import numpy as np
import torch
from sklearn.linear_model import Ridge

from fairveil import Column, Schema
from fairveil.data.rows import Rows
from fairveil.encoders.scores import centred, shared_directions

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
    rows, weights = rows_of(1.0), torch.tensor([1.0, 0.5, 1.0, 2.0, 1.0])
    x = centred(rows.x.double() * weights.double().sqrt(), rows.sensitive).numpy()
    predicted = np.empty_like(x)
    for column in range(5):
        others = [i for i in range(5) if i != column]
        ridge = Ridge(1.5e-3 * len(x), fit_intercept=False).fit(x[:, others], x[:, column])
        predicted[:, column] = ridge.predict(x[:, others])
    _, _, main = np.linalg.svd(predicted, full_matrices=False)
    found = centred(rows.x @ shared_directions(rows, LAYOUT, weights).T, rows.sensitive).numpy()[:, ::-1]
    np.testing.assert_allclose(np.abs(found), np.abs(predicted @ main[:3].T), atol=1e-3)


def test_columns_without_anything_in_common_have_scores_that_hardly_vary():
    spread = [float(centred(rows.x @ shared_directions(rows, LAYOUT, torch.ones(5)).T, rows.sensitive).var(dim=0).sum())
              for rows in (rows_of(0.0), rows_of(1.0))]  # fmt: skip
    assert spread[0] < 0.02 < 0.5 < spread[1]


def test_scores_are_centred_within_groups():
    rows = rows_of(1.0)
    scores = centred(rows.x, rows.sensitive)
    for group in (0, 1):
        assert scores[rows.sensitive[:, group] == 1].mean(dim=0).abs().max() < 1e-5
