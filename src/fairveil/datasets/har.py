"""UCI HAR (Anguita and others 2013, doi 10.24432/C54S4K): 561 features of motion sensors, 30 subjects, 6 activities."""

import hashlib
import io
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from fairveil._utils.errors import InputError, must_be
from fairveil.datasets.base import Split, check_counts, find_data

_ROOT = "UCI HAR Dataset"
_NAMES = (_ROOT, "har", "uci_har.tar.xz", f"{_ROOT}.zip", "UCI_HAR_Dataset.zip")
_LABELS = "activity_labels.txt"
_FEATURES, _SUBJECTS = 561, 30
_ACTIVITIES = {"WALKING": 1722, "WALKING_UPSTAIRS": 1544, "WALKING_DOWNSTAIRS": 1406, "SITTING": 1777,
               "STANDING": 1906, "LAYING": 1944}  # fmt: skip
#: Training rows in the paper, of the pooled 10,299.
TRAIN_ROWS = 8000
#: The git blob ids of UCI's own feature files.
_ORIGINALS = {"train": "b06f3e4c7cddf435f2f2b102b4824f51ee8a6298", "test": "f3c01cbd355e0000229bce4e38156ee338fa6b08"}

Read = Callable[[str], bytes]


def load_har(split: Literal["pooled", "official"] = "pooled", *, verify: bool = True) -> tuple[Split, Split]:
    """Windows of 561 features in [-1, 1]; S is `subject`, the target `activity`.

    split: `pooled`, as in the paper, pools all windows and draws 8,000 for training (always the same ones; the paper's
    own draw is not known). `official` is UCI's, with 21 subjects in training and 9 others in test: there the identity
    of a test subject cannot be learned. verify: check sizes and label counts.

    `X.attrs["original"]` says whether the features are UCI's own files or recomputed from the raw signals.
    """
    if split not in ("pooled", "official"):
        raise InputError(must_be("load_har", "split", "'pooled' or 'official'", split))
    source = f"Get the zip or the folder {_ROOT!r} from UCI (archive.ics.uci.edu, dataset 240, doi 10.24432/C54S4K)."
    path = find_data(_NAMES, "UCI HAR", source)
    read = _reader(path)
    parts = [_part(read, name) for name in ("train", "test")]
    if verify:
        both = [pd.concat([a, b]) for a, b in zip(parts[0][1:], parts[1][1:], strict=True)]
        check_counts("UCI HAR", Counter(both[1]), _ACTIVITIES)
        if both[0].nunique() != _SUBJECTS:
            raise InputError(f"UCI HAR must have {_SUBJECTS} subjects. Fetch it again, or pass verify=False.")
    original = all(part[0].attrs["original"] for part in parts)
    splits = [Split(x, s.to_frame(), {"activity": y}) for x, s, y in parts]
    if split == "pooled":
        pooled = _joined(*splits)
        order = np.random.default_rng(0).permutation(len(pooled))
        first = min(TRAIN_ROWS, len(pooled) * TRAIN_ROWS // sum(_ACTIVITIES.values()))
        splits = [pooled.take(order[:first]), pooled.take(order[first:])]
    for part in splits:
        part.X.attrs["original"] = original
    return splits[0], splits[1]


def _joined(first: Split, second: Split) -> Split:
    frames = [pd.concat(pair, ignore_index=True) for pair in ((first.X, second.X), (first.S, second.S))]
    activity = pd.concat([first.targets["activity"], second.targets["activity"]], ignore_index=True)
    return Split(frames[0], frames[1], {"activity": activity})


def _part(read: Read, part: str) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Features, subject and activity of one part."""
    content, subjects, activities = (read(f"{part}/{name}_{part}.txt") for name in ("X", "subject", "y"))
    titles, meanings = (read(name).decode(errors="replace").splitlines() for name in ("features.txt", _LABELS))
    try:
        features = pd.read_csv(io.BytesIO(content), sep=r"\s+", header=None, dtype=np.float32)
        subject, code = (np.loadtxt(io.BytesIO(text), dtype=int, ndmin=1) for text in (subjects, activities))
        names = [line.split(maxsplit=1)[1] for line in titles if line.strip()]
        labels = dict(line.split(maxsplit=1) for line in meanings if line.strip())
    except (ValueError, IndexError) as error:
        raise InputError(f"The {part} part of UCI HAR cannot be read: a file has an unexpected form.") from error
    if features.shape != (len(subject), _FEATURES) or len(code) != len(subject) or len(names) != _FEATURES:
        raise InputError(f"The {part} part of UCI HAR must have {_FEATURES} features and one label per row and kind.")
    if features.isna().any(axis=None) or not np.isin(code, [int(key) for key in labels]).all():
        raise InputError(f"The {part} part of UCI HAR has an unknown activity or a gap in its features.")
    # Some of UCI's names occur three times: a number before each makes them unique.
    features.columns = [f"{i + 1} {name}" for i, name in enumerate(names)]
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    features.attrs["original"] = blob == _ORIGINALS[part]
    activity = pd.Series(code, name="activity").astype(str).map({key: text.strip() for key, text in labels.items()})
    return features, pd.Series(subject, name="subject"), activity


def _reader(path: Path) -> Read:
    """A function that reads a file of the data set by name, from a folder or an archive."""
    contents: dict[str, bytes] = {}
    if path.is_file():
        contents = _unpacked(path)

    def read(name: str) -> bytes:
        if path.is_dir():
            file = path / name
            content = file.read_bytes() if file.is_file() else None
        else:
            content = contents.get(name)
        if content is None:
            raise InputError(f"UCI HAR: {name} is missing from {path.name}. Unpack it again.")
        return content

    return read


def _unpacked(path: Path) -> dict[str, bytes]:
    """The files of an archive, by their path relative to the data set's folder."""
    wanted = {"features.txt", _LABELS} | {
        f"{part}/{name}_{part}.txt" for part in ("train", "test") for name in ("X", "y", "subject")
    }
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                return {n: archive.read(f"{_ROOT}/{n}") for n in wanted if f"{_ROOT}/{n}" in archive.namelist()}
        with tarfile.open(path) as archive:
            members = {member.name: member for member in archive if member.isfile()}
            files = {n: archive.extractfile(members[f"{_ROOT}/{n}"]) for n in wanted if f"{_ROOT}/{n}" in members}
            return {name: file.read() for name, file in files.items() if file is not None}
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise InputError(f"{path.name} cannot be unpacked: it is damaged or not an archive. Fetch it again.") from error
