"""Runs of the stall profiler in each of its processes; all processes make the same calls at the same time."""

import gc
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, cycle, islice
from typing import Any

import numpy as np
import torch
from torch import distributed as dist

from shunter.engine.config import Execution
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.step import admitted_batches, applied, build_dense_optimizer, prefetch, train_step
from shunter.engine.memory import available_memory_bytes, check_tables_fit
from shunter.engine.table_files import are_supported
from shunter.errors import RequestError
from shunter.extensions.distributed.tables.sharded import ShardedEmbeddings
from shunter.extensions.distributed.training.loader import ShareLoader
from shunter.extensions.distributed.training.processes import ManyProcesses
from shunter.extensions.stalls.linked import Wire
from shunter.extensions.stalls.plan import CommunicationMeasurement, StallPlan, Traffic
from shunter.hardware.devices.page_cache import drop_from_page_cache, page_cache_share
from shunter.hardware.probes.timing import synchronize
from shunter.model_families import reads_positions
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.registry import Model, build_model
from shunter.models.spec import ModelSpec

Step = Callable[[Any], object]
FEWER_STEPS = 20  # for runs that need only an order of magnitude, or no timing
LARGEST_CACHED_SHARE = 0.1
ONE_DEVICE = "this run needs two devices, but there is only one"


class StallBatches:
    """Batches of the training part for one process, in the shuffled order of a training run.

    Args:
        dataset: Data set.
        batch_size: Samples per process.
        rank: Rank of this process.
        processes: Number of processes.

    Raises:
        RequestError: The training part is smaller than one batch of all processes.
    """

    def __init__(self, dataset: Dataset, batch_size: int, rank: int, processes: int) -> None:
        self._dataset, self._rank, self._processes = dataset, rank, processes
        self._size = batch_size * processes
        if dataset.splits["train"].rows < self._size:
            raise RequestError(
                f"The training part of {dataset.name} has only {dataset.splits['train'].rows:,} rows, but "
                f"a step of {self._size:,} samples on {processes} device(s) needs more: lower the batch "
                "size."
            )

    def read(self) -> Generator[Batch, None, None]:
        """Yield full batches, epoch after epoch without end."""
        loader = ShareLoader(self._rank, self._processes, self._dataset, "train", self._size, shuffle=True, seed=0)
        for epoch in count():
            rows = loader.rows_of_batches(epoch=epoch)
            yield from (loader.read(some) for some in rows if not isinstance(some, slice) and len(some) == self._size)

    def resident(self, number: int, device: torch.device) -> list[Batch]:
        """Return the first `number` batches, copied to the device."""
        return [batch.to(device) for batch in islice(self.read(), number)]

    def drop_files(self) -> str | None:
        """Drop the files of the training part from the page cache; every process must call this at the same time.

        Returns:
            Reason why the files could not be dropped; None on success.
        """
        gc.collect()  # files that are still mapped would not be dropped
        dist.barrier()
        reason = [None]
        if self._rank == 0:
            files = sorted(self._dataset.directory.glob("train.*.npy"))
            drop_from_page_cache(files)
            share = page_cache_share(files)
            if share is None or share > LARGEST_CACHED_SHARE:
                reason = ["the files of the data set cannot be dropped from memory on this file system"]
        dist.broadcast_object_list(reason)
        return reason[0]


def largest_window_rows(batches: Sequence[Batch], rows: Sequence[int], window: int) -> int:
    """Return the largest number of embedding rows that `window` consecutive batches access, over all tables.

    Args:
        batches: Batches in order.
        rows: Number of rows of each table.
        window: Number of batches in flight at a time.
    """
    starts = np.cumsum((0, *rows[:-1]))
    touched = []
    for batch in batches:
        ids_of_table = np.diff(batch.offsets[:: len(batch)].numpy())
        touched.append(np.unique(batch.values.numpy() + np.repeat(starts, ids_of_table)))
    windows = (touched[first : first + window] for first in range(max(1, len(touched) - window + 1)))
    return max(len(np.unique(np.concatenate(some))) for some in windows)


class StallRuns:
    """Executor of the stall profiler's runs, one after the other.

    Args:
        plan: Plan of the measurements.
        execution: Execution of this process, with its device.
        wire: Wire that counts the group's messages; None if the group is torch's own.
        now: Clock that returns seconds.

    Attributes:
        not_measurable: Reason why a run cannot be made, by run.
        sharding: Number of tables by kind of sharding.
        slow_tier_rows: Embedding rows that run S7, with the tables in a file, keeps in memory, and all rows; None if S7
            is not made.
    """

    def __init__(
        self, plan: StallPlan, execution: Execution, wire: Wire | None, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.not_measurable: dict[str, str] = {}
        self.sharding: dict[str, int] = {}
        self.slow_tier_rows: tuple[int, int] | None = None
        self._plan, self._execution, self._wire, self._now = plan, execution, wire, now
        self._device = torch.device(execution.device)
        self._processes = ManyProcesses(plan.dataset, plan.sharding)
        self._batches = StallBatches(plan.dataset, execution.batch_size, self.rank, self.count)
        self._resident = self._batches.resident(plan.steps + plan.warmup_steps, self._device)
        self._find_what_cannot_be_measured()
        # The memory of a process holds a full copy of the tables in addition to its shards.
        left = available_memory_bytes(self._device)
        left = left // (self.count + 1) if self._device.type == "cpu" else left
        check_tables_fit(plan.spec, plan.dataset.features, execution, left)
        local = self._local_model(plan.spec)
        self._alone = self._step_alone(local)
        # Copies of the tables in every process; only the dense gradients are exchanged.
        self._copies = self._step_together(local) if self.count > 1 else self._alone
        self._together = self._step_together(self._shared_model(plan.spec)) if self.count > 1 else self._alone
        self._slow = self._slow_model() if self.rank == 0 and self.slow_tier_rows else None

    def run(self, name: str) -> list[float]:
        """Make one run, given its name in `shunter.extensions.stalls.plan.RUNS`.

        Returns:
            Seconds of each step in this process; empty if it does not take part in the run or the run cannot be made.
        """
        if name in ("S3", "L3") and name not in self.not_measurable:
            reason = self._batches.drop_files()
            if reason is not None:
                self.not_measurable[name] = reason
        if name in self.not_measurable:
            return []
        dist.barrier()
        seconds = self._make(name)
        dist.barrier()
        return seconds

    def traffic(self) -> Traffic | None:
        """Return the traffic of a step of run S2, on all devices of one machine; None if messages were not counted."""
        return None if self._wire is None or self.count == 1 else self._traffic_of(self._together)

    def communication(self, spec: ModelSpec, steps: int, rounds: int, label: str) -> CommunicationMeasurement:
        """Time steps of another model on all devices, alternately with and without communication.

        Args:
            spec: Model configuration.
            steps: Number of timed steps in each run.
            rounds: Number of times both runs are made.
            label: Short label of the model.
        """
        together = self._step_together(self._shared_model(spec))
        apart = self._step_alone(self._local_model(spec))
        seconds: tuple[list[list[float]], list[list[float]]] = ([], [])
        for _ in range(rounds):
            for step, kept in zip((together, apart), seconds, strict=True):
                dist.barrier()
                kept.append(self._timed(step, steps=steps))
        dist.barrier()
        return CommunicationMeasurement(
            model=label, together=seconds[0], apart=seconds[1], traffic=self._traffic_of(together)
        )

    def _make(self, name: str) -> list[float]:
        if name in ("S0", "S1", "S7"):
            return self._make_on_one_device(name) if self.rank == 0 else []
        if name in ("L3", "L4"):
            # One reader that works as in training, without a model.
            return self._timed(lambda _: None, self._batches.read(), warmup=())
        if name in ("S3", "S4"):
            with prefetch(self._batches.read(), self._execution) as batches:
                return self._timed(self._together, batches)
        if name == "S5":
            with self._between_machines():
                return self._timed(self._together)
        return self._timed({"S1g": self._alone, "S2": self._together, "S6": self._copies}[name])

    def _make_on_one_device(self, name: str) -> list[float]:
        if name == "S1":
            return self._timed(self._alone)
        if name == "S0":
            with applied(replace(self._execution, threads=self._execution.threads * self.count)):
                return self._timed(self._alone, steps=min(FEWER_STEPS, self._plan.steps))
        assert self._slow is not None
        model, step = self._slow
        with prefetch(admitted_batches(cycle(self._resident), model), self._execution) as batches:
            return self._timed(step, batches, warmup=islice(batches, self._plan.warmup_steps))

    def _timed(
        self,
        step: Step,
        batches: Iterator[Batch] | None = None,
        *,
        warmup: Iterable[Batch] | None = None,
        steps: int | None = None,
    ) -> list[float]:
        """Return the seconds of each step; without `batches`, on the batches that were read before the measurement."""
        for batch in self._resident[: self._plan.warmup_steps] if warmup is None else warmup:
            step(batch)
        synchronize(self._device)
        source = cycle(self._resident[self._plan.warmup_steps :]) if batches is None else batches
        seconds = []
        for _ in range(steps or self._plan.steps):
            started = self._now()
            step(next(source))
            synchronize(self._device)
            seconds.append(self._now() - started)
        return seconds

    @contextmanager
    def _between_machines(self) -> Iterator[None]:
        assert self._wire is not None
        self._wire.link = self._plan.link
        try:
            yield
        finally:
            self._wire.link = None

    def _traffic_of(self, step: Step) -> Traffic:
        """Return the mean traffic of a step over some batches, because their sizes differ a little."""
        assert self._wire is not None
        self._wire.reset()
        batches = self._resident[:FEWER_STEPS]
        for batch in batches:
            step(batch)
        steps = len(batches)
        return Traffic(
            calls={operation: calls / steps for operation, calls in self._wire.calls.items()},
            message_bytes={operation: size / steps for operation, size in self._wire.message_bytes.items()},
        )

    def _step_alone(self, model: Model) -> Step:
        optimizer = build_dense_optimizer(model, self._plan.hyperparameters)
        return lambda batch: train_step(model, optimizer, batch, self._execution.precision)

    def _step_together(self, model: Model) -> Step:
        optimizer = build_dense_optimizer(model, self._plan.hyperparameters)
        return lambda batch: self._processes.step(model, optimizer, batch, self._execution.precision)

    def _local_model(self, spec: ModelSpec) -> Model:
        learning = self._plan.hyperparameters.embedding_learning
        return build_model(spec, self._plan.dataset.features, embedding_learning=learning, device=self._device).train()

    def _shared_model(self, spec: ModelSpec) -> Model:
        execution = replace(self._execution, batch_size=self._execution.batch_size * self.count)
        model = self._processes.build_model(
            spec, self._plan.dataset.features, self._plan.hyperparameters, execution, seed=0, cache=None
        )
        assert isinstance(model.embeddings, ShardedEmbeddings)
        if not self.sharding and model.embeddings.plan is not None:
            for module in model.embeddings.plan.plan.values():
                for table in module.values():  # pyright: ignore[reportAttributeAccessIssue]
                    self.sharding[table.sharding_type] = self.sharding.get(table.sharding_type, 0) + 1
        return model.train()

    def _slow_model(self) -> tuple[Model, Step]:
        assert self.slow_tier_rows is not None
        model = build_model(
            self._plan.spec,
            self._plan.dataset.features,
            embedding_learning=self._plan.hyperparameters.embedding_learning,
            device=self._device,
            cache=EmbeddingCache(rows=self.slow_tier_rows[0], window_batches=self._execution.prefetch_depth + 2),
        ).train()
        return model, self._step_alone(model)

    def _find_what_cannot_be_measured(self) -> None:
        if self.count == 1:
            self.not_measurable.update(dict.fromkeys(("S0", "S1g", "S2", "S5", "S6"), ONE_DEVICE))
        elif self._wire is None:
            self.not_measurable["S5"] = "machines are simulated between processors only"
        if self._device.type != "cpu":
            self.not_measurable["S7"] = "embeddings in a slower memory are trained on the processor only"
            return
        if not are_supported():
            self.not_measurable["S7"] = "embeddings in a slower memory require the extension `tiers`"
            return
        if reads_positions(self._plan.spec.family):
            self.not_measurable["S7"] = "this model family has all embeddings in memory"
            return
        rows = [field.rows for field in self._plan.dataset.features.categorical]
        needed = largest_window_rows(self._resident, rows, self._execution.prefetch_depth + 2)
        total = sum(self._plan.dataset.features.table_rows)
        if needed >= total:
            self.not_measurable["S7"] = f"the batches in progress access all of the {total:,} embedding rows"
            return
        self.slow_tier_rows = (max(needed, int(self._plan.slow_share * total)), total)
