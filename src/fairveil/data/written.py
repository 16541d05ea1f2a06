"""The arrow types of released tables, which follow from the schema alone and not from the rows."""

import pyarrow as pa

from fairveil.data.columns import Column
from fairveil.data.schema import Schema
from fairveil.data.types import arrow_type, from_numbers


def written_schema(schema: Schema) -> pa.Schema:
    """The arrow types of a release, from the schema alone. Columns with role pass are text, unless they are dates,
    times or decimals.
    """
    return pa.schema([pa.field(column.name, _written_type(column)) for column in schema.released])


def as_written(table: pa.Table, schema: Schema) -> pa.Table:
    """Released rows in the types of the file."""
    types = written_schema(schema)
    return pa.table({
        field.name: from_numbers(table[field.name], field.type) if schema[field.name].type
        else table[field.name].cast(field.type)
        for field in types
    })  # fmt: skip


def _written_type(column: Column) -> pa.DataType:
    if column.type is not None:
        return arrow_type(column.type)
    if column.family == "string" or column.role == "pass":
        return pa.string()
    if column.family == "boolean":
        return pa.bool_()
    whole = column.kind == "integer" and column.grid is not None and float(column.grid).is_integer()
    codes = column.kind == "categorical" and all(float(value).is_integer() for value in column.categories)
    return pa.int64() if whole or codes else pa.float64()
