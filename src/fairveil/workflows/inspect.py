"""Inspect a table: propose a schema to edit, with a role for every column and notes for the curator."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from fairveil._utils.atomic import refuse_special, write_atomic
from fairveil._utils.errors import InputError
from fairveil._utils.progress import progress, whole_job
from fairveil.data.bins import most_bins
from fairveil.data.columns import FEWEST, MOST_CATEGORIES, Column, Role, family_of, shown
from fairveil.data.dependencies import Dependency, find_dependencies
from fairveil.data.frames import missing_mask, plain_column
from fairveil.data.infer import infer_column
from fairveil.data.kinds import FEWEST_OF_A_GROUP, is_class, joint_labels, with_guessed_type
from fairveil.data.schema import Schema
from fairveil.data.sensitive import OTHERS, describe_sensitive, small_groups
from fairveil.data.types import text_pattern
from fairveil.metrics import weighted_auc
from fairveil.workflows.reading import TableFile
from fairveil.workflows.sampling import MOST_ROWS, sample_rows

#: Maximum bytes of a schema or configuration file.
_MOST_BYTES = 2**22
#: Maximum number of lists, mappings and entries in such a file: each takes far more memory than its characters.
_MOST_PARTS = 20_000
#: A column that predicts S in this share of the rows is taken for a copy of S.
_NEARLY = 0.95
#: Or with this AUC: where one group is large, accuracy says little.
_NEARLY_AUC = 0.99
#: Text is an identifier if this share of its values is distinct; for integers, this share.
_OWN_TEXT, _OWN_NUMBERS = 0.5, 0.95
_FEWEST_TO_TELL = 50
#: The title of the stage after reading.
_COLUMNS = "Inspecting columns"


@dataclass(frozen=True)
class Found:
    """One column: its description (role None if the curator must decide), how well it alone predicts S, and notes.

    tells: the AUC of predicting S from this column alone, for several classes averaged over them; 0.5 is guessing.
    """

    column: Column
    distinct: int
    missing: float
    tells: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """The content of a file. majority: the share of the most frequent value of S."""

    file: str
    rows: int
    found: tuple[Found, ...]
    sensitive: tuple[str, ...]
    majority: float | None
    dependencies: tuple[Dependency, ...] = ()

    @property
    def undecided(self) -> list[str]:
        """The columns without a role."""
        return [found.column.name for found in self.found if found.column.role is None]

    def to_yaml(self) -> str:
        """A schema to edit: notes are comments, and an empty role stops every command."""
        plain = asdict(Column("", "categorical"))
        columns = [
            {name: _listed(value) for name, value in asdict(found.column).items()
             if name in ("name", "role", "kind") or value != plain[name]}
            for found in self.found
        ]  # fmt: skip
        rules = [{name: _listed(value) for name, value in asdict(rule).items()} for rule in self.dependencies]
        notes = {found.column.name: found.notes for found in self.found}
        return schema_text(self.file, self.rows, columns, rules, notes)

    def schema(self) -> Schema:
        """The proposed schema; every column must have a role."""
        return Schema(tuple(found.column for found in self.found), self.dependencies)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        columns = [
            {"name": f.column.name, "role": f.column.role, "kind": f.column.kind, "distinct": f.distinct,
             "missing": f.missing, "tells": f.tells, "notes": list(f.notes)}
            for f in self.found
        ]  # fmt: skip
        return {"file": self.file, "rows": self.rows, "sensitive": list(self.sensitive), "majority": self.majority,
                "columns": columns, "undecided": self.undecided}  # fmt: skip


def schema_text(
    file: str,
    rows: int,
    columns: Sequence[Mapping[str, Any]],
    rules: Sequence[Mapping[str, Any]],
    notes: Mapping[str, Sequence[str]],
) -> str:
    """A schema as YAML to edit, from plain values: one line per column, with its notes as comments."""
    lines = [
        f"# Columns of {shown(file)}, from {rows:,} rows.",
        "# Edit the roles, then: fairveil fit FILE --schema THIS",
        "#   encode     released, censored        keep   released as it is, seen by every adversary",
        "#   sensitive  hidden, not released      pass   released as it is, seen by nobody (audited)",
        "#   drop       not released              (empty) not decided: nothing runs",
        f"# Categories of fewer than {FEWEST} rows are not listed; ends of ranges are reached by {FEWEST} rows.",
        "columns:",
    ]
    for column in columns:
        lines += [f"# {shown(column['name'])}: {note}" for note in notes.get(column["name"], ())]
        lines.append(_yaml([dict(column)]))
    if rules:
        lines += ["# Columns determined by another column: every release respects this.", "dependencies:"]
        lines.append(_yaml([dict(rule) for rule in rules]))
    return "\n".join(lines) + "\n"


def _yaml(rows: list[dict[str, Any]]) -> str:
    text: str = yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    return text.rstrip()


def edit_roles(path: str | Path, inspected: Mapping[str, Any], roles: Mapping[str, str | None]) -> list[str]:
    """Change roles in a schema file as `inspect` writes it; returns the columns that still have none.

    inspected: `Inspection.to_dict`, for the comments.
    """
    path = Path(path)
    values = read_yaml(path, "schema")
    listed = values.get("columns")
    if not isinstance(listed, list) or not all(isinstance(c, dict) and isinstance(c.get("name"), str) for c in listed):
        raise InputError(f"{path.name} is not a schema: it must list 'columns', as fairveil inspect writes them.")
    unknown = [name for name in roles if name not in {column["name"] for column in listed}]
    strange = [role for role in roles.values() if role is not None and role not in get_args(Role)]
    if unknown or strange:
        raise InputError(f"{path.name} cannot be edited: a column or a role is unknown.")
    columns = [{**column, "role": roles.get(column["name"], column.get("role"))} for column in listed]
    notes = {column["name"]: column["notes"] for column in inspected["columns"]}
    text = schema_text(inspected["file"], inspected["rows"], columns, values.get("dependencies") or [], notes)
    write_atomic(path, text.encode())
    return [column["name"] for column in columns if column["role"] is None]


def inspect_file(
    source: TableFile, sensitive: Sequence[str] = (), *, coded: Sequence[str] = (), seed: int = 0,
    show_progress: bool = False,
) -> Inspection:  # fmt: skip
    """Read (a sample of) the rows and propose a schema. Categories held by fewer than ten rows are left out.

    coded: columns whose numbers are labels, such as postcodes: they become categorical.
    """
    readable = [name for name in source.names if name not in source.nested]
    with whole_job({_COLUMNS: None}):
        sample = sample_rows(source, readable, {}, MOST_ROWS, seed, show_progress=show_progress)
        return inspect_rows(source, sample.table, sample.rows, sensitive, coded, show_progress=show_progress)


def inspect_rows(
    source: TableFile, table: pa.Table, rows: int, sensitive: Sequence[str] = (), coded: Sequence[str] = (), *,
    show_progress: bool = False,
) -> Inspection:  # fmt: skip
    """Propose a schema from rows of a file, as text for CSV files. rows: how many rows the file has."""
    unknown = [name for name in sensitive if name not in source.names]
    if unknown:
        raise InputError([f"{source.path.name} has no column {name!r} to be sensitive." for name in unknown])
    types: dict[str, str | None] = {name: str(kind) for name, kind in source.types.items()}
    if source.kind == "csv":
        types = {name: text_pattern(table[name]) for name in table.column_names}
        table = pa.table({name: plain_column(with_guessed_type(table[name])) for name in table.column_names})
    secret = _classes(table.select(list(sensitive))) if sensitive else None
    majority = None if secret is None else float(np.bincount(secret).max() / len(secret))
    found = []
    with progress(table.num_columns, _COLUMNS, show_progress, unit="columns") as report:
        for name in table.column_names:
            found.append(_inspect_column(name, table[name], types.get(name), name in sensitive, secret, majority,
                                         len(source.names), coded=name in coded))  # fmt: skip
            report(len(found))
    nested = {name: f"no role yet. Values of the type {kind} cannot be censored: 'drop'."
              for name, kind in source.nested.items()}  # fmt: skip
    by_name = {each.column.name: each for each in found}
    found = [
        Found(Column(name, "categorical", None), 0, 0.0, None, (nested[name],)) if name in nested else by_name[name]
        for name in source.names
    ]
    columns, rules = find_dependencies([each.column for each in found], table)
    found = [replace(each, column=column) for each, column in zip(found, columns, strict=True)]
    return Inspection(source.path.name, rows, tuple(found), tuple(sensitive), majority, rules)


def _inspect_column(
    name: str,
    values: pa.ChunkedArray,
    type_: str | None,
    is_sensitive: bool,
    secret: np.ndarray | None,
    majority: float | None,
    columns: int,
    *,
    coded: bool = False,
) -> Found:
    gone = missing_mask(values)
    distinct = int(pc.count_distinct(values).as_py()) if family_of(values.type) else 0
    rows = len(values)
    share = float(gone.mean())
    if is_sensitive:
        column, _ = infer_column(name, values, "sensitive", type_=type_)
        column, told = _with_groups(column, values)
        return Found(column, distinct, share, None, told)
    column, problems = infer_column(name, values, "encode", type_=type_, coded=coded, most=most_bins(columns))
    notes = []
    undecided = bool(problems)
    if problems:
        notes.append("no role yet. " + _why(values, distinct, problems))
    elif type_ is None and not coded and _is_identifier(values, distinct, rows):
        undecided = True
        notes.append(f"no role yet. {distinct:,} different values in {rows:,} rows: an identifier? 'drop' it, or "
                     "'pass' it, which makes every row linkable.")  # fmt: skip
    elif column.kind == "categorical" and len(column.categories) < distinct:
        left = int((~pc.is_in(values, pa.array(column.categories, values.type)).to_numpy() & ~gone).sum())
        notes.append(
            f"{distinct - len(column.categories)} rare values ({left} rows) are left out; they are read as the most "
            "frequent one."
        )
    tells = None
    if secret is not None and majority is not None and not undecided:
        right, tells = _predicted_alone(column, values, secret)
        if (right >= _NEARLY and right > majority + 0.02) or tells >= _NEARLY_AUC:
            undecided = True
            notes.append(f"no role yet. It alone predicts S in {100 * right:.1f} % of the rows (AUC {tells:.3f}): a "
                         "copy of S? 'drop' it, or 'encode' it.")  # fmt: skip
    if undecided:
        column = Column(name, column.kind, None, column.family, column.missing, type=type_)
    return Found(column, distinct, share, tells, tuple(notes))


def _classes(table: pa.Table) -> np.ndarray:
    """The joint class of S in each row, numbers as ranges."""
    try:
        return np.asarray(describe_sensitive(table, discrete=True).classes_of(table))
    except InputError:  # fit explains what is wrong with S
        return np.asarray(np.unique(joint_labels(table), return_inverse=True)[1])


def _with_groups(column: Column, values: pa.ChunkedArray) -> tuple[Column, tuple[str, ...]]:
    """A sensitive column with notes for the curator: on numbers, and on merged groups too small for an audit."""
    if not is_class(values):
        return replace(column, kind="continuous"), (
            "a number: hidden as ranges of about equal size; fit --loss squared hides the number itself.",
        )
    large, small, rows = small_groups(values)
    if not small or not large:
        return column, ()
    others = rows >= FEWEST_OF_A_GROUP and column.family == "string"
    usual = large[int(np.argmax([pc.sum(pc.equal(values, value)).as_py() for value in large]))]
    default = OTHERS if others else usual
    note = (
        f"{small} group(s) of fewer than {FEWEST_OF_A_GROUP} rows ({rows} rows in total) are too small to audit: they "
        + (f"are merged into {OTHERS!r}" if others else "are merged into the largest group")
        + " in this schema. To change that, edit 'categories', or merge them in the table."
    )
    listed = (*large, OTHERS) if others else large
    return replace(column, categories=listed, default=default, rare=True), (note,)


def _why(values: pa.ChunkedArray, distinct: int, problems: list[str]) -> str:
    if family_of(values.type) is None:
        return f"Values of the type {values.type} cannot be censored: 'drop' or 'pass'."
    if distinct > MOST_CATEGORIES:
        return f"{distinct:,} different values: names or free text cannot be censored. 'drop' or 'pass'."
    return problems[0]


def _is_identifier(values: pa.ChunkedArray, distinct: int, rows: int) -> bool:
    if rows < _FEWEST_TO_TELL:
        return False
    if pa.types.is_integer(values.type):
        return distinct > _OWN_NUMBERS * rows
    return bool(pa.types.is_string(values.type)) and distinct > _OWN_TEXT * rows


def _predicted_alone(column: Column, values: pa.ChunkedArray, secret: np.ndarray) -> tuple[float, float]:
    """Accuracy and AUC of predicting S from this column alone: trained on every other row, scored on the rest."""
    if column.kind == "categorical":
        codes = np.asarray(pc.fill_null(values.combine_chunks().dictionary_encode().indices, -1).to_numpy()) + 1
    else:
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        codes = np.where(np.isnan(numbers), 0, np.searchsorted(np.asarray(column.starts or (0.0,)), numbers) + 1)
    counts = np.zeros((int(codes.max()) + 1, int(secret.max()) + 1))
    np.add.at(counts, (codes[::2], secret[::2]), 1)
    counts[counts.sum(axis=1) == 0] = counts.sum(axis=0)
    told, truth = codes[1::2], secret[1::2]
    right = float(np.mean(counts.argmax(axis=1)[told] == truth))
    if len(np.unique(truth)) < 2:
        return right, 0.5
    # A value of few rows is drawn towards the share in all rows: its own share would be chance.
    shares = (counts + counts.sum(axis=0) / counts.sum()) / (counts.sum(axis=1, keepdims=True) + 1.0)
    return right, weighted_auc(shares[told], truth).value


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


class _PlainLoader(yaml.SafeLoader):
    """YAML as written by `inspect`: no duplicate keys, and no anchors, which can expand a few bytes to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.constructor.ConstructorError(None, None, "anchors are not allowed", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if any(not isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
            raise yaml.constructor.ConstructorError(None, None, "a key occurs twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """A mapping from a YAML or JSON file that may be crafted. what: the expected content, for messages."""
    refuse_special(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path.name} is larger than {_MOST_BYTES // 2**20} MB: it is not a {what}.")
        text = path.read_text(encoding="utf-8")
        if text.count("[") + text.count("{") + text.count("\n-") > _MOST_PARTS:
            raise InputError(f"{path.name} has too many parts to be a {what}.")
        values = yaml.load(text, _PlainLoader)
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"There is no {what} {path}.") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        problem = getattr(error, "problem", None) if isinstance(error, yaml.constructor.ConstructorError) else None
        told = f": {problem}" if problem in ("anchors are not allowed", "a key occurs twice") else ""
        raise InputError(f"{path.name} cannot be read as YAML or JSON{where}{told}.") from None
    if not isinstance(values, dict):
        raise InputError(f"{path.name} is not a {what}: it must be a mapping.")
    return values


def read_schema(path: str | Path) -> Schema:
    """A schema as written by `inspect` and edited by hand; YAML or JSON."""
    path = Path(path)
    values = read_yaml(path, "schema")
    if not isinstance(values.get("columns"), list):
        raise InputError(f"{path.name} is not a schema: it must list 'columns', as fairveil inspect writes them.")
    return Schema.from_dict(values)
