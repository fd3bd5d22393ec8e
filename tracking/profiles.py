"""What a run of kind `profile` keeps: the figures of the machine, the stalls of a training, their pictures."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.hardware.types import HardwareProfile
from shunter.tracking.convention import Values
from shunter.tracking.reports import log_config, log_files
from shunter.tracking.runs import open_run
from shunter.tracking.store import tracking_errors

if TYPE_CHECKING:
    from shunter.engine.stalls.report import StallReport

PICTURES = "pictures"


def log_profiles(run_id: str, profiles: Sequence[HardwareProfile]) -> None:
    """Keep what the accelerators were measured to do: `hardware.<accelerator>.*`, and all of it as an artifact.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    for profile in profiles:
        run.log_metrics(profile_metrics(profile))
    run.set_tags({"hardware.host": profiles[0].host, "hardware.machine": profiles[0].machine})
    log_config(run_id, "profiles", profiles)


def log_stalls(run_id: str, report: "StallReport", advice: Iterable[str]) -> None:
    """Keep the stalls, the runs that they are differences of, and the advice.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    run.log_params(stall_params(report))
    run.log_metrics(stall_metrics(report))
    run.set_tags(stall_tags(report))
    with tracking_errors():
        run.client.log_text(run_id, "\n".join(advice) + "\n", "advice.txt")
    log_config(run_id, "stalls", report)


def log_pictures(run_id: str, pictures: Iterable[Path]) -> None:
    """Keep image files, under `pictures`.

    Raises:
        TrackingError: the store fails.
    """
    log_files(run_id, pictures, PICTURES)


def profile_metrics(profile: HardwareProfile) -> Values:
    """The figures of one accelerator that were measured: `hardware.<accelerator>.*`."""
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


def stall_params(report: "StallReport") -> Values:
    """On what the stalls were found."""
    return {
        "data.name": report.data_name,
        "model.family": report.model,
        "stall.accelerator": report.accelerator,
        "stall.devices": report.devices,
        "stall.threads": report.threads,
        "stall.batch_size": report.batch_size,
        "stall.precision": report.precision,
    }


def stall_metrics(report: "StallReport") -> Values:
    """Seconds a step: of each run, and of each stall that was detected, with interval and share; what zeros spare."""
    values: Values = {f"stall.run.{name}_seconds": time.seconds for name, time in report.runs.items()}
    for stall in report.stalls:
        if stall.seconds is None:
            continue
        figures = {
            "seconds": stall.seconds,
            "low_seconds": stall.low_seconds,
            "high_seconds": stall.high_seconds,
            "share": stall.share_of_slow_run,
            "total_seconds": stall.total_seconds,
        }
        values.update({f"stall.{stall.name}_{name}": value for name, value in figures.items() if value is not None})
    return {**values, **(report.useful.metrics if report.useful else {})}


def stall_tags(report: "StallReport") -> dict[str, str]:
    """Of each stall whether it was measured or simulated, or why there is no figure."""
    tags = {
        f"stall.{stall.name}": f"{stall.state}: {stall.reason}" if stall.reason else stall.state
        for stall in report.stalls
    }
    return {**tags, "stall.communication_model": report.communication_note}
