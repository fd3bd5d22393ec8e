"""Measures what steps and tables cost on one accelerator, with one thread and with all."""

from hardware.step_costs import TableTime, fit_step_costs
from hardware.types import Accelerator, StepCosts

GPU_CACHE_BYTES = 40 * 2**20  # the second-level cache of a data-centre GPU, from A100 on


def measure_step_costs(
    accelerator: Accelerator, operator_seconds: float, seconds_each: float = 0.1
) -> tuple[tuple[StepCosts, ...], int]:
    """Run the short probes; about sixteen times `seconds_each` for each number of threads.

    Args:
        accelerator: a device of this machine.
        operator_seconds: measured cost of one operator.
        seconds_each: length of each single measurement.

    Returns:
        The costs for one thread and for all cores (for a GPU for one only), and the bytes of the last cache.
    """
    import torch

    from engine.reference_steps import SHAPES, time_smallest_step, time_tables
    from hardware.discovery import last_level_cache_bytes
    from hardware.probe import large_bytes

    device, on_cpu = torch.device(accelerator.name), accelerator.kind == "cpu"
    costs = []
    for threads in sorted({1, accelerator.cores if on_cpu else 1}):
        step_seconds, operators = time_smallest_step(device, threads=threads, seconds=2 * seconds_each)
        times = [
            TableTime(
                bags=shape.bags,
                lookups=shape.lookups,
                row_bytes=shape.dim * 4,
                cached=shape.cached,
                seconds=time_tables(
                    device, shape, threads=threads, large_bytes=large_bytes(accelerator), seconds=seconds_each
                ),
            )
            for shape in SHAPES
        ]
        costs.append(fit_step_costs(threads, times, max(0.0, step_seconds - operators * operator_seconds)))
    return tuple(costs), last_level_cache_bytes() if on_cpu else GPU_CACHE_BYTES
