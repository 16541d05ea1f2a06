"""Methods to keep the mean distortion within its bound: the augmented Lagrangian, and the paper's quadratic penalty.

A violation is (mean distortion - bound), shape (members, constraints). `term` is its contribution to each member's
objective; `update` changes the state after a step. This module is independent of how violations are computed.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from fairveil._utils.errors import InputError, must_be


@dataclass(frozen=True)
class ConstraintState:
    """The state of a constraint: its multiplier and smoothed violation (members, constraints), and the weight rho."""

    multiplier: Tensor
    smoothed: Tensor
    rho: Tensor


class Constraint(Protocol):
    """A method that enforces mean distortion <= bound."""

    def start(self, members: int, constraints: int) -> ConstraintState:
        """The state before the first step."""
        ...

    def term(self, state: ConstraintState, violation: Tensor) -> Tensor:
        """The violation's contribution to the objective of each member; shape (members,)."""
        ...

    def update(self, state: ConstraintState, violation: Tensor) -> ConstraintState:
        """The state after a step with this violation."""
        ...


@dataclass(frozen=True)
class AugmentedLagrangian:
    """The inequality form of Nocedal and Wright, (17.65): (max(0, m + rho v)^2 - m^2) / (2 rho).

    Its gradient in v is max(0, m + rho v). After each step the multiplier changes by `rate` x rho times the violation,
    smoothed over about 1 / (1 - smoothing) minibatches to reduce their noise, and is clipped at 0.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(1.5, constraint=fv.AugmentedLagrangian(rho=8.0))
    """

    rho: float = 4.0
    rate: float = 0.02
    smoothing: float = 0.8

    def start(self, members: int, constraints: int) -> ConstraintState:
        """Multiplier 0: no cost until the bound is violated."""
        zero = torch.zeros(members, constraints)
        return ConstraintState(zero, zero.clone(), torch.tensor(self.rho))

    def term(self, state: ConstraintState, violation: Tensor) -> Tensor:
        """The augmented term, summed over constraints."""
        pushed = (state.multiplier + state.rho * violation).clamp_min(0.0)
        return ((pushed.square() - state.multiplier.square()) / (2.0 * state.rho)).sum(dim=-1)

    def update(self, state: ConstraintState, violation: Tensor) -> ConstraintState:
        """Move the multiplier along the smoothed violation."""
        smoothed = torch.lerp(violation, state.smoothed, self.smoothing)
        multiplier = (state.multiplier + self.rate * state.rho * smoothed).clamp_min(0.0)
        return replace(state, multiplier=multiplier, smoothed=smoothed)


@dataclass(frozen=True)
class Penalty:
    """The paper's penalty (`eq:penaltymethodsupp`): rho_t max(0, violation)^2, with rho_t = rho growth^(t / every).

    The text lets rho_t decrease (growth < 1); the authors' code lets it grow (growth > 1), which is the default here.
    With a finite rho the optimum lies outside the bound by multiplier / (2 rho).

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(1.5, constraint=fv.Penalty(growth=1.1))
    """

    rho: float = 5.0
    growth: float = 1.2
    every: int = 100
    largest: float = 1e4

    def start(self, members: int, constraints: int) -> ConstraintState:
        """Only rho is used; the multiplier reported is the gradient of the term."""
        zero = torch.zeros(members, constraints)
        return ConstraintState(zero, zero.clone(), torch.tensor(self.rho))

    def term(self, state: ConstraintState, violation: Tensor) -> Tensor:
        """The penalty, summed over constraints."""
        return (state.rho * violation.clamp_min(0.0).square()).sum(dim=-1)

    def update(self, state: ConstraintState, violation: Tensor) -> ConstraintState:
        """Advance rho by one step of its schedule."""
        rho = (state.rho * self.growth ** (1.0 / self.every)).clamp(max=self.largest)
        return ConstraintState(2.0 * rho * violation.clamp_min(0.0), violation, rho)


def make_constraint(constraint: "str | Constraint", owner: str = "FairEncoder") -> Constraint:
    """A constraint by its name, or the constraint itself. owner: the class named in error messages."""
    if isinstance(constraint, (AugmentedLagrangian, Penalty)):
        return constraint
    if constraint == "augmented_lagrangian":
        return AugmentedLagrangian()
    if constraint == "penalty":
        return Penalty()
    expected = "'augmented_lagrangian', 'penalty', an AugmentedLagrangian or a Penalty"
    raise InputError(must_be(owner, "constraint", expected, constraint))
