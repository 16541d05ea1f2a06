"""A small table on disk and a veil fitted to it, for tests of releases."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import fairveil as fv
from fairveil.data.schema import Schema
from fairveil.workflows import inspect_file, open_table
from helpers import QUICK, people

#: A category that three rows hold, and a number far beyond all others: neither may be found in what is written.
CANARY_TEXT, CANARY_NUMBER = "zyzzyva", 98765.4


def table(rows: int = 900, seed: int = 0) -> pd.DataFrame:
    """Text, whole numbers, decimals, missing cells, sex (sensitive), and a canary of each kind."""
    frame, s, y = people(rows, seed)
    frame = frame.assign(sex=s["sex"].to_numpy(), hired=y.to_numpy())
    frame.loc[[5, 7, 30], "role"] = CANARY_TEXT
    frame.loc[[11], "height"] = CANARY_NUMBER
    return frame


def write(folder: Path, frame: pd.DataFrame, name: str = "people.csv") -> Path:
    path = folder / name
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


def proposed(path: Path) -> Schema:
    """The schema that `inspect` proposes, with sex sensitive."""
    return inspect_file(open_table(path), ("sex",)).schema()


def fitted(path: Path, target: Path, schema: Schema | None = None, budget: float = 1e6) -> None:
    """A veil after a few steps: what it learned is not judged."""
    encoder = fv.FairEncoder(
        budget,
        architecture="feedforward",
        sees_sensitive=True,
        training=QUICK,
        random_state=0,
        handle_unknown="most_frequent",
        verbose=False,
        schema=schema or proposed(path),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fv.ClippedWarning)  # the canary is beyond the range, as it should
        encoder.fit(pd.read_csv(path))
    encoder.save(target)


def advantage(scores: np.ndarray, secret: np.ndarray, draws: int = 2000, seed: int = 0) -> tuple[float, float]:
    """How far the mean score of two groups lies apart, and the 99.9 % quantile of that if they were alike."""
    generator = np.random.default_rng(seed)
    ranks = scores.argsort(kind="stable").argsort(kind="stable").astype(float)
    one = secret == secret[0]

    def gap(of: np.ndarray) -> float:
        return float(abs(ranks[of].mean() - ranks[~of].mean()))

    return gap(one), float(np.quantile([gap(generator.permutation(one)) for _ in range(draws)], 0.999))
