"""Arguments of tasks as bytes and a list of large values: each large value is stored once for all tasks that use it."""

import io
import pickle
import warnings
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

#: Values of more bytes are stored; smaller ones travel with the task.
_LARGE = 2**16


def is_large(value: Any) -> bool:
    """Whether a value is stored on its own: an array, a table or a frame of some size."""
    if isinstance(value, np.ndarray):
        return bool(value.nbytes > _LARGE and value.dtype != object)
    if isinstance(value, pa.Table):
        return bool(value.nbytes > _LARGE)
    if isinstance(value, torch.Tensor):
        plain = value.device.type == "cpu" and not value.requires_grad and type(value) is torch.Tensor
        return plain and value.numel() * value.element_size() > _LARGE
    return isinstance(value, pd.DataFrame) and bool(value.memory_usage().sum() > _LARGE)


class Shipping:
    """Packs arguments. put: stores a value and gives a reference. pickler: a class that can pickle any function."""

    def __init__(self, put: Callable[[Any], Any], pickler: type[pickle.Pickler]) -> None:
        self._put, self._lock = put, Lock()
        self._stored: dict[int, tuple[Any, Any]] = {}
        self._pickler = _referring(pickler, self)

    def pack(self, content: Any) -> tuple[bytes, list[Any]]:
        """The content without its large values, and references to these."""
        buffer, used = io.BytesIO(), list[Any]()
        self._pickler(buffer, used).dump(content)
        return buffer.getvalue(), used

    def reference(self, value: Any) -> Any:
        """The reference of a large value, which is stored when it is first seen and kept as long as this object."""
        with self._lock:
            if id(value) not in self._stored:
                stored = value.numpy() if isinstance(value, torch.Tensor) else value
                self._stored[id(value)] = value, self._put(stored)
            return self._stored[id(value)][1]


def _referring(pickler: type[pickle.Pickler], shipping: Shipping) -> Any:
    class Referring(pickler):  # type: ignore[valid-type, misc]
        def __init__(self, buffer: io.BytesIO, used: list[Any]) -> None:
            super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
            self._used = used

        def persistent_id(self, value: Any) -> tuple[int, bool] | None:
            if not is_large(value):
                return None
            self._used.append(shipping.reference(value))
            return len(self._used) - 1, isinstance(value, torch.Tensor)

    return Referring


class _Resolving(pickle.Unpickler):
    def __init__(self, content: bytes, values: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(content))
        self._values = values

    def persistent_load(self, name: Any) -> Any:
        number, tensor = name
        if not tensor:
            return self._values[number]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the memory of a store cannot be written, and is only read
            return torch.from_numpy(self._values[number])


def unpack(content: bytes, values: Sequence[Any]) -> Any:
    """The content, given what its references refer to."""
    return _Resolving(content, values).load()
