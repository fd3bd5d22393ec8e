"""Short measurement of a graph model's real training steps, for the choice of a placement."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.step import applied, reset_peak_memory, seeded
from shunter.engine.loop.step_clock import StepClock, StepSeconds, step_clock
from shunter.engine.probes.steps import timing_of
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.interactions import read_graph
from shunter.engine.ranking.trainer import batches_for, build_optimizer, ranking_step, step_seed
from shunter.engine.ranking.triples import Drawing
from shunter.engine.results import StepTiming
from shunter.models.graph import Graph, GraphSpec, build_graph_model
from shunter.models.graph.counting import count_graph_model

if TYPE_CHECKING:
    from shunter.hardware.types import Workload

SEED = 0  # of the initial weights, the order of edges and the negatives
WARM_UP_STEPS = 3


def time_ranking_steps(
    graph: Graph,
    spec: GraphSpec,
    hyperparameters: RankingHyperparameters,
    execution: Execution,
    *,
    steps: int,
) -> StepTiming:
    """Train a new model for a few steps, measure the steps, and discard the model.

    If the graph has fewer batches than steps, it is read again from the start.

    Raises:
        RequestError: The model cannot be built.
        DataError: The graph has no edge.
        HardwareError: The device cannot be used.
    """
    with applied(execution) as device, seeded(SEED, device):
        reset_peak_memory(device)
        model = build_graph_model(spec, graph, seed=SEED, device=device).train()
        optimizer = build_optimizer(model, hyperparameters)
        batches = batches_for(model, execution.batch_size, hyperparameters, seed=SEED)
        full = max(1, batches.samples // batches.batch_size)  # a smaller last batch would be measured as a faster step
        drawing = Drawing(batches, device)

        def take(numbers: Iterable[int], clock: StepClock) -> list[StepSeconds]:
            for number in numbers:
                epoch, index = divmod(number, full)
                triples = drawing.batch(epoch, index)
                with clock.step():
                    model.reseed(step_seed(SEED, epoch, index))
                    ranking_step(model, optimizer, triples, hyperparameters)
            return list(clock.finished(wait=True))

        take(range(WARM_UP_STEPS), step_clock(device, lambda: drawing.seconds))
        drawn = drawing.seconds
        taken = take(range(WARM_UP_STEPS, WARM_UP_STEPS + steps), step_clock(device, lambda: drawing.seconds))
        return timing_of(taken, (drawing.seconds - drawn) / steps, device)


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
