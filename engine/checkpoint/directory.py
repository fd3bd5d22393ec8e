"""The state of an unfinished training, valid whenever the process is killed.

A checkpoint is written file by file under new names, and `checkpoint.json`, which names them with their checksums, is
replaced last and at once. So at any moment it points to complete files; what it does not name is removed.

    checkpoint.json                state as numbers, and the names and checksums of the other two
    state-{step}.safetensors       weights, optimiser state, random state
    best-{step}.safetensors        weights with the best validation so far
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from engine.checkpoint.optimizer_state import optimizer_tensors, restore_optimizer
from engine.checkpoint.random_state import random_tensors, restore_random
from engine.checkpoint.storage import check_file, load_weights, read_json, read_tensors, write_tensors, write_text
from models.embeddings.role import EmbeddingTables
from shunter.errors import CheckpointError, TrainingError

FORMAT = 1
Trained = TypeVar("Trained", bound=nn.Module)
VALUES_CHECKED_AT_ONCE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file beside `checkpoint.json`."""

    name: str
    sha256: str


class CheckpointDirectory(Generic[Trained]):
    """The checkpoint of one training.

    Args:
        directory: a folder of its own; made when it is not there.
        identity: Properties that a checkpoint must share with the training that resumes from it.
    """

    def __init__(self, directory: Path, identity: dict[str, Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.path = directory / "checkpoint.json"
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._best: StoredFile | None = None

    def exists(self) -> bool:
        """Whether there is a checkpoint."""
        return self.path.exists()

    def keep_best(self, model: Trained, step: int) -> None:
        """Write the weights that are the best so far; they count from the next `write` on."""
        name = f"best-{step}.safetensors"
        self._best = StoredFile(name=name, sha256=write_tensors(self.directory / name, dict(model.state_dict())))

    def restore_best(self, model: Trained) -> None:
        """Put the best weights into the model."""
        assert self._best is not None, "an epoch has been evaluated"
        path = self.directory / self._best.name
        load_weights(model, read_tensors(path, self._best.sha256), path)

    def write(self, model: Trained, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Replace the checkpoint.

        Args:
            model: its weights and the state of its fused optimiser.
            optimizer: Optimiser of the dense part.
            state: everything else, as plain values, with the number of the `step`.

        Raises:
            TrainingError: a weight is not finite; the former checkpoint stays.
        """
        tensors = _collect(model, optimizer)
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not _is_finite(tensor):
                raise TrainingError(
                    f"After step {state['step']} {name} holds a value that is not finite: lower the learning rates; "
                    f"the last good checkpoint is kept."
                )
        name = f"state-{state['step']}.safetensors"
        stored = StoredFile(name=name, sha256=write_tensors(self.directory / name, tensors))
        values = {
            "format": FORMAT,
            "identity": self._identity,
            "state": state,
            "tensors": vars(stored),
            "best": vars(self._best) if self._best else None,
        }
        write_text(self.path, json.dumps(values, indent=1))
        self._remove_all_but(stored, self._best)

    def read(self, model: Trained, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Put model, optimiser and random state back, and return the `state` that was written with them.

        Raises:
            CheckpointError: a file is missing or damaged, or belongs to another training.
        """
        values = read_json(self.path)
        try:
            found, state = values["identity"], values["state"]
            stored = StoredFile(**values["tensors"])
            best = StoredFile(**values["best"]) if values["best"] else None
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"The file {self.path} is no checkpoint of this version ({error}).") from error
        self.check_identity(found, self.path)
        if best is not None:  # a damaged file is better found now than when the training ends
            check_file(self.directory / best.name, best.sha256)
        path = self.directory / stored.name
        _distribute(read_tensors(path, stored.sha256), model, optimizer, path)
        self._best = best
        return state

    def check_identity(self, found: dict[str, Any], path: Path) -> None:
        """Compare the identity in a checkpoint with that of the training that resumes from it.

        Raises:
            CheckpointError: they differ; the message names in what.
        """
        different = sorted(key for key in self._identity if found.get(key) != self._identity[key])
        if different:
            raise CheckpointError(
                f"The checkpoint {path} belongs to another training (it differs in {', '.join(different)}): "
                f"resume with the former settings or use another folder."
            )

    def _remove_all_but(self, *kept: StoredFile | None) -> None:
        names = {file.name for file in kept if file} | {self.path.name}
        for pattern in ("state-*", "best-*", "*.tmp"):
            for path in self.directory.glob(pattern):
                if path.name not in names:
                    path.unlink(missing_ok=True)


def _is_finite(tensor: Tensor) -> bool:
    """Look at a part after the other: the tables may be a mapped file that is larger than memory."""
    return all(bool(torch.isfinite(part).all()) for part in tensor.reshape(-1).split(VALUES_CHECKED_AT_ONCE))


def _embedding_tables(model: nn.Module) -> list[tuple[str, EmbeddingTables]]:
    """The tables of a model by their path, which keep the state of their own optimiser; a graph model has none."""
    return [(path, module) for path, module in model.named_modules() if isinstance(module, EmbeddingTables)]


def _collect(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for place, tables in _embedding_tables(model):
        tensors |= {f"{place}.{name}": tensor for name, tensor in tables.optimizer_tensors().items()}
    tensors |= optimizer_tensors(optimizer)
    return tensors | random_tensors(next(model.parameters()).device)


def _distribute(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    weights = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    load_weights(model, weights, path)
    restore_optimizer(optimizer, tensors)
    device = next(model.parameters()).device
    try:
        for place, tables in _embedding_tables(model):
            tables.load_optimizer_tensors({name: tensors[f"{place}.{name}"] for name in tables.optimizer_tensors()})
        restore_random(tensors, device)
    except KeyError as error:
        raise CheckpointError(
            f"The checkpoint {path} lacks {error}: it was written on another kind of device."
        ) from error
