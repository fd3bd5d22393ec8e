"""Operations of a training run that several processes do together; this module is the case of one process."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.compiled_step import compile_step
from shunter.engine.loop.cuda_graph_step import record_steps
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.step import train_step
from shunter.engine.memory import check_tables_fit
from shunter.engine.results import Evaluation
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.registry import Model, build_model
from shunter.models.spec import Features, ModelSpec


class OneProcess:
    """Training operations of a run in a single process.

    A subclass for several processes overrides the operations that need communication. All processes call each method at
    the same point of the training run, so that the method can use collective operations.
    """

    def random_seed(self, seed: int) -> int:
        """Return the seed of this process's random numbers during training, such as dropout."""
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
            RequestError: The model cannot be built or does not fit into memory.
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

    def loader(self, dataset: Dataset, batch_size: int, seed: int, grouped_by: str | None = None) -> BatchLoader:
        """Return a loader of the shuffled training part that yields this process's share of each batch."""
        return BatchLoader(dataset, "train", batch_size, shuffle=True, seed=seed, grouped_by=grouped_by)

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
        """Compile the training step of the method `step`; see `shunter.engine.loop.compiled_step.compile_step`."""
        return compile_step(model, optimizer, execution, batch, weights, rates_vary=rates_vary)

    def record_steps(self, model: Model, optimizer: torch.optim.Optimizer, execution: Execution) -> None:
        """Record the training step of the method `step` as a CUDA graph; see `shunter.engine.loop.cuda_graph_step`."""
        record_steps(model, optimizer, execution)

    def step(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        batch: Batch,
        precision: str,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Train on one batch; return the mean loss over the whole batch, on the device; see `train_step`."""
        return train_step(model, optimizer, batch, precision, weights)

    def ahead(self, batches: Iterable[Batch], model: Model) -> Iterator[Batch]:
        """Yield the batches of a pass over the data, in the order in which `step` trains on them."""
        yield from batches

    def evaluate(self, model: Model, dataset: Dataset, split: SplitName, execution: Execution) -> Evaluation:
        """Score a whole split; every process gets the same evaluation."""
        return evaluate(model, dataset, split, execution)

    def checkpoint(
        self, directory: Path, identity: dict[str, Any], checkpoint_settings: CheckpointSettings
    ) -> CheckpointDirectory:
        """Return the checkpoint directory of the training run."""
        return CheckpointDirectory(directory, identity, checkpoint_settings)

    def agree(self, decision: bool) -> bool:
        """Return True if all processes have made this decision; called after each step.

        Decisions that depend on a clock may differ between processes. With several processes, the result may be that of
        the previous step.
        """
        return decision
