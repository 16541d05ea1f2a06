"""Common steps of the experiments: train members, release, and read the figures of the training itself."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fairveil._utils.errors import BudgetWarning, CollapseWarning
from fairveil.data.images import read_image_batch
from fairveil.estimators import FairEncoder, FairFrontier
from fairveil.paper.results import Store
from fairveil.training import Training
from fairveil.veil import Veil


def train_members(
    budgets: Sequence[Any], table: Any, sensitive: Any, settings: Mapping[str, Any], checkpoint: Path, *, progress: bool
) -> list[FairEncoder]:
    """All budgets in one game. A budget that is not met on held-out rows is measured anyway, and marked."""
    training = replace(settings.get("training") or Training(), checkpoint=checkpoint)
    encoder = FairEncoder(unmet="warn", random_state=0, verbose=progress, **{**settings, "training": training})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        warnings.simplefilter("ignore", CollapseWarning)
        members: list[FairEncoder] = FairFrontier(encoder, budgets).fit(table, sensitive_features=sensitive).estimators_
    return members


def release_image_batch(
    veil: Veil, images: NDArray[np.generic], s: pd.DataFrame | None, draw: int
) -> NDArray[np.generic]:
    """One draw of censored images; the same number gives the same draw."""
    batch = read_image_batch(images)
    released = veil.apply(batch, _shown(veil, s), torch.Generator().manual_seed(draw))
    return batch.like_origin(released, keep_types=veil.encoder.signature.sampled)


def release_table(veil: Veil, table: pd.DataFrame, s: pd.DataFrame | None, draw: int) -> pd.DataFrame:
    """One draw of a censored table; the same number gives the same draw."""
    read = pa.Table.from_pandas(table, preserve_index=False)
    return veil.apply(read, _shown(veil, s), torch.Generator().manual_seed(draw)).to_pandas()


def _shown(veil: Veil, s: pd.DataFrame | None) -> pa.Table | None:
    return pa.Table.from_pandas(s, preserve_index=False) if veil.sees_sensitive else None


def measured(
    store: Store,
    name: str,
    keys: Mapping[float, str],
    train: Callable[[Path], list[FairEncoder]],
    measure: Callable[[FairEncoder], dict[str, Any]],
    *,
    anew: bool = False,
) -> tuple[dict[float, dict[str, Any]], list[FairEncoder]]:
    """The measurements of every member of one game, by budget; and the members, if they had to be trained.

    keys: the name of each member's value in the store, in the order of the members. They are trained if a value is
    missing, or if `anew`.
    """
    members: list[FairEncoder] = []
    if anew or not all(key in store.values for key in keys.values()):
        start = time.monotonic()
        with store.resumable(name) as checkpoint:  # kept until all is measured: a finished game is restored from it
            members = train(checkpoint)
            store.spent(name, time.monotonic() - start)
            for key, trained in zip(keys.values(), members, strict=True):
                store.get(key, partial(measure, trained))
    return {budget: store.values[key]["value"] for budget, key in keys.items()}, members


def of_training(trained: FairEncoder) -> dict[str, Any]:
    """The paper's measure, and whether the bound holds on held-out rows."""
    last = trained.history_.to_frame().query("chosen").iloc[-1]
    parts = {kind: part.mean for kind, part in trained.distortion_.parts.items()}
    return {"training adversary": float(last["training_accuracy"]), "met": bool(trained.distortion_.met),
            "held out": trained.distortion_.mean, "held out parts": parts}  # fmt: skip
