"""A user's own torch module as the encoder's network, one copy per member."""

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fairveil._utils.errors import InputError
from fairveil.encoders.architecture import Architecture, Signature, check_sizes
from fairveil.encoders.base import NetworkEncoder, with_sensitive
from fairveil.encoders.heads import Noise, head_width
from fairveil.encoders.reconstruction import learn_to_reconstruct
from fairveil.encoders.warm_start import WarmStart

ModuleFactory = nn.Module | Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class Custom(Architecture):
    """A torch module, or a factory `f(inputs, outputs)` that returns one.

    Parameters
    ----------
    module : torch module or callable
        Maps (rows, inputs) to (rows, outputs); inputs are the row, S if it is seen, and noise. It must have no buffers.
    noise_dim : int
        Number of normal variables among the inputs.
    residual : bool
        Whether the output corrects the original; otherwise it replaces it.

    Examples
    --------
    >>> import fairveil as fv
    >>> from torch import nn
    >>> encoder = fv.FairEncoder(2.0, architecture=fv.Custom(lambda inputs, outputs: nn.Linear(inputs, outputs)))
    """

    name: ClassVar[str] = "custom"

    module: ModuleFactory
    noise_dim: int = 16
    residual: bool = True

    def __post_init__(self) -> None:
        check_sizes(self, noise_dim=0)

    def build(self, signature: Signature, members: int) -> "CustomEncoder":
        """Copies of the module."""
        return CustomEncoder(self, signature, members)

    def to_dict(self) -> dict[str, Any]:
        """Raises: a file contains no code."""
        raise InputError("An encoder with a module of your own cannot be saved: a .veil file contains no code.")

    def fingerprint(self) -> str:
        """Based on weights or name: the address of a module or function changes with every run."""
        digest = hashlib.sha256()
        if isinstance(self.module, nn.Module):
            for parameter in self.module.parameters():
                digest.update(parameter.detach().cpu().numpy().tobytes())
        name = getattr(self.module, "__qualname__", type(self.module).__qualname__)
        return repr((name, self.noise_dim, self.residual, digest.hexdigest()))


class CustomEncoder(NetworkEncoder):
    """Stacks the parameters of one module per member and maps over them with `torch.vmap`."""

    architecture: Custom

    def __init__(self, architecture: Custom, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members, residual=architecture.residual)
        self.noise_dim = architecture.noise_dim
        self.inputs = self.layout.width + signature.sensitive_width + self.noise_dim
        self.outputs = head_width(self.layout)
        module = self._make(seed=0)
        if list(module.buffers()):
            raise InputError("A module for 'architecture' must have no buffers (such as batch norm's): they mix rows.")
        self.names = [name for name, _ in module.named_parameters()]
        self.stacked = nn.ParameterList(torch.zeros(members, *p.shape) for _, p in module.named_parameters())
        # In a list, so that the template's parameters are not registered with this module.
        self._template = [module.to("meta")]

    def _make(self, seed: int) -> nn.Module:
        """A module with its own initial weights, seeded without touching the global random state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._checked()

    def _checked(self) -> nn.Module:
        # A module given as an instance is the start of every member; a factory creates a separate start for each.
        given = self.architecture.module
        module = copy.deepcopy(given) if isinstance(given, nn.Module) else given(self.inputs, self.outputs)
        if not isinstance(module, nn.Module):
            raise InputError("A callable 'architecture' must return a torch module: f(inputs, outputs) -> nn.Module.")
        try:
            shape = tuple(module(torch.zeros(2, self.inputs)).shape)
        except RuntimeError as error:
            raise InputError(f"The module for 'architecture' does not accept rows of {self.inputs} inputs.") from error
        if shape != (2, self.outputs):
            raise InputError(f"The module for 'architecture' must map (rows, {self.inputs}) to (rows, {self.outputs}).")
        return module

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """Raw output of every member's module."""
        joined = with_sensitive([rows, noise.inputs], sensitive)
        template = self._template[0]

        def one(parameters: tuple[Tensor, ...]) -> Tensor:
            out: Tensor = functional_call(template, dict(zip(self.names, parameters, strict=True)), (joined,))
            return out

        return torch.vmap(one)(tuple(self.stacked))

    def warm_start(self, start: WarmStart) -> None:
        """Learn to reconstruct the original, unless the module starts from it."""
        if not self.architecture.residual:
            learn_to_reconstruct(self, start, start.batch_size)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Let the module draw its own weights, seeded by each member's generator."""
        for member, generator in enumerate(generators):
            fresh = self._make(int(torch.randint(2**31, (1,), generator=generator).item())).parameters()
            with torch.no_grad():
                for stacked, parameter in zip(self.stacked, fresh, strict=True):
                    stacked[member] = parameter
