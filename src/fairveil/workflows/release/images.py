"""A censored copy of a folder of images: PNG files without metadata, under new names, in a random order."""

import hashlib
import io
import os
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fairveil._utils.atomic import PRIVATE, put_in_place, replacing, sha256_of, sync
from fairveil._utils.errors import InputError
from fairveil._utils.progress import progress
from fairveil._utils.randomness import KeyedStream, ReleaseSecret
from fairveil.data.images import Images, ImageSchema, image_names, read_images, rows_at_once
from fairveil.estimators import FairEncoder
from fairveil.workflows.labels import folder_digest, labels_of
from fairveil.workflows.release.finish import BeforeNaming, hand_over
from fairveil.workflows.release.job import (
    PLAN_FORMAT,
    Options,
    ReleaseSummary,
    plan_digest,
    refuse_contradictions,
    refuse_few,
    refuse_unmet,
)
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.release.secret import abandon, release_secret
from fairveil.workflows.release.sketch import Hashes, Sketch, ordered_digest
from fairveil.workflows.release.workspace import is_unfinished, workspace

#: The modification time of every released file.
_TIME = 946_684_800  # 2000-01-01
_ORDER = "order"


@dataclass(frozen=True)
class ImageJob:
    """One release of a folder. labels: a table with `file` and S, for encoders that see S."""

    source: Path
    encoder: FairEncoder
    veil_path: Path
    target: Path
    labels: Path | None
    options: Options

    def plan(self, names: list[str]) -> dict[str, object]:
        """What must be unchanged for a later run to resume this one."""
        return {
            "images": folder_digest(self.source, names),
            "labels": None if self.labels is None else sha256_of(self.labels),
            "veil": sha256_of(self.veil_path),
            "seed": self.options.seed,
            "keep_order": self.options.keep_order,
            "keep_secret": self.options.keep_secret,
            "format": PLAN_FORMAT,
            "private": {"release": secrets.token_hex(8)},
        }


def release_images(job: ImageJob, before_naming: BeforeNaming) -> ReleaseSummary | None:
    """Write a censored copy of a folder. The target appears when it is complete."""
    if not isinstance(job.encoder.veil_.schema, ImageSchema):
        raise InputError("This veil was fitted to a table, not to images.")
    if job.encoder.veil_.sees_sensitive and job.labels is None:
        raise InputError("This encoder sees S: pass --labels, a table with the columns 'file' and S.")
    if job.options.person is not None:
        raise InputError("--person is for tables: every image is drawn independently.")
    refuse_unmet(job.encoder, job.options)
    names = image_names(job.source)
    refuse_few(len(names), job.options, "images")
    ledger = Ledger.of(job.veil_path)
    plan = job.plan(names)
    if job.target.exists() or job.target.is_symlink():
        entry = ledger.find(folder_digest(job.target)) if job.target.is_dir() else None
        finished = entry is not None and entry.plan == plan_digest(plan)
        if job.options.resume and finished and not is_unfinished(job.target):
            return None
        raise InputError(f"{job.target} already exists. Name a new folder.")
    ledger.prepare()
    with workspace(
        job.target, plan, resume=job.options.resume, abandoned=partial(abandon, ledger)
    ) as (folder, found):  # fmt: skip
        own = str(found["private"]["release"])
        resumed = found["private"] != plan["private"]
        with release_secret(ledger, own, job.options, resumed=resumed) as secret:
            return _write(job, names, folder, ledger, own, secret, plan_digest(plan), before_naming)


def _write(
    job: ImageJob, names: list[str], folder: Path, ledger: Ledger, own: str, secret: ReleaseSecret, digest: str,
    before_naming: BeforeNaming,
) -> ReleaseSummary:  # fmt: skip
    order = _order(job, len(names), folder, secret)
    finished = folder / "finished"
    finished.mkdir(mode=0o700, exist_ok=True)
    for rest in finished.glob(".*.partial"):
        rest.unlink()
    told = ReleaseSummary(rows=len(names))
    sketch, squares, changed, hashes = _draw_images(job, names, order, finished, ledger, own, secret)
    told.distortion = {"continuous": squares / len(names)}
    told.changed = changed / len(names)
    refuse_contradictions(told, job.encoder, job.options)
    told.original = ordered_digest(hashes, 0).tobytes().hex()
    told.sha256 = folder_digest(finished)
    finished.chmod(0o755)
    if job.options.remember_order and not job.options.keep_order:
        with ledger.order_file(own) as file:
            file.write(order.astype(np.int64).tobytes())
    os.utime(finished, (_TIME, _TIME))
    hand_over(told, sketch, partial(put_in_place, finished, job.target), ledger, own, digest, job.options, "images",
              before_naming)  # fmt: skip
    return told


def _draw_images(
    job: ImageJob, names: list[str], order: np.ndarray, finished: Path, ledger: Ledger, own: str, secret: ReleaseSecret
) -> tuple[Sketch, float, int, Hashes]:
    """Draw every image that does not exist yet.

    Returns the sketch of the originals, the squares and the number of changed images, and the hash of each original.
    """
    veil, schema = job.encoder.veil_, job.encoder.veil_.schema
    assert isinstance(schema, ImageSchema)
    secret_columns = [column.name for column in veil.sensitive.columns]
    sketch, squares, changed = Sketch.empty(), 0.0, 0
    every = np.zeros(len(names), dtype=np.uint64)
    digits, size = len(str(len(names))), rows_at_once(schema.pixels)
    with progress(len(names), f"Drawing {job.source.name}", job.options.show_progress, unit="images") as report:
        for start in range(0, len(names), size):
            some = order[start : start + size]
            files = [names[i] for i in some]
            original = read_images(job.source, files, expected=(schema.height, schema.width))
            hashes = image_hashes(original, ledger.key)
            every[some] = hashes
            sketch = sketch + Sketch.of(hashes)
            if start == 0 and not job.options.again:
                ledger.refuse_repeated(sketch, own, "images")
            targets = [finished / f"{start + i + 1:0{digits}d}.png" for i in range(len(some))]
            if all(path.is_file() for path in targets):  # drawn before an interruption: never redrawn
                released = read_images(finished, [path.name for path in targets], expected=original.shape[1:3])
            else:
                shown = None
                if veil.sees_sensitive and job.labels is not None:
                    shown = labels_of(job.labels, files, secret_columns)
                batch = Images(original, grey=False)
                source = KeyedStream(secret.key("draw", start), batch.digest())
                drawn = batch.like_origin(veil.apply(batch, shown, source))
                released = _saved(drawn, targets)
            difference = (released.astype(np.float64) - original) / 255.0
            squares += float(np.square(difference).sum())
            changed += int(difference.any(axis=(1, 2, 3)).sum())
            report(start + len(some))
    return sketch, squares, changed, every


def _saved(released: np.ndarray, targets: list[Path]) -> np.ndarray:
    """Save images; those drawn before an interruption are kept, and returned as they are."""
    for i, path in enumerate(targets):
        if path.is_file():
            released[i] = read_images(path.parent, [path.name], expected=released.shape[1:3])[0]
        else:
            _save(path, released[i])
    return released


def _order(job: ImageJob, count: int, folder: Path, secret: ReleaseSecret) -> np.ndarray:
    """The index of the original of each released image; drawn once, stored for a later run."""
    path = folder / _ORDER
    if path.exists():
        order = np.fromfile(path, dtype=np.int64)
        if not np.array_equal(np.sort(order), np.arange(count)):
            raise InputError("The interrupted work is damaged. Omit --resume to start again.")
        return order
    order = np.arange(count)
    if not job.options.keep_order:
        order = np.argsort(KeyedStream(secret.key("shuffle")).keys(count), kind="stable")
    with replacing(path, PRIVATE) as partial:
        order.astype(np.int64).tofile(partial)
    return order


def _save(path: Path, image: np.ndarray) -> None:
    """Only pixels: no EXIF, no text, no time."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    with replacing(path) as partial:
        partial.write_bytes(buffer.getvalue())
        sync(partial)
        os.utime(partial, (_TIME, _TIME))


def image_hashes(images: np.ndarray, key: bytes) -> Hashes:
    """A keyed 64-bit hash of every image."""
    digests = [hashlib.blake2b(image.tobytes(), digest_size=8, key=key).digest() for image in images]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)
