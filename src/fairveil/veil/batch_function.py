"""Release batches of any engine: a function from arrow tables to arrow tables that can be shipped to workers.

Engines repeat work: after a failure, or to overtake a slow worker. Two different draws of one row would let its noise
be averaged out, so all randomness comes from a secret of the release and from the identity of each row or batch.
"""

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from fairveil._utils.errors import ClippedWarning, InputError, must_be
from fairveil._utils.randomness import ByteSource, KeyedStream, RowStream, derived_key, new_secret
from fairveil.data.batch import check_types
from fairveil.data.frames import read_table
from fairveil.data.schema import Schema
from fairveil.data.table_codec import EncodedRows
from fairveil.data.written import as_written, written_schema
from fairveil.veil.archive import read_archive, to_bytes

if TYPE_CHECKING:
    from fairveil.veil.veil import Veil

_LEAST_SECRET = 16
#: Veils read in this process, by digest: a worker unpickles a function with every task, and reads the veil once.
_read: "OrderedDict[bytes, Veil]" = OrderedDict()
_MOST_READ = 8


class BatchFunction:
    """Releases batches of a table; see `Veil.batch_function`. `schema` is the arrow schema of its results."""

    def __init__(self, veil: "Veil", *, row_id: str | None, secret: bytes | None, keep_row_id: bool) -> None:
        if not isinstance(veil.schema, Schema):
            raise InputError("A batch function is for tables. Release images with transform or fairveil release.")
        if not veil.encoder.signature.sampled:
            raise InputError("This veil releases probabilities, which carry S in their fine structure. Fit one with "
                             "release='sampled'.")  # fmt: skip
        if secret is not None and (not isinstance(secret, bytes) or len(secret) < _LEAST_SECRET):
            raise InputError(must_be("batch_function", "secret", f"at least {_LEAST_SECRET} bytes", None))
        released = [column.name for column in veil.schema.released]
        if row_id is not None and row_id in released:
            raise InputError(f"The column {row_id!r} is released, so it cannot be the row identifier.")
        if keep_row_id and row_id is None:
            raise InputError("keep_row_id needs row_id.")
        self._veil = to_bytes(*veil.to_parts())
        self._digest = hashlib.sha256(self._veil).digest()
        self.row_id, self.keep_row_id = row_id, keep_row_id
        self._secret = new_secret() if secret is None else secret

    def __repr__(self) -> str:
        return f"BatchFunction(row_id={self.row_id!r})"  # never the secret

    @property
    def secret(self) -> bytes:
        """The secret of the release. Keep it private, and destroy it unless you must repeat the release."""
        return self._secret

    @property
    def veil(self) -> "Veil":
        """The veil, read once per process."""
        from fairveil.veil.veil import Veil

        if self._digest not in _read:
            _read[self._digest] = Veil.from_parts(*read_archive(self._veil))
            while len(_read) > _MOST_READ:
                _read.popitem(last=False)
        return _read[self._digest]

    @property
    def schema(self) -> pa.Schema:
        """The arrow schema of the results, without the row identifier."""
        schema = self.veil.table_schema
        assert schema is not None
        return written_schema(schema)

    def __call__(self, table: pa.Table | pa.RecordBatch, batch: int | str | None = None) -> pa.Table:
        """Release a batch.

        table: with the columns of the veil's schema, and S if the encoder sees it; other columns are not released.
        batch: identifies the batch in the release, if the function has no `row_id`.
        """
        table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
        veil, schema = self.veil, self.veil.table_schema
        assert schema is not None
        if (self.row_id is None) == (batch is None):
            raise InputError(
                "Name each batch, as in function(table, batch=7), or make the function with row_id=..., not both: "
                "draws are keyed by the identity of the rows, so that a repeated task repeats them."
            )
        self._refuse_missing(table)
        released = [column.name for column in schema.released]
        shown = [column.name for column in veil.sensitive.columns] if veil.sees_sensitive else []
        x, secret = read_table(table.select(released)), read_table(table.select(shown)) if shown else None
        check_types(x, schema)
        with warnings.catch_warnings(), _one_thread():
            warnings.simplefilter("ignore", ClippedWarning)
            rows = veil.codec.encode_rows(x.arrow)
            assert isinstance(rows, EncodedRows)
            classes = [] if secret is None else [veil.sensitive.classes_of(secret.arrow).numpy()]
            source = self._source(table, np.column_stack([rows.codes, *classes]), batch)
            drawn = veil.apply_to(x.arrow, rows, None if secret is None else secret.arrow, source)[0]
        result = as_written(drawn, schema)
        if self.keep_row_id:
            result = result.append_column(self.row_id, table[self.row_id])
        return result

    def record_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Release record batches one after another: the function for Spark's `mapInArrow`. Needs `row_id`."""
        for batch in batches:
            if batch.num_rows:
                yield from self(batch).combine_chunks().to_batches()

    def _refuse_missing(self, table: pa.Table) -> None:
        schema = self.veil.table_schema
        assert schema is not None
        needed = [column.name for column in schema.released]
        needed += [column.name for column in self.veil.sensitive.columns] if self.veil.sees_sensitive else []
        needed += [] if self.row_id is None else [self.row_id]
        missing = [f"The batch has no column {name!r}." for name in needed if name not in table.column_names]
        if missing:
            raise InputError(missing)

    def _source(self, table: pa.Table, codes: NDArray[np.int64], batch: int | str | None) -> ByteSource:
        """The random source of a batch. It depends on the rows, too: other rows by the same name get other noise."""
        if self.row_id is None:
            named = f"{type(batch).__name__}:{batch}".encode()
            return KeyedStream(self._secret, b"batch", named, hashlib.sha256(codes.tobytes()).digest())
        names = _names(table[self.row_id], self.row_id)
        return RowStream.of_rows(derived_key(self._secret, b"rows"), (name.encode() for name in names), codes)


def _names(column: pa.ChunkedArray, name: str) -> list[str]:
    """Row identifiers as text; they must be whole numbers or text, present, and different."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(f"The row identifier {name!r} must hold whole numbers or text.")
    if column.null_count:
        raise InputError(f"The row identifier {name!r} is missing in {column.null_count} rows.")
    repeated = len(column) - pc.count_distinct(column.cast(kind)).as_py()
    if repeated:
        raise InputError(f"The row identifier {name!r} repeats in {repeated} rows of a batch. Rows that share one "
                         "would share their noise.")  # fmt: skip
    return [str(value) for value in column.to_pylist()]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums of floats depend on the number of threads; a repeated batch must give the same bytes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
