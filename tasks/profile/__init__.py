"""Step `profile`: measured performance of this machine's accelerators, and analyses of a training run on them.

An analysis is a function that returns a `TrainingAnalysis`. Its arguments are the data set, the request, the profiles
of the machine, the id of the MLflow run that stores the findings, and a function for progress messages.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from pydantic import SerializeAsAny

from shunter.engine.executors.role import Cluster
from shunter.engine.profiling.profiles import Progress, local_profiles, machine_profiles, quiet
from shunter.frozen import Frozen
from shunter.hardware.types import HardwareProfile
from shunter.model_families import is_solved
from shunter.registry import Entry, Registry
from shunter.requests import ProfileRequest
from shunter.settings import Settings
from shunter.tasks.accelerators import announce

__all__ = [
    "ANALYSIS",
    "TRAINING_ANALYSES",
    "TrainingAnalysis",
    "check_request",
    "is_profiled",
    "profile_cluster",
    "profile_hardware",
    "profile_machine",
]

ANALYSIS = "stalls"
TRAINING_ANALYSES = Registry(
    "analysis of a training run",
    {ANALYSIS: Entry(target="shunter.extensions.stalls.analysis:analyse", needs="distributed")},
    group="shunter.training_analyses",
)
LONGEST_SECONDS = 3600  # of all measurements, so that a device that does not answer cannot block the flow for ever


class TrainingAnalysis(Frozen):
    """Analysis of where a training run on the profiled machine loses time."""

    report: SerializeAsAny[Frozen]
    advice: tuple[str, ...]
    pictures: tuple[Path, ...]

    def printed(self) -> Iterator[Any]:
        """Yield the tables and sentences that the command prints."""
        yield from (f"- {sentence}" for sentence in self.advice)


@task(name="profile", cache_policy=NO_CACHE, timeout_seconds=LONGEST_SECONDS)
def profile_hardware(model: str | None = None) -> list[HardwareProfile]:
    """Profile every accelerator of this machine, or read today's profile from its file.

    Args:
        model: Family to train; for families that are solved in closed form, training steps are not measured.
    """
    return local_profiles(training_costs=not is_solved(model), report=announce)


@task(name="profile machine", cache_policy=NO_CACHE, timeout_seconds=LONGEST_SECONDS)
def profile_machine(refresh: bool = False, on_progress: Progress = quiet) -> list[HardwareProfile]:
    """Profile every accelerator of this machine, with disk and collective operations; see `profile_hardware`."""
    return machine_profiles(refresh=refresh, on_progress=on_progress, report=announce)


@task(name="profile cluster", cache_policy=NO_CACHE)
def profile_cluster(cluster: Cluster, processes: int = 1) -> list[HardwareProfile]:
    """Profile the accelerators of every node and, for several processes, the network, or read today's files."""
    return cluster.profiles(processes)


def is_profiled() -> bool:
    """Return True if the home has a machine's profile, which is assumed to be that of this machine."""
    return any(Settings().profile_directory.glob("*.json"))


def check_request(request: ProfileRequest) -> None:
    """Raise if a request cannot be carried out, before anything is measured.

    Raises:
        RequestError: The model is unknown.
        MissingExtensionError: The request names data, and no analysis of a training run is installed.
    """
    from shunter.engine.profiling.roofline import REFERENCE_FEATURES
    from shunter.models.registry import check_spec, model_spec

    check_spec(model_spec(request.model or "dlrm"), REFERENCE_FEATURES)
    if request.data is not None:
        TRAINING_ANALYSES.entry(ANALYSIS)
