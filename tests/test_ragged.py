"""Group-wise softmax and draws against the plain loop over groups."""

import pytest
import torch

from fairveil.encoders.grouped_ops import group_draw, group_softmax

WIDTHS = [3, 1, 5, 2]


def plain(function, logits):
    """The same, one group after the other, with slots last."""
    parts = torch.split(logits.transpose(-1, -2), WIDTHS, dim=-1)
    return torch.cat([function(part) for part in parts], dim=-1).transpose(-1, -2)


@pytest.fixture
def logits():
    return 5 * torch.randn(2, sum(WIDTHS), 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_softmax_and_its_gradient_are_those_of_each_group(logits):
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    p, q = group_softmax(ours, WIDTHS), plain(lambda part: part.softmax(dim=-1), theirs)
    torch.testing.assert_close(p, q)
    (p * weights).sum().backward()
    (q * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert torch.autograd.gradcheck(lambda t: group_softmax(t, WIDTHS), logits[:, :, :2].clone().requires_grad_())


def test_softmax_bears_extreme_logits():
    extreme = torch.tensor([[1e30], [-1e30], [0.0], [-500.0], [500.0]])
    p = group_softmax(extreme, [2, 3])
    assert torch.equal(p[:2, 0], torch.tensor([1.0, 0.0]))
    assert torch.isfinite(p).all()
    torch.testing.assert_close(p[2:].sum(), torch.tensor(1.0))


def test_a_draw_is_the_argmax_with_the_gradient_of_the_relaxed_draw(logits):
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    drawn = group_draw(ours, WIDTHS)
    hard = plain(lambda part: torch.nn.functional.one_hot(part.argmax(dim=-1), part.shape[-1]).double(), logits)
    assert torch.equal(drawn, hard)
    relaxed = plain(lambda part: part.softmax(dim=-1), theirs)
    (drawn * weights).sum().backward()
    (relaxed * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_of_two_equal_logits_exactly_one_is_drawn():
    tied = torch.zeros(1, 5, 3)
    drawn = group_draw(tied, [2, 3])
    assert torch.equal(drawn[0, :, 0], torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0]))


def test_draws_follow_the_softmax():
    generator = torch.Generator().manual_seed(3)
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, 0.5])[:, None].expand(5, 100_000)
    gumbel = -torch.log(-torch.log(torch.rand(logits.shape, generator=generator)))
    share = group_draw(logits + gumbel, [3, 2]).mean(dim=1)
    torch.testing.assert_close(share, group_softmax(logits, [3, 2])[:, 0], atol=0.006, rtol=0.0)
