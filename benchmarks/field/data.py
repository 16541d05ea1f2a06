"""Tables of the comparison. Each is a YAML file: where the rows are, what S is, and which tasks there are.

    file: tables/dutch.csv.gz              in the data home (FAIRVEIL_DATA) or an absolute path; or loader: NAME
    sensitive: [sex]                       several columns are hidden jointly; `ranges: 4` cuts numbers into quantiles
    target: {occupation: occupation == 1}  the named task; its column is not part of X
    unnamed: {married: marital_status == 2}   tasks that no method is told; their columns stay in X
    numbers: [age]                         columns of numbers; all others are categories
    drop: [PWGTP]                          columns left out

Every third row is a test row (Adult has its own). Of the others, 65 % are fitted on and 35 % are new to the methods:
attackers learn from either, and settings are chosen on new rows. A seed draws which rows take part.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fairveil import InputError
from fairveil.datasets import load_adult
from fairveil.datasets.base import find_data
from field import synthetic
from field.protocol import Rows

FOLDER = Path(__file__).parent / "tables"
PARTS = ("fit", "new", "test")
_FITTED = 0.65
_KEYS = {"file", "loader", "sensitive", "ranges", "target", "unnamed", "numbers", "drop", "about"}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True)
class Table:
    """The three parts of a table, with the tasks that no method is told. optimum: lift kept by the best predictor."""

    name: str
    parts: Mapping[str, Rows]
    unnamed: Mapping[str, Mapping[str, np.ndarray]]
    optimum: Mapping[str, float] = field(default_factory=dict)

    @property
    def groups(self) -> int:
        """The number of joint values of S among the fitted rows."""
        return len(np.unique(self.parts["fit"].group))


def names() -> list[str]:
    """The tables that are described in the folder."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def description(name: str) -> dict[str, Any]:
    """The content of a table's YAML file (a name in the folder, or a path), checked."""
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise InputError(
            f"Unknown table {name!r}. Known tables: {', '.join(names())}; or give the path of a YAML file."
        )
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not found.keys() <= _KEYS or ("file" in found) == ("loader" in found):
        raise InputError(f"{path.name} must have `file` or `loader`, and no keys but {', '.join(sorted(_KEYS))}.")
    missing = {"sensitive", "target"} - found.keys() if "file" in found else set()
    if missing:
        raise InputError(f"{path.name} lacks {', '.join(sorted(missing))}.")
    return found


def load(name: str, seed: int = 0, rows: int | None = None) -> Table:
    """Read and split a table. rows: at most this many in all parts together, drawn by the seed."""
    told = description(name)
    if "loader" in told:
        frame, test, optimum = _LOADERS[told["loader"]](seed)
        told = {**_defaults(frame), **told}
    else:
        frame, optimum = _read(told), {}
        test = np.arange(len(frame)) % 3 == 2
    S, target = _sensitive(frame, told), _tasks(frame, told["target"])
    unnamed = _tasks(frame, told.get("unnamed", {}))
    hidden = {*told["sensitive"], *told.get("drop", []), *(_parsed(text)[0] for text in told["target"].values())}
    X = frame.drop(columns=[name for name in frame if name in hidden])
    order = np.random.default_rng(seed).permutation(len(frame))
    learn, judge = order[~test[order]], order[test[order]]
    if rows is not None:
        learn, judge = learn[: rows - rows // 3], judge[: rows // 3]
    cut = int(_FITTED * len(learn))
    index = dict(zip(PARTS, (np.sort(learn[:cut]), np.sort(learn[cut:]), np.sort(judge)), strict=True))
    [y] = target.values()
    parts = {part: Rows(X.iloc[at].reset_index(drop=True), S.iloc[at].reset_index(drop=True), y[at])
             for part, at in index.items()}  # fmt: skip
    return Table(name, parts, {task: {part: y[at] for part, at in index.items()} for task, y in unnamed.items()},
                 optimum)  # fmt: skip


def _read(told: Mapping[str, Any]) -> pd.DataFrame:
    path = Path(told["file"])
    path = path if path.is_absolute() else find_data([told["file"]], f"The table {path.name}", "")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    used = [*told["sensitive"], *told.get("numbers", []), *told.get("drop", []),
            *(_parsed(text)[0] for key in ("target", "unnamed") for text in told.get(key, {}).values())]  # fmt: skip
    absent = sorted(set(used) - set(frame))
    if absent:
        raise InputError(f"{path.name} has no columns {', '.join(absent)}.")
    for name in told.get("numbers", []):
        frame[name] = pd.to_numeric(frame[name], errors="coerce")
    # Rows whose task or number is not applicable take no part.
    tested = [_parsed(text) for text in told["target"].values()]
    known = frame[told.get("numbers", [])].notna().all(axis=1)
    for name, compare, _ in tested:
        known &= pd.to_numeric(frame[name], errors="coerce").notna() | (compare == "==")
    return frame[known].reset_index(drop=True)


def _defaults(frame: pd.DataFrame) -> dict[str, Any]:
    return {"numbers": [name for name in frame if pd.api.types.is_numeric_dtype(frame[name])]}


def _parsed(text: str) -> tuple[str, str, str]:
    found = re.fullmatch(r"(.+?) (>=|==) (.+)", text)
    if found is None:
        raise InputError("A task must be of the form `column >= number` or `column == value`.")
    return found[1], found[2], found[3]


def _tasks(frame: pd.DataFrame, told: Mapping[str, str]) -> dict[str, np.ndarray]:
    made = {}
    for task, text in told.items():
        name, sign, value = _parsed(text)
        number = sign == ">=" or pd.api.types.is_numeric_dtype(frame[name])
        column = pd.to_numeric(frame[name], errors="coerce") if number else frame[name].astype(str)
        made[task] = np.asarray(_COMPARE[sign](column, float(value) if number else value)).astype(int)
    return made


def _sensitive(frame: pd.DataFrame, told: Mapping[str, Any]) -> pd.DataFrame:
    S = frame[told["sensitive"]]
    if "ranges" in told:
        shares = np.linspace(0.0, 1.0, told["ranges"] + 1)[1:-1]
        cut = {name: np.searchsorted(np.quantile(column.astype(float), shares), column.astype(float), side="right")
               for name, column in S.items()}  # fmt: skip
        S = pd.DataFrame({name: [f"range {code}" for code in values] for name, values in cut.items()})
    return S.astype(str)


def _adult(case: str) -> Callable[[int], tuple[pd.DataFrame, np.ndarray, dict[str, float]]]:
    def read(seed: int) -> tuple[pd.DataFrame, np.ndarray, dict[str, float]]:
        parts = load_adult(case)
        frames = [pd.concat([part.X, part.S, pd.DataFrame(part.targets)], axis=1) for part in parts]
        return pd.concat(frames, ignore_index=True), np.arange(sum(map(len, parts))) >= len(parts[0]), {}

    return read


def _synthetic(make: Callable[[int], tuple[pd.DataFrame, dict[str, float]]]) -> Callable[..., Any]:
    def read(seed: int) -> tuple[pd.DataFrame, np.ndarray, dict[str, float]]:
        frame, optimum = make(seed)
        return frame, np.arange(len(frame)) % 3 == 2, optimum

    return read


_LOADERS = {"adult-I": _adult("I"), "adult-II": _adult("II"), "merit": _synthetic(synthetic.merit),
            "shifted": _synthetic(synthetic.shifted)}  # fmt: skip
