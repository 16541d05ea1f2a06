"""A veil: a frozen encoder with the schema it was fitted to. It transforms tables; its file holds no code or rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from torch import Tensor

from fairveil._utils.errors import InputError, VeilFileError
from fairveil._utils.randomness import RandomSource, source_of_rows
from fairveil.data.batch import AnyCodec, AnySchema, codec_for, read_schema
from fairveil.data.images import EncodedImages, rows_at_once, unpack
from fairveil.data.schema import Schema
from fairveil.data.sensitive import Sensitive
from fairveil.data.table_codec import EncodedRows, HandleUnknown
from fairveil.encoders import Encoder, Signature, build_encoder, load_encoder, read_architecture
from fairveil.objectives.released import ReleasedBatch

if TYPE_CHECKING:
    from fairveil.veil.batch_function import BatchFunction


@dataclass(frozen=True)
class Veil:
    """A fitted, frozen, single-member encoder."""

    schema: AnySchema
    sensitive: Sensitive
    encoder: Encoder
    handle_unknown: HandleUnknown = "error"

    @property
    def codec(self) -> AnyCodec:
        """The codec between rows and tensors."""
        return codec_for(self.schema, self.handle_unknown)

    @property
    def table_schema(self) -> Schema | None:
        """The schema of a table; None for images."""
        return self.schema if isinstance(self.schema, Schema) else None

    @property
    def sees_sensitive(self) -> bool:
        """Whether the encoder needs S."""
        return self.encoder.signature.sensitive_width > 0

    def release(self, x: Tensor, sensitive: Tensor | None, source: RandomSource) -> ReleasedBatch:
        """Draw a release of encoded rows: values (rows, width) and probabilities (rows, categorical width)."""
        parts = [(part.values[0], part.probabilities[0]) for part in self._parts(x, sensitive, source)]
        values, probabilities = zip(*parts, strict=True)
        return ReleasedBatch(torch.cat(values), torch.cat(probabilities))

    def values(self, x: Tensor, sensitive: Tensor | None, source: RandomSource) -> Tensor:
        """Only the values of a release, without the cost of its probabilities: (rows, width)."""
        return torch.cat([part.values[0] for part in self._parts(x, sensitive, source)])

    def _parts(self, x: Tensor, sensitive: Tensor | None, source: RandomSource) -> Iterator[ReleasedBatch]:
        size = rows_at_once(x.shape[1])
        for start in range(0, max(len(x), 1), size):
            rows = unpack(x[start : start + size])
            shown = None if sensitive is None else sensitive[start : start + size]
            with torch.no_grad():
                noise = self.encoder.noise(len(rows), source_of_rows(source, start, start + len(rows)))
                yield self.encoder(rows, shown, noise)

    def apply(self, content: Any, sensitive: pa.Table | None, source: RandomSource) -> Any:
        """A release of an arrow table, or of `Images`: as the codec assembles it."""
        return self.apply_to(content, self.codec.encode_rows(content), sensitive, source)[0]

    def apply_to(
        self, content: Any, rows: EncodedRows | EncodedImages, sensitive: pa.Table | None, source: RandomSource
    ) -> tuple[Any, Tensor]:
        """A release, and the same as a tensor, from encoded rows."""
        values = self.values(rows.x, self.shown(len(content), sensitive), source)
        return self.codec.assemble(content, values, sampled=self.encoder.signature.sampled), values

    def shown(self, rows: int, sensitive: pa.Table | None) -> Tensor | None:
        """S as an encoder input, (rows, sensitive width); None if the encoder does not see S."""
        if not self.sees_sensitive:
            return None
        if sensitive is None:
            raise InputError("This encoder sees S (sees_sensitive=True), and S was not given.")
        if sensitive.num_rows != rows:
            raise InputError(f"X has {rows} rows, sensitive_features {sensitive.num_rows}.")
        return self.sensitive.inputs(sensitive)

    def output_names(self) -> list[str]:
        """The columns of a release, in order; for images, the pixels."""
        return self.schema.output_names(sampled=self.encoder.signature.sampled)

    def batch_function(
        self, *, row_id: str | None = None, secret: bytes | None = None, keep_row_id: bool = False
    ) -> "BatchFunction":
        """A function from arrow tables to released arrow tables, for `map_batches`, `mapInArrow` and plain loops.

        It can be pickled, and then holds the veil's bytes. Draws depend on the secret and on the identity of each row
        or batch, and on nothing else: a task that an engine repeats gives the same rows.

        Parameters
        ----------
        row_id : str, optional
            A column that identifies each row, unique in the whole release; it is left out of the output. Without it,
            every call names its batch: `function(table, batch=7)`.
        secret : bytes, optional
            At least 16 bytes; by default 32 new ones from the operating system. Whoever has it can undo the noise.
        keep_row_id : bool
            Keep the column `row_id`, to write rows in an order of your own. Do not publish it.
        """
        from fairveil.veil.batch_function import BatchFunction

        return BatchFunction(self, row_id=row_id, secret=secret, keep_row_id=keep_row_id)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """A manifest of plain values, and the weights."""
        signature = self.encoder.signature
        manifest = {
            "schema": self.schema.to_dict(),
            "sensitive": self.sensitive.to_dict(),
            "architecture": self.encoder.architecture.to_dict(),
            "release": signature.release,
            "sees_sensitive": self.sees_sensitive,
            "handle_unknown": self.handle_unknown,
        }
        return manifest, {name: p.detach().cpu().contiguous() for name, p in self.encoder.named_parameters()}

    @classmethod
    def from_parts(cls, manifest: dict[str, Any], weights: dict[str, Tensor]) -> "Veil":
        """Build from the result of `to_parts`; rejects weights that do not match the manifest."""
        try:
            schema = read_schema(manifest["schema"])
            sensitive = Sensitive.from_dict(manifest["sensitive"])
            _refuse_contradictions(schema, sensitive, manifest)
            width = sensitive.width if manifest["sees_sensitive"] else 0
            signature = Signature(schema.layout, manifest["release"], width, sensitive.discrete, sensitive.names())
            encoder = load_encoder(read_architecture(manifest["architecture"]), signature, weights)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError, OverflowError) as error:
            # Only our own messages, not the file's content, which may be anything.
            reason = str(error) if type(error) in (ValueError, InputError) else type(error).__name__
            raise VeilFileError(f"The parts of this veil do not fit together ({reason}). Nothing was loaded.") from None
        return cls(schema, sensitive, encoder.requires_grad_(False).eval(), manifest["handle_unknown"])


def _refuse_contradictions(schema: AnySchema, sensitive: Sensitive, manifest: dict[str, Any]) -> None:
    """Reject a forged veil: one that releases an S it claims to hide, or lacks required information."""
    hidden = {column.name for column in sensitive.columns}
    told = [column.name for column in schema.columns if column.name in hidden and column.role in ("keep", "pass")]
    if told:
        raise ValueError("it releases a sensitive column as it is")
    if type(manifest["sees_sensitive"]) is not bool:
        raise ValueError("it does not say whether its encoder sees S")
    if manifest["handle_unknown"] not in ("error", "most_frequent"):
        raise ValueError("it does not say how to treat unknown categories")


def take_member(encoder: Encoder, member: int) -> Encoder:
    """One member of a batched encoder, frozen, on the CPU."""
    single = build_encoder(encoder.architecture, encoder.signature)
    weights = {name: p.detach().cpu() for name, p in encoder.named_parameters()}
    single.load_state_dict({n: w if encoder.is_shared(n) else w[member : member + 1] for n, w in weights.items()})
    return single.requires_grad_(False).eval()
