"""How long and how hard the players of a game train."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fairveil._utils.errors import InputError, must_be
from fairveil.encoders.layers import Layer

#: A field that the caller left open. Typed as what it is once `completed` has filled it in.
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
    "pretraining_steps": 1000,
    "rounds": 25,
    "select_after": 0.6,
    "validation": 0.1,
    "held_out": 0.1,
}
#: Fields that say where and how a game runs, not which game it is.
_OF_THE_RUN = ("device", "checkpoint")
#: The least value of each whole number.
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
    """Settings of training. A field that is left out takes the default that suits the architecture.

    Parameters
    ----------
    steps : int
        Encoder steps T.
    batch_size : int
    adversary_steps : int
        J, adversary steps on fresh draws before every encoder step. A sampled release is drawn again from the same
        minibatch; a release of soft vectors takes another minibatch.
    learning_rate, adversary_learning_rate : float
    adversary_hidden : tuple of tuples
        The hidden layers of each adversary: whole numbers, and for images "conv20", a 3 x 3 convolution of 20 filters
        with pooling.
    adversary_dropout, adversary_decay : float
        The chance that an adversary does not see a slot in training, and its weight decay, both against overfitting.
    adversary_normalise : bool
        Batch norm in adversaries.
    restarts : int
        How often one of the adversaries is initialised again, in turn.
    softness : float
        The encoder faces softness x log sum exp(advantage / softness), a soft maximum over adversaries (nats).
    average : float
        Weight of the past in the exponential average of the encoder that is released.
    final_rate : float
        Learning rates fall along a half cosine to this fraction.
    warm_up : float
        The fraction of the steps over which the encoder's learning rate first rises: early adversaries are poor guides.
    spending : float
        What a unit of distortion within the budget is worth to the encoder, in units of the loss, so that the budget is
        spent even where adversaries happen to find nothing.
    pretraining_steps : int
        The most steps of a warm start, for encoders that have one. If only `steps` is given, in proportion to it.
    rounds : int
        How often the encoder is evaluated on validation rows.
    select_after : float
        From which fraction of the steps an encoder may be kept; the latest within its budget is.
    validation, held_out : float
        Fractions of the rows that choose the iterate and that bound its distortion.
    per_column_adversaries : bool
        With several sensitive columns, adversaries for each of them beside those for their joint value.
    device : {"auto", "cpu", "cuda", "mps"}
    checkpoint : path, optional
        Where to save the state of training; if the file is there, training resumes from it.
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
            share = given["steps"] / usual["steps"]
            given["pretraining_steps"] = max(1, math.ceil(share * usual["pretraining_steps"]))
        return replace(self, **{**usual, **given})

    def __repr__(self) -> str:
        """Only what is set."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {
            name: value for name, value in given.items() if value is not None and (name, value) != ("device", "auto")
        }
        return f"Training({', '.join(f'{name}={value!r}' for name, value in plain.items())})"

    def fingerprint(self) -> str:
        """Tells settings apart, whatever the machine."""
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
        elif name in ("adversary_decay", "spending"):
            right, expected = _is_number(value) and value >= 0, "a finite number of at least 0"
        elif name in ("validation", "held_out"):
            right, expected = _is_number(value) and 0 < value < 1, "above 0 and below 1"
        elif name == "adversary_hidden":
            layers = isinstance(value, tuple) and all(isinstance(network, tuple) for network in value)
            right = layers and bool(value) and all(_is_layer(layer) for network in value for layer in network)
            expected = (
                "a tuple of at least one network: tuples of whole numbers above 0 and, for images, of convolutions "
                'such as "conv20", these first'
            )
        else:
            right, expected = isinstance(value, bool), "true or false"
        return None if right else must_be("Training", name, expected, value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_layer(layer: object) -> bool:
    number = layer.removeprefix("conv") if isinstance(layer, str) and layer.startswith("conv") else layer
    return (isinstance(number, int) and number > 0) or (isinstance(number, str) and number.isdigit() and number > "0")
