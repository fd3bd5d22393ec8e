"""What a training asks of the processes that share it: here one, in `shunter.engine.parallel` many."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.engine.checkpoint.keeping import Keeping
from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.compiled_step import compile_step
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.recorded_step import record_steps
from shunter.engine.loop.step import train_step
from shunter.engine.memory import check_tables_fit
from shunter.engine.results import Evaluation
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.registry import Model, build_model
from shunter.models.spec import Features, ModelSpec


class OneProcess:
    """The whole training in this process.

    A class for many processes overrides what they do together. All of them call each method at the same point of the
    training, so that a method may communicate.
    """

    def random_seed(self, seed: int) -> int:
        """Seed of this process's random numbers while training, such as dropout."""
        return seed

    def build_model(
        self,
        spec: ModelSpec,
        features: Features,
        hyperparameters: Hyperparameters,
        execution: Execution,
        *,
        seed: int,
        cache: EmbeddingCache | None,
    ) -> Model:
        """Build the model with its initial weights.

        Raises:
            RequestError: it cannot be built or does not fit into memory.
        """
        check_tables_fit(spec, features, execution)
        return build_model(
            spec,
            features,
            seed=seed,
            embedding_learning=hyperparameters.embedding_learning,
            device=execution.device,
            cache=cache,
        )

    def loader(self, dataset: Dataset, batch_size: int, seed: int) -> BatchLoader:
        """Read the training part, shuffled; of each batch this process's share."""
        return BatchLoader(dataset, "train", batch_size, shuffle=True, seed=seed)

    def compile(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        execution: Execution,
        batch: Batch,
        weights: Tensor | None,
        *,
        rates_vary: bool = False,
    ) -> float | None:
        """Compile what `step` does; see `shunter.engine.loop.compiled_step.compile_step`."""
        return compile_step(model, optimizer, execution, batch, weights, rates_vary=rates_vary)

    def record_steps(self, model: Model, optimizer: torch.optim.Optimizer, execution: Execution) -> None:
        """Let what `step` does be recorded on a GPU; see `shunter.engine.loop.recorded_step`."""
        record_steps(model, optimizer, execution)

    def step(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        batch: Batch,
        precision: str,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Update on one batch; returns the mean loss over the whole of it, on the device; see `train_step`."""
        return train_step(model, optimizer, batch, precision, weights)

    def ahead(self, batches: Iterable[Batch], model: Model) -> Iterator[Batch]:
        """The batches of a pass, as `step` gets them one by one."""
        yield from batches

    def evaluate(self, model: Model, dataset: Dataset, split: SplitName, execution: Execution) -> Evaluation:
        """Score a whole split; every process gets the same figures."""
        return evaluate(model, dataset, split, execution)

    def checkpoint(self, directory: Path, identity: dict[str, Any], keeping: Keeping) -> CheckpointDirectory:
        """Where the state of the training is kept."""
        return CheckpointDirectory(directory, identity, keeping)

    def agree(self, decision: bool) -> bool:
        """Make a decision that hangs on a clock the same in every process; asked after each step.

        Between many it may be that of the step before.
        """
        return decision
