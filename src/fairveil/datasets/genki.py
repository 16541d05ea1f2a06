"""GENKI (Whitehill and Movellan 2012) as prepared for the minimax filter: 16 x 16 grey faces, smile and gender.

In both splits every pair of expression and gender occurs equally often, so either prior is one half.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from fairveil._utils.errors import InputError
from fairveil.datasets.base import ImageSplit, check_counts, find_data, sha256

SIDE = 16
_NAMES = ("genki.mat", "genki/genki.mat", "GENKI/genki.mat")
_SHA256 = "2dc259ffd1434d59d57eb03024aa17fb075f8636ac854e5ea6f7e765892155e8"
_GENDERS, _EXPRESSIONS = ("male", "female"), ("not smiling", "smiling")
#: Images per pair of expression and gender.
_EACH = {"train": 435, "test": 50}


def load_genki(*, verify: bool = True) -> tuple[ImageSplit, ImageSplit]:
    """1,740 training and 200 test images, (rows, 16, 16) float32 in [0, 1]; S is `gender`, the target `expression`.

    A few pixels of the file lie outside [0, 1], by at most 0.04; they are clipped. verify: check the file's SHA-256 and
    label counts.
    """
    source = "The file genki.mat of the minimax filter (Hamm, github.com/hammlab/MinimaxFilter) holds it."
    path = find_data(_NAMES, "GENKI", source)
    if verify and sha256(path.read_bytes()) != _SHA256:
        raise InputError(f"{path.name} is not the GENKI file: its SHA-256 differs. Replace it, or pass verify=False.")
    return _read(path, "train", verify=verify), _read(path, "test", verify=verify)


def _read(path: Path, part: str, *, verify: bool) -> ImageSplit:
    from scipy.io import loadmat

    try:
        file = loadmat(path)
        pixels, smile, sex = (np.asarray(file[f"{name}{part}"]) for name in ("X", "y1_", "y2_"))
    except (KeyError, ValueError, NotImplementedError, OSError) as error:
        # NotImplementedError: raised by scipy for files of MATLAB 7.3.
        raise InputError(f"{path.name} cannot be read as GENKI: it needs X, y1_ and y2_ of {part}.") from error
    if pixels.ndim != 2 or len(pixels) != SIDE**2 or not smile.size == sex.size == pixels.shape[1]:
        raise InputError(f"{path.name}: expected one image of {SIDE**2} pixels per column, with two labels each.")
    if not (np.isin(smile, (1, 2)).all() and np.isin(sex, (1, 2)).all()):
        raise InputError(f"{path.name}: labels must be 1 or 2.")
    # One image per column, stored column by column.
    images = pixels.T.reshape(-1, SIDE, SIDE).swapaxes(1, 2).clip(0.0, 1.0).astype(np.float32)
    gender = pd.Series(np.array(_GENDERS)[sex.ravel().astype(int) - 1], name="gender")
    expression = pd.Series(np.array(_EXPRESSIONS)[smile.ravel().astype(int) - 1], name="expression")
    if verify:
        pairs = Counter(zip(gender, expression, strict=True))
        check_counts(f"The {part} part of GENKI", pairs, {(g, e): _EACH[part] for g in _GENDERS for e in _EXPRESSIONS})
    return ImageSplit(images, gender.to_frame(), {"expression": expression})
