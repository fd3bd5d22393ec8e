"""Training in several processes: each trains a part of every batch, and all have the same dense weights.

The loop is independent of the launcher of the processes and of the channel to the caller.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import mean_ids_per_sample
from shunter.engine.executors.messages import Stop
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.loop.evaluation import SMALLEST_BATCH, scored_as
from shunter.engine.loop.loss import weighted_sum
from shunter.engine.loop.processes import OneProcess
from shunter.engine.loop.step import applied, autocast, prefetch
from shunter.engine.loop.trainer import train
from shunter.engine.results import Evaluation, TrainingFigures
from shunter.engine.stopping import StopKind, StopReason
from shunter.errors import RequestError, UnsupportedError
from shunter.extensions.distributed.tables.exchanged import of_all
from shunter.extensions.distributed.tables.sharded import ShardedEmbeddings
from shunter.extensions.distributed.training.checkpoint import ShardedCheckpoint
from shunter.extensions.distributed.training.compiled_step import GradientBuckets, compile_together
from shunter.extensions.distributed.training.folders import Folders
from shunter.extensions.distributed.training.hosts import HostModel, from_all
from shunter.extensions.distributed.training.loader import BatchShare, ShareLoader, own_losses
from shunter.extensions.distributed.training.plan import Sharding, make_plan, with_stored_machine
from shunter.model_families import MODEL_FAMILIES, reads_positions
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.positions import Positions
from shunter.models.registry import Model, assemble_model, bag_tables, check_spec
from shunter.models.spec import Features, ModelSpec

SEEDS_APART = 1_000_003
GO_ON, STOP, INTERRUPT = range(3)
Read = Callable[[], Stop | None]


class ManyProcesses(OneProcess):
    """Processes of torch's default group, which train together.

    Updates are deterministic: the same seed, number of processes and plan give bitwise the same weights, because ids,
    gradients and sums are combined in the order of the processes.

    Args:
        dataset: Data set whose mean number of ids per sample is counted for the plan.
        sharding: Allowed ways of dividing the tables.
        folders: Assignment of processes to checkpoint folders; None for one shared folder.

    Attributes:
        kept: Checkpoint of the training, which holds the folder of the best weights.
    """

    kept: ShardedCheckpoint

    def __init__(self, dataset: Dataset, sharding: Sharding, folders: Folders | None = None) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self._folders = folders
        self._ids_per_sample = list(mean_ids_per_sample(dataset).values())
        self._sharding = sharding
        self._following: Any = None
        self._buckets: tuple[Model, GradientBuckets] | None = None
        self._word: tuple[dist.Work, Tensor] | None = None

    def random_seed(self, seed: int) -> int:
        """Return the seed of dropout, which is different in each process."""
        return seed + self.rank * SEEDS_APART

    def record_steps(self, model: Model, optimizer: torch.optim.Optimizer, execution: Execution) -> None:
        """Capture no CUDA graph, because the number of exchanged rows differs between batches."""

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
        """Build the model around divided tables; the initial weights are those of a single process.

        The tables may be larger than the memory of one process; the planner checks whether they fit. If the processes
        are on several hosts, a family may divide its layers too (`HostModel`).

        Raises:
            RequestError: the model cannot be built.
            InfeasibleError: no plan fits into memory.
            HardwareError: there is no disk space for the file of this process's tables.
        """
        check_spec(spec, features)
        if spec.table_precision != "fp32":
            raise RequestError(
                "Embedding tables in fp16 are supported in a single process only: leave out "
                "table_precision, or --processes."
            )
        device = torch.device(execution.device)
        per_host = self._sharding.processes_per_node or int(os.environ.get("LOCAL_WORLD_SIZE", self.count))
        host_model: type[HostModel] | None = MODEL_FAMILIES.load_part(spec.family, "host_model")
        if (
            cache is None
            and host_model is not None
            and host_model.can_be_divided(spec, features, hyperparameters, per_host)
        ):
            return host_model.build(
                spec,
                features,
                hyperparameters,
                device,
                seed=seed,
                processes_per_host=per_host,
                machine=self._sharding.machine,
            )
        options: dict[str, Any] = {
            "learning_rate": hyperparameters.embedding_learning_rate,
            "device": device,
            "table_of": bag_tables(spec, features),
            "is_weighted": features.is_weighted,
        }
        if cache is not None:  # rows in a file of each process, with a cache in its share of the memory
            from shunter.extensions.distributed.training.tiered import TieredShards
            from shunter.extensions.tiers.tier_blocks import TierBlocks

            own = replace(cache, rows=max(cache.rows // self.count, 1))
            blocks = TierBlocks.of(spec, features, self.count)
            embeddings = TieredShards(blocks, spec.embedding_dim, cache=own, sharding=self._sharding, **options)
        else:
            plan = partial(
                make_plan,
                sharding=self._sharding,
                device=device,
                batch_size=-(-execution.batch_size // self.count),
                ids_per_sample=self._ids_of_bags(spec, features),
            )
            shapes = spec.tables(features)
            embeddings = ShardedEmbeddings(
                shapes,
                spec.embedding_dim,
                make_plan=plan,
                precision=self._sharding.precision,
                shares_memory=self._sharding.shares_memory,
                exchanged=self._sharding.exchanged([shape.rows for shape in shapes], self.count),
                **options,
            )
        embeddings.l2 = hyperparameters.embedding_l2
        embeddings.initial_bound = hyperparameters.embedding_initial_bound
        return assemble_model(spec, features, embeddings, seed=seed, device=device)

    def _ids_of_bags(self, spec: ModelSpec, features: Features) -> list[float]:
        """Mean number of ids in each bag of a sample."""
        if not reads_positions(spec.family):
            return self._ids_per_sample
        fields = zip(self._ids_per_sample, Positions(features).widths, strict=True)
        return [ids / width for ids, width in fields for _ in range(width)]

    def loader(self, dataset: Dataset, batch_size: int, seed: int, grouped_by: str | None = None) -> ShareLoader:
        """Return a loader of this process's part of each batch.

        Raises:
            UnsupportedError: The loss compares rows of a group, which would be divided over processes.
        """
        if grouped_by is not None:
            raise UnsupportedError("compare groups of rows", dataset.name, "a training run in one process")
        return ShareLoader(self.rank, self.count, dataset, "train", batch_size, shuffle=True, seed=seed)

    def compile(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        execution: Execution,
        batch: Any,
        weights: Tensor | None,
        *,
        rates_vary: bool = False,
    ) -> float | None:
        """Compile the step in every process; see `training.compiled_step.compile_together`."""
        return compile_together(model, optimizer, execution, batch, weights)

    def step(
        self, model: Model, optimizer: torch.optim.Optimizer, batch: Any, precision: str, weights: Tensor | None = None
    ) -> Tensor:
        """Update on one batch together with the other processes; return the mean loss of the whole batch."""
        assert isinstance(batch, BatchShare)
        following, self._following = self._following, None
        tables = model.embeddings
        continue_sending: Callable[[], None] = lambda: None  # noqa: E731
        if following is not None and isinstance(tables, ShardedEmbeddings):
            tables.send_ahead(*following.inputs[1:])
            continue_sending = tables.continue_sending
        if model.compiled_step is not None and model.compiled_step.suits(batch):
            return model.compiled_step(batch, weights, continue_sending)
        optimizer.zero_grad(set_to_none=True)
        with autocast(batch.labels.device, precision):
            logits = model(*batch.inputs)
        continue_sending()
        own = slice(batch.own)
        losses = own_losses(
            logits[own],
            batch.labels[own],
            None if batch.shares is None else batch.shares[own],
            processes=self.count,
            samples=batch.samples_of_all,
            loss=model.loss,
        )
        # Each process normalises its own share of the batch; what they remember for scoring is the same in all. All of
        # it travels in one message with gradients, for a message costs more to start than these to send.
        mean = losses.detach().clone()
        together = [mean, *(buffer for buffer in model.layers.buffers() if buffer.is_floating_point())]
        if isinstance(model, HostModel):
            weighted_sum(losses, weights).backward()
            model.average_gradients()
            buckets = GradientBuckets((), self.count)
            buckets.begin(together)
        else:
            buckets = self._buckets_of(model)
            buckets.begin(together)
            weighted_sum(losses, weights).backward()
        buckets.finish()
        model.embeddings.after_backward()
        optimizer.step()
        return mean

    def ahead(self, batches: Iterable[Batch], model: Model) -> Iterator[Batch]:
        """Yield each batch when the next one is loaded, so that the next batch's ids are sent during the step.

        Models whose tables have a cache do not send ids early, because the cache has room for one batch only. Families
        that read histories id by id do not either, because they rearrange the ids of a batch first.
        """
        if not isinstance(model.embeddings, ShardedEmbeddings) or reads_positions(model.spec.family):
            yield from batches
            return
        for batch, self._following in pairwise(chain(batches, [None])):
            assert batch is not None, "nothing is loaded after the last batch"
            yield batch
        self._following = None

    def _buckets_of(self, model: Model) -> GradientBuckets:
        if self._buckets is None or self._buckets[0] is not model:
            self._buckets = model, GradientBuckets(model.parameters(), self.count)
        return self._buckets[1]

    @torch.no_grad()
    def evaluate(self, model: Model, dataset: Dataset, split: SplitName, execution: Execution) -> Evaluation:
        """Score a split together; every process returns the logits of the whole split."""
        loader = ShareLoader(self.rank, self.count, dataset, split, max(execution.batch_size, SMALLEST_BATCH))
        logits, sizes = [], []
        was_training = model.training
        model.eval()
        try:
            with applied(execution) as device, prefetch(loader.batches(), execution) as batches:
                for batch in batches:
                    with autocast(device, execution.precision):
                        logits.append(model(*batch.inputs).float())
                    sizes.append((len(batch), batch.samples))
        finally:
            model.train(was_training)
        gathered = torch.stack(of_all(torch.cat(logits))).cpu().numpy()  # [processes, ...]
        # The samples of all batches in order, without the padding of each batch.
        ordered, start = [], 0
        for size, samples in sizes:
            ordered.append(gathered[:, start : start + size].reshape(-1, *gathered.shape[2:])[:samples])
            start += size
        return scored_as(dataset, loader.targets(), np.concatenate(ordered))

    def checkpoint(
        self, directory: Path, identity: dict[str, Any], checkpoint_settings: CheckpointSettings
    ) -> ShardedCheckpoint:
        """Return the checkpoint to which every process writes its shards."""
        self.kept = ShardedCheckpoint(directory, identity, checkpoint_settings, self._folders)
        return self.kept

    def agree(self, decision: bool) -> bool:
        """Return True if the first process passed True in the previous call; equal in all processes.

        The decision arrives one call late, so that no step waits for the message, which does not involve the GPU.
        """
        if self._word is not None:
            sending, word = self._word
            self._word = None
            sending.wait()
            if word:
                return True  # and what is decided by now is old when it is heard
        word = torch.tensor([int(decision)])
        sending = dist.broadcast(word, src=0, async_op=True)
        assert sending is not None, "all processes are of the group"
        self._word = sending, word
        return False


def broadcast_number(number: int) -> int:
    """Broadcast the first process's number over the CPU, so that no GPU is waited for."""
    message = torch.tensor([number])
    dist.broadcast(message, src=0)
    return int(message)


def train_together(
    job: ClickJob,
    hooks: Hooks,
    checkpointing: Checkpointing,
    sharding: Sharding,
    *,
    read: Read | None,
    folders: Folders | None = None,
) -> tuple[TrainingFigures, Path]:
    """Train with the other processes of torch's default group, on the device of this process.

    The caller's orders are read in the first process; in the others, `read` is None. Without `folders`, all processes
    share one checkpoint folder.

    Returns:
        The figures, with peak memory and cache counts of all processes, and the folder of the best weights' parts.

    Raises:
        KeyboardInterrupt: The caller ordered a stop; the state has been saved.
        ShunterError: See `shunter.engine.loop.trainer.train`.
    """
    linked = with_stored_machine(sharding, torch.device(job.execution.device), checkpointing.directory)
    processes = ManyProcesses(job.dataset, linked, folders)
    result = train(job, replace(hooks, should_stop=_Orders(read)), checkpointing, processes=processes)
    memory = torch.tensor([result.peak_memory_bytes])
    dist.all_reduce(memory)
    tiers = None if result.tiers is None else CacheCounts.of_all(from_all(result.tiers))
    return replace(result.figures, peak_memory_bytes=int(memory), tiers=tiers), processes.kept.best


class _Orders:
    """Orders of the caller, checked after each step: the first process reads them, and all processes obey.

    An order is broadcast during the next step and received after it, so that no step waits for it.
    """

    def __init__(self, read: Read | None) -> None:
        self._read = read
        self._on_its_way: tuple[dist.Work, torch.Tensor, Stop | None] | None = None

    def __call__(self) -> StopReason | None:
        heard = GO_ON, None
        if self._on_its_way is not None:
            sending, word, stop = self._on_its_way
            sending.wait()
            heard = int(word), stop
        stop = self._read() if self._read else None
        word = torch.tensor([GO_ON if stop is None else INTERRUPT if stop.because is None else STOP])
        sending = dist.broadcast(word, src=0, async_op=True)
        assert sending is not None, "all processes belong to the group"
        self._on_its_way = sending, word, stop
        agreed, of = heard
        if agreed == INTERRUPT:
            raise KeyboardInterrupt
        if agreed == GO_ON:
            return None
        return (of.because if of else None) or StopReason(StopKind.INTERRUPTED)
