"""Pretraining for encoders that do not start at the identity: they learn to reconstruct their input."""

from typing import TYPE_CHECKING

import torch

from fairveil._utils.progress import progress
from fairveil._utils.schedules import half_cosine
from fairveil.encoders.warm_start import WarmStart

if TYPE_CHECKING:
    from fairveil.encoders.base import Encoder

#: Learning rate, and the fraction of it that remains at the end. The game may keep its rates constant, as the paper's
#: does; images become sharp only as the rate decays.
_RATE, _FINAL_RATE = 3e-3, 0.02


def learn_to_reconstruct(encoder: "Encoder", start: WarmStart, batch_size: int) -> None:
    """Train one member by least squares; all members start from its weights."""
    device = start.train.x.device
    pupil = encoder.architecture.build(encoder.signature, 1)
    pupil.initialise([start.seeds.child("weights").torch()])
    pupil.to(device)
    generator = start.seeds.child("batches").torch(device)
    optimiser = torch.optim.AdamW(pupil.played(), lr=_RATE, weight_decay=0.0, fused=True)
    size = min(batch_size, start.batch_size, len(start.train))
    with progress(start.steps, "Pretraining", start.show_progress) as report:
        for step in range(1, start.steps + 1):
            optimiser.param_groups[0]["lr"] = _RATE * half_cosine((step - 1) / start.steps, _FINAL_RATE)
            batch = start.train.draw(size, generator)
            drawn = pupil(batch.x, batch.sensitive, pupil.noise(size, generator)).values
            squares = (drawn[0] - batch.x).square().sum(dim=1).mean()
            optimiser.zero_grad(set_to_none=True)
            squares.backward()
            optimiser.step()
            report(step, f"squared error {squares.item():.2f}" if step % 25 == 0 else "")
    with torch.no_grad():
        for parameter, learned in zip(encoder.carried(), pupil.carried(), strict=True):
            parameter.copy_(learned.expand_as(parameter))
