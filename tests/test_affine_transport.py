"""Affine transport in a code: closed forms, new rows, valid values, files, and what it refuses."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.metrics import roc_auc_score

import fairveil as fv
from fairveil import BudgetNotMet, FairEncoder, FairFrontier, InputError, Training, VeilFileError
from fairveil._utils.components import Components
from fairveil.encoders.affine_transport import transport_of
from fairveil.theory import gaussian, transport
from fairveil.veil.archive import read_archive, write_archive

WIDTH = 40


def covariance(seed: int, size: int = 4) -> np.ndarray:
    matrix = np.random.default_rng(seed).normal(size=(size, 2 * size))
    return matrix @ matrix.T / size


#: Two Gaussian groups in four dimensions, spread over forty columns by orthonormal directions.
MEANS = np.array([[0.0, 0.0, 0.0, 0.0], [1.5, -1.0, 0.0, 0.5]])
COVARIANCES = np.stack([covariance(1), covariance(2)])
AXES = np.linalg.qr(np.random.default_rng(3).normal(size=(WIDTH, 4)))[0]


def rows_of(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    s = (generator.random(count) < 0.4).astype(int)
    roots = np.linalg.cholesky(COVARIANCES)
    z = MEANS[s] + np.einsum("rij,rj->ri", roots[s], generator.normal(size=(count, 4)))
    return z @ AXES.T, s


def encoder(**settings) -> FairEncoder:
    schema = fv.Schema(tuple(fv.Column(f"x{i}", "continuous", family="number") for i in range(WIDTH)))
    usual = {"architecture": fv.AffineTransport(n_components=8), "sees_sensitive": True, "schema": schema}
    return FairEncoder(**{**usual, "random_state": 0, "verbose": False, **settings})


def frame(x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])


def guessed(released: np.ndarray, s: np.ndarray) -> float:
    """AUC of the best model of Gaussian groups, from half of these rows on the others."""
    half = len(s) // 2
    codes = released @ AXES
    model = QuadraticDiscriminantAnalysis().fit(codes[:half], s[:half])
    return float(roc_auc_score(s[half:], model.predict_proba(codes[half:])[:, 1]))


# Closed forms


def test_transport_moves_one_covariance_to_another_at_the_bures_distance():
    first, second = COVARIANCES
    matrix = transport.transport_map(first, second)
    np.testing.assert_allclose(matrix @ first @ matrix, second, atol=1e-10)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-10)
    cost = np.trace((matrix - np.eye(4)) @ first @ (matrix - np.eye(4)))
    assert cost == pytest.approx(transport.bures_distance(first, second) ** 2)
    # Any other map with the same result costs more: here, a rotation after it.
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    root, inverse = transport.matrix_power(second, 0.5), transport.matrix_power(first, -0.5)
    other = root @ turn @ inverse
    np.testing.assert_allclose(other @ first @ other.T, second, atol=1e-10)
    assert np.trace((other - np.eye(4)) @ first @ (other - np.eye(4)).T) > cost


def test_the_barycentre_has_the_least_cost_and_a_closed_form_where_covariances_commute():
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    values, weights = np.array([[1.0, 4.0, 9.0], [16.0, 1.0, 0.25]]), np.array([0.25, 0.75])
    groups = np.stack([(axes * v) @ axes.T for v in values])
    expected = (axes * (weights @ np.sqrt(values)) ** 2) @ axes.T
    np.testing.assert_allclose(transport.barycentre(groups, weights), expected, atol=1e-6)

    def cost(target: np.ndarray) -> float:
        return sum(w * transport.bures_distance(c, target) ** 2 for w, c in zip([0.4, 0.6], COVARIANCES, strict=True))

    best = transport.barycentre(COVARIANCES, [0.4, 0.6])
    for seed in range(20):
        nearby = best + 0.05 * covariance(seed + 10) / 4
        assert cost(best) < cost(nearby)


def test_noise_for_two_groups_of_equal_covariance_is_the_optimum_of_theory():
    mu, common = np.array([1.0, -0.5, 0.2, 0.0]), covariance(5)
    noise = transport.group_noise([mu, -mu], [common, common], [0.5, 0.5], 2.0)
    assert np.trace(noise) == pytest.approx(2.0)
    least = gaussian.separation(mu, common, gaussian.optimal_noise(mu, common, 2.0))
    assert gaussian.separation(mu, common, (noise + noise.T) / 2) == pytest.approx(least, rel=1e-6)


def test_noise_for_groups_of_other_covariances_beats_random_noise_and_a_brute_force_search():
    means, groups, weights = np.zeros((3, 2)), np.stack([covariance(i, 2) for i in range(3)]), [0.2, 0.3, 0.5]
    found = transport.group_information(means, groups, weights, transport.group_noise(means, groups, weights, 1.0))
    angles, shares = np.meshgrid(np.linspace(0, np.pi, 60), np.linspace(0, 1, 41))
    searched = []
    for angle, share in zip(angles.ravel(), shares.ravel(), strict=True):
        axes = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        searched.append(transport.group_information(means, groups, weights, (axes * [share, 1 - share]) @ axes.T))
    assert found <= min(searched) * (1 + 1e-6)
    assert found < 0.97 * np.median(searched)


def test_the_information_of_groups_that_differ_little_is_that_of_the_mixture():
    mu = np.array([0.05, 0.0])
    found = transport.group_information([mu, -mu], [np.eye(2), np.eye(2)], [0.5, 0.5], np.zeros((2, 2)))
    assert found == pytest.approx(gaussian.mutual_information(0.1, 0.5), rel=0.01)


def test_groups_that_do_not_differ_get_white_noise():
    noise = transport.group_noise(np.zeros((2, 3)), [np.eye(3), np.eye(3)], [1, 1], 0.6)
    np.testing.assert_allclose(noise, 0.2 * np.eye(3))


@pytest.mark.parametrize(
    "call",
    [
        lambda: transport.barycentre([[[1.0, 2.0]]], [1.0]),
        lambda: transport.barycentre([[[1.0]]], [-1.0]),
        lambda: transport.barycentre([[[1.0]]], [0.5, 0.5]),
        lambda: transport.transport_map([[np.nan]], [[1.0]]),
        lambda: transport.group_noise([[0.0]], [[[1.0]]], [1.0], np.inf),
        lambda: transport.group_noise([[0.0, 1.0]], [[[1.0]]], [1.0], 1.0),
    ],
)
def test_bad_moments_are_refused(call):
    with pytest.raises(InputError):
        call()


def test_components_are_those_of_an_exact_decomposition():
    generator = np.random.default_rng(0)
    rows = (generator.normal(size=(300, 5)) * [5, 4, 3, 2, 1]) @ generator.normal(size=(5, 1200))
    rows = (rows + 0.01 * generator.normal(size=rows.shape)).astype(np.float32)
    for width in (60, 1200):  # exact, randomized
        found = Components.of(rows[:, :width], 5, 0)
        exact = np.linalg.svd(rows[:, :width] - rows[:, :width].mean(axis=0), full_matrices=False)[2][:5]
        np.testing.assert_allclose(np.abs((exact @ found.axes).diagonal()), 1.0, atol=1e-3)


# The encoder


@pytest.fixture(scope="module")
def frontier() -> FairFrontier:
    x, s = rows_of(12_000, 0)
    return FairFrontier(encoder(), [0.4, 2.0, 4.0]).fit(frame(x), sensitive_features=s)


def test_gaussian_groups_are_hidden_at_the_cost_of_theory(frontier):
    x, s = rows_of(20_000, 1)
    assert guessed(x, s) > 0.85
    weights = np.array([0.6, 0.4])
    target = transport.barycentre(COVARIANCES, weights)
    least = sum(w * (np.sum((m - weights @ MEANS) ** 2) + transport.bures_distance(c, target) ** 2)
                for w, m, c in zip(weights, MEANS, COVARIANCES, strict=True))  # fmt: skip
    maps = transport_of(x @ AXES, s, 2, 0)
    moved = maps.moved(x @ AXES, s)
    assert np.square(moved - x @ AXES).sum(axis=1).mean() == pytest.approx(least, rel=0.03)
    assert 0.4 < least < 2.0
    aucs = [guessed(np.asarray(frontier.at(b).transform(frame(x), sensitive_features=s)), s) for b in (0.4, 2.0, 4.0)]
    assert aucs[0] > 0.6  # a budget below the cost of transport hides part of S
    assert aucs[1] < 0.53
    assert aucs[2] < 0.53


def test_all_budgets_are_met_and_nearly_spent(frontier):
    points = frontier.points_
    assert points["met"].all()
    assert (points["distortion"] > 0.9 * points["budget"]).all()
    x, s = rows_of(20_000, 2)
    for budget in points["budget"]:
        released = np.asarray(frontier.at(budget).transform(frame(x), sensitive_features=s))
        assert np.square(released - x).sum(axis=1).mean() < budget


def test_no_game_is_played(frontier):
    assert frontier.at(2.0).history_.rounds == ()
    assert frontier.points_["advantage"].isna().all()
    assert frontier.plot() is not None


def test_expected_distances_are_exact(frontier):
    x, s = rows_of(200, 3)
    network = frontier.at(4.0).veil_.encoder
    rows, seen = torch.from_numpy(x).float(), torch.eye(2)[s]
    generator = torch.Generator().manual_seed(0)
    draws = [network(rows, seen, network.noise(200, generator)) for _ in range(400)]
    mean = torch.stack([(d.values[0] - rows).square().sum(dim=-1) for d in draws]).mean(dim=0)
    assert float((mean - draws[0].squares[0]).mean()) == pytest.approx(0.0, abs=0.02)
    assert float((mean / draws[0].squares[0]).std()) < 0.15


def test_rare_groups_lean_on_the_common_covariance():
    x, s = rows_of(3000, 4)
    s[:5] = 2
    found = transport_of(x @ AXES, s, 4, 0)  # the last group has no rows at all
    assert np.isfinite(found.matrices).all()
    assert np.abs(found.matrices[2] - np.eye(4)).max() < 3.0


def test_images_hold_valid_pixels_and_many_groups_are_supported():
    generator = np.random.default_rng(0)
    s = generator.integers(0, 5, 1500)
    images = (0.4 * generator.random((1500, 6, 6)) + 0.05 * s[:, None, None] + 0.2).astype(np.float32)
    fitted = FairEncoder(1.5, architecture="affine_transport", sees_sensitive=True, random_state=0, verbose=False)
    released = fitted.fit(images, sensitive_features=s).transform(images, sensitive_features=s)
    assert released.shape == images.shape
    assert released.min() >= 0.0
    assert released.max() <= 1.0
    np.testing.assert_allclose(released * 255, np.round(released * 255), atol=1e-3)
    level, after = images.mean(axis=(1, 2)), released.mean(axis=(1, 2))
    assert np.corrcoef(level, s)[0, 1] > 0.8
    assert abs(np.corrcoef(after, s)[0, 1]) < 0.1


def test_a_game_continues_from_the_closed_form():
    x, s = rows_of(10_500, 5)
    played = encoder(budget=3.0, training=Training(steps=4, rounds=2, batch_size=64)).fit(
        frame(x), sensitive_features=s
    )
    assert len(played.history_.rounds) == 2
    assert played.distortion_.met


def test_weights_count_as_repeated_rows():
    x, s = rows_of(12_000, 6)
    weights = np.where(s == 1, 2.0, 1.0)
    fitted = encoder(budget=3.0).fit(frame(x), sensitive_features=s, sample_weight=weights)
    released = np.asarray(fitted.transform(frame(x), sensitive_features=s))
    centre = np.average(x @ AXES, axis=0, weights=weights)
    np.testing.assert_allclose((released @ AXES)[s == 0].mean(axis=0), centre, atol=0.25)


# Files and refusals


def test_a_file_holds_the_same_encoder_and_no_other_shape(frontier, tmp_path):
    path = tmp_path / "a.veil"
    fitted = frontier.at(2.0)
    fitted.save(path)
    again = fv.load(path)
    again.random_state = 0
    x, s = rows_of(50, 7)
    before, after = (e.transform(frame(x), sensitive_features=s) for e in (fitted, again))
    pd.testing.assert_frame_equal(before, after)
    manifest, weights = read_archive(path)
    for components in (7, 60_000, 0, True):
        forged = json.loads(json.dumps(manifest))
        forged["architecture"]["n_components"] = components
        write_archive(tmp_path / "b.veil", forged, weights)
        with pytest.raises(VeilFileError):
            fv.load(tmp_path / "b.veil")
    for name in weights:
        write_archive(tmp_path / "b.veil", manifest, {**weights, name: weights[name] * float("nan")})
        with pytest.raises(VeilFileError):
            fv.load(tmp_path / "b.veil")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sees_sensitive": False}, "sees_sensitive=True"),
        ({"distortion": lambda a, b: (a - b).abs().sum(dim=-1)}, "squared distances"),
        ({"release": "probabilities"}, "release='sampled'"),
    ],
)
def test_what_it_cannot_do_is_refused(settings, message):
    x, s = rows_of(200, 8)
    with pytest.raises(InputError, match=message):
        encoder(**settings).fit(frame(x), sensitive_features=s)


def test_categories_and_bad_sizes_are_refused():
    x, s = rows_of(200, 9)
    table = frame(x).assign(colour="red")
    with pytest.raises(InputError, match="columns of numbers"):
        encoder(schema=None).fit(table, sensitive_features=s)
    with pytest.raises(InputError, match="n_components"):
        fv.AffineTransport(n_components=0)


def test_a_budget_below_what_components_leave_out_names_the_remedy():
    x = np.random.default_rng(0).normal(size=(600, WIDTH))
    with pytest.raises(BudgetNotMet, match="n_components"):
        encoder(budget=0.5, architecture=fv.AffineTransport(4)).fit(frame(x), sensitive_features=np.arange(600) % 2)
