"""Encoders release valid rows, start close to the identity, and treat members as separate networks."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

from fairveil import InputError, Schema
from fairveil.data.frames import read_table
from fairveil.data.table_codec import Codec
from fairveil.encoders import FeedForward, Gaussian, Signature, build_encoder, make_architecture
from fairveil.encoders.gaussian import GaussianEncoder
from fairveil.encoders.matrix import MatrixEncoder
from fairveil.objectives import Distortion
from helpers import people


def generators(members):
    return [torch.Generator().manual_seed(i) for i in range(members)]


def encoded(frame, **roles):
    schema = Schema.infer(frame, **roles)
    return schema, Codec(schema).encode(read_table(frame).arrow)


SMALL = FeedForward(hidden=(16,), noise_dim=4)


def make(schema, members=2, architecture=SMALL, **signature):
    encoder = build_encoder(make_architecture(architecture), Signature(schema.layout, **signature), members)
    encoder.initialise(generators(members))
    return encoder


def release(encoder, rows, sensitive=None, seed=0):
    return encoder(rows, sensitive, encoder.noise(len(rows), torch.Generator().manual_seed(seed)))


def test_released_rows_are_valid_rows_exactly(small):
    schema, rows = encoded(small[0])
    encoder = make(schema)
    with torch.no_grad():
        encoder.network.layers[-1].weight.mul_(50.0)
    values = release(encoder, rows).values
    codec = Codec(schema)
    for member in values.detach():
        written = codec.decode(member)
        again = codec.encode(written)  # raises if a category, a range or a grid is wrong
        grouped = schema.layout.grouped
        assert torch.equal(again[:, grouped], member[:, grouped])
        torch.testing.assert_close(again, member, atol=1e-5, rtol=0)


def test_a_fresh_encoder_is_close_to_the_identity(small):
    schema, rows = encoded(small[0])
    parts = Distortion(schema.layout).realised(release(make(schema), rows), rows).mean(dim=1).detach()
    assert float(parts[:, 0].max()) < 0.25
    assert float(parts[:, 1].max()) < 0.5


def test_probabilities_are_what_the_draws_follow():
    frame = pd.DataFrame({"a": list("xyz") * 20})
    schema, rows = encoded(frame)
    encoder = make(schema, members=1)
    with torch.no_grad():
        encoder.network.layers[-1].weight.mul_(30.0)
    one = rows[:1].expand(4000, -1)
    noise = encoder.noise(4000, torch.Generator().manual_seed(0))
    noise = type(noise)(noise.inputs[:1].expand(4000, -1), noise.gumbel, noise.normal, noise.uniform)
    drawn = encoder(one, None, noise)
    counts = drawn.values[0].detach().sum(0).numpy()
    expected = drawn.probabilities[0, 0].detach().double().numpy() * 4000
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


def test_within_a_bin_every_grid_point_is_equally_likely():
    generator = np.random.default_rng(0)
    schema, rows = encoded(pd.DataFrame({"v": generator.integers(0, 5000, 3000)}))
    encoder = make(schema, members=1)
    bins = schema["v"].bins()
    widest = int(np.argmax(bins[:, 1] - bins[:, 0]))
    low, high = bins[widest]
    values = Codec(schema).decode(release(encoder, rows.repeat(20, 1)).values[0])["v"].to_numpy()
    inside = values[(values >= low) & (values <= high)] - int(low)
    counts = np.bincount(inside, minlength=int(high - low) + 1)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_kept_columns_pass_and_are_not_distorted(small):
    schema, rows = encoded(small[0], keep=["role", "skill"])
    encoder = make(schema)
    with torch.no_grad():
        encoder.network.layers[-1].weight.mul_(50.0)
    written = Codec(schema).decode(release(encoder, rows).values[0]).to_pandas()
    assert written["role"].tolist() == small[0]["role"].tolist()
    assert written["skill"].tolist() == small[0]["skill"].tolist()
    assert (written["height"] != small[0]["height"]).any()
    everything, rows = encoded(small[0], keep=list(small[0].columns))
    drawn = release(make(everything), rows)
    for measure in (Distortion(everything.layout).expected, Distortion(everything.layout).realised):
        assert float(measure(drawn, rows).detach().abs().max()) < 1e-5


def test_members_do_not_depend_on_their_company(small):
    schema, rows = encoded(small[0])
    together, alone = make(schema, members=3), build_encoder(SMALL, Signature(schema.layout), 1)
    alone.initialise(generators(3)[2:])
    a, b = release(together, rows).values[2], release(alone, rows).values[0]
    assert float((a != b).float().mean()) < 0.001  # the same but for a rounding that tips a draw


def test_gradients_reach_the_network_through_the_draw(small):
    schema, rows = encoded(small[0])
    encoder = make(schema)
    (release(encoder, rows).values * torch.randn(rows.shape[1])).sum().backward()
    assert all(p.grad is not None and float(p.grad.abs().sum()) > 0 for p in encoder.parameters())


def test_soft_release_is_a_distribution_in_every_group(small):
    schema, _ = encoded(small[0])
    schema = schema.without_bins()
    rows = Codec(schema).encode(read_table(small[0]).arrow)
    values = release(make(schema, release="probabilities"), rows).values
    for group in schema.layout.groups:
        torch.testing.assert_close(values[..., group.start : group.stop].sum(-1), torch.ones(2, len(rows)))


@pytest.mark.parametrize("architecture", [Gaussian(), Gaussian(full=True)])
def test_gaussian_adds_noise_of_its_covariance(architecture):
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(4000, 3)), columns=["a", "b", "c"])
    schema = Schema.infer(frame).without_bins()
    for name in schema.names:
        schema = schema.edit(name, lower=None, upper=None, grid=None, kind="continuous")
    rows = Codec(schema).encode(read_table(frame).arrow)
    encoder = make(schema, members=2, architecture=architecture, sensitive_width=2)
    assert isinstance(encoder, GaussianEncoder)
    with torch.no_grad():
        encoder.factor.mul_(10.0)
        encoder.shift.fill_(0.5)
        encoder.class_shift[:, 1].fill_(1.0)
    sensitive = torch.zeros(len(rows), 2)
    sensitive[:, 1] = 1.0
    drawn = release(encoder, rows, sensitive)
    moved = drawn.values.detach() - rows
    exact, seen = Distortion(schema.layout).expected(drawn, rows), Distortion(schema.layout).realised(drawn, rows)
    torch.testing.assert_close(exact[..., 1].detach(), exact[:, :1, 1].detach().expand(2, len(rows)))
    torch.testing.assert_close(exact.mean(1).detach(), seen.mean(1).detach(), atol=0.0, rtol=0.05)
    torch.testing.assert_close(moved.mean(1), torch.full((2, 3), 1.5), atol=0.1, rtol=0)
    for member in range(2):
        torch.testing.assert_close(
            torch.cov(moved[member].T), encoder.covariance()[member].detach(), atol=0.1, rtol=0.1
        )


def test_matrix_draws_from_its_rows_for_product_alphabets_and_s():
    frame = pd.DataFrame({"a": list("xy") * 30, "b": list("pqr") * 20})
    schema, rows = encoded(frame)
    encoder = make(schema, members=1, architecture="matrix", sensitive_width=2)
    assert isinstance(encoder, MatrixEncoder)
    with torch.no_grad():
        encoder.logits.normal_(generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(encoder.channel().sum(-1), torch.ones(1, 2, 6))
    sensitive = torch.zeros(6000, 2)
    sensitive[:, 1] = 1.0
    drawn = release(encoder, rows[:1].expand(6000, -1), sensitive).values[0].detach()
    cells = drawn @ encoder.strides
    origin = int((rows[0] * encoder.strides).sum())
    expected = encoder.channel()[0, 1, origin].detach().double().numpy()
    counts = np.bincount(cells.long().numpy(), minlength=6)
    assert stats.chisquare(counts, expected / expected.sum() * 6000).pvalue > 1e-4


class Small(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))

    def forward(self, x):
        return self.layers(x)


def test_a_module_of_ones_own(small):
    schema, rows = encoded(small[0])
    state = torch.random.get_rng_state()
    encoder = make(schema, members=2, architecture=Small)
    assert torch.equal(state, torch.random.get_rng_state())
    values = release(encoder, rows).values
    assert values.shape == (2, len(rows), rows.shape[1])
    values.sum().backward()
    given = Small(encoder.inputs, encoder.outputs)
    same = make(schema, members=2, architecture=given)
    torch.testing.assert_close(same.stacked[0][1], given.layers[0].weight)


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ("transformer", "architecture"),
        (lambda i, o: "no module", "must return a torch module"),
        (lambda i, o: nn.Linear(i, o + 1), "must map"),
        (nn.Linear(3, 3), "does not accept rows"),
        (lambda i, o: nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o)), "no buffers"),
    ],
)
def test_modules_that_do_not_fit_are_refused(small, architecture, message):
    schema, _ = encoded(small[0])
    with pytest.raises(InputError, match=message):
        make(schema, architecture=architecture)


def test_architectures_that_do_not_fit_the_table_are_refused(small):
    schema, _ = encoded(small[0])
    for architecture in ("gaussian", "matrix"):
        with pytest.raises(InputError, match="Use 'feedforward'"):
            make(schema, architecture=architecture)
    wide, _ = encoded(
        pd.DataFrame({f"c{i}": np.random.default_rng(i).choice(list("abcdefghij"), 300) for i in range(4)})
    )
    with pytest.raises(InputError, match="10000 combinations"):
        make(wide, architecture="matrix")


def test_people_is_the_same_for_a_seed():
    assert people()[0].equals(people()[0])
