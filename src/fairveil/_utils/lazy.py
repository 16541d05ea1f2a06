"""Lazy imports of package attributes.

`import fairveil`, `fairveil --help` and shell completion do not wait for PyTorch.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def lazily(
    package: str, places: Mapping[str, Sequence[str]], modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    places: maps each module, relative to the package, to the names that the package exports from it. modules: maps
    attributes of the package that are modules to their path relative to the package.
    """
    paths = dict(modules or {})
    where = {name: module for module, names in places.items() for name in names}

    def get(name: str) -> object:
        if name in paths:
            value: object = importlib.import_module(f"{package}.{paths[name]}")
        elif name in where:
            value = getattr(importlib.import_module(f"{package}.{where[name]}"), name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *where, *paths})
