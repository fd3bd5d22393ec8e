"""Measured profile of one accelerator: its rates, its power, and how its energy is obtained."""

import time
from datetime import UTC, datetime

import torch

from shunter.errors import HardwareError
from shunter.hardware.meters.meter import cpu_power_model, measure_energy
from shunter.hardware.probes.rates import probe
from shunter.hardware.probes.tf32 import products_in_tf32
from shunter.hardware.probes.timing import SECONDS_EACH, threads
from shunter.hardware.types import Accelerator, EnergyReading, HardwareProfile, Quantity

METERED = 2  # power measurement time over rate measurement time: energy counters update at most 10 times a second


def measure_profile(accelerator: Accelerator, host: str, seconds_each: float = SECONDS_EACH) -> HardwareProfile:
    """Measure the profile of `accelerator`; takes about ten times `seconds_each`.

    Raises:
        HardwareError: torch does not see the device, or a measurement fails.
    """
    if accelerator.kind == "cuda" and not torch.cuda.is_available():
        raise HardwareError(
            f"The GPU {accelerator.name} ({accelerator.model}) cannot be measured, because torch "
            f"{torch.__version__} finds no CUDA device: install requirements/cuda.txt or check the driver."
        )
    try:
        rates = probe(accelerator, seconds_each)
        # The watts of a CPU without an energy counter come from the model and need no measurement time.
        is_estimated = accelerator.kind == "cpu" and _energy_at_rest(accelerator, 0.0).method == "estimated"
        metered_seconds = 0.0 if is_estimated else METERED * seconds_each
        resting = _energy_at_rest(accelerator, metered_seconds)
        working = _energy_at_work(accelerator, metered_seconds)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise HardwareError(
            f"The accelerator {accelerator.name} ({accelerator.model}) cannot be measured ({reason}): free "
            "it, or hide it (a CUDA device with CUDA_VISIBLE_DEVICES)."
        ) from error
    idle_watts, busy_watts = _watts(accelerator, resting, working)
    return HardwareProfile(
        accelerator=accelerator,
        host=host,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        **vars(rates),
        idle_watts=idle_watts,
        busy_watts=busy_watts,
        energy_method=f"{working.method}: {working.source}",
    )


def _energy_at_rest(accelerator: Accelerator, seconds: float) -> EnergyReading:
    with measure_energy(accelerator.name, scope="machine") as meter:
        time.sleep(seconds)
    return meter.reading


def _energy_at_work(accelerator: Accelerator, seconds: float) -> EnergyReading:
    """Measure energy during matrix products for `seconds`, the work with the highest power."""
    device = torch.device(accelerator.name)
    side = 8192 if accelerator.kind == "cuda" else 1024
    left, right = (torch.randn(side, side, device=device) for _ in range(2))
    out = torch.empty_like(left)
    with (
        threads(accelerator.cores if accelerator.kind == "cpu" else 1),
        products_in_tf32(device),
        measure_energy(accelerator.name, scope="machine") as meter,
    ):
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            torch.mm(left, right, out=out)
            if accelerator.kind == "cuda":
                torch.cuda.synchronize(device)
    return meter.reading


def _watts(
    accelerator: Accelerator, resting: EnergyReading, working: EnergyReading
) -> tuple[Quantity | None, Quantity | None]:
    """Return idle and busy power; for a CPU without counter, the power model's values."""
    if accelerator.kind == "cpu" and "estimated" in (resting.method, working.method):
        model = cpu_power_model()
        return (
            Quantity(value=model.watts(0), source="estimated"),
            Quantity(value=model.watts(accelerator.cores), source="estimated"),
        )
    return _as_figure(resting), _as_figure(working)


def _as_figure(reading: EnergyReading) -> Quantity | None:
    if reading.mean_watts is None or reading.method == "unavailable":
        return None
    return Quantity(value=reading.mean_watts, source=reading.method)
