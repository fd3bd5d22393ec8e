"""Placement of embedding tables that do not fit into the memory of one process: several processes, or fp16."""

import math
from collections.abc import Sequence
from dataclasses import replace

from shunter.engine.memory import free_memory_bytes
from shunter.hardware.types import Workload
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.graph import GraphSpec
from shunter.models.spec import Features, ModelSpec
from shunter.planner.assessment import Candidate

LARGEST_SHARE = 0.8  # of the free memory that tables may take in one process beside the rest of the training
GIB, MIB = 2**30, 2**20


def need_several_processes(table_bytes: int, processes: int) -> bool:
    """Return True if the tables need the memory of several processes; probes are then not possible."""
    return processes > 1 and table_bytes > LARGEST_SHARE * free_memory_bytes()


def bytes_of_a_number_per_row(workload: Workload) -> float:
    """Return the bytes that one fp32 number in each row of the tables takes in total."""
    numbers = workload.lookup_bytes_per_sample / max(workload.lookups_per_sample, 1) / 4
    return workload.table_bytes / (numbers + 1)


def half_table_bytes(workload: Workload) -> float:
    """Return the bytes that the tables with optimiser state would take if their rows were stored in fp16."""
    return (workload.table_bytes + bytes_of_a_number_per_row(workload)) / 2


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
    """Return a note for the user if tables are stored in fp16."""
    if isinstance(spec, GraphSpec) or spec.table_precision == "fp32":
        return []
    half, full = (
        EmbeddingTables.count_bytes(one.tables(features)) for one in (spec, replace(spec, table_precision="fp32"))
    )
    return [
        "The embedding tables are stored in fp16 and trained in fp32 with stochastic rounding "
        "(table_precision): their rows take "
        f"{half.weights / MIB:,.3g} MiB instead of {full.weights / MIB:,.3g}, beside {half.optimizer / MIB:,.3g} of "
        "the optimiser's sums in fp32."
    ]
