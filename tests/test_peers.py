"""Data-parallel training: two processes play the game of one on the same minibatches."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from fairveil import FairEncoder, FeedForward, InputError, Training, Transport
from fairveil.training import play
from fairveil.training.peers import Group
from helpers import people

ARCHITECTURES = {
    "feed-forward": FeedForward(hidden=(16,)),
    "transport": Transport(levels=2, matched_rows=100, matchings=1),
}


def fitted(name, player=None, *, dropout=0.0, **settings):
    """A short game on a few rows."""
    training = Training(steps=12, batch_size=64, adversary_steps=2, adversary_hidden=((8,), (4,)), rounds=2,
                        adversary_dropout=dropout, pretraining_steps=20, restarts=1, **settings)  # fmt: skip
    encoder = FairEncoder(3.0, architecture=ARCHITECTURES[name], sees_sensitive=True, training=training,
                          unmet="warn", verbose=False, random_state=0)  # fmt: skip
    if player is not None:
        encoder._player = player
    X, S, _ = people(400)
    return encoder.fit(X, sensitive_features=S["sex"])


MEMBER = """
import sys, warnings
from functools import partial
import torch
from torch import distributed
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
from test_peers import fitted
from fairveil.training import play
from fairveil.training.peers import Group
rank, size, name, dropout = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], float(sys.argv[6])
distributed.init_process_group("gloo", store=distributed.FileStore(sys.argv[2] + "/meeting", size), rank=rank,
                               world_size=size)
group = Group(rank, size)
values = torch.arange(24.0).view(1, 12, 2).square()
share = slice(rank * 12 // size, (rank + 1) * 12 // size)
torch.testing.assert_close(group.variance(values[:, share]), values.var(dim=1))
factor = torch.tensor(2.0, requires_grad=True)
mean = group.mean((factor * values[:, share]).mean(dim=1))
torch.testing.assert_close(mean, 2.0 * values.mean(dim=1))
[gradient] = group.averaged(torch.autograd.grad(mean.square().sum(), [factor]))
torch.testing.assert_close(gradient, 4.0 * values.mean(dim=1).square().sum())
encoder = fitted(name, partial(play, peers=group), dropout=dropout)
torch.save(encoder.veil_.encoder.state_dict(), f"{sys.argv[2]}/{rank}.pt")
distributed.destroy_process_group()
"""


def played_by(folder, size, name, dropout=0.0):
    """The weights of every process."""
    begun = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(Path(__file__).parent), str(folder), str(rank), str(size), name,
             str(dropout)],
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    for process in begun:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said[-3000:]
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


def furthest(first, second):
    return max(float((first[name].double() - second[name].double()).abs().max()) for name in first)


@pytest.mark.filterwarnings("ignore::fairveil.BudgetWarning")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_two_processes_play_the_game_of_one(name, tmp_path):
    """The same weights up to rounding, in every process; the control is another minibatch."""
    alone = fitted(name).veil_.encoder.state_dict()
    first, second = played_by(tmp_path, 2, name)
    assert furthest(first, second) == 0.0
    assert furthest(first, alone) < 1e-4
    moved = fitted(name, learning_rate=2e-3).veil_.encoder.state_dict()
    assert furthest(moved, alone) > 1e-3


@pytest.mark.filterwarnings("ignore::fairveil.BudgetWarning")
def test_with_dropout_the_processes_still_agree(tmp_path):
    first, second = played_by(tmp_path, 2, "feed-forward", dropout=0.3)
    assert furthest(first, second) == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"checkpoint": "x.checkpoint"}, "no checkpoint"), ({"adversary_normalise": True}, "whole minibatches"),
     ({"batch_size": 15}, "fewer than two rows")],
)  # fmt: skip
def test_games_that_cannot_be_shared_are_refused(settings, message):
    """Before any message is sent."""
    training = Training(**{"steps": 2, "adversary_hidden": ((4,),), "rounds": 1, **settings})
    encoder = FairEncoder(3.0, architecture=FeedForward(hidden=(4,)), training=training, verbose=False, random_state=0)
    encoder._player = partial(play, peers=Group(0, 8))
    X, S, _ = people(400)
    with pytest.raises(InputError, match=message):
        encoder.fit(X, sensitive_features=S["sex"])
