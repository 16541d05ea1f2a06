"""Small tables and settings that train in a second or two."""

import numpy as np
import pandas as pd

from fairveil import Column, FeedForward, Training
from fairveil.objectives.ranks import HALF, rank_unit

#: A game short enough for a unit test; what it learns is not judged.
QUICK = Training(steps=12, batch_size=128, adversary_steps=1, adversary_hidden=((16,),), rounds=3)
SMALL = FeedForward(hidden=(16,), noise_dim=4)

#: For classifiers on tables of a few values: adversaries that learn faster than the default.
FINITE = Training(steps=1000, learning_rate=5e-3, adversary_learning_rate=0.1, adversary_decay=0.3)


def people(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series]:
    """X that tells sex by `role` and `height`, S = (sex, region), and a target that needs `skill`."""
    generator = np.random.default_rng(seed)
    sex = generator.choice(["f", "m"], n, p=[0.4, 0.6])
    region = generator.choice(["n", "s", "w"], n)
    role = np.where(generator.random(n) < 0.8, np.where(sex == "f", "wife", "husband"), "other")
    skill = generator.integers(0, 10, n)
    frame = pd.DataFrame(
        {
            "role": role,
            "town": np.where(generator.random(n) < 0.1, None, generator.choice(["x", "y", "z"], n)),
            "skill": skill,
            "height": np.round(generator.normal(np.where(sex == "f", 165.0, 178.0), 7.0), 1),
        }
    )
    y = pd.Series((skill + generator.normal(0, 1, n) > 5).astype(int), name="hired")
    return frame, pd.DataFrame({"sex": sex, "region": region}), y


def noise_table(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.random.Generator]:
    """A table of noise, a balanced S that has nothing to do with it, and the generator."""
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(generator.normal(size=(rows, 4)).round(3), columns=list("abcd"))
    return (
        frame.assign(colour=generator.choice(["red", "green", "blue"], rows)),
        generator.integers(0, 2, rows),
        generator,
    )


def leak(kind: str, rows: int = 5000, seed: int = 0, right: float = 0.6) -> tuple[pd.DataFrame, np.ndarray]:
    """A table of noise with one leak of S, from which the best guess is right with this probability."""
    frame, s, generator = noise_table(rows, seed)
    told = np.where(generator.random(rows) < right, s, 1 - s)
    if kind == "linear":
        frame["a"] += 0.5 * (s - 0.5)
    elif kind == "interaction":
        frame["left"] = generator.integers(0, 2, rows)
        frame["right"] = frame["left"] ^ told
    elif kind == "low digits":
        thousandths = (1000 * frame["a"]).round().astype(int)
        frame["a"] = (thousandths - thousandths % 2 + told) / 1000
    elif kind == "last bit":
        bits = frame["b"].to_numpy().copy().view(np.int64)
        frame["b"] = ((bits & ~1) | told).view(np.float64)
    elif kind == "row order":
        order = np.argsort(told, kind="stable")
        return frame.iloc[order].reset_index(drop=True), s[order]
    elif kind == "missingness":
        frame.loc[generator.random(rows) < np.where(s == 1, 0.3, 0.1), "c"] = np.nan
    return frame, s


def rank_cost(column: Column, before: pd.Series, after: pd.Series) -> np.ndarray:
    """The distance between ranks of each pair of numbers, by its formula."""
    ends = np.append(column.starts, column.upper + column.grid) - column.grid / 2
    below = np.append(0.0, np.cumsum(column.shares) / np.sum(column.shares))
    apart = np.interp(before, ends, below) - np.interp(after, ends, below)
    return rank_unit(column) * apart**2 / (apart**2 + HALF**2)
