"""Where work runs: on this machine, or on a Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager

from fairveil._utils.engine import HERE, Engine
from fairveil._utils.errors import InputError
from fairveil.workflows.engines.ray import RayEngine, require_ray

ENGINES = ("local", "ray")


def check_engine(name: str) -> None:
    """Raise InputError if the engine is unknown or not installed."""
    if name not in ENGINES:
        raise InputError(f"Unknown engine {name!r}. Use one of: {', '.join(ENGINES)}.")
    if name == "ray":
        require_ray()


@contextmanager
def started(name: str, address: str | None = None) -> Iterator[Engine]:
    """The engine with this name, for the time of some work. address: of a running cluster."""
    check_engine(name)
    if name == "local":
        yield HERE
        return
    with RayEngine.started(address) as engine:
        yield engine
