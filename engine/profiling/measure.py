"""Measurement of one accelerator's profile with the hardware probes and the training kernels."""

from collections.abc import Sequence

from shunter.engine.profiling.step_costs import with_step_costs
from shunter.hardware.probes.accelerator import measure_profile
from shunter.hardware.probes.quantities import measured_rate
from shunter.hardware.probes.timing import SECONDS_EACH
from shunter.hardware.types import Accelerator, HardwareProfile, RowRate


def measure(
    accelerator: Accelerator, host: str, seconds_each: float = SECONDS_EACH, *, training_costs: bool = True
) -> HardwareProfile:
    """Measure an accelerator: arithmetic, memory, power, and the costs of embedding tables and training steps.

    Args:
        accelerator: Device of this machine.
        host: Fingerprint of the machine.
        seconds_each: Length of each single measurement in seconds; measurements of the curves are shorter.
        training_costs: Whether to measure tables and steps too.

    Raises:
        HardwareError: The device refuses to work.
    """
    profile = measure_profile(accelerator, host, seconds_each)
    return with_training_costs(profile, seconds_each) if training_costs else profile


def with_training_costs(profile: HardwareProfile, seconds_each: float = SECONDS_EACH) -> HardwareProfile:
    """Return the profile with the training costs beyond rates: of tables by the width of their rows, and of steps.

    Args:
        profile: Profile of a device of this machine, with measured rates.
        seconds_each: `seconds_each` of the profile's measurement; these measurements are shorter.
    """
    import torch

    from shunter.engine.probes.embedding_rates import time_embeddings
    from shunter.hardware.probes.rates import large_bytes

    accelerator = profile.accelerator
    times = time_embeddings(
        torch.device(accelerator.name),
        thread_count=accelerator.cores if accelerator.kind == "cpu" else 1,
        table_bytes=large_bytes(accelerator),
        seconds_each=seconds_each / 10,
    )
    gather = tuple(_rate(time.row_bytes, time.payload_bytes, time.lookup_seconds) for time in times)
    scatter = tuple(_rate(time.row_bytes, time.payload_bytes, time.update_seconds) for time in times)
    profile = profile.model_copy(update={"gather_curve": gather, "scatter_curve": scatter})
    return with_step_costs(profile, seconds_each / 5)


def has_training_costs(profile: HardwareProfile) -> bool:
    """Return True if tables and steps were measured too."""
    return bool(profile.gather_curve)


def _rate(row_bytes: int, payload_bytes: int, durations: Sequence[float]) -> RowRate:
    return RowRate(row_bytes=row_bytes, bytes_per_second=measured_rate(payload_bytes, durations))
