"""Images: as callers pass them, as rows of a tensor, and the values a release may hold."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairveil._utils.errors import InputError, rows_named
from fairveil.data.columns import Column, shown
from fairveil.data.layout import Layout

#: Steps between black and white: released pixels are integer multiples of 1 / 255.
STEPS = 255
_PIXEL = Column("pixel", "continuous", family="number", lower=0.0, upper=1.0, grid=1 / STEPS)
#: Maximum pixels of an image file, maximum pixels in a veil's schema, and maximum bytes of all images in memory.
_MOST_PIXELS, _MOST_VEIL_PIXELS, _MOST_BYTES = 2**26, 2**20, 2**33
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Images:
    """Images of one size: (rows, height, width, channels), uint8, or float32 in [0, 1].

    grey: the caller's array has no channel axis.
    """

    array: NDArray[np.generic]
    grey: bool

    def __len__(self) -> int:
        return len(self.array)

    @property
    def whole(self) -> bool:
        """Whether pixels are bytes."""
        return self.array.dtype == np.uint8

    @property
    def names(self) -> list[str]:
        """Images have no columns."""
        return []

    @property
    def content(self) -> "Images":
        """The rows."""
        return self

    def select(self, names: Sequence[str]) -> Any:
        """Images hold no columns."""
        raise InputError("Images hold no sensitive columns: pass sensitive_features separately.")

    def take(self, rows: NDArray[np.int64]) -> "Images":
        """Some of the images."""
        return replace(self, array=self.array[rows])

    def digest(self) -> bytes:
        """A hash of all values."""
        return hashlib.sha256(np.ascontiguousarray(self.array).data).digest()

    def like_origin(self, released: NDArray[np.float32], *, keep_types: bool = True) -> NDArray[np.generic]:
        """Released images, (rows, height, width, channels), in the caller's type, or as floats."""
        values: NDArray[np.generic] = released
        if self.whole and keep_types:
            values = np.round(released * STEPS).astype(np.uint8)
        return values[..., 0] if self.grey else values


def is_images(data: Any) -> bool:
    """Whether the data are images: an array of three or four dimensions, or a folder."""
    return isinstance(data, (str, Path)) or getattr(data, "ndim", 0) in (3, 4)


def read_image_batch(data: Any) -> Images:
    """Images from an array (rows, height, width[, channels]) of bytes or of floats in [0, 1], or from a folder."""
    if isinstance(data, (str, Path)):
        return Images(read_folder(data)[0], grey=False)
    array = np.asarray(data)
    grey = array.ndim == 3
    if grey:
        array = array[..., None]
    if array.ndim != 4 or 0 in array.shape:
        raise InputError(f"Images must be an array (rows, height, width[, channels]) without an empty axis. "
                         f"Got shape {array.shape}.")  # fmt: skip
    if array.shape[3] not in (1, 3):
        raise InputError(f"Images must have 1 or 3 channels, on the last axis. Got {array.shape[3]}.")
    if array.dtype == np.uint8:
        return Images(array, grey)
    if array.dtype.kind != "f":
        raise InputError(f"Pixels must be bytes (uint8) or floats in [0, 1]. Got {array.dtype}.")
    flat = array.reshape(len(array), -1)
    bad = np.flatnonzero(~((flat >= 0.0) & (flat <= 1.0)).all(axis=1))  # NaN is not between them
    if len(bad):
        raise InputError(f"Pixels must lie in [0, 1] ({rows_named(bad.tolist())}). Scale them, or pass bytes.")
    return Images(array.astype(np.float32), grey)


def read_folder(folder: str | Path, size: tuple[int, int] | None = None) -> tuple[NDArray[np.uint8], list[str]]:
    """All images in a folder, sorted by name, as (rows, height, width, 3) bytes; and the names.

    size: (height, width) to resize to; without it, all images must have the same size.
    """
    names = image_names(folder)
    return read_images(folder, names, size), names


def has_images(folder: Path) -> bool:
    """Whether a folder holds images."""
    return any(file.suffix.lower() in _SUFFIXES for file in folder.iterdir())


def image_names(folder: str | Path) -> list[str]:
    """The names of the images in a folder, sorted."""
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root.name!r} is not a folder of images. Give a table, an array, or such a folder.")
    names = sorted(file.name for file in root.iterdir() if file.suffix.lower() in _SUFFIXES)
    if not names:
        raise InputError(f"The folder {root.name!r} holds no images ({', '.join(_SUFFIXES)}).")
    strange = [name for name in names if not (root / name).is_file()]  # opening a pipe would block forever
    if strange:
        raise InputError(f"{len(strange)} names in {root.name!r} look like images but are not ordinary files, such as "
                         f"{shown(strange[0])}. Remove them.")  # fmt: skip
    return names


def read_images(
    folder: str | Path,
    names: Sequence[str],
    size: tuple[int, int] | None = None,
    *,
    expected: tuple[int, int] | None = None,
) -> NDArray[np.uint8]:
    """The named images of a folder, (rows, height, width, 3).

    size: (height, width) to resize to. expected: the size that all must have; it is checked before decoding, as a small
    file may hold an image of any size.
    """
    from PIL import Image

    root = Path(folder)
    out: NDArray[np.uint8] | None = None
    for i, name in enumerate(names):
        try:
            with Image.open(root / name) as image:
                if image.width * image.height > _MOST_PIXELS:
                    raise InputError(f"{name} in {root.name!r} has more than {_MOST_PIXELS:,} pixels.")
                found = (image.height, image.width) if size is None else size
                expected = expected or found
                if found != expected:
                    raise InputError(f"Images of {root.name!r} differ in size, such as {name} and {names[0]}. Resize "
                                     "them to one size, or pass a size.")  # fmt: skip
                if out is None:
                    if len(names) * found[0] * found[1] * 3 > _MOST_BYTES:
                        raise InputError(f"The images of {root.name!r} take more than {_MOST_BYTES // 2**30} GiB at "
                                         "their size. Make them smaller, or give fewer.")  # fmt: skip
                    out = np.empty((len(names), *found, 3), dtype=np.uint8)
                colour = image.convert("RGB")
                if colour.size != found[::-1]:
                    colour = colour.resize(found[::-1], Image.Resampling.LANCZOS)
                out[i] = np.asarray(colour)
        except InputError:
            raise
        except (OSError, ValueError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError,
                Image.DecompressionBombWarning) as error:  # fmt: skip
            raise InputError(f"{name} in {root.name!r} cannot be read as an image.") from error
    assert out is not None
    return out


@dataclass(frozen=True)
class ImageSchema:
    """Height, width and channels of images: the counterpart of `Schema`. A row's distortion is its sum of squares."""

    height: int
    width: int
    channels: int

    #: Images have no columns with roles.
    columns: ClassVar[tuple[Column, ...]] = ()
    seen: ClassVar[tuple[Column, ...]] = ()

    @classmethod
    def of(cls, images: Images) -> Self:
        """The schema of these images."""
        return cls(*images.array.shape[1:])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width), the order of pixels in a tensor."""
        return self.channels, self.height, self.width

    @property
    def pixels(self) -> int:
        """The number of values per image."""
        return self.channels * self.height * self.width

    @cached_property
    def layout(self) -> Layout:
        """One number per pixel and channel."""
        return Layout((), (_PIXEL,) * self.pixels, self.shape)

    def output_names(self, *, sampled: bool) -> list[str]:
        """A name for every value of a release."""
        return [f"pixel{i}" for i in range(self.pixels)]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"images": asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        sizes = [values["images"][name] for name in ("height", "width", "channels")]
        if not all(type(size) is int and size > 0 for size in sizes) or sizes[2] not in (1, 3):
            raise ValueError("the size of images must be three whole numbers above 0, the last of them 1 or 3")
        if sizes[0] * sizes[1] > _MOST_VEIL_PIXELS:
            raise ValueError("its images are too large")
        return cls(*sizes)


@dataclass(frozen=True)
class ImageCodec:
    """Encodes images as (rows, pixels), channel by channel, and decodes such tensors."""

    schema: ImageSchema

    def encode_rows(self, images: Images) -> "EncodedImages":
        """Rows as a tensor."""
        return EncodedImages(self.encode(images))

    def assemble(self, images: Images, values: Tensor, *, sampled: bool) -> NDArray[np.float32]:
        """A release of these images: (rows, height, width, channels)."""
        return self.decode(values)

    def as_written(self, values: Tensor) -> Tensor:
        """Released values after a round trip through a file: the same, as they are multiples of 1 / 255 or floats."""
        return values

    def encode(self, images: Images) -> Tensor:
        """Bytes stay bytes, at a quarter of the memory; `unpack` converts them to floats."""
        if images.array.shape[1:] != (self.schema.height, self.schema.width, self.schema.channels):
            expected = f"{self.schema.height} x {self.schema.width} x {self.schema.channels}"
            raise InputError(f"These images are of size {' x '.join(map(str, images.array.shape[1:]))}; the veil was "
                             f"fitted to {expected} (height, width, channels).")  # fmt: skip
        first = np.ascontiguousarray(np.moveaxis(images.array, 3, 1)).reshape(len(images), -1)
        return torch.from_numpy(first)

    def decode(self, values: Tensor) -> NDArray[np.float32]:
        """Released rows as (rows, height, width, channels)."""
        array = values.detach().cpu().numpy().reshape(-1, *self.schema.shape)
        return np.ascontiguousarray(np.moveaxis(array, 1, 3), dtype=np.float32)


@dataclass(frozen=True)
class EncodedImages:
    """Encoded images: x (rows, pixels)."""

    x: Tensor

    @property
    def original(self) -> Tensor:
        """The same as `x`: encoding an image loses nothing."""
        return self.x


def rows_at_once(width: int) -> int:
    """How many rows of this width to pass through a network at once, so that memory stays bounded."""
    return min(16384, max(32, 2**21 // width))


def unpack(x: Tensor) -> Tensor:
    """Rows as floats: bytes are divided by 255."""
    return x if x.is_floating_point() else x.float().div_(STEPS)
