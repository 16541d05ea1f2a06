"""Configurations of encoders, and everything other packages may depend on.

Code that depends on a particular encoder is here or in that encoder's own file: no other package checks its name or
type. A new encoder is a subclass of `Architecture` (a frozen dataclass with a `name`) and one of `Encoder`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil._utils.randomness import Seeds
from fairveil.data.images import ImageSchema
from fairveil.data.layout import Layout
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.objectives import Distortion

if TYPE_CHECKING:
    from fairveil.encoders.base import Encoder

#: Largest weight of a term that is added to a distance.
_MOST_WEIGHT = 1e6
#: Limits for files: units per layer, and rows of a table of numbers.
_MOST_UNITS, _MOST_LISTED = 2**16, 2**16
#: Limits for the constants of a network (bin edges and similar), in addition to its weights, when read from a file.
_MOST_CONSTANTS, _CONSTANTS_PER_WEIGHT = 2**24, 32

#: All architectures by name: those of the package, and subclasses defined elsewhere.
ARCHITECTURES: dict[str, type["Architecture"]] = {}


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of an encoder.

    layout: of a row. release: `sampled` (valid records) or `probabilities` (the paper's soft vectors).
    sensitive_width: columns of S that the encoder sees, 0 if it sees X only. sensitive_discrete: they are one-hot.
    groups: the names of these classes.
    """

    layout: Layout
    release: str = "sampled"
    sensitive_width: int = 0
    sensitive_discrete: bool = True
    groups: tuple[str, ...] = ()

    @property
    def sampled(self) -> bool:
        """Whether valid records are released."""
        return self.release == "sampled"

    @property
    def sees_classes(self) -> bool:
        """Whether the encoder sees S, and S is a class."""
        return self.sensitive_width > 0 and self.sensitive_discrete


class Architecture:
    """The configuration of an encoder. Subclasses are frozen dataclasses; their fields are the caller's settings.

    Examples
    --------
    >>> import fairveil as fv
    >>> isinstance(fv.Gaussian(full=True), fv.Architecture)
    True
    """

    #: Its name for `architecture=` and in veil files.
    name: ClassVar[str] = ""
    #: Default `Training` settings for this encoder; see `defaults`.
    training: ClassVar[Mapping[str, Any]] = {}
    #: Whether adversaries look for the ranges of a numeric S, in addition to the number itself.
    hides_ranges: ClassVar[bool] = False
    #: Whether a caller may choose it for a `FairEncoder`.
    selectable: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if cls.name:
            ARCHITECTURES[cls.name] = cls

    @property
    def solves(self) -> bool:
        """Whether it minimises I(R; S) without a game, so that no other loss, task or definition of fairness counts."""
        return False

    @property
    def uses_bins(self) -> bool:
        """Whether numbers are released by drawing one of a few bins. Otherwise the schema has no bins."""
        return True

    def defaults(self, layout: Layout) -> Mapping[str, Any]:
        """Default `Training` settings for rows of this layout; the caller's settings take precedence."""
        return self.training

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """Why this encoder cannot be used here, and what to do instead; None if it can."""
        return None

    def fitted(self, rows: Rows, schema: Schema | ImageSchema, seeds: Seeds) -> Self:
        """The same configuration, plus anything learned from training rows before the network can be built."""
        return self

    def build(self, signature: Signature, members: int) -> "Encoder":
        """The network, without its weights: they are drawn by `initialise`, or loaded."""
        raise NotImplementedError  # abstract

    def fingerprint(self) -> str:
        """Identifies the configuration, in any process."""
        return repr(self)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a manifest."""
        return {"name": self.name, **{field.name: getattr(self, field.name) for field in _fields(self)}}


def _fields(architecture: Architecture | type[Architecture]) -> tuple[Any, ...]:
    return fields(architecture)  # type: ignore[arg-type]


def make_architecture(given: object, owner: str = "FairEncoder") -> Architecture | None:
    """An architecture by name, as given, or wrapped around a torch module or module factory; None for `auto`."""
    from fairveil.encoders.custom import Custom  # it is an architecture itself

    if isinstance(given, Architecture) and given.selectable:
        return given
    names = [name for name, kind in ARCHITECTURES.items() if kind.selectable and kind is not Custom]
    if isinstance(given, str) and given in names:
        return ARCHITECTURES[given]()
    if isinstance(given, str) and given == "auto":
        return None
    if callable(given) and not (isinstance(given, type) and issubclass(given, Architecture)):
        return Custom(given)  # type: ignore[arg-type]  # its result is checked when it is built
    expected = (
        f"'auto', one of {', '.join(map(repr, sorted(names)))}, a configuration such as fairveil.FeedForward(...), a "
        "torch module, or a callable f(inputs, outputs) that returns one"
    )
    raise InputError(must_be(owner, "architecture", expected, given))


def build_encoder(architecture: Architecture, signature: Signature, members: int = 1) -> "Encoder":
    """Build the network; its weights are drawn by `initialise` or loaded. Raises InputError if it cannot be used."""
    if signature.release not in ("sampled", "probabilities"):
        raise ValueError("it does not specify how rows are released")
    check_architecture(architecture, signature)
    with torch.random.fork_rng(devices=[]):  # torch's layers draw first weights from the caller's global generator
        return architecture.build(signature, members)


def check_architecture(architecture: Architecture, signature: Signature, distortion: Distortion | None = None) -> None:
    """Raise InputError if this encoder cannot be used."""
    problem = architecture.problem(signature, distortion)
    if problem:
        raise InputError(f"architecture={architecture.name!r} {problem}")


def read_architecture(values: Any) -> Architecture:
    """Read what `to_dict` wrote. Accepts only plain values of valid type and size: the file may be crafted."""
    values = dict(values)
    kind = ARCHITECTURES.get(values.pop("name", None) or "")
    if kind is None:
        raise ValueError("its architecture is not known here")
    known = {field.name: _annotation(field.type) for field in _fields(kind)}
    if set(values) != set(known):
        raise ValueError("an architecture is described by the wrong settings")
    checked = {name: _tuples(value) for name, value in values.items()}
    if not all(_is_of_type(value, known[name]) for name, value in checked.items()):
        raise ValueError("an architecture is described by values of the wrong type or size")
    try:
        return kind(**checked)
    except InputError:
        raise ValueError("an architecture is described by values out of range") from None


def _annotation(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value


def _is_of_type(value: Any, annotation: str) -> bool:
    """Whether a plain value matches a field's annotation; only these annotations can be read from a file."""
    if annotation.endswith(" | None"):
        return value is None or _is_of_type(value, annotation.removesuffix(" | None"))
    if annotation == "tuple[int, ...]":
        return isinstance(value, tuple) and len(value) <= 64 and all(_is_of_type(v, "int") for v in value)
    if annotation == "tuple[tuple[float, ...], ...]":
        return isinstance(value, tuple) and len(value) <= _MOST_LISTED and _is_table(value)
    if annotation == "int":
        return type(value) is int and 0 <= value <= _MOST_UNITS
    if annotation == "float":
        return type(value) in (int, float) and math.isfinite(value)
    return (annotation == "bool" and type(value) is bool) or (annotation == "str" and type(value) is str)


def _is_table(rows: tuple[Any, ...]) -> bool:
    """Rows of finite numbers, all of the same length."""
    if not all(isinstance(row, tuple) and all(_is_of_type(v, "float") for v in row) for row in rows):
        return False
    return len({len(row) for row in rows}) <= 1


def load_encoder(architecture: Architecture, signature: Signature, weights: dict[str, Tensor]) -> "Encoder":
    """Build a single-member encoder from weights that were read from a file.

    A few bytes can describe a network of any size, so it is first built without allocating memory and compared with the
    weights in the file. Raises ValueError if they do not match.
    """
    with torch.device("meta"):
        outline = build_encoder(architecture, signature)
    shapes = {name: tuple(parameter.shape) for name, parameter in outline.named_parameters()}
    if shapes != {name: tuple(weight.shape) for name, weight in weights.items()}:
        raise ValueError("the weights do not have the shapes of the network")
    if not all(weight.dtype == torch.float32 and bool(torch.isfinite(weight).all()) for weight in weights.values()):
        raise ValueError("the weights are not finite numbers in single precision")
    own = sum(weight.numel() for weight in weights.values())
    if sum(buffer.numel() for buffer in outline.buffers()) > _MOST_CONSTANTS + _CONSTANTS_PER_WEIGHT * own:
        raise ValueError("the network needs far more memory than its weights")
    encoder = build_encoder(architecture, signature)
    encoder.load_state_dict(weights)
    return encoder


def check_sizes(architecture: Architecture, **least: int) -> None:
    """Raise InputError for fields that are not integers (or, for layers, tuples of them) at or above a minimum.

    A list of layers becomes a tuple.
    """
    owner, problems = type(architecture).__name__, []
    for name, smallest in least.items():
        value = getattr(architecture, name)
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(architecture, name, value)  # frozen, but not in use yet
        each = value if isinstance(value, tuple) else (value,)
        if not all(type(v) is int and v >= smallest for v in each):
            kind = "a tuple of whole numbers" if isinstance(value, tuple) else "a whole number"
            problems.append(must_be(owner, name, f"{kind} of at least {smallest}", value))
    if problems:
        raise InputError(problems)


def check_weights(architecture: Architecture, *names: str) -> None:
    """Raise InputError for fields that are not numbers from 0 to a million: with more, nothing else would count."""
    for name in names:
        value = getattr(architecture, name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0.0 <= value <= _MOST_WEIGHT:
            raise InputError(must_be(type(architecture).__name__, name, f"a number from 0 to {_MOST_WEIGHT:g}", value))
