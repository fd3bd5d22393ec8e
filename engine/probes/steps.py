"""Short measurement of real training steps, for the choice of a placement."""

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import torch

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.compiled_step import compile_step
from shunter.engine.loop.cuda_graph_step import STEPS_UNTIL_RECORDED, record_steps
from shunter.engine.loop.step import (
    admitted_batches,
    applied,
    build_dense_optimizer,
    peak_memory_bytes,
    prefetch,
    reset_peak_memory,
    seeded,
    train_step,
)
from shunter.engine.loop.step_clock import StepSeconds, step_clock
from shunter.engine.loop.step_options import prepare_layers
from shunter.engine.memory import check_tables_fit
from shunter.engine.results import StepTiming
from shunter.engine.table_files import embedding_cache
from shunter.models.registry import Model, build_model
from shunter.models.spec import ModelSpec


def time_steps(
    dataset: Dataset,
    spec: ModelSpec,
    hyperparameters: Hyperparameters,
    execution: Execution,
    *,
    steps: int = 20,
    warmup_steps: int = STEPS_UNTIL_RECORDED,
    seed: int = 0,
) -> StepTiming:
    """Train a new model for a few steps, measure the steps, and discard the model.

    If the training part has fewer batches than steps, it is read again from the start.

    Raises:
        RequestError: The model cannot be built or does not fit into memory, or the embedding cache is too small.
        HardwareError: The device cannot be used.
    """
    with applied(execution) as device, seeded(seed, device):
        reset_peak_memory(device)
        check_tables_fit(spec, dataset.features, execution)
        cache = embedding_cache(execution, spec, dataset, dataset.directory)
        model = build_model(
            spec,
            dataset.features,
            seed=seed,
            embedding_learning=hyperparameters.embedding_learning,
            device=device,
            cache=cache,
            is_loaded_next=cache is None,
        ).train()
        if cache is None:  # random initialisation of all rows of large tables takes longer than the steps
            model.embeddings.repeat_few_rows(torch.Generator().manual_seed(seed))
        prepare_layers(model, execution)
        return time_model(model, dataset, hyperparameters, execution, steps=steps, warmup_steps=warmup_steps, seed=seed)


def time_model(
    model: Model,
    dataset: Dataset,
    hyperparameters: Hyperparameters,
    execution: Execution,
    *,
    steps: int,
    warmup_steps: int = STEPS_UNTIL_RECORDED,
    seed: int = 0,
) -> StepTiming:
    """Train an existing model for a few steps and measure the steps.

    The peak memory counts from its last reset, and includes all other memory of the process.

    Args:
        model: Model on the device of `execution`; the caller has already set the threads of `execution`.
        dataset: Data set.
        hyperparameters: Optimizer and its settings.
        execution: Placement to measure.
        steps: Steps to measure.
        warmup_steps: Steps before the measured steps.
        seed: Seed of the order of batches.
    """
    device = torch.device(execution.device)
    optimizer = build_dense_optimizer(model, hyperparameters)
    loader = BatchLoader(dataset, "train", execution.batch_size, shuffle=True, seed=seed)
    compile_seconds = None
    record_steps(model, optimizer, execution)
    if execution.compiled:
        compile_seconds = compile_step(model, optimizer, execution, next(_full_batches(loader)))
    with prefetch(admitted_batches(_full_batches(loader), model), execution) as batches:
        for _ in range(warmup_steps):
            train_step(model, optimizer, next(batches), execution.precision)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        loaded = batches.load_seconds
        clock = step_clock(device, lambda: batches.wait_seconds)
        for _ in range(steps):
            batch = next(batches)
            with clock.step():
                train_step(model, optimizer, batch, execution.precision)
        taken = list(clock.finished(wait=True))
        load_seconds = (batches.load_seconds - loaded) / steps
    return timing_of(taken, load_seconds, device, compile_seconds)


def _full_batches(loader: BatchLoader) -> Iterator[Batch]:
    """Yield the full batches of endlessly many epochs, without smaller last batches, whose steps are faster."""
    size = min(loader.batch_size, loader.rows)
    for epoch in count():
        yield from (batch for batch in loader.batches(epoch=epoch) if len(batch) == size)


def timing_of(
    taken: Sequence[StepSeconds], load_seconds: float, device: torch.device, compile_seconds: float | None = None
) -> StepTiming:
    """Return the timing of measured steps, with the peak memory of the device."""
    return StepTiming.of_steps(
        [step.wait + step.compute for step in taken],
        wait_seconds=float(np.mean([step.wait for step in taken])),
        load_seconds=load_seconds,
        compile_seconds=compile_seconds,
        peak_memory_bytes=peak_memory_bytes(device),
    )


def time_steps_of(dataset: Dataset, spec: ModelSpec, execution: Execution, steps: int) -> StepTiming:
    """Return the times of the steps of an architecture with the default hyperparameters; see `time_steps`."""
    return time_steps(dataset, spec, Hyperparameters(), execution, steps=steps)
