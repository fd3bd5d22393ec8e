"""The placements among which is chosen: every accelerator, thread count, precision and batch size worth a thought."""

from collections.abc import Mapping, Sequence
from typing import Literal

from shunter.hardware.types import HardwareProfile, Placement, Precision, Workload

Kind = Literal["cpu", "cuda"]
Sizes = Mapping[Kind, Sequence[int]]  # batch sizes for accelerators of each kind
SMALLEST_BATCH = 64
# A step of 8,192 samples keeps a processor busy; a GPU spends most of it on launching kernels.
LARGEST_BATCH: dict[Kind, int] = {"cpu": 8_192, "cuda": 32_768}
LARGEST_GRAPH_BATCH = 32_768
STEPS_PER_EPOCH, GRAPH_STEPS_PER_EPOCH = 100, 25


def placements(
    workload: Workload,
    profiles: Sequence[HardwareProfile],
    sizes: Sizes | None = None,
    embedding_memory_bytes: int | None = None,
) -> list[Placement]:
    """All candidates on the profiled accelerators; whether they fit into memory and limits is decided later.

    Of the server's other knobs, depth and readers of the prefetch follow the measured times while training
    (`shunter.engine.data.pipeline.plan_prefetch`), a GPU's power limit is tried at the leader alone
    (`shunter.planner.predict.power`),
    and interop threads are left to torch: eager training gives them no work. `benchmarks/knobs.py` measures each.

    Args:
        workload: Demand of the training.
        profiles: Profiles of the accelerators.
        sizes: Batch sizes; if None, those that suit the number of samples.
        embedding_memory_bytes: Memory for the embedding tables on a processor, where the rest of larger ones lies in a
            file; None keeps all in memory.
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
    """Powers of two below the number of usable cores, and that number; one for a GPU, whose host only launches."""
    if profile.accelerator.kind == "cuda":
        return [1]
    cores = profile.accelerator.cores
    return [*(1 << power for power in range(cores.bit_length()) if 1 << power < cores), cores]


def precisions(profile: HardwareProfile) -> list[Precision]:
    """Full precision, and bf16 where its matrix product was measured to be faster: elsewhere it only costs quality."""
    rates = profile.matmul_flops_per_second
    return ["fp32", "bf16"] if "bf16" in rates and rates["bf16"].value > rates["fp32"].value else ["fp32"]


def batch_sizes(train_samples: int, largest: int = LARGEST_BATCH["cpu"], steps: int = STEPS_PER_EPOCH) -> list[int]:
    """Powers of two from 64 on that leave an epoch at least so many optimiser steps.

    A large batch is always the fastest, yet quality is not predicted before training: an epoch with few steps learns
    little, and beyond `largest` nothing is taken on trust (`sizes_worth_trying`). Where the data is too small for that
    even at 64 samples, 64 (or all samples, where there are fewer) is the only size.

    Args:
        train_samples: Samples of an epoch.
        largest: Largest size.
        steps: Fewest steps of an epoch.
    """
    sizes = [1 << power for power in range(SMALLEST_BATCH.bit_length() - 1, largest.bit_length())]
    enough = [size for size in sizes if train_samples >= size * steps]
    return enough or [min(SMALLEST_BATCH, train_samples)]


def everywhere(sizes: Sequence[int]) -> Sizes:
    """The same batch sizes on accelerators of each kind."""
    return dict.fromkeys(LARGEST_BATCH, sizes)


def sizes_of_kinds(train_samples: int, good: Sequence[int], *, of_graph: bool = False) -> Sizes:
    """`sizes_worth_trying` on accelerators of each kind."""
    return {kind: sizes_worth_trying(train_samples, good, kind, of_graph=of_graph) for kind in LARGEST_BATCH}


def sizes_worth_trying(
    train_samples: int, good: Sequence[int], kind: Kind = "cpu", *, of_graph: bool = False
) -> list[int]:
    """Batch sizes for this data; up to twice the largest with which a training of it was good enough.

    A step of a graph model sums along all edges whatever its batch, so that larger ones pay there: with two fifths of
    MovieLens-1M's users, 25 steps an epoch at a higher rate ranked better than 100 in half the time (one seed). A GPU
    may take larger ones too, but an epoch has as many steps there: what few steps learn is no matter of the device.

    Args:
        train_samples: Samples of an epoch.
        good: Batch sizes of past trainings that were good enough.
        kind: Kind of the accelerator.
        of_graph: Whether a graph model is trained.
    """
    largest, steps = (
        (LARGEST_GRAPH_BATCH, GRAPH_STEPS_PER_EPOCH) if of_graph else (LARGEST_BATCH[kind], STEPS_PER_EPOCH)
    )
    return batch_sizes(train_samples, max(largest, 2 * max(good, default=0)), steps)


def kind(placement: Placement) -> tuple[str, int, Precision]:
    """What two placements have in common when they differ in batch size alone."""
    return placement.accelerator, placement.threads, placement.precision
