"""Memory for embedding tables that do not fit: the part kept in memory, and the rest in a file."""

import math
from collections.abc import Sequence
from dataclasses import replace

from shunter.engine.memory import free_memory_bytes
from shunter.hardware.cost.memory_model import lies_in_file
from shunter.hardware.types import Workload
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.graph import GraphSpec
from shunter.models.spec import Features, ModelSpec
from shunter.planner.assessment import Candidate

# Share of the remaining memory given to tables. Less than 1, because a prediction may be wrong by a third, and a larger
# page cache means fewer reads from the disk.
SHARE_OF_TABLES = 0.5
LARGEST_SHARE = 0.8  # of the free memory that tables may take in one process beside the rest of the training
GIB, MIB = 2**30, 2**20


def need_several_processes(table_bytes: int, processes: int) -> bool:
    """Return True if several processes must hold the tables, because one process cannot; then nothing is probed."""
    return processes > 1 and table_bytes > LARGEST_SHARE * free_memory_bytes()


def memory_for_tables(
    workload: Workload, candidates: Sequence[Candidate], max_memory_gib: float | None = None, processes: int = 1
) -> int | None:
    """Return the memory for embedding tables if no CPU placement has room for all of them.

    Args:
        workload: Demand of the training.
        candidates: Placements with all tables in memory, and their predictions.
        max_memory_gib: Memory limit of the user.
        processes: Processes that share the tables and the memory; each also needs the memory of everything else.

    Returns:
        Bytes. None if the tables fit, if no CPU is a candidate, if the tables of this model cannot be in a file, or if
            a
        file would not help.
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
    return memory if memory > 2 * _book_bytes(workload) else None


def _book_bytes(workload: Workload) -> float:
    """Return the cache's bookkeeping bytes for all rows, in memory or not: one number per row."""
    numbers = workload.lookup_bytes_per_sample / max(workload.lookups_per_sample, 1) / 4
    return workload.table_bytes / (numbers + 1)


def half_table_bytes(workload: Workload) -> float:
    """Return the bytes of the tables with their optimiser state if rows were kept in fp16."""
    return (workload.table_bytes + _book_bytes(workload)) / 2


def half_table_hints(
    workload: Workload, candidates: Sequence[Candidate], max_memory_gib: float | None = None
) -> list[str]:
    """Return a hint to use fp16 tables if no placement has room but fp16 tables would fit; else an empty list.

    Args:
        workload: Demand of the training, with tables in fp32.
        candidates: Candidates of the decision.
        max_memory_gib: Memory limit of the user.
    """
    spared = workload.table_bytes - half_table_bytes(workload)
    permitted = math.inf if max_memory_gib is None else max_memory_gib * GIB
    room = [min(one.accelerator_memory_bytes, permitted) - one.prediction.memory_bytes for one in candidates]
    if max(room, default=0) >= 0 or max(room) + spared < 0:
        return []
    return ["In fp16 the embedding tables would fit: add --set table_precision=fp16"]


def half_table_notes(spec: ModelSpec | GraphSpec, features: Features) -> list[str]:
    """Return a note for the user if tables are kept in fp16."""
    if isinstance(spec, GraphSpec) or spec.table_precision == "fp32":
        return []
    half, full = (
        EmbeddingTables.count_bytes(one.tables(features)) for one in (spec, replace(spec, table_precision="fp32"))
    )
    return [
        "The embedding tables are kept in fp16 and learn in fp32, rounded by chance (table_precision): their rows take "
        f"{half.weights / MIB:,.3g} MiB instead of {full.weights / MIB:,.3g}, beside {half.optimizer / MIB:,.3g} of "
        "the optimiser's sums in fp32."
    ]


def embedding_memory_notes(workload: Workload, candidates: Sequence[Candidate], *, was_asked: bool) -> list[str]:
    """Return a note for the user if tables are kept in a file.

    Args:
        workload: Demand of the training.
        candidates: Candidates of the decision.
        was_asked: Whether the user set the memory for the tables.
    """
    in_file = [one.placement for one in candidates if lies_in_file(workload, one.placement)]
    memory = in_file[0].embedding_memory_bytes if in_file else None
    if memory is None:
        return []
    why = "as asked" if was_asked else "for the memory does not hold them"
    return [
        f"The embedding tables take {workload.table_bytes / MIB:,.3g} MiB with their optimiser's state: on the "
        f"processor {memory / MIB:,.3g} MiB of memory hold the rows in use and the rest is in a file, {why} "
        "(--embedding-memory); estimated steps wait for the rows that they are expected to read, as far as the disk "
        "was measured (shunter profile). In fp16 (--set table_precision=fp16) they would take "
        f"{half_table_bytes(workload) / MIB:,.3g} MiB, all in the memory of one process."
    ]
