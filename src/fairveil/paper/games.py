"""What the experiments do with trained members: release, and the figures of the training itself."""

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

from fairveil.data.images import read_pictures
from fairveil.estimators.training import Trained
from fairveil.paper.results import Store
from fairveil.veil import Veil


def release_pictures(veil: Veil, images: NDArray[np.generic], s: pd.DataFrame | None, draw: int) -> NDArray[np.generic]:
    """One draw of censored images; the same number draws the same again."""
    return veil.apply_to_pictures(read_pictures(images), _shown(veil, s), torch.Generator().manual_seed(draw))


def release_table(veil: Veil, table: pd.DataFrame, s: pd.DataFrame | None, draw: int) -> pd.DataFrame:
    """One draw of a censored table; the same number draws the same again."""
    read = pa.Table.from_pandas(table, preserve_index=False)
    return veil.apply(read, _shown(veil, s), torch.Generator().manual_seed(draw)).to_pandas()


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
        with store.resumable(name) as checkpoint:  # it stays until all is measured: a finished game is read from it
            members = train(checkpoint)
            store.spent(name, time.monotonic() - start)
            for key, trained in zip(keys.values(), members, strict=True):
                store.get(key, partial(measure, trained))
    return {budget: store.values[key]["value"] for budget, key in keys.items()}, members


def of_training(trained: Trained) -> dict[str, Any]:
    """The paper's measure, and whether the bound is kept on held-out rows."""
    last = trained.history.to_frame().query("chosen").iloc[-1]
    parts = {kind: part.mean for kind, part in trained.achieved.parts.items()}
    return {"training adversary": float(last["training_accuracy"]), "met": bool(trained.achieved.met),
            "held out": trained.achieved.mean, "held out parts": parts}  # fmt: skip
