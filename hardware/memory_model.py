"""The most memory that a training takes: of the process for a CPU, of the device for a GPU."""

import math

from hardware.types import HardwareProfile, Placement, Workload

# What a CUDA context with its libraries takes of the device before the first tensor.
CUDA_CONTEXT_BYTES = 512 * 2**20


def predict_memory_bytes(
    workload: Workload, placement: Placement, profile: HardwareProfile, process_bytes: int = 0
) -> int:
    """Peak memory in bytes of one process, or one device, of the placement.

    Weights twice (in use, and the best epoch's copy), optimiser state, activations twice (kept from the forward pass,
    and their gradients), and the batches held ready.

    Args:
        workload: demand of one sample and of one step.
        placement: on the accelerator that `profile` describes.
        profile: tells the kind of the accelerator.
        process_bytes: memory that the process holds before training, counted for a CPU.
    """
    before = CUDA_CONTEXT_BYTES if profile.accelerator.kind == "cuda" else process_bytes
    model = 2 * workload.parameter_bytes + workload.optimizer_bytes
    batches = (placement.prefetch_depth + 1) * workload.input_bytes_per_sample * placement.batch_size
    activations = 2 * workload.activation_bytes_per_sample * placement.batch_size
    return math.ceil(before + model + batches + activations)
