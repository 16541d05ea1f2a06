"""The game against known optima: an exact discrete channel, water-filling noise, and attackers with controls."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fairveil import Column, FairEncoder, Schema, Training, TrainingFailed
from fairveil._utils.randomness import Seeds
from fairveil.auditing import probe
from fairveil.data.rows import Rows
from fairveil.encoders import FeedForward, Gaussian, Signature
from fairveil.objectives import AugmentedLagrangian, Distortion, LogLoss
from fairveil.objectives.bounds import Bounds
from fairveil.theory import gaussian
from fairveil.training import Problem, Target
from fairveil.training.game import Game
from fairveil.training.steps import strongest
from fairveil.training.verification import Verification
from helpers import people


def information(joint: np.ndarray, channel: np.ndarray) -> float:
    """I(X_r; S) in nats for P(s, x) and P(x_r | x)."""
    released = joint @ channel
    outer = released.sum(1, keepdims=True) * released.sum(0, keepdims=True)
    return float(np.sum(released * np.log(np.maximum(released, 1e-300) / outer)))


def exact_minimum(joint: np.ndarray, distortion: float) -> float:
    """Least I(X_r; S) over channels with P(X_r != X) <= distortion, a convex program, by SLSQP."""
    size = joint.shape[1]
    prior = joint.sum(0)
    constraints = [
        {"type": "eq", "fun": lambda z: z.reshape(size, size).sum(1) - 1},
        {"type": "ineq", "fun": lambda z: distortion - (1 - prior @ np.diag(z.reshape(size, size)))},
    ]
    start = 0.9 * np.eye(size) + 0.1 / size
    found = minimize(lambda z: information(joint, z.reshape(size, size)), start.ravel(), method="SLSQP",
                     bounds=[(1e-9, 1)] * size**2, constraints=constraints,
                     options={"maxiter": 500, "ftol": 1e-12})  # fmt: skip
    assert found.success
    return float(found.fun)


def test_matrix_encoder_reaches_the_exact_channel():
    joint = np.array([[0.30, 0.12, 0.06], [0.06, 0.12, 0.34]])
    generator = np.random.default_rng(0)
    cells = generator.choice(6, 20000, p=joint.ravel())
    frame = pd.DataFrame({"x": np.array(list("abc"))[cells % 3]})
    training = Training(
        steps=1200,
        adversary_steps=4,
        learning_rate=0.02,
        adversary_learning_rate=0.01,
        batch_size=4096,
        adversary_hidden=((16,),),
        adversary_dropout=0.0,
        adversary_decay=0.0,
    )
    encoder = FairEncoder(0.25, architecture="matrix", training=training, verbose=False, random_state=0)
    encoder.fit(frame, sensitive_features=cells // 3)
    channel = encoder.veil_.encoder.channel()[0, 0].double().numpy()
    empirical = np.bincount(cells, minlength=6).reshape(2, 3) / len(cells)
    achieved = 1 - empirical.sum(0) @ np.diag(channel)
    least, learned = exact_minimum(empirical, achieved), information(empirical, channel)
    assert achieved <= 0.25
    assert least <= learned + 1e-9
    assert learned <= 1.05 * least
    assert learned < 0.5 * information(empirical, np.eye(3))


def test_gaussian_encoder_finds_water_filling_noise():
    """Theorem `thm:PDI` in three dimensions: noise where the means differ most, none where they do not."""
    mu, sigma2, budget = np.array([1.0, 0.6, 0.0]), np.ones(3), 3.0
    generator = np.random.default_rng(0)
    s = generator.random(20000) < 0.5
    x = np.where(s[:, None], mu, -mu) + generator.normal(size=(20000, 3))
    columns = tuple(Column(f"x{i}", "continuous", family="number") for i in range(3))
    training = Training(steps=700, adversary_steps=3, learning_rate=0.02, adversary_learning_rate=5e-3, batch_size=2048,
                        adversary_hidden=((16,),), adversary_dropout=0.0, adversary_decay=0.0)  # fmt: skip
    encoder = FairEncoder(
        budget, architecture="gaussian", schema=Schema(columns), training=training, verbose=False, random_state=0
    )
    encoder.fit(x, sensitive_features=s)
    noise = encoder.veil_.encoder.covariance()[0].diagonal().double().numpy()
    spent = float(noise.sum())
    assert spent <= budget
    # Level nu with sum (|mu_i| nu - sigma_i^2)^+ = spent, both of the first two dimensions above water.
    level = (spent + 2.0) / (mu[0] + mu[1])
    best = np.array([mu[0] * level - 1, mu[1] * level - 1, 0.0])
    separation, least = (2 * math.sqrt(float(np.sum(mu**2 / (sigma2 + p)))) for p in (noise, best))
    assert least <= separation <= 1.02 * least
    assert separation < 0.95 * 2 * math.sqrt(float(np.sum(mu**2 / (sigma2 + spent / 3))))  # better than equal noise


def test_full_covariance_finds_rank_one_noise_and_beats_every_diagonal():
    """`theory.gaussian.optimal_noise`: one noisy direction hides far more than noise on every coordinate."""
    generator = np.random.default_rng(0)
    mu, budget = generator.uniform(0.2, 0.6, 16), 3.0
    s = generator.random(20000) < 0.5
    x = np.where(s[:, None], mu, -mu) + generator.normal(size=(20000, 16))
    columns = tuple(Column(f"x{i}", "continuous", family="number") for i in range(16))
    training = Training(steps=900, adversary_steps=4, learning_rate=5e-3, adversary_learning_rate=0.01, batch_size=2048,
                        adversary_hidden=((),), adversary_dropout=0.0, adversary_decay=0.0)  # fmt: skip
    encoder = FairEncoder(
        budget,
        architecture=Gaussian(full=True),
        schema=Schema(columns),
        training=training,
        verbose=False,
        random_state=0,
    )
    factor = encoder.fit(x, sensitive_features=s).veil_.encoder.factor[0].double().numpy()
    noise = factor @ factor.T
    spent = float(np.trace(noise))
    assert spent <= budget
    left = gaussian.separation(mu, np.ones(16), noise)
    assert left <= 1.05 * gaussian.separation(mu, np.ones(16), gaussian.optimal_noise(mu, np.ones(16), spent))
    assert left < 0.8 * gaussian.separation(mu, np.ones(16), gaussian.water_filling(mu, np.ones(16), budget))


def attacker_auc(train, truth, test, test_truth):
    coded = pd.get_dummies(pd.concat([train, test]), dummy_na=True).astype(float)
    model = LogisticRegression(max_iter=2000).fit(coded[: len(train)], truth)
    return roc_auc_score(test_truth, model.predict_proba(coded[len(train) :])[:, 1])


def test_fresh_attackers_succeed_before_and_fail_after():
    X, S, y = people(6000, seed=1)
    new, new_s, new_y = people(3000, seed=2)
    training = Training(steps=350, adversary_hidden=((64,), (32, 32)), batch_size=512)
    encoder = FairEncoder(
        2.0,
        architecture=FeedForward(hidden=(64, 64), noise_dim=4),
        sees_sensitive=True,
        training=training,
        verbose=False,
        random_state=0,
    )
    before = encoder.fit_transform(X, sensitive_features=S["sex"])
    after = encoder.transform(new, sensitive_features=new_s["sex"])
    sex, new_sex = S["sex"] == "f", new_s["sex"] == "f"
    assert attacker_auc(X, sex, new, new_sex) > 0.95  # control: the original data
    shuffled = sex.sample(frac=1, random_state=0).to_numpy()
    assert abs(attacker_auc(before, shuffled, after, new_sex) - 0.5) < 0.05  # control: nothing to find
    assert attacker_auc(before, sex, after, new_sex) < 0.60
    trees = probe(before, sex, after, new_sex)
    assert trees.auc.value < 0.60
    assert probe(before, y, after, new_y).accuracy.value > 0.80  # a task nobody named


def test_the_soft_maximum_faces_the_strongest_and_pays_nothing_above_chance():
    advantage = torch.tensor([[0.30, 0.01], [-0.50, -0.20]], requires_grad=True)
    value = strongest(advantage, 0.01)
    assert value[0].item() == pytest.approx(0.30, abs=1e-3)
    value.sum().backward()
    assert advantage.grad[0].tolist() == pytest.approx([1.0, 0.0], abs=1e-3)
    assert advantage.grad[1].tolist() == [0.0, 0.0]


def test_restarts_initialise_one_adversary_after_another(monkeypatch):
    X, S, _ = people(400)
    training = Training(steps=8, batch_size=64, adversary_steps=1, adversary_hidden=((8,), (4,)), rounds=2,
                        restarts=3)  # fmt: skip
    restart, seen = Game.restart, []

    def noted(self, index):
        before = [[p.clone() for p in network.parameters()] for network in self.panel.networks]
        restart(self, index)
        for number, network in enumerate(self.panel.networks):
            same = [torch.equal(old, new) for old, new in zip(before[number], network.parameters(), strict=True)]
            fresh = [p not in self.panel_optimiser.state for p in network.parameters()]
            assert all(same) == (number != index)
            assert all(fresh) == (number == index)
        seen.append((self.step, index))

    monkeypatch.setattr(Game, "restart", noted)
    encoder = FairEncoder(50.0, training=training, verbose=False, random_state=0)
    encoder.fit(X, sensitive_features=S["sex"])
    assert seen == [(2, 0), (4, 1), (6, 0)]


def test_divergence_is_an_error():
    X, S, _ = people(400)
    training = Training(steps=30, batch_size=64, adversary_hidden=((8,),), learning_rate=1e30, rounds=3)
    with pytest.raises(TrainingFailed, match="Lower learning_rate"):
        FairEncoder(50.0, training=training, verbose=False, random_state=0).fit(X, sensitive_features=S["sex"])


def test_the_task_term_keeps_the_task():
    """With lambda > 0 the release is better for the named task than without, at the same budget."""
    X, S, y = people(4000, seed=3)
    new, _, new_y = people(2000, seed=4)
    schema = Schema.infer(pd.concat([X, new]))
    training = Training(steps=250, adversary_hidden=((32,),), batch_size=512)
    accuracy = {}
    for weight in (0.0, 5.0):
        encoder = FairEncoder(
            4.0,
            architecture=FeedForward(hidden=(32,)),
            target_weight=weight,
            schema=schema,
            training=training,
            verbose=False,
            random_state=0,
        )
        encoder.fit(X, y, sensitive_features=S["sex"])
        accuracy[weight] = probe(encoder.transform(X), y, encoder.transform(new), new_y).accuracy.value
    original = probe(X, y, new, new_y).accuracy.value
    lost = original - accuracy[0.0]
    assert lost > 0.015  # else there would be nothing to win back
    assert accuracy[5.0] - accuracy[0.0] > 0.6 * lost
    assert accuracy[5.0] > 0.89


def test_the_aim_allows_for_what_training_does_not_see():
    """New rows that show more distortion than training does: the aim goes down by the difference, else by nothing."""
    schema = Schema(tuple(Column(f"x{i}", "continuous", family="number") for i in range(2)))
    problem = Problem(
        architecture=FeedForward(hidden=(8,), noise_dim=0, residual=False),
        signature=Signature(schema.layout, "probabilities"),
        loss=LogLoss(),
        distortion=Distortion(schema.layout),
        constraint=AugmentedLagrangian(),
        bounds=Bounds.of([9.0, 4.0], relative=False),
        targets=(Target(2, 0.69),),
        seeds=(0, 0),
        training=Training().completed({}),
    )
    game = Game(problem, Seeds(0), torch.device("cpu"))
    near, far = (Rows(torch.full((500, 2), at), None, (torch.arange(500) % 2,)) for at in (0.1, 1.0))
    less, more = (game.judged(game.averaged(), rows)[0] for rows in (near, far))
    verification = Verification(500, 0.95, (problem.distortion.limits()["total"],))
    for rows, difference in ((near, torch.zeros(2, 1)), (far, more - less)):
        game.judge(rows, near, verification, seconds=0.0)
        torch.testing.assert_close(game.optimism, difference)
    assert (game.optimism > 0).all()
    bounds = problem.bounds.values
    torch.testing.assert_close(game.aim(verification), torch.maximum(bounds - game.optimism, 0.5 * bounds))
