"""A censored copy of a folder of images: PNG files without metadata, under new names, in a random order."""

import hashlib
import io
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairveil.errors import InputError
from fairveil.estimators import FairEncoder
from fairveil.pictures import Pictures, PictureSchema, image_names, read_images, rows_at_once
from fairveil.progress import progress
from fairveil.randomness import random_keys
from fairveil.release.job import PLAN_FORMAT, Options, Told, plan_digest, random_source
from fairveil.release.labels import labels_of
from fairveil.release.ledger import Entry, Hashes, Ledger, Sketch, bytes_hash
from fairveil.release.workplace import is_unfinished, workplace
from fairveil.whole import put_in_place, replacing, sha256_of, sync

#: The time of every released file.
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

    def plan(self, names: list[str], key: str) -> dict[str, object]:
        """What must be the same for a later run to go on with this one; key: by which images are hashed."""
        sizes = [[name, (self.source / name).stat().st_size, (self.source / name).stat().st_mtime_ns] for name in names]
        return {
            "images": sizes,
            "veil": sha256_of(self.veil_path),
            "seed": self.options.seed,
            "keep_order": self.options.keep_order,
            "format": PLAN_FORMAT,
            "private": {"release": secrets.token_hex(8), "key": key},
        }


def release_images(job: ImageJob, before_naming: Callable[[Told], None]) -> Told | None:
    """Write a censored copy of a folder. The target appears when it is complete."""
    if not isinstance(job.encoder.veil_.schema, PictureSchema):
        raise InputError("This veil was fitted to a table, not to images.")
    names = image_names(job.source)
    ledger = Ledger(job.veil_path)
    plan = job.plan(names, ledger.key.hex())
    if job.target.exists():
        entry = ledger.find(folder_digest(job.target)) if job.target.is_dir() else None
        finished = entry is not None and entry.plan == plan_digest(plan)
        if job.options.resume and finished and not is_unfinished(job.target):
            return None
        raise InputError(f"{job.target} exists already. Name a new folder.")
    with workplace(job.target, plan, resume=job.options.resume) as (folder, found):
        own = str(found["private"]["release"])
        ledger.hash_by(found["private"]["key"])
        return _write(job, names, folder, ledger, own, plan_digest(plan), before_naming)


def _write(
    job: ImageJob, names: list[str], folder: Path, ledger: Ledger, own: str, digest: str,
    before_naming: Callable[[Told], None],
) -> Told:  # fmt: skip
    order = _order(job, len(names), folder)
    finished = folder / "finished"
    finished.mkdir(exist_ok=True)
    for rest in finished.glob(".*.partial"):
        rest.unlink()
    veil, schema = job.encoder.veil_, job.encoder.veil_.schema
    assert isinstance(schema, PictureSchema)
    secret_columns = [column.name for column in veil.sensitive.columns]
    if veil.sees_sensitive and job.labels is None:
        raise InputError("This encoder sees S: pass --labels, a table with the columns 'file' and S.")
    told, sketch, size = Told(rows=len(names)), Sketch(), rows_at_once(schema.pixels)
    squares = measured = 0.0
    digits = len(str(len(names)))
    with progress(len(names), f"Drawing {job.source.name}", job.options.show_progress, unit="images") as report:
        for start in range(0, len(names), size):
            some = order[start : start + size]
            original = read_images(job.source, [names[i] for i in some])
            sketch.add(_hashes(original, ledger.key))
            if start == 0 and not job.options.again:
                ledger.refuse_repeated(sketch.hashes, own, "images")
            targets = [finished / f"{start + i + 1:0{digits}d}.png" for i in range(len(some))]
            if all(path.exists() for path in targets):  # drawn before the interruption: never drawn again
                report(start + len(some))
                continue
            secret = None
            if veil.sees_sensitive and job.labels is not None:
                secret = labels_of(job.labels, [names[i] for i in some], secret_columns)
            pictures = Pictures(original, grey=False)
            released = veil.apply_to_pictures(pictures, secret, random_source(job.options, 0, start))
            for path, image in zip(targets, released, strict=True):
                if not path.exists():
                    _save(path, image)
            difference = released.astype(np.float64) - original
            squares += float(np.square(difference / 255.0).sum())
            measured += len(some)
            report(start + len(some))
    told.overlap, told.earlier_releases = ledger.earlier(sketch.hashes, own)
    if not job.options.again:
        ledger.refuse_repeated(sketch.hashes, own, "images")
    told.measured_rows = int(measured)
    told.distortion = {"continuous": squares / measured} if measured else {}
    told.sha256 = folder_digest(finished)
    before_naming(told)
    entry = Entry(told.sha256, told.rows, True, tuple(int(h) for h in sketch.hashes), own, digest)
    kept = folder / "places"
    order.astype(np.int64).tofile(kept)
    ledger.enter(entry, kept if job.options.remember_order else None)
    os.utime(finished, (_TIME, _TIME))
    put_in_place(finished, job.target)
    return told


def _order(job: ImageJob, count: int, folder: Path) -> np.ndarray:
    """Of which image each released one is a copy; drawn once, kept for a later run."""
    path = folder / _ORDER
    if path.exists():
        return np.fromfile(path, dtype=np.int64)
    order = np.arange(count)
    if not job.options.keep_order:
        order = np.argsort(random_keys(random_source(job.options, 1), count), kind="stable")
    with replacing(path) as partial:
        order.astype(np.int64).tofile(partial)
    return order


def _save(path: Path, image: np.ndarray) -> None:
    """Pixels and nothing else: no EXIF, no text, no time."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    with replacing(path) as partial:
        partial.write_bytes(buffer.getvalue())
        sync(partial)
        os.utime(partial, (_TIME, _TIME))


def _hashes(images: np.ndarray, key: bytes) -> Hashes:
    return np.array([bytes_hash(image.tobytes(), key) for image in images], dtype=np.uint64)


def folder_digest(folder: Path) -> str:
    """One SHA-256 over the names and contents of all files."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode())
        digest.update(bytes.fromhex(sha256_of(path)))
    return digest.hexdigest()
