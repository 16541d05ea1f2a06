"""What the experiments do with trained members: release, and the figures of the training itself."""

import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fairveil.estimators.training import Trained
from fairveil.paper.results import Store
from fairveil.pictures import read_pictures
from fairveil.veil import Veil


def generator() -> torch.Generator:
    """Randomness of the operating system: no draw repeats another."""
    return torch.Generator().manual_seed(secrets.randbits(63))


def release_pictures(veil: Veil, images: NDArray[np.generic], s: pd.DataFrame | None = None) -> NDArray[np.generic]:
    """One draw of censored images."""
    return veil.apply_to_pictures(read_pictures(images), _shown(veil, s), generator())


def release_table(veil: Veil, table: pd.DataFrame, s: pd.DataFrame | None = None) -> pd.DataFrame:
    """One draw of a censored table."""
    released = veil.apply(pa.Table.from_pandas(table, preserve_index=False), _shown(veil, s), generator())
    return released.to_pandas()


def _shown(veil: Veil, s: pd.DataFrame | None) -> pa.Table | None:
    return pa.Table.from_pandas(s, preserve_index=False) if veil.sees_sensitive else None


def measured(
    store: Store,
    name: str,
    keys: Mapping[float, str],
    train: Callable[[Path], list[Trained]],
    measure: Callable[[Trained], dict[str, Any]],
    *,
    anew: bool = False,
) -> tuple[dict[float, dict[str, Any]], list[Trained]]:
    """What is measured of every member of one game, by budget; and the members, if they had to be trained.

    keys: the name of each member's value in the store, in the order of the members. They are trained if a value is
    missing, or `anew`.
    """
    members: list[Trained] = []
    if anew or not all(key in store.values for key in keys.values()):
        start = time.monotonic()
        with store.resumable(name) as checkpoint:
            members = train(checkpoint)
        store.spent(name, time.monotonic() - start)
        for key, trained in zip(keys.values(), members, strict=True):
            store.get(key, partial(measure, trained))
    return {budget: store.values[key]["value"] for budget, key in keys.items()}, members


def of_training(trained: Trained) -> dict[str, Any]:
    """The paper's measure, and whether the bound is kept on held-out rows."""
    last = trained.history.to_frame().query("chosen").iloc[-1]
    return {"training adversary": float(last["training_accuracy"]), "met": bool(trained.achieved.met),
            "held out": trained.achieved.mean}  # fmt: skip
