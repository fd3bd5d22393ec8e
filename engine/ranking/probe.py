"""Short measurement of a graph model's real training steps, for the choice of a placement."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.step import applied, peak_memory_bytes, reset_peak_memory, seeded
from shunter.engine.loop.step_clock import StepClock, StepSeconds, step_clock
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.interactions import read_graph
from shunter.engine.ranking.trainer import batches_for, build_optimizer, ranking_step, step_seed
from shunter.engine.ranking.triples import Drawing
from shunter.engine.results import StepTiming
from shunter.models.graph import Graph, GraphSpec, build_graph_model
from shunter.models.graph.counting import count_graph_model

if TYPE_CHECKING:
    from shunter.hardware.types import Workload


def time_ranking_steps(
    graph: Graph,
    spec: GraphSpec,
    hyperparameters: RankingHyperparameters,
    execution: Execution,
    *,
    steps: int = 20,
    warmup_steps: int = 3,
    seed: int = 0,
) -> StepTiming:
    """Train a new model for a few steps, measure the steps, and discard the model.

    Args:
        graph: Graph of the training part; if it has fewer batches than steps, it is read again from the start.
        spec: Architecture.
        hyperparameters: Training hyperparameters.
        execution: Placement to measure.
        steps: Number of steps to measure.
        warmup_steps: Number of steps before the measured steps.
        seed: Seed of the initial weights, the order of edges and the negatives.

    Raises:
        RequestError: The model cannot be built.
        DataError: The graph has no edge.
        HardwareError: The device cannot be used.
    """
    with applied(execution) as device, seeded(seed, device):
        reset_peak_memory(device)
        model = build_graph_model(spec, graph, seed=seed, device=device).train()
        optimizer = build_optimizer(model, hyperparameters)
        batches = batches_for(model, execution.batch_size, hyperparameters, seed=seed)
        full = max(1, batches.samples // batches.batch_size)  # a smaller last batch would be measured as a faster step
        drawing = Drawing(batches, device)

        def take(numbers: Iterable[int], clock: StepClock) -> list[StepSeconds]:
            for number in numbers:
                epoch, index = divmod(number, full)
                triples = drawing.batch(epoch, index)
                with clock.step():
                    model.reseed(step_seed(seed, epoch, index))
                    ranking_step(model, optimizer, triples, hyperparameters)
            return list(clock.finished(wait=True))

        take(range(warmup_steps), step_clock(device, lambda: drawing.seconds))
        drawn = drawing.seconds
        taken = take(range(warmup_steps, warmup_steps + steps), step_clock(device, lambda: drawing.seconds))
        return StepTiming.of_steps(
            [step.wait + step.compute for step in taken],
            wait_seconds=float(np.mean([step.wait for step in taken])),
            load_seconds=(drawing.seconds - drawn) / steps,
            peak_memory_bytes=peak_memory_bytes(device),
        )


def time_steps_of(dataset: Dataset, spec: GraphSpec, execution: Execution, steps: int) -> StepTiming:
    """Return the times of the steps of an architecture with the default hyperparameters; see `time_ranking_steps`."""
    rates = RankingHyperparameters(**spec.learned_with)
    return time_ranking_steps(read_graph(dataset), spec, rates, execution, steps=steps)


def describe_graph(dataset: Dataset, spec: GraphSpec, *_: object) -> "Workload":
    """Return the workload of a graph model, which trains in fp32 only, with all edges in memory."""
    from shunter.engine.profiling.workload import workload_of  # imported here, since pydantic takes long to load

    graph = read_graph(dataset)
    counts = count_graph_model(spec, graph, negatives=RankingHyperparameters(**spec.learned_with).negatives)
    workload = workload_of(counts, train_samples=graph.edges)
    return workload.model_copy(update={"dense": {"fp32": workload.dense["fp32"]}})
