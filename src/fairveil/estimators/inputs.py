"""The caller's input to `fit`, checked and converted to tensors. Where possible, all problems are reported at once."""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil._utils.randomness import ByteSource, KeyedStream, SystemRandom, whole_number_bytes
from fairveil._utils.weights import Array, normalised
from fairveil.data.batch import AnySchema, Batch, check_types, codec_for, describe
from fairveil.data.columns import family_of
from fairveil.data.frames import is_copy, missing_mask, read_columns, table_digest
from fairveil.data.kinds import is_class
from fairveil.data.layout import Layout
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.data.sensitive import Sensitive, describe_sensitive
from fairveil.data.table_codec import HandleUnknown
from fairveil.objectives import LogLoss, Loss, SquaredLoss
from fairveil.training import Target, Task
from fairveil.veil import Veil

FEWEST_TABLE_ROWS = 10

Budget = float | dict[str, float]


@dataclass(frozen=True)
class Prepared:
    """A table ready for training: its schema, its sensitive features and its rows as tensors.

    original: the rows with numbers as the caller has them, from which distortion is measured. counted: which rows of
    the caller's table these are: all but those of weight 0.
    """

    schema: AnySchema
    sensitive: Sensitive
    rows: Rows
    original: Tensor
    tasks: tuple[Task, ...]
    targets: tuple[Target, ...]
    counted: NDArray[np.bool_]


def split_sensitive(batch: Batch, columns: Sequence[str | int] | None, schema: Schema | None) -> list[str]:
    """The names of the sensitive columns inside X, given by name or position, or by their role in the schema."""
    names = []
    if columns is None and schema is not None:
        return [column.name for column in schema.columns if column.role == "sensitive"]
    known = batch.names
    if columns and not known:
        raise InputError("Images have no columns: leave 'sensitive_columns' out, and pass sensitive_features.")
    for column in columns or ():
        position_ok = isinstance(column, (int, np.integer)) and -len(known) <= column < len(known)
        if position_ok:
            names.append(known[int(column)])
        elif isinstance(column, str) and column in known:
            names.append(column)
        else:
            raise InputError(f"sensitive_columns names {column!r}, but X has no such column.")
    return names


def read_sensitive(batch: Batch, inside: list[str], given: Any) -> pa.Table:
    """S as a table, from the sensitive columns of X or from `sensitive_features`; exactly one of them."""
    if inside and given is not None:
        raise InputError(
            "Give S once: either inside X (sensitive_columns, or the role 'sensitive' in the schema) or separately "
            "(sensitive_features)."
        )
    if inside:
        return batch.select(inside)
    if given is None:
        raise InputError(
            "S is missing: pass fit(X, sensitive_features=S), or name its columns inside X with sensitive_columns=."
        )
    secret = read_columns(given, "sensitive")
    if secret.num_rows != len(batch):
        raise InputError(f"X has {len(batch)} rows, sensitive_features {secret.num_rows}. They must match.")
    return secret


def given_sensitive(veil: Veil, batch: Batch, given: Any, method: str) -> pa.Table | None:
    """S for a fitted encoder, as a table: from the caller, or from the columns of X that hold it; None if not seen."""
    if not veil.sees_sensitive:
        if given is not None:
            raise InputError(f"S is not seen here (sees_sensitive=False): call {method}(X) without it.")
        return None
    inside = [column.name for column in veil.schema.columns if column.role == "sensitive"]
    whole = bool(inside) and set(inside) == {c.name for c in veil.sensitive.columns}
    if given is None and whole:
        return batch.select(inside)
    if given is None:
        raise InputError(f"S is seen here (sees_sensitive=True): pass {method}(X, sensitive_features=S).")
    return read_columns(given, "sensitive")


@dataclass(frozen=True)
class Aims:
    """The parameters that determine how S and the task are read."""

    loss: Loss
    target_weight: float
    sees_sensitive: bool
    per_column: bool


def prepare(
    batch: Batch,
    secret: pa.Table,
    schema: Schema | None,
    inside: list[str],
    y: Any,
    aims: Aims,
    *,
    bins: bool | Callable[[Layout], bool],
    handle_unknown: HandleUnknown,
    weights: Array | None = None,
) -> Prepared:
    """Check and encode everything. handle_unknown: how to treat categories that the caller's schema does not list."""
    counted = np.ones(len(batch), dtype=bool) if weights is None else weights > 0
    batch, secret, y, weights = _counted(batch, secret, y, weights)
    if len(batch) < FEWEST_TABLE_ROWS:
        raise InputError(
            f"Found n_samples = {len(batch)} rows; at least {FEWEST_TABLE_ROWS} are needed to learn a veil."
        )
    described = describe(batch, schema, inside, bins=bins)
    check_types(batch, described)
    # The caller's schema may set the role `encode` on purpose, but releasing S unchanged is always a mistake.
    checked = [c.name for c in described.columns if c.released and (schema is None or c.role != "encode")]
    _refuse_copies(batch, secret, checked)
    rows = codec_for(described, handle_unknown).encode_rows(batch.content)
    x, original = rows.x, rows.original
    listed = {column.name: column for column in described.columns if column.role == "sensitive" and column.categories}
    sensitive = describe_sensitive(secret, discrete=aims.loss.discrete, given=listed)
    secrets_, outputs = _secrets(sensitive, secret, aims.per_column)
    tasks, truths = _tasks(y, aims.target_weight, len(x))
    shown = sensitive.inputs(secret) if aims.sees_sensitive else None
    weight = None if weights is None else torch.from_numpy(normalised(weights))
    targets = [Target(n, float(aims.loss.chance(values, weight))) for n, values in zip(outputs, secrets_, strict=True)]
    held = Rows(x, shown, secrets_, truths, weight=weight)
    return Prepared(described, sensitive, held, original, tasks, tuple(targets), counted)


def _counted(
    batch: Batch, secret: pa.Table, y: Any, weights: Array | None
) -> tuple[Batch, pa.Table, Any, Array | None]:
    """Drop rows of weight 0."""
    if weights is None or weights.all():
        return batch, secret, y, weights
    kept = np.flatnonzero(weights)
    task = None if y is None else read_columns(y, "y")
    if task is not None and task.num_rows == len(batch):
        task = task.take(pa.array(kept))
    return batch.take(kept), secret.take(pa.array(kept)), task, weights[kept]


def check_budget(owner: str, budget: Any, schema: AnySchema) -> Budget:
    """A positive number, or a mapping from each kind of encoded column to one."""
    if isinstance(budget, dict):
        kinds = _kinds(schema)
        if set(budget) != kinds:
            expected = " and ".join(sorted(kinds))
            raise InputError(f"A budget by kind must name {expected}, the kinds of column in X. Got {sorted(budget)}.")
        return {kind: _positive(owner, value) for kind, value in budget.items()}
    return _positive(owner, budget)


def _positive(owner: str, budget: Any) -> float:
    if isinstance(budget, bool) or not isinstance(budget, (int, float, np.number)) or not 0 < budget < math.inf:
        raise InputError(must_be(owner, "budget", "a finite number above 0, or one for each kind of column", budget))
    return float(budget)


def seed_from(random_state: Any, owner: str = "FairEncoder") -> int:
    """A seed for training: from an int, a numpy generator (which advances), or the operating system."""
    if random_state is None:
        return secrets.randbits(63)
    if _is_seed(random_state):
        return int(random_state) % 2**63
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63 - 1))
    raise InputError(_no_random_state(random_state, owner))


def draw_source(random_state: Any, owner: str, batch: Batch, secret: pa.Table | None = None) -> ByteSource:
    """The randomness of one release. Never a torch generator: its 32 bits can be searched.

    With None it is the operating system's. With an int, the same table gets the same draw, and another table a
    different one: otherwise rows released one by one would all get the same random numbers.
    """
    if random_state is None:
        return SystemRandom()
    if _is_seed(random_state):
        parts = [batch.digest(), *([] if secret is None else [table_digest(secret)])]
        return KeyedStream(b"fairveil draw", whole_number_bytes(int(random_state)), *parts)
    if isinstance(random_state, (np.random.RandomState, np.random.Generator)):
        return KeyedStream(b"fairveil draw", random_state.bytes(32))
    raise InputError(_no_random_state(random_state, owner))


def _is_seed(random_state: Any) -> bool:
    whole = isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool)
    return whole and random_state >= 0


def _no_random_state(random_state: Any, owner: str) -> str:
    return must_be(owner, "random_state", "None, a whole number >= 0 or a numpy generator", random_state)


def pick_device(device: str) -> torch.device:
    """The device by name; `auto` uses a GPU if there is one."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if available[name]))
    if device not in available:
        raise InputError(must_be("Training", "device", "'auto', 'cpu', 'cuda' or 'mps'", device))
    if not available[device]:
        raise InputError(f"device={device!r} is not available on this machine. Use 'auto' or 'cpu'.")
    return torch.device(device)


def _refuse_copies(batch: Batch, secret: pa.Table, names: list[str]) -> None:
    """Reject columns of X that equal a sensitive one, possibly with renamed values."""
    problems = [
        f"Column {name!r} of X is the sensitive column {other!r} itself, perhaps with renamed values. Drop it from X, "
        "or name it in sensitive_columns. (To censor it anyway, pass a schema that gives it the role 'encode'.)"
        for name in names
        for other in secret.column_names
        if name in batch.names and is_copy(batch.select([name])[name], secret[other])
    ]
    if problems:
        raise InputError(problems)


def _secrets(sensitive: Sensitive, secret: pa.Table, per_column: bool) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    if not sensitive.discrete:
        return (sensitive.numbers(secret),), (sensitive.width,)
    targets, outputs = [sensitive.classes_of(secret)], [len(sensitive.joint)]
    if per_column and len(sensitive.columns) > 1:
        targets += list(sensitive.codes(secret).unbind(dim=1))
        outputs += list(sensitive.classes)
    return tuple(targets), tuple(outputs)


def _tasks(y: Any, weight: float, rows: int) -> tuple[tuple[Task, ...], tuple[Tensor, ...]]:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
        raise InputError(must_be("FairEncoder", "target_weight", "a finite number of at least 0", weight))
    if weight == 0:
        return (), ()
    if y is None:
        raise InputError("target_weight is above 0, so the task must be given: fit(X, y, sensitive_features=S).")
    table = read_columns(y, "y")
    if table.num_rows != rows:
        raise InputError(f"X has {rows} rows, y {table.num_rows}. They must have the same length.")
    found = [_task(name, table[name], weight) for name in table.column_names]
    return tuple(task for task, _ in found), tuple(truth for _, truth in found)


def _task(name: str, column: pa.ChunkedArray, weight: float) -> tuple[Task, Tensor]:
    if missing_mask(column).any():
        raise InputError(f"The target {name!r} has missing values. Fill them or drop those rows.")
    values = column.to_numpy(zero_copy_only=False)
    distinct, codes = np.unique(values, return_inverse=True)
    if len(distinct) < 2:
        raise InputError(f"The target {name!r} holds a single value in all rows: there is nothing to predict.")
    number = family_of(column.type) == "number"
    if number and not np.isfinite(values.astype(np.float64)).all():
        raise InputError(f"The target {name!r} holds infinity. Replace it with a number.")
    if not is_class(column):
        standard = (values - values.mean()) / values.std()
        return Task(weight, SquaredLoss(), 1), torch.from_numpy(standard.astype(np.float32)).unsqueeze(1)
    return Task(weight, LogLoss(), len(distinct)), torch.from_numpy(codes.astype(np.int64))


def _kinds(schema: AnySchema) -> set[str]:
    layout = schema.layout
    groups = [group for group in layout.groups if group.column.role == "encode"]
    categorical = {"categorical"} if any(g.number is None or g.column.missing for g in groups) else set()
    continuous = {"continuous"} if any(column.role == "encode" for column in layout.numbers) else set()
    return categorical | continuous
