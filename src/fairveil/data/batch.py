"""Tables and images behind one protocol: a caller's rows, and how they become tensors and back.

A batch has its rows (`content`), their `digest`, the `names` of its columns, and returns a result in the caller's form
(`like_origin`). A codec encodes the content (`encode_rows`: `x`, and the `original` against which distortion is
measured) and builds a release from a drawn tensor (`assemble`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fairveil._utils.errors import InputError
from fairveil.data.frames import Table
from fairveil.data.images import ImageCodec, Images, ImageSchema
from fairveil.data.layout import Layout
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Codec, HandleUnknown
from fairveil.data.types import same_sort

Batch = Table | Images
AnySchema = Schema | ImageSchema
AnyCodec = Codec | ImageCodec


def codec_for(schema: AnySchema, handle_unknown: HandleUnknown = "error") -> AnyCodec:
    """The codec for rows of this schema."""
    return ImageCodec(schema) if isinstance(schema, ImageSchema) else Codec(schema, handle_unknown)


def check_types(batch: Batch, schema: AnySchema) -> None:
    """Reject columns that hold dates where the schema has numbers, or similar: internally, all of them are numbers."""
    if isinstance(batch, Images) or isinstance(schema, ImageSchema):
        return
    refuse_other_types(schema, batch.names, batch.types)


def refuse_other_types(schema: Schema, names: Sequence[str], types: Mapping[str, pa.DataType]) -> None:
    """Raise InputError if a column is a date where the schema has a number, or similar. types: of columns that are
    converted to numbers.
    """
    wrong = [
        f"Column {column.name!r} holds {types.get(column.name, 'plain')} values where the schema has "
        f"{column.held_as}. Convert it to the type it had when the veil was fitted."
        for column in schema.columns
        if column.name in names and column.family == "number" and column.role != "drop"
        and not same_sort(types.get(column.name), column.type)
    ]  # fmt: skip
    if wrong:
        raise InputError(wrong)


def read_schema(described: Any) -> AnySchema:
    """Read a schema from plain values."""
    return ImageSchema.from_dict(described) if "images" in described else Schema.from_dict(described)


def describe(
    batch: Batch, schema: Schema | None, sensitive: Sequence[str], *, bins: bool | Callable[[Layout], bool]
) -> AnySchema:
    """The schema of a batch: the caller's, or inferred. sensitive: columns that get that role.

    bins: whether numbers have bins, or a function that decides it from the layout without them.
    """
    if isinstance(batch, Images):
        if schema is not None or sensitive:
            raise InputError("Images have no columns: leave 'schema' and 'sensitive_columns' out.")
        return ImageSchema.of(batch)
    if schema is None:
        schema = Schema.infer(batch, sensitive=sensitive)
    for name in sensitive:
        schema = schema.edit(name, role="sensitive")
    if not any(column.role == "encode" for column in schema.columns):
        raise InputError(
            f"There is no column to encode: X has {len(batch.names)} feature(s), none of them to be encoded."
        )
    plain = schema.without_bins()
    return schema if (bins(plain.layout) if callable(bins) else bins) else plain
