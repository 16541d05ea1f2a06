"""UTKFace (Zhang, Song and Qi 2017): faces with age, gender and ethnicity in their file names. Research use only."""

import io
import zipfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fairveil._utils.errors import InputError, must_be
from fairveil.datasets.base import ImageSplit, check_counts, find_data, sha256

_NAMES = ("utkface_64x64.zip", "UTKFace.zip", "UTKFace", "utkface")
_SHA256 = {"utkface_64x64.zip": "e91b05fce57f3aed6008d221f65c77675ea1adb3ef74847fd271197d798bd945"}
GENDERS = ("male", "female")
ETHNICITIES = ("White", "Black", "Asian", "Indian", "Others")
#: Label counts of all faces with three labels; and the paper's selection: ages 10 to 65, four ethnicities.
_ALL = {"male": 12_391, "female": 11_314, "White": 10_078, "Black": 4_526, "Asian": 3_434, "Indian": 3_975,
        "Others": 1_692}  # fmt: skip
AGES = (10, 65)
#: The share of faces used for testing.
_TEST = 0.2
#: Limits per face.
_MOST_PIXELS, _MOST_BYTES = 2**24, 2**24


def load_utkface(
    size: int = 64, *, ages: tuple[int, int] = AGES, others: bool = False, verify: bool = True
) -> tuple[ImageSplit, ImageSplit]:
    """Faces as (rows, size, size, 3) uint8; S is `gender`, the targets are `ethnicity` and `age`.

    ages: the youngest and the oldest, as in the paper; others: include the ethnicity "Others", which the paper leaves
    out. A fifth of the faces, always the same, is the test part (the paper's own split is not known). Files whose names
    lack a label are left out. verify: check the label counts of the complete data set.
    """
    if not isinstance(size, int) or not 8 <= size <= 200:
        raise InputError(must_be("load_utkface", "size", "a whole number from 8 to 200", size))
    source = "Get the aligned and cropped faces (UTKFace.zip or its folder) from susanqq.github.io/UTKFace."
    path = find_data(_NAMES, "UTKFace", source)
    if verify and path.name in _SHA256 and sha256(path.read_bytes()) != _SHA256[path.name]:
        raise InputError(f"{path.name} is not the file it should be: its SHA-256 differs. Replace it.")
    names = sorted(_listed(path))
    labels = pd.DataFrame([parsed for name in names if (parsed := _labels(name)) is not None])
    if labels.empty:
        raise InputError(f"{path.name} holds no face: expected names like 25_1_2_20170116174525125.jpg.chip.jpg.")
    if verify:
        check_counts("UTKFace", Counter([*labels["gender"], *labels["ethnicity"]]), _ALL)
    wanted = labels["age"].between(*ages) & (others | (labels["ethnicity"] != "Others"))
    labels = labels[wanted].reset_index(drop=True)
    if labels.empty:
        raise InputError("UTKFace: no face is left within these ages.")
    images = _read_images(path, labels["file"].tolist(), size)
    targets = {name: labels[name] for name in ("ethnicity", "age")}
    everything = ImageSplit(images, labels[["gender"]], targets)
    order = np.random.default_rng(0).permutation(len(labels))
    tested = int(_TEST * len(labels))
    return everything.take(order[tested:]), everything.take(order[:tested])


def _labels(file: str) -> dict[str, object] | None:
    """Age, gender and ethnicity from a file name; None if one is missing."""
    fields = Path(file).name.split("_")
    if len(fields) < 4 or not all(field.isdigit() for field in fields[:3]):
        return None
    age, gender, ethnicity = map(int, fields[:3])
    if gender >= len(GENDERS) or ethnicity >= len(ETHNICITIES):
        return None
    return {"file": file, "age": age, "gender": GENDERS[gender], "ethnicity": ETHNICITIES[ethnicity]}


def _listed(path: Path) -> Iterator[str]:
    if path.is_dir():
        yield from (file.name for file in path.iterdir() if file.suffix.lower() == ".jpg")
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield from (name for name in archive.namelist() if name.lower().endswith(".jpg"))
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path.name} cannot be unpacked: it is damaged or not a zip. Fetch it again.") from error


def _read_images(path: Path, files: list[str], size: int) -> NDArray[np.uint8]:
    """All images at one size, decoded in threads: Pillow releases the interpreter's lock while it decodes."""
    images = np.empty((len(files), size, size, 3), dtype=np.uint8)

    def read(index: int, content: bytes) -> None:
        try:
            with Image.open(io.BytesIO(content)) as image:
                if image.width * image.height > _MOST_PIXELS:
                    raise InputError(f"An image of {path.name} is too large ({Path(files[index]).name}).")
                face = image.convert("RGB")
                if face.size != (size, size):
                    face = face.resize((size, size), Image.Resampling.LANCZOS)
                images[index] = np.asarray(face)
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise InputError(f"An image of {path.name} cannot be read ({Path(files[index]).name}).") from error

    with ThreadPoolExecutor() as pool:
        if path.is_dir():
            contents = (Path(path / file).read_bytes() for file in files)
            list(pool.map(read, range(len(files)), contents))
        else:
            with zipfile.ZipFile(path) as archive:
                if any(archive.getinfo(file).file_size > _MOST_BYTES for file in files):
                    raise InputError(f"{path.name} holds a file of more than {_MOST_BYTES // 2**20} MB.")
                list(pool.map(read, range(len(files)), map(archive.read, files)))
    return images
