"""Candidate placements: accelerators, thread counts, precisions and batch sizes worth trying."""

from collections.abc import Mapping, Sequence
from typing import Literal

from shunter.hardware.types import HardwareProfile, Placement, Precision, Workload

Kind = Literal["cpu", "cuda"]
Sizes = Mapping[Kind, Sequence[int]]  # batch sizes for accelerators of each kind
SMALLEST_BATCH = 64
# A step of 8,192 samples keeps a CPU busy; a GPU spends most of such a step on kernel launches.
LARGEST_BATCH: dict[Kind, int] = {"cpu": 8_192, "cuda": 32_768}
LARGEST_GRAPH_BATCH = 32_768
STEPS_PER_EPOCH, GRAPH_STEPS_PER_EPOCH = 100, 25


def placements(
    workload: Workload,
    profiles: Sequence[HardwareProfile],
    sizes: Sizes | None = None,
    embedding_memory_bytes: int | None = None,
) -> list[Placement]:
    """Return all candidate placements on the profiled accelerators; memory and limits are checked later.

    Other settings are not part of the candidates. The number of prefetched batches and reader threads follows from
    times measured in training (`shunter.engine.data.pipeline.plan_prefetch`). A GPU's power limit is tried only for the
    leading candidate (`shunter.planner.predict.power`). Interop threads are left to torch, because eager training does
    not use them. `benchmarks/knobs.py` measures the effect of each setting.

    Args:
        workload: Demand of the training.
        profiles: Profiles of the accelerators.
        sizes: Batch sizes; if None, sizes that suit the number of samples.
        embedding_memory_bytes: Memory for the embedding tables on a CPU; larger tables are partly in a file. None keeps
            all tables in memory.
    """
    sizes = sizes or sizes_of_kinds(workload.train_samples, ())
    in_file = embedding_memory_bytes is not None and workload.table_bytes > embedding_memory_bytes
    return [
        Placement(
            accelerator=profile.accelerator.name,
            threads=threads,
            precision=precision,
            batch_size=batch_size,
            embedding_memory_bytes=embedding_memory_bytes if in_file and profile.accelerator.kind == "cpu" else None,
        )
        for profile in profiles
        for threads in thread_counts(profile)
        for precision in precisions(profile)
        if not workload.dense or precision in workload.dense
        for batch_size in sizes[profile.accelerator.kind]
    ]


def thread_counts(profile: HardwareProfile) -> list[int]:
    """Return the powers of two below the number of usable cores, and that number; [1] for a GPU."""
    if profile.accelerator.kind == "cuda":
        return [1]
    cores = profile.accelerator.cores
    return [*(1 << power for power in range(cores.bit_length()) if 1 << power < cores), cores]


def precisions(profile: HardwareProfile) -> list[Precision]:
    """Return fp32, and bf16 if its measured matrix product is faster."""
    rates = profile.matmul_flops_per_second
    return ["fp32", "bf16"] if "bf16" in rates and rates["bf16"].value > rates["fp32"].value else ["fp32"]


def batch_sizes(train_samples: int, largest: int = LARGEST_BATCH["cpu"], steps: int = STEPS_PER_EPOCH) -> list[int]:
    """Return the powers of two from 64 on that leave at least `steps` optimiser steps in an epoch.

    A large batch is always the fastest, but quality is not predicted before training: an epoch with few steps learns
    little. Sizes beyond `largest` need evidence (`sizes_worth_trying`). If the data is too small even for 64, the only
    size is 64, or the number of samples if that is smaller.

    Args:
        train_samples: Samples of an epoch.
        largest: Largest size.
        steps: Fewest steps of an epoch.
    """
    sizes = [1 << power for power in range(SMALLEST_BATCH.bit_length() - 1, largest.bit_length())]
    enough = [size for size in sizes if train_samples >= size * steps]
    return enough or [min(SMALLEST_BATCH, train_samples)]


def everywhere(sizes: Sequence[int]) -> Sizes:
    """Map each kind of accelerator to the given batch sizes."""
    return dict.fromkeys(LARGEST_BATCH, sizes)


def sizes_of_kinds(train_samples: int, good: Sequence[int], *, of_graph: bool = False) -> Sizes:
    """Return a mapping from each kind of accelerator to its `sizes_worth_trying`."""
    return {kind: sizes_worth_trying(train_samples, good, kind, of_graph=of_graph) for kind in LARGEST_BATCH}


def sizes_worth_trying(
    train_samples: int, good: Sequence[int], kind: Kind = "cpu", *, of_graph: bool = False
) -> list[int]:
    """Return the batch sizes to try, up to the default maximum or twice the largest size that reached the quality.

    Each step of a graph model sums along all edges, whatever its batch size, so larger batches and fewer steps are
    permitted. On two fifths of MovieLens-1M's users, 25 steps an epoch at a higher learning rate gave a better ranking
    in half the time of 100 steps (one seed). GPUs may use larger batches than CPUs, but the fewest steps of an epoch
    are the same, because they depend on learning and not on the device.

    Args:
        train_samples: Samples of an epoch.
        good: Batch sizes of past runs that reached the quality.
        kind: Kind of the accelerator.
        of_graph: Whether a graph model is trained.
    """
    largest, steps = (
        (LARGEST_GRAPH_BATCH, GRAPH_STEPS_PER_EPOCH) if of_graph else (LARGEST_BATCH[kind], STEPS_PER_EPOCH)
    )
    return batch_sizes(train_samples, max(largest, 2 * max(good, default=0)), steps)


def kind(placement: Placement) -> tuple[str, int, Precision]:
    """Return (accelerator, threads, precision): equal for placements that differ only in batch size."""
    return placement.accelerator, placement.threads, placement.precision
