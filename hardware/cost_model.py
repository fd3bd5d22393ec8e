"""Predicts what a placement takes, from what the workload asks and what the accelerator was measured to do.

The step is a roofline with overheads (after Williams et al., "Roofline", CACM 52(4), 2009). With B samples a step:

    dense      = max(FLOPs B / matmul rate, 2 activation bytes B / copy rate)   written forward, read backward
    embeddings = 3 lookup bytes B / gather rate                                 read forward; update reads and writes
    overhead   = operators x operator overhead
    step       = dense + embeddings + overhead

Dense layers and embeddings run one after the other on one device; batches are made beside the step, so input is not
added. On a CPU the measured rates belong to all usable cores: with fewer threads the matrix product and the gather are
taken to shrink in proportion, the copy to need half the cores for its full rate. Small matrices do not reach the
rate of large ones, so the figure tends to be too low: it ranks candidates, and measured steps correct it.
"""

import math

from hardware.types import HardwareProfile, Placement, Prediction, Workload

# What a CUDA context with its libraries takes of the device before the first tensor.
CUDA_CONTEXT_BYTES = 512 * 2**20


def predict(workload: Workload, placement: Placement, profile: HardwareProfile, process_bytes: int = 0) -> Prediction:
    """What one epoch of `workload` is expected to take at `placement`; every figure is an estimate.

    Args:
        workload: demand of one sample and of one step.
        placement: on the accelerator that `profile` describes.
        profile: its measured rates and power.
        process_bytes: memory that the process holds before training, counted for a CPU.
    """
    assert placement.accelerator == profile.accelerator.name, "the profile is another accelerator's"
    step_seconds = predict_step_seconds(workload, placement, profile)
    epoch_seconds = epoch_steps(workload, placement) * step_seconds
    watts = predict_watts(placement, profile)
    return Prediction(
        step_seconds=step_seconds,
        epoch_seconds=epoch_seconds,
        epoch_joules=None if watts is None else watts * epoch_seconds,
        memory_bytes=predict_memory_bytes(workload, placement, profile, process_bytes),
        samples_per_second=workload.train_samples / epoch_seconds,
        step_seconds_source="estimated",
        energy_source="unavailable" if watts is None else "estimated",
        memory_source="estimated",
    )


def epoch_steps(workload: Workload, placement: Placement) -> int:
    """Optimiser steps of one pass over the training part."""
    return math.ceil(workload.train_samples / placement.batch_size)


def predict_step_seconds(workload: Workload, placement: Placement, profile: HardwareProfile) -> float:
    """Seconds of one training step, by the formula at the head of this file."""
    share = _busy_share(placement, profile)
    samples = placement.batch_size
    matmul_rate = profile.matmul_flops_per_second[placement.precision].value * share
    copy_rate = profile.copy_bytes_per_second.value * min(1.0, 2 * share)
    gather_rate = profile.gather_bytes_per_second.value * share
    compute = workload.matmul_flops_per_sample * samples / matmul_rate
    traffic = 2 * workload.activation_bytes_per_sample * samples / copy_rate
    embeddings = 3 * workload.lookup_bytes_per_sample * samples / gather_rate
    overhead = workload.operators_per_step * profile.operator_overhead_seconds.value
    return max(compute, traffic) + embeddings + overhead


def predict_watts(placement: Placement, profile: HardwareProfile) -> float | None:
    """Mean power while training: idle power, and the rest in proportion to the cores in use; None when unknown."""
    if profile.idle_watts is None or profile.busy_watts is None:
        return None
    idle, busy = profile.idle_watts.value, profile.busy_watts.value
    return idle + (busy - idle) * _busy_share(placement, profile)


def predict_memory_bytes(
    workload: Workload, placement: Placement, profile: HardwareProfile, process_bytes: int = 0
) -> int:
    """Peak memory in bytes: of the process for a CPU, of the device for a GPU.

    Weights twice (in use, and the best epoch's copy), optimiser state, activations twice (kept from the forward pass,
    and their gradients), and the batches held ready.
    """
    before = CUDA_CONTEXT_BYTES if profile.accelerator.kind == "cuda" else process_bytes
    model = 2 * workload.parameter_bytes + workload.optimizer_bytes
    batches = (placement.prefetch_depth + 1) * workload.input_bytes_per_sample * placement.batch_size
    activations = 2 * workload.activation_bytes_per_sample * placement.batch_size
    return math.ceil(before + model + batches + activations)


def _busy_share(placement: Placement, profile: HardwareProfile) -> float:
    """Share of the accelerator's cores that the placement keeps busy; a GPU is used as a whole."""
    if profile.accelerator.kind == "cuda":
        return 1.0
    return min(1.0, placement.threads / profile.accelerator.cores)
