"""The slower measurements of the machine, which only `shunter profile` makes, beside the profiles of the day."""

from collections.abc import Callable, Sequence

from shunter.errors import HardwareError
from shunter.hardware.types import HardwareProfile
from shunter.settings import Settings

FEWEST_PROCESSES = 2


def is_complete(profile: HardwareProfile) -> bool:
    """Whether disk and, on a CPU, collectives and the exchange through shared memory were measured."""
    between = bool(profile.collectives) and profile.shared_vectors is not None
    return profile.disk is not None and (profile.accelerator.kind != "cpu" or between)


def complete(
    profiles: Sequence[HardwareProfile], on_progress: Callable[[str], None] = lambda message: None
) -> list[HardwareProfile]:
    """Measure the disk of the cache folder, and collectives between processes on the CPU, where they are missing.

    The disk is the same for all accelerators; one that cannot be measured is left out, and said. Collectives between
    GPUs are not measured: on a machine with several the stall profiler shows what they cost.

    Args:
        profiles: Profiles of this machine.
        on_progress: Called with a description of what is being measured.

    Raises:
        HardwareError: the processes failed.
    """
    from shunter.engine.profiling.shared_vectors import measure_shared_vectors
    from shunter.hardware.probes.collectives import measure_collectives
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
            on_progress("collectives between processes")
            processes = max(FEWEST_PROCESSES, min(profile.accelerator.cores, 4))
            changes["collectives"] = measure_collectives(processes)
            on_progress("pooled rows through memory that processes share")
            changes["shared_vectors"] = measure_shared_vectors(processes)
        completed.append(profile.model_copy(update=changes))
    return completed
