"""A user's own torch module as the encoder's network, one copy a member."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fairveil._utils.errors import InputError
from fairveil.data.schema import Layout
from fairveil.encoders.base import EncoderSpec, NetworkEncoder, with_sensitive
from fairveil.encoders.heads import Noise, head_width


class Custom(NetworkEncoder):
    """Stacks the parameters of as many modules as there are members and maps over them with `torch.vmap`."""

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        self.inputs = layout.width + spec.sensitive_width + spec.noise_dim
        self.outputs = head_width(layout)
        module = self._make(seed=0)
        if list(module.buffers()):
            raise InputError("A module for 'architecture' must have no buffers (such as batch norm's): they mix rows.")
        self.names = [name for name, _ in module.named_parameters()]
        self.stacked = nn.ParameterList(torch.zeros(members, *p.shape) for _, p in module.named_parameters())
        # In a list, so that the template's own parameters are not part of this module.
        self._template = [module.to("meta")]

    def _make(self, seed: int) -> nn.Module:
        """A module with weights of its own choice, seeded without touching the global random state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._checked()

    def _checked(self) -> nn.Module:
        architecture = self.spec.architecture
        assert callable(architecture)
        # A module given as such is every member's start; a factory draws a start for each.
        given = isinstance(architecture, nn.Module)
        module = copy.deepcopy(architecture) if given else architecture(self.inputs, self.outputs)
        if not isinstance(module, nn.Module):
            raise InputError("A callable 'architecture' must return a torch module: f(inputs, outputs) -> nn.Module.")
        try:
            shape = tuple(module(torch.zeros(2, self.inputs)).shape)
        except RuntimeError as error:
            raise InputError(f"The module for 'architecture' does not take rows of {self.inputs} inputs.") from error
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

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Let the module draw its own weights, seeded by each member's generator."""
        for member, generator in enumerate(generators):
            fresh = self._make(int(torch.randint(2**31, (1,), generator=generator).item())).parameters()
            with torch.no_grad():
                for stacked, parameter in zip(self.stacked, fresh, strict=True):
                    stacked[member] = parameter
