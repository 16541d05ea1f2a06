"""Ranks that matchings keep: against closed forms, an exact assignment, and tasks whose best prediction is known."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata, spearmanr

from fairveil import FairEncoder, InputError, Schema, Training, Transport
from fairveil.data.frames import read_table
from fairveil.data.rows import Rows
from fairveil.data.table_codec import Codec
from fairveil.encoders.scores import centred
from fairveil.encoders.standing import ranks_within, shared_scores, shared_standing, task_scores, task_standing
from fairveil.encoders.transport import warm_start
from fairveil.encoders.transport.coupling import couple


def test_ranks_are_mid_ranks_within_each_group():
    generator = np.random.default_rng(0)
    scores, groups = generator.integers(0, 6, (60, 2)).astype(float), generator.integers(0, 3, 60)
    found = ranks_within(scores, groups)
    for group in range(3):
        inside = groups == group
        for column in range(2):
            wanted = (rankdata(scores[inside, column]) - 0.5) / inside.sum()
            np.testing.assert_allclose(found[inside, column], wanted)


def test_weights_count_as_repeated_rows():
    generator = np.random.default_rng(1)
    scores, groups, weight = generator.normal(size=(40, 1)), generator.integers(0, 2, 40), generator.integers(1, 5, 40)
    repeated = np.repeat(np.arange(40), weight)
    every = ranks_within(scores[repeated], groups[repeated])
    found = ranks_within(scores, groups, weight.astype(float))
    wanted = [every[repeated == row].mean() for row in range(40)]
    np.testing.assert_allclose(found[:, 0], wanted)


@pytest.mark.parametrize("weight", [0.0, 1.0, 1e4])
def test_a_matching_minimises_cost_and_standing_together(weight):
    generator = np.random.default_rng(2)
    prices, rank = generator.random((40, 40)), generator.random((40, 1)) * np.sqrt(weight)
    classes = np.repeat([0, 1], 20)
    found = couple(lambda s, t: prices[np.ix_(s, t)], classes, generator, reference=0, size=20, standing=rank)
    total = prices[20:, :20] + np.square(rank[20:] - rank[None, :20, 0])
    rows, columns = linear_sum_assignment(total)
    paired = {(int(s), int(t)) for s, t in zip(found.sources, found.targets, strict=True)}
    assert paired == {(20 + int(r), int(c)) for r, c in zip(rows, columns, strict=True)}
    assert found.cost * 2 == pytest.approx(prices[20 + rows, columns].mean())  # the standing is not part of the cost
    if weight == 1e4:
        order = np.argsort(rank[:20, 0]), 20 + np.argsort(rank[20:, 0])
        assert paired == set(zip(order[1].tolist(), order[0].tolist(), strict=True))


def test_scores_of_a_task_are_cross_fitted():
    """Pure noise cannot be predicted from other rows; a model that saw the row itself would."""
    generator = np.random.default_rng(3)
    features = generator.normal(size=(400, 5))
    noise = generator.integers(0, 2, 400)
    assert abs(spearmanr(task_scores(noise, features, 0)[:, 0], noise).statistic) < 0.2
    told = (features[:, 0] > 0).astype(int)
    assert abs(spearmanr(task_scores(told, features, 0)[:, 0], told).statistic) > 0.8
    number = task_scores(features[:, 1] + 0.1 * noise, features, 0)
    assert spearmanr(number[:, 0], features[:, 1]).statistic > 0.95


def test_rare_classes_and_unknown_rows_have_scores():
    generator = np.random.default_rng(4)
    features, values = generator.normal(size=(300, 2)), np.repeat([0, 1, 2, 3], [150, 100, 47, 3])
    known = np.arange(0, 300, 2)
    scores = task_scores(values[known], features, 0, known=known)
    assert scores.shape == (300, 3)
    assert np.isfinite(scores).all()
    assert not task_scores(np.repeat([0, 1], [297, 3]), features, 0).any()  # too few rows to learn from


def encoded(frame: pd.DataFrame, groups: np.ndarray, tasks: tuple = ()) -> tuple[Rows, Schema]:
    batch = read_table(frame)
    schema = Schema.infer(batch)
    codes = torch.from_numpy(groups)
    return Rows(Codec(schema).encode(batch.arrow), torch.eye(2)[codes], (codes,), tasks), schema


def people(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Five columns that a hidden cause moves, and two that vary on their own; S shifts the first."""
    generator = np.random.default_rng(seed)
    cause, s = generator.normal(size=rows), generator.integers(0, 2, rows)
    frame = pd.DataFrame({f"number{i}": cause + generator.normal(size=rows) + (i == 0) * s for i in range(3)})
    for name in ("grade", "class"):
        frame[name] = np.where(cause + generator.normal(size=rows) > 0, "high", "low")
    frame["colour"], frame["size"] = generator.choice(list("abcde"), rows), generator.normal(size=rows)
    return frame, s, cause


def test_shared_standing_follows_the_common_cause_within_groups():
    frame, s, cause = people(3000, 0)
    rows, schema = encoded(frame, s)
    found = shared_standing(rows, schema.layout, 100.0)
    for group in (0, 1):
        assert abs(spearmanr(found[s == group, -1], cause[s == group]).statistic) > 0.75
    scores = centred(rows.x @ shared_scores(rows, schema.layout).T, rows.sensitive)
    np.testing.assert_allclose(found.var(axis=0), 100.0 * scores.var(dim=0).numpy(), rtol=0.02)  # the weight
    shifted = frame.assign(number0=frame["number0"] + 5 * s)  # what shifts a whole group is not kept
    rows, schema = encoded(shifted, s)
    again = shared_standing(rows, schema.layout, 100.0)
    assert abs(spearmanr(found[s == 1, -1], again[s == 1, -1]).statistic) > 0.95


def test_where_columns_have_nothing_in_common_only_closeness_counts():
    generator = np.random.default_rng(5)
    frame = pd.DataFrame({f"n{i}": generator.normal(size=3000) for i in range(4)})
    s = generator.integers(0, 2, 3000)
    rows, schema = encoded(frame, s)
    everything = 0.5 * float(rows.x[:, schema.layout.grouped].var(dim=0).sum())
    assert shared_standing(rows, schema.layout, 1.0).var(axis=0).sum() < 0.02 * everything


def test_known_tasks_replace_shared_scores():
    frame, s, _ = people(800, 1)
    colour = torch.from_numpy((frame["colour"] == "a").to_numpy().astype(np.int64))
    rows, _ = encoded(frame, s, (colour,))
    found = task_standing(rows, 4.0, 0)
    assert found.shape == (800, 1)
    assert abs(found[colour == 1].mean() - found[colour == 0].mean()) > 0.9


@pytest.mark.parametrize("value", [-1.0, float("nan"), "much", True, 1e7])
def test_bad_weights(value):
    for name in ("shared_weight", "task_weight"):
        with pytest.raises(InputError, match=name):
            Transport(**{name: value})


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_transport_matches_by_the_known_task_or_by_shared_scores(weight, monkeypatch):
    frame, s, cause = people(600, 2)
    y, kept = (cause > 0).astype(int), []

    def recorded(*arguments, standing, **settings):
        kept.append(standing)
        return couple(*arguments, standing=standing, **settings)

    monkeypatch.setattr(warm_start, "couple", recorded)
    short = Training(steps=2, pretraining_steps=2, adversary_hidden=((4,),), rounds=1)
    FairEncoder(5.0, architecture=Transport(hidden=(4,), matchings=1, matched_rows=100), sees_sensitive=True,
                target_weight=weight, training=short, unmet="warn", random_state=0, verbose=False
                ).fit(frame, y if weight else None, sensitive_features=s)  # fmt: skip
    assert all(one.shape[1] == (1 if weight else 3) for one in kept)  # the score of two classes; shared scores
    assert sum(map(len, kept)) > 400
