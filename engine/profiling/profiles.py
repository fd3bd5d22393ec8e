"""Profiles of this machine, from the cache file of the last day or newly measured."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from pydantic import AwareDatetime

from shunter.checked_json import read_or_quarantine, write_checked
from shunter.errors import HardwareError
from shunter.frozen import Frozen
from shunter.hardware.devices.discovery import host_fingerprint, local_accelerators
from shunter.hardware.devices.identity import machine_id
from shunter.hardware.probes.timing import SECONDS_EACH, measured_rate
from shunter.hardware.reservation import Reservation, Tell, reserve, say
from shunter.hardware.types import Accelerator, HardwareProfile, RowRate
from shunter.registry import Entry, Registry
from shunter.settings import Settings

log = logging.getLogger(__name__)

MAX_AGE = timedelta(days=1)
FORMAT = 3  # increased when a measurement changes, so that old figures are not used


class ProfileKey(Frozen):
    """Cache key of the profiles: a change of any field requires a new measurement."""

    host: str
    torch: str
    format: int

    @classmethod
    def of(cls, host: str) -> "ProfileKey":
        """Return the cache key of this process on the machine `host`."""
        return cls(host=host, torch=version("torch"), format=FORMAT)


class ProfileFile(Frozen):
    """Content of one cache file in `Settings().profile_directory`."""

    key: ProfileKey
    measured_at: AwareDatetime
    profiles: list[HardwareProfile]


def read_profiles(path: Path, key: ProfileKey, now: datetime | None = None) -> list[HardwareProfile] | None:
    """Return the profiles that were stored under `key` within the day before `now` (None: the current time), if any.

    A file that cannot be read or parsed is ignored with a log message.
    """
    kept = read_or_quarantine(path, ProfileFile.model_validate_json)
    if kept is None:
        return None
    age = (now or datetime.now(UTC)) - kept.measured_at
    fresh = timedelta(0) <= age <= MAX_AGE  # a time in the future means that a clock was wrong
    return kept.profiles if fresh and kept.key == key else None


def write_profiles(path: Path, key: ProfileKey, profiles: list[HardwareProfile]) -> None:
    """Store `profiles` atomically: a reader sees the old file or the whole new file."""
    content = ProfileFile(key=key, measured_at=datetime.now(UTC), profiles=profiles)
    write_checked(path, content.model_dump_json(indent=1))


PATIENCE_SECONDS = 600  # longest wait for a training job on an accelerator to measure

Progress = Callable[[str], None]

FEWEST_PROCESSES = 2

# Measurements of communication between processes on one processor, by the field of the profile. Each is a function of
# the number of processes.
PROCESS_MEASUREMENTS = Registry(
    "measurement between processes",
    {
        "collectives": Entry(
            target="shunter.extensions.distributed.links.collectives:measure_collectives",
            capabilities={"label": "collectives between processes"},
        ),
        "shared_vectors": Entry(
            target="shunter.extensions.distributed.links.collectives:measure_shared_vectors",
            capabilities={"label": "pooled rows through memory that processes share"},
        ),
    },
    group="shunter.process_measurements",
)


def quiet(message: str) -> None:
    """Ignore the message; a default for parameters that report progress."""


def local_profiles(*, refresh: bool = False, training_costs: bool = True, report: Tell = say) -> list[HardwareProfile]:
    """Return the profiles of this machine's accelerators, the CPU first; measured at most once a day.

    Args:
        refresh: Whether to measure even if today's figures exist.
        training_costs: Whether to measure the costs of tables and training steps too, if they are missing.
        report: Called with a sentence when a measurement waits for other jobs.

    Raises:
        HardwareError: The measurement of a device failed.
    """
    accelerators = local_accelerators()
    host = host_fingerprint(accelerators)
    path, key = _kept_at(host), ProfileKey.of(host)
    profiles = None if refresh else read_profiles(path, key)
    if profiles is None or (training_costs and not all(map(has_training_costs, profiles))):
        with _undisturbed([accelerator.name for accelerator in accelerators], report):
            if profiles is None:
                profiles = [measure(accelerator, host, training_costs=training_costs) for accelerator in accelerators]
            else:
                profiles = [one if has_training_costs(one) else with_training_costs(one) for one in profiles]
            profiles = _of_this_machine(profiles)
        write_profiles(path, key, profiles)
    return _of_this_machine(profiles)


def machine_profiles(
    *, refresh: bool = False, on_progress: Progress = quiet, report: Tell = say
) -> list[HardwareProfile]:
    """Return the profiles of this machine with disk and collective operations, measured at most once a day.

    Args:
        refresh: Whether to measure even if today's figures exist.
        on_progress: Called with a description of the current measurement.
        report: Called with a sentence when a measurement waits for other jobs.

    Raises:
        HardwareError: A measurement fails.
    """
    on_progress("arithmetic, memory and power")
    profiles = local_profiles(refresh=refresh, report=report)
    if not all(is_complete(profile) for profile in profiles):
        with _undisturbed([profile.accelerator.name for profile in profiles], report):
            profiles = complete(profiles, on_progress)
        write_profiles(_kept_at(profiles[0].host), ProfileKey.of(profiles[0].host), profiles)
    return profiles


def _of_this_machine(profiles: list[HardwareProfile]) -> list[HardwareProfile]:
    """Return the profiles with this machine's id, because the cache file may come from a machine of the same kind."""
    here = machine_id()
    return [profile.model_copy(update={"machine": here}) for profile in profiles]


def _undisturbed(names: list[str], report: Tell) -> AbstractContextManager[Reservation]:
    """Reserve all accelerators for a measurement without other jobs; wait at most `PATIENCE_SECONDS` for other jobs."""
    return reserve(*([name] for name in names), holder="profile", patience_seconds=PATIENCE_SECONDS, report=report)


def _kept_at(host: str) -> Path:
    return Settings().profile_directory / f"{host}.json"


def is_complete(profile: HardwareProfile) -> bool:
    """Return True if the profile has the disk and, on a CPU, every installed measurement of `PROCESS_MEASUREMENTS`."""
    fields = PROCESS_MEASUREMENTS.names if profile.accelerator.kind == "cpu" else ()
    unmeasured = {name: HardwareProfile.model_fields[name].default for name in fields}
    return profile.disk is not None and all(getattr(profile, name) != value for name, value in unmeasured.items())


def complete(
    profiles: Sequence[HardwareProfile], on_progress: Callable[[str], None] = lambda message: None
) -> list[HardwareProfile]:
    """Measure the disk of the cache folder, and the communication of CPU processes (`PROCESS_MEASUREMENTS`).

    The disk is the same for all accelerators. If the disk cannot be measured, the profile has no disk figures and
    `on_progress` reports the reason. Collectives between GPUs are not measured; the stall profiler measures their cost.

    Raises:
        HardwareError: The measuring processes failed.
    """
    from shunter.hardware.probes.disk import measure_disk

    on_progress("the disk")
    try:
        disk = measure_disk(Settings().cache_directory)
    except HardwareError as error:
        on_progress(str(error))
        disk = None
    completed = []
    for profile in profiles:
        changes: dict[str, object] = {"disk": disk}
        if profile.accelerator.kind == "cpu":
            processes = max(FEWEST_PROCESSES, min(profile.accelerator.cores, 4))
            for name in PROCESS_MEASUREMENTS.names:
                on_progress(str(PROCESS_MEASUREMENTS.capability(name, "label")))
                changes[name] = PROCESS_MEASUREMENTS.load(name)(processes)
        completed.append(profile.model_copy(update=changes))
    return completed


def measure(
    accelerator: Accelerator, host: str, seconds_each: float = SECONDS_EACH, *, training_costs: bool = True
) -> HardwareProfile:
    """Measure an accelerator: arithmetic, memory, power, and the costs of embedding tables and training steps.

    Each measurement takes `seconds_each`; those of table and step costs are shorter.

    Raises:
        HardwareError: The device cannot be used.
    """
    from shunter.hardware.probes.accelerator import measure_profile

    profile = measure_profile(accelerator, host, seconds_each)
    return with_training_costs(profile, seconds_each) if training_costs else profile


def with_training_costs(profile: HardwareProfile, seconds_each: float = SECONDS_EACH) -> HardwareProfile:
    """Return the profile with the costs of embedding tables, by the width of their rows, and of training steps.

    A measurement of tables takes a tenth of `seconds_each`, one of steps a fifth.
    """
    import torch

    from shunter.engine.probes.reference_steps import time_embeddings
    from shunter.engine.profiling.step_costs import with_step_costs
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
    """Return True if the profile has the costs of embedding tables and training steps."""
    return bool(profile.gather_curve)


def _rate(row_bytes: int, payload_bytes: int, durations: Sequence[float]) -> RowRate:
    return RowRate(row_bytes=row_bytes, bytes_per_second=measured_rate(payload_bytes, durations))
