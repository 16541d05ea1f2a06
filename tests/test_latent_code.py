"""A game in a code: where it starts, what adversaries see, S seen and unseen, files; and which arrays take a code."""

import numpy as np
import pandas as pd
import pytest
import torch

import fairveil as fv
from fairveil import FairEncoder, InputError, Training
from fairveil.data.images import ImageSchema
from fairveil.encoders import AffineTransport, LatentCode, Signature, build_encoder, choose_architecture
from fairveil.objectives import make_distortion

SHORT = Training(steps=30, rounds=3, batch_size=128)


def bent(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of 8 x 8: both groups have the same mean and covariance, but one lies on a ring and the other does not.

    No affine map can make these groups equal: only a game can.
    """
    generator = np.random.default_rng(seed)
    s = generator.integers(0, 2, rows)
    angle, radius = (
        generator.uniform(0, 2 * np.pi, rows),
        np.where(s == 1, 1.0, np.sqrt(generator.exponential(1, rows))),
    )
    plane = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    axes = np.linalg.qr(np.random.default_rng(9).normal(size=(64, 2)))[0]
    images = 0.5 + 0.5 * plane @ axes.T + 0.02 * generator.normal(size=(rows, 64))
    return images.clip(0, 1).reshape(rows, 8, 8).astype(np.float32), s


def encoder(**settings) -> FairEncoder:
    usual = {"architecture": LatentCode(n_components=8, hidden=(32,)), "sees_sensitive": True, "training": SHORT}
    return FairEncoder(**{**usual, "random_state": 0, "verbose": False, "unmet": "warn", **settings})


@pytest.mark.parametrize("seen", [True, False])
def test_a_game_hides_within_the_budget_and_the_file_holds_it(seen, tmp_path):
    images, s = bent(1200, 0)
    fitted = encoder(budget=1.0, sees_sensitive=seen).fit(images, sensitive_features=s)
    assert fitted.distortion_.met
    shown = {"sensitive_features": s} if seen else {}
    released = fitted.transform(images, **shown)
    np.testing.assert_allclose(released * 255, np.round(released * 255), atol=1e-3)
    fitted.save(tmp_path / "a.veil")
    again = fv.load(tmp_path / "a.veil")
    again.random_state = 0
    np.testing.assert_array_equal(again.transform(images, **shown), released)


def test_without_a_game_it_is_hardly_more_than_affine_transport():
    images, s = bent(1200, 1)
    game = encoder(budget=1.0, training=Training(steps=1, rounds=1, learning_rate=1e-9)).fit(
        images, sensitive_features=s
    )
    closed = encoder(budget=1.0, architecture=AffineTransport(8), training=None).fit(images, sensitive_features=s)
    codes = [e.veil_.encoder for e in (game, closed)]
    rows, seen = torch.from_numpy(images.reshape(-1, 64)), torch.eye(2)[s]
    means = [e.propose(rows, seen, e.noise(len(rows), torch.Generator().manual_seed(0)))[0, :, :8] for e in codes]
    assert float((means[0] - means[1]).abs().max()) < 0.1


def test_adversaries_see_the_code_and_expected_distances_are_exact():
    signature = Signature(ImageSchema(8, 8, 1).layout, "sampled", 2)
    network = build_encoder(LatentCode(n_components=4, hidden=(8,)), signature, 3)
    network.initialise([torch.Generator().manual_seed(i) for i in range(3)])
    with torch.no_grad():
        network.shared_axes.copy_(torch.linalg.qr(torch.randn(64, 4, generator=torch.Generator().manual_seed(0)))[0])
        network.shared_center.fill_(0.5)
        network.factor.normal_(0.0, 0.02, generator=torch.Generator().manual_seed(1))
    rows, seen = 0.4 + 0.2 * torch.rand(50, 64, generator=torch.Generator().manual_seed(2)), torch.eye(2)[[0, 1] * 25]
    generator = torch.Generator().manual_seed(3)
    draws = [network(rows, seen, network.noise(50, generator)) for _ in range(300)]
    assert network.released_width == draws[0].seen.shape[-1] == 4
    mean = torch.stack([(d.values - rows).square().sum(dim=-1) for d in draws]).mean(dim=0)
    torch.testing.assert_close(mean, draws[0].squares, atol=0.002, rtol=0.02)


def test_arrays_of_many_numbers_take_a_code_by_default():
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 800)
    x = pd.DataFrame(generator.normal(size=(800, 70)) + s[:, None] * 0.3, columns=[f"x{i}" for i in range(70)])
    fitted = encoder(architecture="auto", budget=60.0, training=None).fit(x, sensitive_features=s)
    assert isinstance(fitted.veil_.encoder.architecture, AffineTransport)
    few = encoder(architecture="auto", budget=9.0).fit(x.iloc[:, :10], sensitive_features=s)
    assert few.veil_.encoder.architecture.name == "transport"
    large = ImageSchema(32, 32, 3).layout
    for seen, name in ((2, "affine_transport"), (0, "noisy_autoencoder")):
        signature = Signature(large, "sampled", seen)
        assert (
            choose_architecture(signature, make_distortion("auto", large, "sampled"), [400, 400]).architecture.name
            == name
        )


def test_what_it_cannot_do_is_refused():
    with pytest.raises(InputError, match="hidden"):
        LatentCode(hidden=(0,))
    x, s = pd.DataFrame({"a": ["u", "u", "v", "w"] * 25, "b": np.arange(100.0)}), np.arange(100) % 2
    with pytest.raises(InputError, match="columns of numbers"):
        encoder().fit(x, sensitive_features=s)
