"""How near the limit of the machine training and transform are, as ratios within one run. `make bench`.

python benchmarks/frontier_speed.py            all parts
python benchmarks/frontier_speed.py frontier   8 budgets together against one alone, on UCI Adult, for the transport
                                               encoder and for the paper's feed-forward network
python benchmarks/frontier_speed.py transform  rows a second
python benchmarks/frontier_speed.py ragged     draws and softmax by groups against one group after the other
python benchmarks/frontier_speed.py compiled   what torch.compile gains on a lesson, and after how many it has paid
python benchmarks/frontier_speed.py scaling    cost against rows, members and columns, on synthetic tables

The limit is the float32 rate of one plain matrix product, measured in the same process just before and after. What a
step costs is the difference of two trainings of unequal length, so that reading the table and measuring distortion are
left out; the whole fit is timed too. FLOPs are those of the matrix products alone, as PyTorch counts them.
"""

import resource
import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode

from common import EIGHT, run_parts
from fairveil import FairEncoder, FairFrontier, FeedForward, Training, Transport
from fairveil.data.frames import read_table
from fairveil.data.schema import Schema
from fairveil.datasets import load_adult
from fairveil.encoders.grouped_ops import group_draw, group_softmax

#: A step is timed by the difference of these two lengths.
SHORT, LONG = 5, 45


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def matrix_rate(repeats: int = 60) -> float:
    """FLOP/s of a plain float32 matrix product."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    for _ in range(5):
        a @ b
    return 2 * 1024**3 * repeats / seconds(lambda: [a @ b for _ in range(repeats)])


def flops(work: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops())


def fit(
    x: pd.DataFrame, s: pd.Series, members: int, steps: int, architecture: str = "transport", lessons: int = 1
) -> FairFrontier:
    # Budgets that any release meets: only the time counts.
    budgets = [1000.0 + i for i in range(members)]
    training = Training(steps=steps, rounds=1, pretraining_steps=lessons)
    chosen = Transport(matchings=1) if architecture == "transport" else FeedForward()
    frontier = FairFrontier(
        FairEncoder(architecture=chosen, sees_sensitive=True, training=training, verbose=False, random_state=0),
        budgets,
    )
    return frontier.fit(x, sensitive_features=s)


def cost(work: Callable[[int], object]) -> tuple[float, float]:
    """Seconds and FLOPs of one step, from `work(steps)` of unequal length."""
    # The best of a few, alternating: another process on the machine only ever adds time.
    times = [[seconds(lambda n=n: work(n)) for n in (SHORT, LONG)] for _ in range(3)]
    short, long = np.min(times, axis=0)
    counted = [flops(lambda n=n: work(n)) for n in (1, 2)]
    return (long - short) / (LONG - SHORT), counted[1] - counted[0]


def step_cost(x: pd.DataFrame, s: pd.Series, members: int, architecture: str = "transport") -> tuple[float, float]:
    return cost(lambda steps: fit(x, s, members, steps, architecture))


def frontier() -> None:
    train, _ = load_adult("I")
    s = train.S["sex"]
    fit(train.X, s, 1, 2)
    print(f"\n## Training, UCI Adult, {torch.get_num_threads()} threads")
    for architecture in ("transport", "feedforward"):
        before = matrix_rate()
        (alone, _), (together, work) = (step_cost(train.X, s, members, architecture) for members in (1, 8))
        rate = (before + matrix_rate()) / 2
        print(f"\n{architecture}; matrix product: {rate / 1e9:.0f} GFLOP/s")
        print(f"a step: one budget {1e3 * alone:.0f} ms, eight together {1e3 * together:.0f} ms, "
              f"ratio {together / alone:.2f}")  # fmt: skip
        print(f"eight budgets: {work / 1e9:.1f} GFLOP a step, {work / together / 1e9:.0f} GFLOP/s, "
              f"{100 * work / together / rate:.0f} % of the matrix product's rate", flush=True)  # fmt: skip
    before = matrix_rate()
    took, work = cost(lambda lessons: fit(train.X, s, 1, 1, lessons=lessons))
    rate = (before + matrix_rate()) / 2
    print(f"\ntransport, a lesson (for all budgets): {1e3 * took:.0f} ms, {work / took / 1e9:.0f} GFLOP/s, "
          f"{100 * work / took / rate:.0f} % of the matrix product's rate")  # fmt: skip
    whole = {}
    for budgets in ((EIGHT[4],), EIGHT):
        one = FairFrontier(FairEncoder(sees_sensitive=True, verbose=False, random_state=0), budgets)
        whole[len(budgets)] = seconds(lambda one=one: one.fit(train.X, sensitive_features=train.S))
    print(f"whole fit: one budget {whole[1]:.0f} s, a frontier of eight {whole[8]:.0f} s, ratio "
          f"{whole[8] / whole[1]:.2f}")  # fmt: skip
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB", flush=True)


def transform() -> None:
    train, _ = load_adult("I")
    encoder = fit(train.X, train.S["sex"], 1, SHORT).at(1000.0)

    def work() -> object:
        return encoder.transform(train.X, sensitive_features=train.S["sex"])

    counted = flops(work)
    read = read_table(train.X).arrow
    x, shown = encoder.veil_.codec.encode(read), encoder.veil_.shown(len(train), read_table(train.S).arrow)
    generator = torch.Generator().manual_seed(0)
    before = matrix_rate()
    took = min(seconds(work) for _ in range(5))
    drawn = min(seconds(lambda: encoder.veil_.values(x, shown, generator)) for _ in range(5))
    rate = (before + matrix_rate()) / 2
    print("\n## Transform, UCI Adult\n")
    for name, t in (("table to table", took), ("tensor to tensor", drawn)):
        print(f"{name}: {len(train) / t:,.0f} rows/s, {100 * counted / t / rate:.0f} % of the matrix product's rate")
    print(flush=True)


def ragged() -> None:
    """Eight members, 1,024 rows, the groups of UCI Adult."""
    train, _ = load_adult("I")
    widths = [group.width for group in Schema.infer(train.X).layout.groups]
    rows_first = torch.randn(8, 1024, sum(widths))
    slots_first = rows_first.transpose(1, 2).contiguous()

    def plain(one: Callable[[torch.Tensor], torch.Tensor]) -> float:
        parts = torch.split(rows_first, widths, dim=-1)
        return min(seconds(lambda: torch.cat([one(part) for part in parts], dim=-1)) for _ in range(20))

    draw = plain(lambda part: torch.nn.functional.one_hot(part.argmax(dim=-1), part.shape[-1]).float())
    soft = plain(lambda part: part.softmax(dim=-1))
    print("\n## Draws and softmax by groups, against one group after the other with slots last\n")
    for name, function, old in (("draw", group_draw, draw), ("softmax", group_softmax, soft)):
        new = min(seconds(lambda f=function: f(slots_first, widths)) for _ in range(20))
        print(f"{name}: {1e3 * new:.1f} ms against {1e3 * old:.1f} ms, {old / new:.1f} times as fast", flush=True)


def compiled() -> None:
    """A lesson of the mover, forward and backward, as it is and compiled: the part of a fit with most small steps."""
    train, _ = load_adult("I")
    encoder = fit(train.X, train.S["sex"], 1, 1).at(1000.0)
    columns = encoder.veil_.encoder.mover.columns.requires_grad_(True)
    x = encoder.veil_.codec.encode(read_table(train.X.iloc[:1024]).arrow)[:, encoder.schema_.layout.grouped]
    shown = encoder.veil_.shown(1024, read_table(train.S.iloc[:1024]).arrow)

    def lesson(nats: Callable[..., torch.Tensor]) -> None:
        torch.autograd.grad(nats(x, shown, x).mean(), list(columns.parameters()), allow_unused=True)

    lesson(columns.nats)
    plain = min(seconds(lambda: lesson(columns.nats)) for _ in range(20))
    print("\n## torch.compile, a lesson of the mover\n")
    try:
        faster = torch.compile(columns.nats)
        first = seconds(lambda: lesson(faster))
    except Exception as error:  # no compiler on this machine, or one that fails: there is nothing to compare
        print(f"as it is {1e3 * plain:.1f} ms; cannot be compiled here ({type(error).__name__})", flush=True)
        return
    quick = min(seconds(lambda: lesson(faster)) for _ in range(20))
    gain = plain - quick
    paid = f"paid for after {first / gain:,.0f} lessons" if gain > 0 else "never paid for"
    print(
        f"as it is {1e3 * plain:.1f} ms, compiled {1e3 * quick:.1f} ms; compiling took {first:.0f} s, {paid}",
        flush=True,
    )


def synthetic(rows: int, columns: int = 12) -> tuple[pd.DataFrame, pd.Series]:
    """Half categories of eight values, half whole numbers from 0 to 99, all leaning a little to one group."""
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, rows)
    table = {f"c{i}": np.char.add("v", ((generator.integers(0, 8, rows) + s * (generator.random(rows) < 0.1)) % 8)
                                  .astype(str)) for i in range(columns // 2)}  # fmt: skip
    table |= {f"n{i}": np.clip(generator.normal(50 + s, 15, rows), 0, 99).astype(int)
              for i in range(columns - columns // 2)}  # fmt: skip
    return pd.DataFrame(table), pd.Series(np.where(s == 1, "a", "b"), name="s")


def curve(name: str, sizes: Sequence[int], costs: Sequence[float], unit: str) -> None:
    print(f"\n{name}: {unit}, and the cost a unit against that of the first")
    for size, cost in zip(sizes, costs, strict=True):
        print(f"{size:>10,}  {cost:10.3f}  {cost / size / (costs[0] / sizes[0]):6.2f}", flush=True)


def scaling() -> None:
    print("\n## Scaling, synthetic tables (1.00 is linear; less is better)")
    sizes = (10_000, 100_000, 1_000_000)
    tables = [synthetic(rows) for rows in sizes]
    encoder = fit(*tables[0], 1, SHORT).at(1000.0)
    curve("rows, fit of 5 steps", sizes, [seconds(lambda t=t: fit(*t, 1, SHORT)) for t in tables], "seconds")
    curve("rows, transform", sizes, [seconds(lambda t=t: encoder.transform(t[0], sensitive_features=t[1]))
                                     for t in tables], "seconds")  # fmt: skip
    members = (1, 4, 16, 64)
    curve("members", members, [1e3 * step_cost(*tables[0], m)[0] for m in members], "ms a step")
    columns = (8, 16, 32, 64)
    curve("columns", columns, [1e3 * step_cost(*synthetic(10_000, c), 4)[0] for c in columns], "ms a step")


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"frontier": frontier, "transform": transform, "ragged": ragged, "compiled": compiled, "scaling": scaling},
    )
