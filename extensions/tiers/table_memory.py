"""Size of the memory that caches rows of embedding tables in a file."""

from collections.abc import Sequence

from shunter.hardware.cost.memory_model import stores_tables_in_file
from shunter.hardware.types import Workload
from shunter.planner.assessment import Candidate
from shunter.planner.candidates.embedding_memory import GIB, MIB, bytes_of_a_number_per_row, half_table_bytes

# Share of the remaining memory given to tables. Less than 1, because a prediction may be wrong by a third, and a larger
# page cache means fewer reads from the disk.
SHARE_OF_TABLES = 0.5


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
