"""Logging of runs of kind `profile`: measured figures of the machine, and plots."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from shunter.hardware.types import HardwareProfile
from shunter.tracking.convention import Values
from shunter.tracking.reports import log_config, log_files
from shunter.tracking.runs import open_run

PICTURES = "pictures"


def log_profiles(run_id: str, profiles: Sequence[HardwareProfile]) -> None:
    """Log the measured profile of the accelerators: metrics `hardware.<accelerator>.*`, and an artifact.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    for profile in profiles:
        run.log_metrics(profile_metrics(profile))
    run.set_tags({"hardware.host": profiles[0].host, "hardware.machine": profiles[0].machine})
    log_config(run_id, "profiles", profiles)


def log_pictures(run_id: str, pictures: Iterable[Path]) -> None:
    """Log image files as artifacts in the folder `pictures`.

    Raises:
        TrackingError: the store fails.
    """
    log_files(run_id, pictures, PICTURES)


def profile_metrics(profile: HardwareProfile) -> Values:
    """Return the measured figures of one accelerator: `hardware.<accelerator>.*`."""
    prefix = f"hardware.{profile.accelerator.name.replace(':', '')}"
    figures = {
        **{f"matmul_{name}_flops_per_second": rate for name, rate in profile.matmul_flops_per_second.items()},
        "copy_bytes_per_second": profile.copy_bytes_per_second,
        "gather_bytes_per_second": profile.gather_bytes_per_second,
        "operator_overhead_seconds": profile.operator_overhead_seconds,
        "host_to_device_bytes_per_second": profile.host_to_device_bytes_per_second,
    }
    if profile.disk is not None:
        figures["disk_sequential_bytes_per_second"] = profile.disk.sequential_bytes_per_second
        figures["disk_random_reads_per_second"] = profile.disk.random_reads_per_second
    values: Values = {
        f"{prefix}.{name}": figure.value
        for name, figure in figures.items()
        if figure is not None and figure.source == "measured"
    }
    for cost in profile.collectives:
        values[f"{prefix}.{cost.operation}_latency_seconds"] = cost.latency_seconds
        values[f"{prefix}.{cost.operation}_bytes_per_second"] = cost.bytes_per_second
    for cost in profile.shared_vectors or ():
        values[f"{prefix}.shared_{cost.operation}_latency_seconds"] = cost.latency_seconds
        values[f"{prefix}.shared_{cost.operation}_bytes_per_second"] = cost.bytes_per_second
    return values
