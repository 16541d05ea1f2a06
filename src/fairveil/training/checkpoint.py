"""The complete state of a game in one file: tensors as safetensors, the rest as JSON. No code, no rows."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fairveil._utils.errors import VeilFileError
from fairveil.objectives import ConstraintState
from fairveil.training.history import History
from fairveil.veil.archive import read_archive, write_archive

if TYPE_CHECKING:
    from fairveil.training.game import Game

_FORMAT = "fairveil-checkpoint-3"
#: Tensors of a game besides weights and the state of optimisers and constraint.
_REMEMBERED = ("least_excess", "spread", "optimism")


def save_checkpoint(game: "Game", path: Path, fingerprint: str) -> None:
    """Write the state after a round; the old file stays until the new one is complete."""
    meta: dict[str, Any] = {
        "format": _FORMAT,
        "fingerprint": fingerprint,
        "step": game.step,
        "rounds": [asdict(r) for r in game.rounds],
    }
    write_archive(path, meta, _tensors(game))


def load_checkpoint(game: "Game", path: Path, fingerprint: str) -> None:
    """Restore the saved state into a fresh game."""
    meta, tensors = read_archive(path)
    if meta.get("format") != _FORMAT:
        raise VeilFileError(f"{path.name} is not a checkpoint.")
    if meta["fingerprint"] != fingerprint:
        raise VeilFileError(
            f"The checkpoint {path.name} belongs to other data or other settings. Remove it, or name another file."
        )
    game.step = int(meta["step"])
    game.rounds = list(History.from_dict(meta).rounds)
    game.generator.set_state(tensors["generator"])
    with torch.no_grad():
        for name, parameter in _named(game).items():
            parameter.copy_(tensors[name])
    for label, optimiser in _optimisers(game).items():
        for i, parameter in enumerate(optimiser.param_groups[0]["params"]):
            if f"{label}.{i}.step" in tensors:
                state = {k: tensors[f"{label}.{i}.{k}"].to(parameter.device) for k in ("exp_avg", "exp_avg_sq")}
                step = tensors[f"{label}.{i}.step"].to(parameter.device)
                optimiser.state[parameter] = {"step": step, **state}
    device = game.device
    for name in _REMEMBERED:
        setattr(game, name, tensors[name].to(device))
    names = ("multiplier", "smoothed", "rho")
    game.constraint = ConstraintState(*(tensors[f"constraint.{name}"].to(device) for name in names))


def _named(game: "Game") -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for i, player in enumerate(game.players):
        named |= {f"player{i}.{name}": p for name, p in player.named_parameters()}
    named |= {f"average.{i}": p for i, p in enumerate(game.average)}
    return named | {f"best.{i}": p for i, p in enumerate(game.best)}


def _optimisers(game: "Game") -> dict[str, torch.optim.AdamW]:
    return {"encoder_optimiser": game.encoder_optimiser, "panel_optimiser": game.panel_optimiser}


def _tensors(game: "Game") -> dict[str, Tensor]:
    tensors = {name: p.detach() for name, p in _named(game).items()}
    for label, optimiser in _optimisers(game).items():
        for i, parameter in enumerate(optimiser.param_groups[0]["params"]):
            for key, value in optimiser.state.get(parameter, {}).items():
                tensors[f"{label}.{i}.{key}"] = value
    for name in ("multiplier", "smoothed", "rho"):
        tensors[f"constraint.{name}"] = getattr(game.constraint, name)
    tensors |= {name: getattr(game, name) for name in _REMEMBERED} | {"generator": game.generator.get_state()}
    return {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
