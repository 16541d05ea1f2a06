"""The training loop: J adversary steps, one encoder step, and regular evaluations on validation rows."""

import hashlib
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairveil._utils.errors import InputError
from fairveil._utils.progress import progress
from fairveil._utils.randomness import Seeds
from fairveil.data.rows import Rows
from fairveil.encoders import Encoder, WarmStart
from fairveil.encoders.layers import STATISTICS
from fairveil.training.checkpoint import load_checkpoint, save_checkpoint
from fairveil.training.confidence_bound import DRAWS
from fairveil.training.game import SAFETY, Game
from fairveil.training.history import History
from fairveil.training.peers import ALONE, Group, Peers
from fairveil.training.problem import Problem
from fairveil.training.verification import Verification

#: Maximum seconds between checkpoints if rounds are long.
_SAVED_EVERY = 300.0


@dataclass(frozen=True)
class Outcome:
    """The chosen encoder of every member, and the history of the game."""

    encoder: Encoder
    history: History


def play(
    problem: Problem,
    train: Rows,
    validation: Rows,
    *,
    verification: Verification,
    seeds: Seeds,
    device: torch.device,
    show_progress: bool = False,
    peers: Peers = ALONE,
) -> Outcome:
    """Play the game to its end and return each member's chosen encoder.

    verification: how the distortion will be bounded, which determines how far inside the bound training aims. With
    `training.checkpoint`, the state is saved after the warm start, after every round and at intervals between, and an
    interrupted game resumes exactly where it stopped. peers: the processes that play it together; they keep no
    checkpoints.
    """
    game = Game(problem, seeds, device, peers)
    if peers.size > 1:
        _refuse_shares(game, len(train))
    train, validation = train.to(device), validation.to(device)
    familiar = train.take(torch.arange(min(len(train), len(validation)), device=device)).unweighted()
    training = problem.training
    checkpoint = None if training.checkpoint is None else Path(training.checkpoint)
    fingerprint = _fingerprint(problem, train, validation, verification, seeds)
    if checkpoint is not None and checkpoint.exists():
        load_checkpoint(game, checkpoint, fingerprint)
    else:
        game.encoder.warm_start(_warm_start(problem, train, validation, verification, seeds, show_progress))
        peers.broadcast(list(game.encoder.state_dict().values()))
        game.reset_average()
        if checkpoint is not None:
            save_checkpoint(game, checkpoint, fingerprint)
    evaluated = validation.unweighted()
    steps = training.steps or 0
    evaluated_at = {round(steps * (i + 1) / training.rounds) for i in range(training.rounds)}
    before = game.rounds[-1].seconds if game.rounds else 0.0
    start = saved = time.monotonic()
    with progress(steps, "Training", show_progress) as report:
        while game.step < steps:
            game.schedule()
            index = game.restart_due()
            if index is not None:
                game.restart(index)
            game.turn(train, game.aim(verification))
            game.step += 1
            note = ""
            if game.step in evaluated_at:
                game.judge(evaluated, familiar, verification, before + time.monotonic() - start)
                note = _note(game)
            if checkpoint is not None and (note or time.monotonic() - saved > _SAVED_EVERY):
                save_checkpoint(game, checkpoint, fingerprint)
                saved = time.monotonic()
            report(game.step, note)
    return Outcome(game.with_weights(game.best), History(tuple(game.rounds)))


def play_together(
    problem: Problem, train: Rows, validation: Rows, settings: dict[str, Any], rank: int, size: int
) -> Outcome | None:
    """`play` in one of `size` processes of a `torch.distributed` group; the outcome, in the first of them."""
    peers = ALONE if size == 1 else Group(rank, size)
    outcome = play(problem, train, validation, peers=peers, **settings)
    return outcome if rank == 0 else None


def _refuse_shares(game: Game, rows: int) -> None:
    """Raise if the game cannot be played by several processes."""
    training = game.problem.training
    if training.checkpoint is not None:
        raise InputError("A game of several processes keeps no checkpoint: set checkpoint=None.")
    if any(STATISTICS in name for player in game.players for name, _ in player.named_parameters()):
        raise InputError("Batch norm needs whole minibatches: train networks with batch norm in one process.")
    if min(training.batch_size, rows) < 2 * game.peers.size:
        raise InputError(f"A minibatch has fewer than two rows for each of {game.peers.size} processes.")


def _warm_start(
    problem: Problem, train: Rows, validation: Rows, verification: Verification, seeds: Seeds, show_progress: bool
) -> WarmStart:
    training = problem.training

    def margin(spread: Tensor) -> Tensor:
        # The mean over validation rows is itself known only within its error.
        more = SAFETY * math.sqrt(1.0 + verification.rows / len(validation))
        return verification.margin(problem.bounds.values, spread, more)

    return WarmStart(
        train,
        validation,
        problem.distortion,
        problem.bounds,
        steps=training.pretraining_steps,
        batch_size=training.batch_size,
        final_rate=training.final_rate,
        margin=margin,
        draws=DRAWS,
        seeds=seeds.child("warm start"),
        show_progress=show_progress,
    )


def _note(game: Game) -> str:
    last = game.rounds[-game.problem.members :]
    feasible = sum(r.feasible for r in last)
    return f"{feasible} of {len(last)} within the budget"


def _fingerprint(problem: Problem, train: Rows, validation: Rows, verification: Verification, seeds: Seeds) -> str:
    """Identifies a game, so that a checkpoint is not resumed with other data or settings."""
    digest = hashlib.sha256()
    for rows in (train, validation):
        for tensor in rows.tensors():
            digest.update(tensor.detach().cpu().numpy().tobytes())
    digest.update(problem.bounds.values.numpy().tobytes())
    settings = (
        problem.bounds.names,
        problem.signature,
        problem.architecture.fingerprint(),
        problem.training.fingerprint(),
        problem.loss,
        problem.constraint,
        problem.seeds,
        problem.tasks,
        problem.distortion.name,
        verification,
        seeds,
    )
    digest.update(repr(settings).encode())
    return digest.hexdigest()
