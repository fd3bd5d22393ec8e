"""Step time of a training run whose embedding rows are partly in a file, including the expected row transfers.

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
from shunter.extensions.tiers.memory.hits import Passes, predict_hits
from shunter.hardware.types import HardwareProfile, Placement
from shunter.models.graph import GraphSpec
from shunter.models.spec import ModelSpec
from shunter.planner.assessment import Candidate
from shunter.planner.predict.correct import with_step_seconds

# Processor time of a fetched row and the row that it evicts: bookkeeping and copies. `benchmarks.tiers` measured
# 2.8 and 4.4 microseconds with 20 and 5 % of the rows in memory and the file in the page cache.
SECONDS_A_ROW = 3.5e-6
READS_A_ROW = 2  # one for the weights, one for the optimiser state


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
    misses: dict[tuple[int, int | None, float], float] = {}
    found = []
    for one in candidates:
        placement = one.placement
        rows = None if placement.embedding_memory_bytes is None else _rows(spec, dataset, placement)
        profile = profile_of.get(placement.accelerator)
        if rows is None or profile is None or not one.is_here:
            found.append(one)
            continue
        key = (placement.batch_size, placement.embedding_memory_bytes, one.work_share)
        if key not in misses:
            room = float(rows * tables[0].row_bytes)
            passes = Passes(dataset.splits["train"].rows, epochs * one.work_share)
            hits = predict_hits(tables, placement.batch_size, room, Execution().window_batches, passes)
            misses[key] = float(hits.misses.sum())
        found.append(_slowed(one, misses[key], tables, profile))
    return found


def _rows(spec: ModelSpec, dataset: Dataset, placement: Placement) -> int | None:
    assert placement.embedding_memory_bytes is not None, "the tables are in a file"
    return cached_rows(spec, dataset.features, placement.embedding_memory_bytes)


def _slowed(candidate: Candidate, misses: float, tables: Sequence[TableDemand], profile: HardwareProfile) -> Candidate:
    step = candidate.prediction.step_seconds
    moving = misses * SECONDS_A_ROW
    waiting = _waiting(candidate, misses, sum(table.total_bytes for table in tables), profile)
    has_core = profile.accelerator.cores > candidate.placement.threads
    seconds = max(step if has_core else step + moving, moving + waiting)
    return candidate.model_copy(update={"prediction": with_step_seconds(candidate.prediction, seconds)})


def _waiting(candidate: Candidate, misses: float, table_bytes: float, profile: HardwareProfile) -> float:
    """Return the seconds per step of disk reads for missed rows outside the page cache; 0 without a measured disk."""
    if profile.disk is None or not table_bytes:
        return 0.0
    page_cache = max(candidate.accelerator_memory_bytes - candidate.prediction.memory_bytes, 0)
    on_disk = max(1 - page_cache / table_bytes, 0.0)
    return misses * on_disk * READS_A_ROW / profile.disk.random_reads_per_second.value
