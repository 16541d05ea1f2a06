"""Training settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fairveil._utils.errors import InputError, must_be
from fairveil.encoders.layers import Layer

#: A field that the caller did not set. Typed as the value that `completed` fills in.
UNSET: Any = None

_DEFAULTS: dict[str, Any] = {
    "steps": 1000,
    "batch_size": 1024,
    "adversary_steps": 3,
    "learning_rate": 4e-3,
    "adversary_learning_rate": 4e-3,
    "adversary_hidden": ((128, 128), (256,)),
    "adversary_dropout": 0.1,
    "adversary_decay": 1.0,
    "adversary_normalise": False,
    "per_column_adversaries": False,
    "restarts": 0,
    "softness": 0.02,
    "average": 0.99,
    "final_rate": 0.05,
    "warm_up": 0.0,
    "spending": 0.0,
    "drift": 0.0,
    "pretraining_steps": 1000,
    "rounds": 25,
    "select_after": 0.6,
    "validation": 0.1,
    "held_out": 0.1,
}
#: Fields that affect where a game runs, but not its result.
_OF_THE_RUN = ("device", "checkpoint")
#: The minimum of each integer field.
_LEAST = {
    "steps": 1,
    "batch_size": 2,
    "adversary_steps": 1,
    "pretraining_steps": 1,
    "rounds": 1,
    "restarts": 0,
}


@dataclass(frozen=True, repr=False)
class Training:
    """Training settings. Omitted fields default to values suited to the architecture.

    Parameters
    ----------
    steps : int
        Encoder steps T. An architecture without a default needs no game: it is complete after its warm start.
    batch_size : int
    adversary_steps : int
        J, adversary steps on fresh draws before every encoder step. A sampled release is redrawn from the same
        minibatch; a release of soft vectors uses another minibatch.
    learning_rate, adversary_learning_rate : float
    adversary_hidden : tuple of tuples
        The hidden layers of each adversary: integers, and for images "conv20", a 3 x 3 convolution with 20 filters and
        pooling.
    adversary_dropout, adversary_decay : float
        Input dropout and weight decay of adversaries, both against overfitting.
    adversary_normalise : bool
        Whether adversaries use batch norm.
    restarts : int
        How often one of the adversaries is re-initialised, in turn.
    softness : float
        The encoder minimises softness x log sum exp(advantage / softness), a soft maximum over adversaries (nats).
    average : float
        Decay of the exponential moving average of the encoder's weights, which is released.
    final_rate : float
        Learning rates decay to this fraction along a half cosine.
    warm_up : float
        Learning-rate warm-up of the encoder, as a fraction of the steps: early adversaries give poor gradients.
    spending : float
        The value to the encoder of a unit of distortion within the budget, in units of the loss, so that the budget is
        used even where adversaries happen to find nothing.
    drift : float
        What the encoder pays, in units of the loss, for the drift of each column's distribution (its total variation,
        summed over columns). Among releases that hide and cost the same it prefers those that keep the columns'
        distributions, instead of replacing columns by a constant. For networks that release tables.
    pretraining_steps : int
        Maximum steps of pretraining, for encoders that have it. If only `steps` is given, scaled in proportion to it.
    rounds : int
        How often the encoder is evaluated on validation rows.
    select_after : float
        The fraction of the steps after which an encoder may be selected; the latest one within its budget is.
    validation, held_out : float
        Fractions of the rows used to select the iterate and to bound its distortion.
    per_column_adversaries : bool
        With several sensitive columns, adds adversaries for each column to those for their joint value.
    device : {"auto", "cpu", "cuda", "mps"}
    checkpoint : path, optional
        Where to save the state of training; if the file exists, training resumes from it.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(1.5, training=fv.Training(steps=2000, batch_size=512))
    """

    steps: int = UNSET
    batch_size: int = UNSET
    adversary_steps: int = UNSET
    learning_rate: float = UNSET
    adversary_learning_rate: float = UNSET
    adversary_hidden: tuple[tuple[Layer, ...], ...] = UNSET
    adversary_dropout: float = UNSET
    adversary_decay: float = UNSET
    adversary_normalise: bool = UNSET
    restarts: int = UNSET
    softness: float = UNSET
    average: float = UNSET
    final_rate: float = UNSET
    warm_up: float = UNSET
    spending: float = UNSET
    drift: float = UNSET
    pretraining_steps: int = UNSET
    rounds: int = UNSET
    select_after: float = UNSET
    validation: float = UNSET
    held_out: float = UNSET
    per_column_adversaries: bool = UNSET
    device: str = "auto"
    checkpoint: str | Path | None = None

    def completed(self, defaults: Mapping[str, Any]) -> "Training":
        """With every field set: the caller's own, else the architecture's (`defaults`), else the general ones."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in given.items() if value is not None}
        usual = {**_DEFAULTS, **defaults}
        if "steps" in given and "pretraining_steps" not in given:
            share = given["steps"] / usual["steps"] if usual["steps"] else 1.0
            given["pretraining_steps"] = max(1, math.ceil(share * usual["pretraining_steps"]))
        return replace(self, **{**usual, **given})

    def __repr__(self) -> str:
        """Only the fields that are set."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {
            name: value for name, value in given.items() if value is not None and (name, value) != ("device", "auto")
        }
        return f"Training({', '.join(f'{name}={value!r}' for name, value in plain.items())})"

    def fingerprint(self) -> str:
        """Identifies the settings, on any machine."""
        return repr(replace(self, device="auto", checkpoint=None))

    def __post_init__(self) -> None:
        problems = [self._problem(field.name) for field in fields(self)]
        if self.validation is not None and self.held_out is not None and self.validation + self.held_out >= 1:
            problems.append("The 'validation' and 'held_out' parameters of Training must sum to below 1.")
        found = [problem for problem in problems if problem]
        if found:
            raise InputError(found)

    def _problem(self, name: str) -> str | None:
        value = getattr(self, name)
        if value is None or name in _OF_THE_RUN:
            return None
        if name in _LEAST:
            right, expected = type(value) is int and value >= _LEAST[name], f"a whole number of at least {_LEAST[name]}"
        elif name in ("learning_rate", "adversary_learning_rate", "softness", "final_rate"):
            right, expected = _is_number(value) and value > 0, "a finite number above 0"
        elif name in ("average", "select_after", "adversary_dropout", "warm_up"):
            right, expected = _is_number(value) and 0 <= value < 1, "in [0, 1)"
        elif name in ("adversary_decay", "spending", "drift"):
            right, expected = _is_number(value) and value >= 0, "a finite number of at least 0"
        elif name in ("validation", "held_out"):
            right, expected = _is_number(value) and 0 < value < 1, "above 0 and below 1"
        elif name == "adversary_hidden":
            layers = isinstance(value, tuple) and all(isinstance(network, tuple) for network in value)
            right = layers and bool(value) and all(_is_layer(layer) for network in value for layer in network)
            expected = (
                "a tuple of at least one network: tuples of whole numbers above 0, preceded for images by convolutions "
                'such as "conv20"'
            )
        else:
            right, expected = isinstance(value, bool), "true or false"
        return None if right else must_be("Training", name, expected, value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_layer(layer: object) -> bool:
    number = layer.removeprefix("conv") if isinstance(layer, str) and layer.startswith("conv") else layer
    return (isinstance(number, int) and number > 0) or (isinstance(number, str) and number.isdigit() and number > "0")
