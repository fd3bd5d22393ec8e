"""Planning of a training run whose embedding rows are partly in a file.

A separate thread moves rows while the previous batch is trained (MTrainS, arXiv 2305.01515: a step takes the longer of
computing and fetching). If training uses every core, the thread's processor time adds to the step; its wait for the
disk does not.
"""

from collections.abc import Sequence

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.extensions.tiers.embedding_cache import cached_rows
from shunter.extensions.tiers.memory.compare import ids_per_sample
from shunter.extensions.tiers.memory.demand import TableDemand, demands
from shunter.extensions.tiers.memory.hits import Hits, Passes, predict_hits
from shunter.extensions.tiers.tier_blocks import TierBlocks
from shunter.hardware.cost.memory_model import stores_tables_in_file
from shunter.hardware.types import HardwareProfile, Placement, Workload
from shunter.models.graph import GraphSpec
from shunter.models.spec import ModelSpec
from shunter.planner.assessment import Candidate
from shunter.planner.candidates.embedding_memory import GIB, MIB, bytes_of_a_number_per_row, half_table_bytes
from shunter.planner.decide import Decision
from shunter.planner.predict.correct import with_step_seconds

# Share of the remaining memory given to tables. Less than 1, because a prediction may be wrong by a third, and a larger
# page cache means fewer reads from the disk.
SHARE_OF_TABLES = 0.5
# Processor time of a fetched row and the row that it evicts: bookkeeping and copies. `benchmarks.tiers` measured
# 2.8 and 4.4 microseconds with 20 and 5 % of the rows in memory and the file in the page cache.
SECONDS_A_ROW = 3.5e-6
READS_A_ROW = 2  # one for the weights, one for the optimiser state


def memory_for_tables(
    workload: Workload, candidates: Sequence[Candidate], max_memory_gib: float | None = None, processes: int = 1
) -> int | None:
    """Return the memory for embedding tables if no CPU placement has room for all of them.

    Args:
        workload: Demand of the training.
        candidates: Placements with all tables in memory, and their predictions.
        max_memory_gib: Memory limit of the user.
        processes: Processes that share the tables and the memory; each also needs its own memory for
            everything but the tables.

    Returns:
        Bytes. None if the tables fit, if no CPU is a candidate, if the tables of this model cannot be in a file, or if
            a file would not help.
    """
    here = [one for one in candidates if one.is_here and one.placement.device == "cpu" and not one.placement.node]
    if not here or not workload.table_bytes:
        return None
    limit = min(one.accelerator_memory_bytes for one in here)
    if max_memory_gib is not None:
        limit = min(limit, int(max_memory_gib * GIB))
    others = processes * max(min(one.prediction.memory_bytes for one in here) - workload.table_bytes, 0)
    if workload.table_bytes + others <= limit:
        return None
    memory = int(SHARE_OF_TABLES * (limit - others)) // MIB * MIB
    return memory if memory > 2 * bytes_of_a_number_per_row(workload) else None


def embedding_memory_notes(workload: Workload, candidates: Sequence[Candidate], *, was_requested: bool) -> list[str]:
    """Return a note for the user if embedding tables are stored in a file, else an empty list.

    Args:
        workload: Demand of the training.
        candidates: Candidates of the decision.
        was_requested: Whether the user set the memory for the tables.
    """
    in_file = [one.placement for one in candidates if stores_tables_in_file(workload, one.placement)]
    memory = in_file[0].embedding_memory_bytes if in_file else None
    if memory is None:
        return []
    why = "as requested" if was_requested else "because they do not fit into memory"
    return [
        f"The embedding tables take {workload.table_bytes / MIB:,.3g} MiB with their optimiser's state. On the "
        f"CPU they are in a file with a cache of {memory / MIB:,.3g} MiB in memory, {why} (--embedding-memory). "
        "Estimated step times include the expected reads if the disk was measured (shunter profile). "
        "In fp16 (--set table_precision=fp16) the tables would take "
        f"{half_table_bytes(workload) / MIB:,.3g} MiB, all in the memory of one process."
    ]


def with_moved_rows(
    candidates: Sequence[Candidate],
    dataset: Dataset,
    spec: ModelSpec | GraphSpec,
    profiles: Sequence[HardwareProfile],
    *,
    epochs: int,
) -> list[Candidate]:
    """Return placement candidates; with tables in a file, the step time includes the expected row transfers.

    Args:
        candidates: Candidates predicted with all rows in memory; candidates without a file are returned unchanged.
        dataset: Training data.
        spec: The model.
        profiles: Profiles of this machine.
        epochs: Largest number of epochs; a candidate's `work_share` reduces it if past runs ended earlier.

    Raises:
        DataError: An array of the data set is missing.
    """
    in_file = [one for one in candidates if one.is_here and one.placement.embedding_memory_bytes is not None]
    if not in_file or isinstance(spec, GraphSpec):
        return list(candidates)
    tables = demands(dataset, spec, ids_per_sample(dataset))
    profile_of = {profile.accelerator.name: profile for profile in profiles}
    misses: dict[tuple[int, int, float], float] = {}
    found = []
    for one in candidates:
        samples, memory = one.placement.batch_size, one.placement.embedding_memory_bytes
        rows = None if memory is None else cached_rows(spec, dataset.features, memory)
        profile = profile_of.get(one.placement.accelerator)
        if memory is None or rows is None or profile is None or not one.is_here:
            found.append(one)
            continue
        key = (samples, memory, one.work_share)
        if key not in misses:
            passes = Passes(dataset.splits["train"].rows, epochs * one.work_share)
            misses[key] = float(_hits(tables, samples, rows, passes).misses.sum())
        found.append(_slowed(one, misses[key], sum(table.total_bytes for table in tables), profile))
    return found


def _slowed(candidate: Candidate, misses: float, table_bytes: float, profile: HardwareProfile) -> Candidate:
    moving, waiting = misses * SECONDS_A_ROW, 0.0
    if profile.disk is not None and table_bytes:  # the disk reads of missed rows outside the page cache
        page_cache = max(candidate.accelerator_memory_bytes - candidate.prediction.memory_bytes, 0)
        on_disk = max(1 - page_cache / table_bytes, 0.0)
        waiting = misses * on_disk * READS_A_ROW / profile.disk.random_reads_per_second.value
    step = candidate.prediction.step_seconds
    has_core = profile.accelerator.cores > candidate.placement.threads
    seconds = max(step if has_core else step + moving, moving + waiting)
    return candidate.model_copy(update={"prediction": with_step_seconds(candidate.prediction, seconds)})


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
    found = _of_processes(tables, blocks, placement.batch_size, rows // processes, passes)
    requests, misses = (sum(float(getattr(one, name).sum()) for one in found) for name in ("requests", "misses"))
    share, fetched = misses / requests if requests else 0.0, misses * row_bytes
    highest = max(one.miss_rate for one in found) if processes > 1 else None
    described = [
        f"Of the different rows of a batch of {placement.batch_size:,} samples, {share:.1%} are expected to be read "
        f"from the file, {fetched / MIB:,.2g} MiB a step (estimated from the statistics of the data)."
    ]
    if highest is not None:
        alone = decision.prediction.memory_bytes - memory + memory // processes
        described.append(
            f"Each of {processes} processes has its rows in a file of its own and {memory / processes / MIB:,.3g} MiB "
            f"of memory for them: up to {highest:.1%} are expected to be read in one, and each to take up to "
            f"{alone / MIB:,.0f} MiB of memory in all."
        )
    notes = (*decision.notes, *described)
    return decision.model_copy(update={"tier_miss_rate": share, "tier_highest_miss_rate": highest, "notes": notes})


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
    return _hits(tables, placement.batch_size, rows, Passes(dataset.splits["train"].rows, epochs)).miss_rate


def _of_processes(
    tables: Sequence[TableDemand], blocks: TierBlocks, samples: int, rows: int, passes: Passes
) -> list[Hits]:
    """Return the predicted cache requests and misses of each process, with `rows` cached rows in each."""
    if blocks.processes == 1:
        return [_hits(tables, samples, rows, passes)]
    found = []
    for rank in range(blocks.processes):
        parts = zip(tables, *(part.tolist() for part in blocks.own(rank)), strict=True)
        own = [table.block(first, count) for table, first, count in parts if count]
        found.append(_hits(own, samples, rows, passes))
    return found


def _hits(tables: Sequence[TableDemand], samples: int, rows: int, passes: Passes) -> Hits:
    return predict_hits(tables, samples, float(rows * tables[0].row_bytes), Execution().window_batches, passes)
