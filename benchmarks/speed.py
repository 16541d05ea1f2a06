"""Where the time goes: one game of 8 budgets against one of 1, and `transform`, as ratios within one run."""

import time

import torch

from fairveil import FairEncoder, FairFrontier, Training
from fairveil.datasets import load_adult

STEPS = 40


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def matmul_rate(repeats: int = 40) -> float:
    """Float32 multiply-adds a second of a plain matrix product, in GFLOP/s."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    a @ b
    return 2 * 1024**3 * repeats / seconds(lambda: [a @ b for _ in range(repeats)]) / 1e9


def main() -> None:
    train, _ = load_adult("I")
    training = Training(steps=STEPS, rounds=1)
    budgets = [float(b) for b in range(40, 48)]
    common = {"training": training, "sees_sensitive": True, "progress": False, "random_state": 0}
    FairEncoder(40.0, **{**common, "training": Training(steps=2, rounds=1)}).fit(train.X, sensitive_features=train.S)
    one = FairEncoder(40.0, **common)
    alone = seconds(lambda: one.fit(train.X, sensitive_features=train.S))
    together = seconds(lambda: FairFrontier(budgets, **common).fit(train.X, sensitive_features=train.S))
    rows = seconds(lambda: one.transform(train.X, sensitive_features=train.S))
    print(f"matrix product: {matmul_rate():.0f} GFLOP/s with {torch.get_num_threads()} threads")
    print(f"{STEPS} steps, one budget: {alone:.2f} s; eight together: {together:.2f} s; ratio {together / alone:.2f}")
    print(f"transform: {len(train) / rows:,.0f} rows/s")


if __name__ == "__main__":
    main()
