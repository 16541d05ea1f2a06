"""Names of a package that are looked up when they are first used.

`import fairveil` and `fairveil --help` (and every completion in a shell) then do not wait for PyTorch.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def lazily(
    package: str, places: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, from the names that each of its modules gives it, and the modules."""
    where = {module: module for module in places} | {name: module for module, names in places.items() for name in names}

    def get(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{where[name]}")
        value = module if name == where[name] else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *where})
