"""How much of a training step on images is convolution: NAED against the bare rate of its own layers. One run.

python benchmarks/image_speed.py [--side 64] [--members 1] [--batch 64] [--width 128,64,64,64]

The bare time is that of the same convolutions and matrix products, forward and backward, at the same shapes and as
often as a step needs them, with nothing in between: no activation, pooling, noise, draw, loss, distortion or optimiser.
Also: a loop over members against one grouped convolution, for the channel numbers that occur.
"""

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from fairveil import Training
from fairveil._utils.randomness import Seeds
from fairveil.data.images import ImageSchema
from fairveil.data.rows import Rows
from fairveil.encoders import NoisyAutoencoder, Signature
from fairveil.objectives import AugmentedLagrangian, Distortion, LogLoss
from fairveil.objectives.bounds import Bounds
from fairveil.training import Problem, Target
from fairveil.training.game import Game

ADVERSARY = ("conv20", "conv40", 40)


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The median of several timings: other work on the machine comes and goes."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def game(side: int, members: int, batch: int, width: tuple[int, ...], noise: int) -> tuple[Game, Rows]:
    schema = ImageSchema(side, side, 3)
    training = Training(batch_size=batch, adversary_steps=1,
                        adversary_hidden=(ADVERSARY,), adversary_dropout=0.0)  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    rows = Rows(torch.randint(0, 256, (4 * batch, schema.pixels), generator=generator, dtype=torch.uint8), None,
                (torch.randint(0, 2, (4 * batch,), generator=generator),))  # fmt: skip
    bounds = Bounds.of([0.005 * schema.pixels] * members, relative=True)
    problem = Problem(
        architecture=NoisyAutoencoder(channels=width, noise_dim=noise),
        signature=Signature(schema.layout),
        loss=LogLoss(),
        distortion=Distortion(schema.layout),
        constraint=AugmentedLagrangian(),
        bounds=bounds,
        targets=(Target(2, 0.69),),
        seeds=(0,) * members,
        training=training.completed({}),
    )
    return Game(problem, Seeds(0), torch.device("cpu")), rows


def layers(side: int, width: tuple[int, ...], noise: int) -> tuple[list[tuple], list[tuple]]:
    """(kind, inputs, outputs, side) of the encoder's layers and of the adversary's."""
    a, b, c, d = width
    code = d * (side // 8) ** 2
    encoder = [("conv", 3, a, side), ("conv", a, b, side // 2), ("conv", b, c, side // 4), ("conv", c, d, side // 8),
               ("dense", code + noise, code, 1), ("dense", code, code, 1),
               ("conv", d, d, side // 8), ("conv", d, c, side // 4), ("conv", c, b, side // 2), ("conv", b, a, side),
               ("conv", a, 3, side)]  # fmt: skip
    adversary = [("conv", 3, 20, side), ("conv", 20, 40, side // 2), ("dense", 40 * (side // 4) ** 2, 40, 1)]
    return encoder, adversary


def bare(layer: tuple, batch: int, repeats: int, *, first: bool) -> tuple[float, float]:
    """Seconds of a layer forward, and forward with the gradients of its weights and (but for the first) its input."""
    kind, inputs, outputs, side = layer
    if kind == "conv":
        x = torch.rand(batch, inputs, side, side).contiguous(memory_format=torch.channels_last)
        w = torch.rand(outputs, inputs, 3, 3, requires_grad=True)
    else:
        x, w = torch.rand(batch, inputs), torch.rand(outputs, inputs, requires_grad=True)
    x.requires_grad_(not first)
    apply = (lambda: F.conv2d(x, w, padding=1)) if kind == "conv" else (lambda: F.linear(x, w))
    gradient = torch.rand_like(apply())
    wanted = [w] if first else [x, w]
    with torch.no_grad():
        forward = seconds(apply, repeats)
    return forward, seconds(lambda: torch.autograd.grad(apply(), wanted, gradient), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--noise", type=int, default=256)
    parser.add_argument("--width", type=lambda text: tuple(map(int, text.split(","))), default=(128, 64, 64, 64))
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    played, rows = game(given.side, given.members, given.batch, given.width, given.noise)
    aim = played.problem.bounds.values
    step = seconds(lambda: played.turn(rows, aim), given.repeats)
    encoder, adversary = layers(given.side, given.width, given.noise)
    # A turn with J = 1: the encoder once with gradients; the adversary once to learn, once for the encoder's gradient.
    total = sum(bare(layer, given.batch, given.repeats, first=i == 0)[1] for i, layer in enumerate(encoder))
    for i, layer in enumerate(adversary):
        total += bare(layer, given.batch, given.repeats, first=i == 0)[1]
        total += bare(layer, given.batch, given.repeats, first=False)[1]
    total *= given.members
    print(f"{given.members} member(s), {given.side} x {given.side}, channels {given.width}, minibatch {given.batch}")
    print(f"training step {step:.3f} s: {given.members * given.batch / step:.1f} images a second")
    print(f"the same layers, bare: {total:.3f} s, {100 * total / step:.0f} % of the step")
    print("\nloop over 4 members against one grouped convolution, seconds forward and backward (batch 32, side 32):")
    for inputs, outputs in ((3, 32), (32, 64), (64, 128), (128, 3)):
        loop, grouped = members_at_once(inputs, outputs, given.repeats)
        print(f"  {inputs:>3} -> {outputs:<3}  loop {loop:.4f}  grouped {grouped:.4f}")


def members_at_once(inputs: int, outputs: int, repeats: int, members: int = 4) -> tuple[float, float]:
    x = [torch.rand(32, inputs, 32, 32).contiguous(memory_format=torch.channels_last).requires_grad_()
         for _ in range(members)]  # fmt: skip
    w = [torch.rand(outputs, inputs, 3, 3, requires_grad=True) for _ in range(members)]
    joined = torch.cat([part.detach() for part in x], dim=1).contiguous(memory_format=torch.channels_last)
    joined.requires_grad_()
    weights = torch.cat([part.detach() for part in w]).requires_grad_()

    def loop() -> None:
        made = [F.conv2d(a, b, padding=1) for a, b in zip(x, w, strict=True)]
        torch.autograd.grad(sum(part.sum() for part in made), [*x, *w])

    def grouped() -> None:
        made = F.conv2d(joined, weights, padding=1, groups=members)
        torch.autograd.grad(made.sum(), [joined, weights])

    return seconds(loop, repeats), seconds(grouped, repeats)


if __name__ == "__main__":
    main()
