"""Peak memory of a training job: of the process on a CPU, of the device on a GPU."""

import math
from collections.abc import Collection

from shunter.hardware.types import DenseDemand, HardwareProfile, Placement, Workload

# Device memory of a CUDA context with its libraries, before the first tensor.
CUDA_CONTEXT_BYTES = 512 * 2**20
# Memory that a CPU training adds to its process. Fitted to 18 training runs of five families, of 6 to 40 batches of 128
# to 16,384 samples, each in a separate process (least squares of the relative error of the added memory); evaluated on
# training runs of other shapes and sizes: `tests/planner/predict/test_memory.py` and `benchmarks/predict`. The first
# size: code of the kernels, Python objects and scoring. The second size: kernels that oneDNN generates for bf16 on
# processors with AVX-512. A Zen 3 with only AVX2 loads none: there seven training runs in bf16 added 16 to 21 MiB less
# than with these kernels; larger training runs, where the kernels are a small part, up to 34 less or 6 more. The third
# size: what the kernels of processors with AMX take beside. On a Xeon with AMX, training runs in bf16 added 7 to 19 MiB
# more beyond their prediction than the same in fp32 (8 training runs of 256 and 1,024 samples a batch).
KERNEL_BYTES, HALF_KERNEL_BYTES, TILE_KERNEL_BYTES = 20 * 2**20, 19 * 2**20, 14 * 2**20
# Bytes of freed tensors that the CPU allocator retains, for each byte in use at the peak of a step.
HEAP_WASTE = 0.8
# Tables of at least the first size are read back from a checkpoint in pieces, which need the second size at a time.
READ_IN_PIECES_FROM_BYTES, PIECES_BYTES = 2**20, 16 * 2**20
# For such tables a checkpoint keeps row marks of a byte each: changed since the last checkpoint, changed since the last
# full one, still to be written, and one more during selection. Pieces are written beside steps. Counted, not fitted.
MARK_BYTES_A_ROW = 4


def predict_memory_bytes(
    workload: Workload,
    placement: Placement,
    profile: HardwareProfile,
    process_bytes: int = 0,
    *,
    restores: bool = True,
) -> int:
    """Return the predicted peak memory in bytes of one process, or one device, of the placement; see `memory_on`.

    Args:
        workload: Demand of one sample and of one step.
        placement: Placement on the accelerator that `profile` describes.
        profile: Profile of the accelerator.
        process_bytes: Memory that the process holds before training, counted for a CPU.
        restores: Whether the weights of the best epoch are read back at the end, because it is not the last epoch.
    """
    accelerator = profile.accelerator
    return memory_on(
        accelerator.kind,
        workload,
        placement,
        process_bytes,
        restores=restores,
        instruction_sets=accelerator.instruction_sets,
    )


def memory_on(
    kind: str,
    workload: Workload,
    placement: Placement,
    process_bytes: int = 0,
    *,
    restores: bool = True,
    instruction_sets: Collection[str] = (),
) -> int:
    """Return the predicted peak memory in bytes of one process, or one device, of the placement.

    On a CPU the peak is in a step or at the end. A step holds weights, optimiser state and the tensors alive in forward
    and backward, with the allocator's waste. At the end the best epoch's weights are read back beside the current
    weights. On a GPU a copy of the best weights is counted during the whole training run.

    Args:
        kind: Kind of the accelerator, `cpu` or `cuda`.
        workload: Demand of one sample and of one step.
        placement: Placement on the accelerator.
        process_bytes: Memory that the process holds before training, counted for a CPU.
        restores: Whether the weights of the best epoch are read back at the end, because it is not the last epoch.
        instruction_sets: Instruction sets of the processor; empty if unknown.
    """
    samples = math.ceil(placement.batch_size / placement.processes)
    state = workload.parameter_bytes + workload.optimizer_bytes
    if stores_tables_in_file(workload, placement):
        assert placement.embedding_memory_bytes is not None, "without a memory limit all tables are in memory"
        state += placement.embedding_memory_bytes - workload.table_bytes
    batches = (placement.prefetch_depth + 1) * workload.input_bytes_per_sample * samples
    step = step_bytes(workload, placement, samples)
    if kind == "cuda":
        return math.ceil(CUDA_CONTEXT_BYTES + state + workload.parameter_bytes + batches + step)
    loads_half_kernels = placement.precision == "bf16" and (not instruction_sets or "avx512f" in instruction_sets)
    loads_tile_kernels = placement.precision == "bf16" and "amx_bf16" in instruction_sets
    kernels = KERNEL_BYTES + HALF_KERNEL_BYTES * loads_half_kernels + TILE_KERNEL_BYTES * loads_tile_kernels
    transient = step + batches
    tables = workload.parameter_bytes - workload.dense_parameter_bytes
    marks = pieces = 0.0
    read_back = workload.parameter_bytes
    if workload.dense_parameter_bytes and tables >= READ_IN_PIECES_FROM_BYTES:
        rows = tables * workload.lookups_per_sample / max(workload.lookup_bytes_per_sample, 1.0)
        marks, pieces = MARK_BYTES_A_ROW * rows, min(tables, PIECES_BYTES)
        read_back = workload.dense_parameter_bytes + min(tables, PIECES_BYTES)
    at_work = (1 + HEAP_WASTE) * transient + pieces
    at_end = read_back * restores + transient
    return math.ceil(process_bytes + kernels + state + marks + workload.mapped_bytes + max(at_work, at_end))


def stores_tables_in_file(workload: Workload, placement: Placement) -> bool:
    """Return True if tables are stored in a file, because they exceed the placement's memory limit for embeddings."""
    asked = placement.embedding_memory_bytes
    return asked is not None and workload.table_bytes > asked


def step_bytes(workload: Workload, placement: Placement, samples: int) -> float:
    """Return the peak bytes alive in a step of `samples`, without weights, optimiser state and input.

    This is the sum of the traced peak of the dense part, the pooled rows, and the gradients' copy that the backward
    pass sorts by row.
    """
    demand: DenseDemand | None = workload.dense.get(placement.precision)
    if demand is None:
        return 2 * workload.activation_bytes_per_sample * samples
    row_bytes = workload.lookup_bytes_per_sample / max(workload.lookups_per_sample, 1e-9)
    rows = (2 * workload.tables * row_bytes + workload.working_bytes_per_sample) * samples
    return demand.peak_bytes_per_step + demand.peak_bytes_per_sample * samples + rows
