"""Costs of steps and tables on one accelerator, measured with one thread and with all."""

from itertools import product

from shunter.engine.profiling.workload import workload_of
from shunter.hardware.cost.step_costs import TableTime, fit_start, fit_table_costs
from shunter.hardware.cost.step_model import StepModel
from shunter.hardware.types import HardwareProfile, Placement, Precision, StepCosts

GPU_CACHE_BYTES = 40 * 2**20  # the second-level cache of a data-centre GPU, from A100 on
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")


def with_step_costs(profile: HardwareProfile, seconds_each: float) -> HardwareProfile:
    """Measure the costs of steps and embedding tables, and return the profile with these costs.

    On a CPU this takes about twelve times `seconds_each` with one thread, and as long again with all cores. On a GPU
    it takes about twelve times `seconds_each`.
    """
    from shunter.hardware.devices.discovery import last_level_cache_bytes

    accelerator = profile.accelerator
    on_cpu = accelerator.kind == "cpu"
    cache_bytes = last_level_cache_bytes() if on_cpu else GPU_CACHE_BYTES
    threads = sorted({1, accelerator.cores if on_cpu else 1})
    tables = tuple(_table_costs(profile, count, seconds_each) for count in threads)
    known = profile.model_copy(update={"step_costs": tables, "cache_bytes": cache_bytes})
    return known.model_copy(update={"step_costs": tuple(_with_start(known, table, seconds_each) for table in tables)})


def _table_costs(profile: HardwareProfile, threads: int, seconds: float) -> StepCosts:
    import torch

    from shunter.engine.probes.reference_steps import SHAPES, time_tables
    from shunter.hardware.probes.rates import large_bytes

    device, size = torch.device(profile.accelerator.name), large_bytes(profile.accelerator)
    times = [
        TableTime(
            bags=shape.bags,
            lookups=shape.lookups,
            row_bytes=shape.row_bytes,
            cached=shape.cached,
            seconds=time_tables(device, shape, threads=threads, large_bytes=size, seconds=seconds),
        )
        for shape in SHAPES
    ]
    return fit_table_costs(threads, times)


def _with_start(profile: HardwareProfile, costs: StepCosts, seconds: float) -> StepCosts:
    """Return the costs with the fixed cost of a step, from a reference model at two batch sizes and both precisions."""
    import torch

    from shunter.engine.probes.reference_steps import (
        REFERENCE_BATCHES,
        REFERENCE_FEATURES,
        REFERENCE_SPEC,
        time_reference_step,
    )
    from shunter.models.counting import count_model

    workload = workload_of(count_model(REFERENCE_SPEC, REFERENCE_FEATURES), train_samples=1)
    # The reference model has so few rows that they stay in the caches.
    workload = workload.model_copy(update={"access_curve": ((1.0, 1.0),)})
    model = StepModel(profile)
    measured, arithmetic, memory = [], [], []
    for precision, batch_size in product(PRECISIONS, REFERENCE_BATCHES):
        placement = Placement(
            accelerator=profile.accelerator.name, threads=costs.threads, precision=precision, batch_size=batch_size
        )
        raw = model.raw_parts(workload, placement)
        arithmetic.append(raw.products + raw.operators)
        memory.append(raw.traffic + raw.tables)
        measured.append(
            time_reference_step(
                torch.device(profile.accelerator.name),
                threads=costs.threads,
                precision=precision,
                batch_size=batch_size,
                seconds=seconds,
            )
        )
    start_seconds, memory_factor = fit_start(measured, arithmetic, memory)
    return costs.model_copy(update={"start_seconds": start_seconds, "memory_factor": memory_factor})
