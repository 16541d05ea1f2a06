"""The settings for training a veil from files."""

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from fairveil._utils.atomic import sha256_of
from fairveil._utils.errors import InputError
from fairveil.data.schema import Schema
from fairveil.encoders import Architecture, make_architecture
from fairveil.training import Training
from fairveil.workflows.many_files import local_path
from fairveil.workflows.sampling import MOST_ROWS

#: The default share of rows held out. On UCI Adult an encoder fitted with 0.3 is as good as one with 0.1: it sees fewer
#: rows, but spends more of its budget, because more rows verify it.
HELD_OUT = 0.3


@dataclass(frozen=True)
class Recipe:
    """The settings for training a veil from a file.

    sensitive: the columns to hide, in addition to those with that role in the schema. schema: as written by `fairveil
    inspect`; proposed from the data if None. labels: for a folder of images, a table with the columns `file` and S.
    loss: of the adversary; "squared" hides numbers as such, any other loss hides them as ranges. blind: the encoder
    does not see S. held_out: the share of the rows that the encoder never sees; they bound its distortion, and the
    attackers of an audit learn from them. certified: ask for a certificate of this bound. targets: columns to predict:
    known tasks if target_weight is above 0, and the truth if fairness is "equalized_odds". seed: of the training; drawn
    if None.
    """

    sensitive: tuple[str, ...] = ()
    schema: Path | None = None
    labels: Path | None = None
    loss: str = "log"
    architecture: str = "auto"
    cells: int | None = None
    blind: bool = False
    steps: int | None = None
    rows: int = MOST_ROWS
    held_out: float = HELD_OUT
    certified: float | None = None
    targets: tuple[str, ...] = ()
    target_weight: float = 0.0
    fairness: str = "demographic_parity"
    seed: int | None = None
    resume: bool = False
    show_progress: bool = True

    def files(self, source: str | Path) -> dict[str, Path | None]:
        """The input files on this machine, by their description in messages."""
        return {"input": local_path(source), "schema": self.schema, "table of labels": self.labels}

    def plan(self, source: str | Path, more: dict[str, Any]) -> dict[str, Any]:
        """What must be unchanged for a later run to resume this one. (A checkpoint identifies its rows itself.)"""
        files = [path for path in (self.schema, self.labels) if path is not None]
        chosen = [list(self.sensitive), self.loss, self.architecture, self.cells, self.blind, self.steps, self.rows,
                  self.held_out, self.certified, list(self.targets), self.target_weight, self.fairness]  # fmt: skip
        return {
            "source": _described(source),
            "files": [[path.name, sha256_of(path)] for path in files],
            "settings": chosen,
            "seed": self.seed,
            **more,
            "private": {"seed": secrets.randbits(31) if self.seed is None else self.seed},
        }

    def settings(
        self, schema: Schema | None, seed: int, checkpoint: Path, held_out: float | None = None
    ) -> dict[str, Any]:
        """The parameters of the estimator. held_out: the share of its rows that bound the distortion."""
        training = Training(checkpoint=None if self.certified is not None else checkpoint)
        if held_out is not None and self.certified is None:  # a certificate has its own share
            training = replace(training, held_out=held_out)
        return {
            "architecture": self._architecture(),
            "loss": self.loss,
            "sees_sensitive": not self.blind,
            "certified": self.certified,
            "target_weight": self.target_weight,
            "fairness": self.fairness,
            "schema": schema,
            "handle_unknown": "most_frequent",
            "training": training if self.steps is None else replace(training, steps=self.steps),
            "verbose": self.show_progress,
            "random_state": seed,
        }

    def truth(self, table: pa.Table) -> pa.Table | None:
        """The known tasks, or the truth: what `fit` needs beside X and S."""
        needed = self.target_weight > 0 or self.fairness == "equalized_odds"
        if needed and not self.targets:
            raise InputError("--target-weight and --fairness equalized_odds need --target: the column to predict.")
        return table.select(list(self.targets)) if needed else None

    def _architecture(self) -> str | Architecture:
        """The architecture's name, or its configuration if the codebook size is given."""
        if self.cells is None:
            return self.architecture
        architecture = make_architecture(self.architecture)
        if architecture is None or not hasattr(architecture, "n_cells"):
            raise InputError(
                "--cells is for architectures with a codebook, such as --architecture matrix or partition."
            )
        return replace(architecture, n_cells=self.cells)  # type: ignore[type-var]


def _described(source: str | Path) -> list[str | int]:
    path = local_path(source)
    return [str(source)] if path is None else [path.name, path.stat().st_size]
