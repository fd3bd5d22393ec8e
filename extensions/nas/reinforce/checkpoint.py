"""State of a controller in the search's folder, so that a killed search resumes with the same results.

policy.safetensors    weights of policy and surrogate with the state of their optimisers
controller.json       data that they were trained on, the learning curve, and the checksum of the weights

Reading these files executes no code.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from shunter.engine.checkpoint.checked_files import read_json, write_json
from shunter.engine.checkpoint.storage import read_tensors, write_tensors
from shunter.errors import CheckpointError

WEIGHTS, NOTES = "policy.safetensors", "controller.json"
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """State of the controller after a policy update.

    Attributes:
        evaluations: Number of rewards so far.
        best_reward: Highest reward so far.
        entropy_share: Entropy of the policy relative to that of the uniform distribution.
        guide_weight: Weight of the divergence from the first policy, per nat.
        is_guided: True while the surrogate is trusted.
    """

    evaluations: int
    best_reward: float
    entropy_share: float
    guide_weight: float
    is_guided: bool


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """State that is saved.

    Attributes:
        tensors: Tensors of policy, surrogate and optimizers, by name.
        learnt: Actions that the policy was trained on, in order, each with the reward that the surrogate predicted
            for it; None without a prediction.
        is_guided: True while the surrogate is trusted.
        curve: Learning curve over the policy updates so far.
    """

    tensors: dict[str, Tensor]
    learnt: tuple[tuple[tuple[int, ...], float | None], ...]
    is_guided: bool
    curve: tuple[CurvePoint, ...]


def save(directory: Path, checkpoint: Checkpoint) -> None:
    """Save the state of the architecture search; the folder is created if missing.

    Raises:
        CheckpointError: The state cannot be written, for instance because the disk is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    checksum = write_tensors(directory / WEIGHTS, checkpoint.tensors)
    notes = {
        "checksum": checksum,
        "learnt": checkpoint.learnt,
        "is_guided": checkpoint.is_guided,
        "curve": [asdict(point) for point in checkpoint.curve],
    }
    write_json(directory / NOTES, json.dumps(notes))


def load(directory: Path) -> Checkpoint | None:
    """Return the saved state; None if it is missing or damaged, as the controller can learn from the study again."""
    if not (directory / NOTES).exists():
        return None
    try:
        notes = read_json(directory / NOTES)
        return Checkpoint(
            tensors=read_tensors(directory / WEIGHTS, str(notes["checksum"])),
            learnt=tuple((tuple(action), predicted) for action, predicted in notes["learnt"]),
            is_guided=bool(notes["is_guided"]),
            curve=tuple(CurvePoint(**point) for point in notes["curve"]),
        )
    except (CheckpointError, KeyError, TypeError, ValueError) as error:
        log.warning("The state of the controller cannot be read, so it learns from the trials again: %s", error)
        return None


def optimizer_tensors(optimizer: Optimizer, prefix: str) -> dict[str, Tensor]:
    """Return the state of an optimiser by name: moments and number of steps of each parameter."""
    state: Mapping[int, Mapping[str, Any]] = optimizer.state_dict()["state"]
    return {f"{prefix}.{index}.{name}": tensor for index, of in state.items() for name, tensor in of.items()}


def restore_optimizer(optimizer: Optimizer, prefix: str, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state of an optimiser that `optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in part(tensors, prefix).items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = torch.clone(tensor)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")
    }
