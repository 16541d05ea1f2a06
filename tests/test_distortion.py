"""Distortion by brute force, its independence of the batch, and its parts."""

import numpy as np
import pandas as pd
import pytest
import torch

from fairveil import InputError, Schema
from fairveil.data.frames import read_table
from fairveil.data.table_codec import Codec
from fairveil.encoders import FeedForward, Signature, build_encoder
from fairveil.objectives import Distortion, make_distortion
from fairveil.objectives.distortion import bin_moments
from fairveil.objectives.released import ReleasedBatch


@pytest.fixture(scope="module")
def frame():
    generator = np.random.default_rng(0)
    n = 400
    holes = np.where(generator.random(n) < 0.2, np.nan, generator.integers(0, 300, n))
    return pd.DataFrame(
        {
            "color": generator.choice(["red", "green", "blue"], n),
            "size": generator.choice(["s", "m"], n),
            "age": generator.integers(17, 91, n),
            "debt": holes,
        }
    )


@pytest.fixture(scope="module")
def codec(frame):
    return Codec(Schema.infer(frame, fewest=1))


@pytest.fixture(scope="module")
def rows(frame, codec):
    return codec.encode(read_table(frame).arrow)


def encoder_for(codec, members=2):
    encoder = build_encoder(FeedForward(hidden=(16,), noise_dim=4), Signature(codec.schema.layout), members)
    encoder.initialise([torch.Generator().manual_seed(i) for i in range(members)])
    with torch.no_grad():  # a strong encoder, so that many values change
        encoder.network.layers[-1].weight.mul_(60.0)
    return encoder.requires_grad_(False)


def test_realised_distortion_counts_the_changes_in_the_table(frame, codec, rows):
    encoder = encoder_for(codec)
    release = encoder(rows, None, encoder.noise(len(rows), torch.Generator().manual_seed(0)))
    parts = Distortion(codec.schema.layout).realised(release, rows)[1]
    written = codec.decode(release.values[1]).to_pandas()
    changes = (written["color"] != frame["color"]).astype(float) + (written["size"] != frame["size"])
    changes += written["debt"].isna() != frame["debt"].isna()
    np.testing.assert_allclose(parts[:, 0], changes, atol=1e-6)
    assert 0.1 < changes.mean() < 3
    squares = 0.0
    for name in ("age", "debt"):
        column = codec.schema[name]
        before, after = frame[name].fillna(column.center), written[name].fillna(column.center)
        squares += ((after - before) / column.scale) ** 2
    np.testing.assert_allclose(parts[:, 1], squares, rtol=1e-4, atol=1e-4)


def test_expected_distortion_is_the_mean_over_draws(codec, rows):
    encoder = encoder_for(codec, members=1)
    distortion = Distortion(codec.schema.layout)
    some, shared = rows[:8], torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    total, draws = torch.zeros(8, 2), 4000
    for _ in range(draws):
        noise = encoder.noise(8, generator)
        noise = type(noise)(shared, noise.gumbel, noise.normal, noise.uniform)  # the same logits each time
        release = encoder(some, None, noise)
        total += distortion.realised(release, some)[0]
    expected = distortion.expected(release, some)[0]
    torch.testing.assert_close(total / draws, expected, atol=0.12, rtol=0.05)


def test_distortion_does_not_depend_on_the_batch(codec, rows):
    encoder = encoder_for(codec)
    noise = encoder.noise(len(rows), torch.Generator().manual_seed(0))
    release = encoder(rows, None, noise)
    for measure in ("hamming", "squared", "cross_entropy"):
        distortion = Distortion(codec.schema.layout, measure)
        whole = distortion.realised(release, rows)
        halves = [
            distortion.realised(ReleasedBatch(release.values[:, part], release.probabilities[:, part]), rows[part])
            for part in (slice(0, 150), slice(150, None))
        ]
        torch.testing.assert_close(whole, torch.cat(halves, dim=1))


def test_identity_has_no_distortion_and_squared_is_twice_hamming(codec, rows):
    layout = codec.schema.layout
    same = ReleasedBatch(rows, rows[:, layout.grouped])
    for measure in ("hamming", "squared", "cross_entropy"):
        assert float(Distortion(layout, measure).realised(same, rows).abs().max()) < 1e-5
    other = ReleasedBatch(rows.roll(1, 0), rows.roll(1, 0)[:, layout.grouped])
    hamming = Distortion(layout, "hamming").realised(other, rows)[:, 0]
    torch.testing.assert_close(Distortion(layout, "squared").realised(other, rows)[:, 0], 2 * hamming)


def test_cross_entropy_is_minus_the_log_of_the_probability_of_the_original():
    schema = Schema.infer(pd.DataFrame({"a": ["x", "y", "z"] * 10}))
    rows = Codec(schema).encode(read_table(pd.DataFrame({"a": ["y"]})).arrow)
    p = torch.tensor([[0.2, 0.5, 0.3]])
    parts = Distortion(schema.layout, "cross_entropy").realised(ReleasedBatch(p, p), rows)
    assert parts[0].tolist() == pytest.approx([np.log(2.0), 0.0])


def test_a_function_of_released_and_original(codec, rows):
    layout = codec.schema.layout
    distortion = make_distortion(lambda released, original: (released - original).abs().sum(-1), layout, "sampled")
    parts = distortion.realised(ReleasedBatch(rows.roll(1, 0), rows), rows)
    torch.testing.assert_close(parts[:, 0], (rows.roll(1, 0) - rows).abs().sum(-1))
    broken = make_distortion(lambda released, original: released, layout, "sampled")
    with pytest.raises(InputError, match="one number per row"):
        broken.realised(ReleasedBatch(rows, rows), rows)


def test_bin_moments_by_enumeration(codec):
    column = codec.schema["age"]
    mean, second = bin_moments(column)
    for k, (low, high) in enumerate(column.bins()):
        points = (np.arange(low, high + 1) - column.center) / column.scale
        assert float(mean[k]) == pytest.approx(points.mean(), abs=1e-5)
        assert float(second[k]) == pytest.approx((points**2).mean(), abs=1e-5)


def test_names(codec):
    with pytest.raises(InputError, match="not defined for numbers"):
        make_distortion("hamming", codec.schema.layout, "sampled")
    with pytest.raises(InputError, match="distortion"):
        make_distortion("wasserstein", codec.schema.layout, "sampled")
    assert make_distortion("auto", codec.schema.layout, "probabilities").categorical == "cross_entropy"
