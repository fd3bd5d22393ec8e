"""Expected cache misses of embedding tables that are kept in a file, reported with the decision."""

from collections.abc import Sequence

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.extensions.tiers.embedding_cache import cached_rows
from shunter.extensions.tiers.memory.compare import ids_per_sample
from shunter.extensions.tiers.memory.demand import TableDemand, demands
from shunter.extensions.tiers.memory.hits import Hits, Passes, predict_hits
from shunter.extensions.tiers.tier_blocks import TierBlocks
from shunter.hardware.types import Placement
from shunter.models.graph import GraphSpec
from shunter.models.spec import ModelSpec
from shunter.planner.decide import Decision

MIB = 2**20


def with_expected_misses(
    decision: Decision, dataset: Dataset, spec: ModelSpec | GraphSpec, processes: int = 1, *, epochs: int
) -> Decision:
    """Return the decision with the expected miss rate of its embedding cache and notes about the reads from the file.

    Rows that a training run requests for the first time also count as misses.

    Args:
        decision: Placement decision; returned unchanged if its tables are all in memory.
        dataset: Training data.
        spec: Model of the decision.
        processes: Processes that train each member together and divide the rows and the memory.
        epochs: Largest number of epochs; the candidate's `work_share` reduces it if past runs ended earlier.

    Raises:
        DataError: An array of the data set is missing.
    """
    placement = decision.placement
    memory = placement.embedding_memory_bytes
    if memory is None or isinstance(spec, GraphSpec):
        return decision
    rows = cached_rows(spec, dataset.features, memory)
    if rows is None:
        return decision
    tables = demands(dataset, spec, ids_per_sample(dataset))
    row_bytes = tables[0].row_bytes
    blocks = TierBlocks.of(spec, dataset.features, processes)
    passes = Passes(dataset.splits["train"].rows, epochs * decision.chosen.candidate.work_share)
    found = _of_processes(tables, blocks, placement.batch_size, float(rows // processes * row_bytes), passes)
    requests, misses = (sum(float(getattr(one, name).sum()) for one in found) for name in ("requests", "misses"))
    share, fetched = misses / requests if requests else 0.0, misses * row_bytes
    highest = max(one.miss_rate for one in found) if processes > 1 else None
    note = (
        f"Of the different rows of a batch of {placement.batch_size:,} samples, {share:.1%} are expected to be read "
        f"from the file, {fetched / MIB:,.2g} MiB a step (estimated from the statistics of the data)."
    )
    notes = [note]
    if highest is not None:
        alone = decision.prediction.memory_bytes - memory + memory // processes
        notes.append(
            f"Each of {processes} processes has its rows in a file of its own and {memory / processes / MIB:,.3g} MiB "
            f"of memory for them: up to {highest:.1%} are expected to be read in one, and each to take up to "
            f"{alone / MIB:,.0f} MiB of memory in all."
        )
    update = {
        "tier_miss_rate": share,
        "tier_highest_miss_rate": highest,
        "notes": (*decision.notes, *notes),
    }
    return decision.model_copy(update=update)


def expected_miss_rate(placement: Placement, dataset: Dataset, spec: ModelSpec, *, epochs: float) -> float:
    """Return the share of a batch's distinct rows that one training run is expected to read from the file.

    Args:
        placement: Placement of the training, in one process.
        dataset: Training data.
        spec: The model, which may differ from the model of the decision.
        epochs: Passes of the training.

    Returns:
        0 if all tables are in memory.

    Raises:
        DataError: An array of the data set is missing.
    """
    memory = placement.embedding_memory_bytes
    rows = None if memory is None else cached_rows(spec, dataset.features, memory)
    if rows is None:
        return 0.0
    tables = demands(dataset, spec, ids_per_sample(dataset))
    passes = Passes(dataset.splits["train"].rows, epochs)
    room = float(rows * tables[0].row_bytes)
    return predict_hits(tables, placement.batch_size, room, Execution().window_batches, passes).miss_rate


def _of_processes(
    tables: Sequence[TableDemand], blocks: TierBlocks, samples: int, cache_bytes: float, passes: Passes
) -> list[Hits]:
    """Return the predicted cache requests and misses of each process."""
    window = Execution().window_batches
    if blocks.processes == 1:
        return [predict_hits(tables, samples, cache_bytes, window, passes)]
    found = []
    for rank in range(blocks.processes):
        parts = zip(tables, *(part.tolist() for part in blocks.own(rank)), strict=True)
        own = [table.block(first, rows) for table, first, rows in parts if rows]
        found.append(predict_hits(own, samples, cache_bytes, window, passes))
    return found
