"""Folders of images: read for fitting, released, and paired with their releases for an audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairveil._utils.errors import InputError
from fairveil._utils.stores import is_url
from fairveil.data.images import image_names, read_images
from fairveil.estimators import FairEncoder
from fairveil.workflows.labels import folder_digest, labels_of
from fairveil.workflows.protocol import Data, Finish, Pair, Source, Wanted
from fairveil.workflows.recipe import Recipe
from fairveil.workflows.release.images import ImageJob, image_hashes, release_images
from fairveil.workflows.release.job import Options
from fairveil.workflows.release.known import Known
from fairveil.workflows.release.ledger import FittedInput
from fairveil.workflows.release.sketch import Sketch, ordered_digest


@dataclass(frozen=True)
class ImageSource:
    """A folder of images. labels: a table with the column `file` and further columns about each image."""

    path: Path
    labels: Path | None = None

    def digest(self) -> str:
        """A SHA-256 over all files."""
        return folder_digest(self.path)

    def data(self, recipe: Recipe, seed: int, more: Sequence[str] = ()) -> Data:
        """All images, with S as a separate table."""
        if self.labels is None or not recipe.sensitive:
            raise InputError("Images need --labels (a table with the columns 'file' and S) and --sensitive.")
        names = image_names(self.path)
        secret = labels_of(self.labels, names, recipe.sensitive)
        return Data(read_images(self.path, names), secret, None, np.arange(len(names)), len(names))

    def release(
        self, encoder: FairEncoder, veil: Path, target: str | Path, options: Options, finish: Finish
    ) -> None:  # fmt: skip
        """Write a censored copy."""
        if is_url(target) or options.engine != "local":
            raise InputError("Images are released on this machine: name a local folder, and leave --engine out.")
        target = Path(target)
        if not target.parent.is_dir():
            raise InputError(f"There is no folder {target.parent} to write {target.name} to.")
        job = ImageJob(self.path, encoder, veil, target, self.labels, options)
        release_images(job, lambda told: finish(told, None))

    def seen_by(self, encoder: FairEncoder, veil: Path, fitted: NDArray[np.bool_], key: bytes) -> FittedInput:
        """What a ledger records about these images, some of which the encoder was fitted on."""
        hashes = image_hashes(read_images(self.path, image_names(self.path)), key)
        return FittedInput.of(ordered_digest(hashes, 0).tobytes().hex(), Sketch.of(hashes[fitted]), fitted)

    def pair(self, release: Source, known: Known | None, wanted: Wanted) -> Pair:
        """Released images paired with the images of this folder from which they were made."""
        if not isinstance(release, ImageSource):
            raise InputError(f"{release.path.name} is a file, but {self.path} is a folder. Give two of the same kind.")
        if wanted.person is not None:
            raise InputError("--person is for tables.")
        if self.labels is None:
            raise InputError("An audit of images needs --labels, a table with the columns 'file', S and targets.")
        names, released = image_names(self.path), image_names(release.path)
        order = np.arange(len(names)) if known is None else known.order
        if len(order) != len(released) or len(names) != len(released):
            raise InputError(f"{release.path.name} and {self.path.name} do not hold the same number of images.")
        truth = labels_of(self.labels, [names[i] for i in order], wanted.columns)
        after, before = read_images(release.path, released), read_images(self.path, names)
        if known is not None:
            hashes = image_hashes(before, known.ledger.key)
            if ordered_digest(hashes, 0).tobytes().hex() != known.entry.original:
                raise InputError(f"{self.path.name} does not hold the images from which {release.path.name} was made.")
        return Pair(
            after.astype(np.float32) / 255.0,
            truth.select(list(wanted.sensitive)),
            {name: truth[name] for name in wanted.targets},
            before[order].astype(np.float32) / 255.0,
            fitted=None if known is None else known.fitted(),
        )
