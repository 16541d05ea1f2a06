"""Images: in and out, the paper's architectures, batch norm, and a game that hides something visible."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

import fairveil as fv
from fairveil import InputError
from fairveil.data.images import ImageCodec, ImageSchema, read_folder, read_image_batch, rows_at_once
from fairveil.encoders import NoisyAutoencoder, Signature, TransposedConv, build_encoder
from fairveil.encoders.layers import BatchedCNN, BatchedMLP, BatchedNorm, initialise
from fairveil.paper.fresh import Fresh, Sample
from fairveil.training.panel import Opponent, Panel


def generators(members):
    return [torch.Generator().manual_seed(i) for i in range(members)]


def layout(side=16, channels=1):
    return ImageSchema(side, side, channels).layout


# In and out


def test_bytes_and_floats_come_back_as_they_were():
    generator = np.random.default_rng(0)
    for array in (generator.integers(0, 256, (5, 4, 6, 3), dtype=np.uint8), generator.random((5, 4, 6))):
        pictures = read_image_batch(array)
        codec = ImageCodec(ImageSchema.of(pictures))
        encoded = codec.encode(pictures)
        numbers = encoded.float() / (255 if pictures.whole else 1)
        back = pictures.like_origin(codec.decode(numbers))
        assert back.shape == array.shape
        np.testing.assert_allclose(back, array, rtol=1e-6)
    assert encoded.shape == (5, 24)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 4, 4, 2)), "1 or 3 channels"),
        (np.zeros((3, 4, 4), dtype=np.int64), "uint8"),
        (np.full((3, 4, 4), 1.5), r"must lie in \[0, 1\] .*row"),
        (np.full((3, 4, 4), np.nan), r"must lie in \[0, 1\]"),
        (np.zeros((3, 0, 4)), "without an empty axis"),
    ],
)
def test_what_is_no_image_is_refused(array, message):
    with pytest.raises(InputError, match=message):
        read_image_batch(array)


def test_a_folder_of_images(tmp_path):
    for i, name in enumerate(["b.png", "a.png"]):
        Image.fromarray(np.full((8, 8, 3), 10 * i, dtype=np.uint8)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not an image")
    images, names = read_folder(tmp_path)
    assert names == ["a.png", "b.png"]
    assert images.shape == (2, 8, 8, 3)
    assert images[0].max() == 10
    assert len(read_image_batch(tmp_path)) == 2
    Image.fromarray(np.zeros((9, 8, 3), dtype=np.uint8)).save(tmp_path / "c.png")
    with pytest.raises(InputError, match=r"differ in size.*c\.png"):
        read_folder(tmp_path)
    assert read_folder(tmp_path, (4, 4))[0].shape == (3, 4, 4, 3)
    (tmp_path / "d.png").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"d\.png .*cannot be read"):
        read_folder(tmp_path, (4, 4))
    with pytest.raises(InputError, match="not a folder"):
        read_folder(tmp_path / "a.png")


def test_large_images_go_through_in_pieces():
    assert rows_at_once(12_288) < 200
    assert rows_at_once(200) > 8000


# Layers


def test_a_batched_network_is_as_many_plain_ones():
    torch.manual_seed(0)
    batched = BatchedCNN(3, (3, 8, 8), ("conv4", "conv5", 6), 2)
    initialise(batched, generators(3))
    x = torch.rand(7, 3 * 8 * 8)
    for member in range(3):
        plain = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(20, 6), nn.LeakyReLU(0.01), nn.Linear(6, 2),
        )  # fmt: skip
        layers = [*batched.convolutions, *batched.dense.layers]
        for own, layer in zip([m for m in plain if hasattr(m, "weight")], layers, strict=True):
            weight = layer.weight[member]
            own.weight.data = (weight if weight.dim() == 4 else weight.t()).detach().clone()
            own.bias.data = layer.bias[member].detach().reshape(-1).clone()
        expected = plain(x.reshape(7, 3, 8, 8))
        torch.testing.assert_close(batched(x)[member], expected)
        torch.testing.assert_close(batched(x.expand(3, 7, 192))[member], expected)


def test_a_member_does_not_depend_on_its_company():
    alone, together = BatchedCNN(1, (1, 8, 8), ("conv4", 6), 2), BatchedCNN(3, (1, 8, 8), ("conv4", 6), 2)
    initialise(alone, [torch.Generator().manual_seed(1)])
    initialise(together, generators(3))
    x = torch.rand(5, 64)
    torch.testing.assert_close(alone(x)[0], together(x)[1])


def test_batch_norm_never_mixes_rows_at_evaluation():
    norm = BatchedNorm(2, 4)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        norm(3.0 + 2.0 * torch.randn(2, 64, 4, generator=generator))
    norm.eval()
    rows = 3.0 + 2.0 * torch.randn(2, 64, 4, generator=generator)
    whole = torch.stack(norm(rows))
    halves = torch.cat([torch.stack(norm(rows[:, :32])), torch.stack(norm(rows[:, 32:]))], dim=1)
    torch.testing.assert_close(whole, halves)
    assert abs(whole.mean()) < 0.1
    assert abs(whole.std() - 1) < 0.1
    # The fault of the authors' code: in training mode each group is normalised by itself; what sets it apart is gone.
    norm.train()
    high, low = torch.stack(norm(rows + 5.0)), torch.stack(norm(rows - 5.0))
    torch.testing.assert_close(high, low, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_dense_batch_norm_is_that_of_each_member(training):
    together, apart = BatchedNorm(3, 4), BatchedNorm(3, 4)
    together.train(training)
    apart.train(training)
    x = torch.randn(3, 9, 4) * torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1) + 5.0
    torch.testing.assert_close(together.dense(x), torch.stack(apart(x)))
    torch.testing.assert_close(together.statistics_mean, apart.statistics_mean)
    torch.testing.assert_close(together.statistics_variance, apart.statistics_variance)


def test_statistics_are_no_weights():
    mlp = BatchedMLP(1, 4, (5,), 2, normalise=True)
    panel = Panel(4, [Opponent((5,), 2)], 1, normalise=True)
    assert not mlp.norms[0].statistics_mean.requires_grad
    assert len(panel.learned()) == len(list(panel.parameters())) - 2


# Architectures, as in the supplement


def test_transposed_is_the_papers():
    encoder = build_encoder(TransposedConv(normalise=True), Signature(layout(16), "probabilities"), 2)
    shapes = {name: tuple(p.shape[1:]) for name, p in encoder.named_parameters() if "weight" in name}
    assert shapes["project.weight"] == (100, 4 * 4 * 256)
    assert shapes["layers.0.weight"] == (256, 128, 3, 3)
    assert shapes["layers.1.weight"] == (128, 1, 3, 3)
    encoder.initialise(generators(2))
    encoder.eval()
    noise = encoder.noise(6, torch.Generator().manual_seed(0))
    dark, light = torch.zeros(6, 256), torch.ones(6, 256)
    mask = encoder(dark, None, noise).values
    torch.testing.assert_close(encoder(light, None, noise).values - 1.0, mask)  # the mask does not know the image
    assert mask.abs().max() <= 1.0
    assert mask.std() > 0


def test_autoencoder_is_the_papers():
    with torch.device("meta"):
        encoder = build_encoder(NoisyAutoencoder(noise_dim=4096), Signature(layout(64, 3), "probabilities"), 1)
    shapes = [tuple(p.shape[1:]) for name, p in encoder.named_parameters() if name.endswith("weight")]
    assert shapes == [
        (128, 3, 3, 3), (64, 128, 3, 3), (64, 64, 3, 3), (64, 64, 3, 3),
        (8192, 4096), (4096, 4096),
        (64, 64, 3, 3), (64, 64, 3, 3), (64, 64, 3, 3), (128, 64, 3, 3), (3, 128, 3, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "architecture",
    [TransposedConv(channels=(8, 4), noise_dim=5), NoisyAutoencoder(channels=(8, 4, 4, 4), noise_dim=5)],
)
def test_released_pixels_are_valid(architecture):
    encoder = build_encoder(architecture, Signature(layout(16, 3)), 2)
    encoder.initialise(generators(2))
    values = encoder(torch.rand(4, 768), None, encoder.noise(4, torch.Generator().manual_seed(0))).values
    assert values.shape == (2, 4, 768)
    assert values.min() >= 0
    assert values.max() <= 1
    torch.testing.assert_close(values * 255, torch.round(values * 255), atol=1e-3, rtol=0)


def test_architectures_of_images_refuse_tables_and_odd_sizes():
    table = fv.Schema.infer(np.random.default_rng(0).random((50, 3))).without_bins().layout
    with pytest.raises(InputError, match="is for images"):
        build_encoder(TransposedConv(), Signature(table), 1)
    with pytest.raises(InputError, match="multiples of 8"):
        build_encoder(NoisyAutoencoder(), Signature(layout(12)), 1)
    with pytest.raises(InputError, match="two whole numbers"):
        TransposedConv(channels=(8,))
    with pytest.raises(InputError, match="four whole numbers"):
        NoisyAutoencoder(channels=(8, 4))
    with pytest.raises(InputError, match="conv20"):
        fv.Training(adversary_hidden=(("pool", 3),))
    with pytest.raises(InputError, match="are for images"):
        Panel(4, [Opponent(("conv4", 3), 2)], 1)


# The game


def squares(rows=900, side=16, seed=0):
    """Grey noise; a patch is brighter where s = 1, and another where y = 1."""
    generator = np.random.default_rng(seed)
    s, y = generator.integers(0, 2, (2, rows))
    x = 0.25 + 0.5 * generator.random((rows, side, side))
    x[:, 2:6, 2:6] += 0.15 * s[:, None, None]
    x[:, 9:14, 9:14] += 0.15 * y[:, None, None]
    return x.clip(0, 1).astype(np.float32), s, y


TRAINING = fv.Training(steps=250, batch_size=128, learning_rate=2e-3,
                       adversary_learning_rate=3e-3, adversary_hidden=(("conv8", 32),), rounds=5)  # fmt: skip
DENSE = fv.FeedForward(hidden=(64, 64), noise_dim=8)


def found(train, test, truth, other):
    [chances] = Fresh((64,), (16,), epochs=12).predict(Sample(train, truth.astype(float)), [test], classes=2)
    return float(np.mean(chances.argmax(axis=1) == other))


def test_a_visible_attribute_is_hidden_and_another_is_kept():
    (x, s, y), (x_test, s_test, y_test) = squares(1500, seed=1), squares(600, seed=2)
    assert found(x, x_test, s, s_test) > 0.95
    # To make both patches alike takes about half of their difference squared, 16 x 0.075^2 = 0.09; noise takes more.
    training = replace(TRAINING, steps=800, adversary_steps=2, learning_rate=4e-3, adversary_learning_rate=6e-3,
                       adversary_hidden=(("conv8", 32), (64,)), adversary_decay=0.1)  # fmt: skip
    encoder = fv.FairEncoder(1.5, architecture=DENSE, training=training, verbose=False, random_state=0)
    encoder.fit(x, sensitive_features=s)
    released, after = encoder.transform(x), encoder.transform(x_test)
    changed = np.square(after - x_test).sum(axis=(1, 2)).mean()
    assert changed <= 1.5
    assert abs(changed - encoder.distortion_.mean) < 0.1
    assert found(released, after, s, s_test) < 0.75  # 1,200 rows to learn from: far from the optimum, and far from 0.95
    assert found(released, after, y, y_test) > 0.9


def test_images_save_and_load(tmp_path):
    x, s, _ = squares(300)
    bytes_ = (x * 255).astype(np.uint8)
    training = replace(TRAINING, steps=20, select_after=0.0)
    encoder = fv.FairEncoder(
        100.0,
        architecture=TransposedConv(channels=(8, 4), normalise=True),
        training=training,
        verbose=False,
        random_state=0,
    )
    encoder.fit(bytes_, sensitive_features=s)
    encoder.save(tmp_path / "a.veil")
    again = fv.load(tmp_path / "a.veil").set_params(random_state=0)
    released = encoder.transform(bytes_)
    assert released.dtype == np.uint8
    np.testing.assert_array_equal(again.transform(bytes_), released)
    assert again.schema_ == encoder.schema_
    one = encoder.set_params(random_state=1).transform(bytes_[:1])
    assert one.shape == (1, 16, 16)
    with pytest.raises(InputError, match="of size 8 x 16 x 1"):
        again.transform(bytes_[:, :8])


def test_a_frontier_of_images_and_what_does_not_fit_them():
    x, s, _ = squares(300)
    training = replace(TRAINING, steps=10, pretraining_steps=10, select_after=0.0)
    frontier = fv.FairFrontier(
        fv.FairEncoder(
            architecture=NoisyAutoencoder(channels=(8, 4, 4, 4)),
            training=training,
            verbose=False,
            random_state=0,
            sees_sensitive=True,
        ),
        [60.0, 90.0],
    )
    frontier.fit(x, sensitive_features=s)
    assert frontier.at(90.0).transform(x[:5], sensitive_features=s[:5]).shape == (5, 16, 16)
    with pytest.raises(InputError, match="Images have no columns"):
        fv.FairEncoder(1.0, sensitive_columns=[0]).fit(x, sensitive_features=s)
    with pytest.raises(InputError, match="for tables, not for images"):
        fv.FairEncoder(1e6, architecture=fv.Matrix(n_cells=4)).fit(x, sensitive_features=s)
    with pytest.raises(InputError, match="S is missing"):
        fv.FairEncoder(1.0).fit(x)


def test_large_images_are_fitted_from_a_folder_in_few_steps(tmp_path):
    """`auto` and `--steps` were resolved by two rules: 48 x 48 colour images asked for settings nobody could give."""
    from PIL import Image

    from fairveil.workflows import Recipe, fit_file

    generator = np.random.default_rng(0)
    (tmp_path / "faces").mkdir()
    for i in range(24):
        pixels = generator.integers(0, 256, (48, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "faces" / f"{i:02d}.png")
    labels = pd.DataFrame({"file": [f"{i:02d}.png" for i in range(24)], "sex": ["f", "m"] * 12})
    labels.to_csv(tmp_path / "labels.csv", index=False)
    for blind, expected in ((True, NoisyAutoencoder), (False, fv.AffineTransport)):
        recipe = Recipe(("sex",), labels=tmp_path / "labels.csv", steps=1, seed=0, show_progress=False, blind=blind)
        encoder = fit_file(tmp_path / "faces", tmp_path / f"{blind}.veil", 1e5, recipe)
        assert isinstance(encoder.veil_.encoder.architecture, expected)
