"""Step `profile`: what the accelerators of this machine really do, and where a training waits on them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.dataset import Dataset
from hardware.discovery import host_fingerprint, local_accelerators
from hardware.types import HardwareProfile
from shunter.settings import Settings
from tasks.profile.advice import advise
from tasks.profile.cache import ProfileKey, read_profiles, write_profiles
from tasks.profile.machine import complete, is_complete
from tasks.profile.measure import measure
from tasks.profile.pictures import draw_pictures
from tasks.profile.publish import publish
from tasks.profile.report import StallReport
from tasks.profile.stalls import Stall
from tasks.profile.training import check_request, choose_profile, stalls_of
from tasks.profile_request import ProfileRequest
from tasks.reservation import Reservation, reserve

__all__ = [
    "Stall",
    "StallReport",
    "advise",
    "check_request",
    "choose_profile",
    "draw_pictures",
    "find_stalls",
    "local_profiles",
    "machine_profiles",
    "profile_hardware",
    "profile_machine",
    "stalls_of",
]

PATIENCE_SECONDS = 600  # with a training on an accelerator that is to be measured
LONGEST_SECONDS = 3600  # of all measurements: a device that does not answer shall not hold the flow for ever

Progress = Callable[[str], None]


def _quiet(words: str) -> None:
    """Tell nobody."""


@task(name="profile", cache_policy=NO_CACHE, timeout_seconds=LONGEST_SECONDS)
def profile_hardware(refresh: bool = False) -> list[HardwareProfile]:
    """Profile every accelerator of this machine, from the day's file unless `refresh`."""
    return local_profiles(refresh=refresh)


@task(name="profile machine", cache_policy=NO_CACHE, timeout_seconds=LONGEST_SECONDS)
def profile_machine(refresh: bool = False, on_progress: Progress = _quiet) -> list[HardwareProfile]:
    """The same, with disk and collectives."""
    return machine_profiles(refresh=refresh, on_progress=on_progress)


@task(name="find stalls", cache_policy=NO_CACHE)
def find_stalls(
    dataset: Dataset, request: ProfileRequest, profile: HardwareProfile, on_progress: Progress = _quiet
) -> StallReport:
    """Find where a training of the request waits on the accelerator of `profile`."""
    report = stalls_of(dataset, request, profile, on_progress)
    publish(report, advise(report, profile))
    return report


def local_profiles(*, refresh: bool = False) -> list[HardwareProfile]:
    """Profiles of this machine's accelerators, the CPU first; measured at most once a day.

    Args:
        refresh: measure even if today's figures are there.

    Raises:
        HardwareError: a device refuses to be measured.
    """
    accelerators = local_accelerators()
    host = host_fingerprint(accelerators)
    path, key = _kept_at(host), ProfileKey.of(host)
    profiles = None if refresh else read_profiles(path, key)
    if profiles is None:
        with _undisturbed([accelerator.name for accelerator in accelerators]):
            profiles = [measure(accelerator, host) for accelerator in accelerators]
        write_profiles(path, key, profiles)
    return profiles


def machine_profiles(*, refresh: bool = False, on_progress: Progress = _quiet) -> list[HardwareProfile]:
    """Profiles with the slower measurements too, kept beside the others of the day.

    Args:
        refresh: measure even if today's figures are there.
        on_progress: told in words what is being measured.

    Raises:
        HardwareError: something refuses to be measured.
    """
    on_progress("arithmetic, memory and power")
    profiles = local_profiles(refresh=refresh)
    if not all(is_complete(profile) for profile in profiles):
        with _undisturbed([profile.accelerator.name for profile in profiles]):
            profiles = complete(profiles, on_progress)
        write_profiles(_kept_at(profiles[0].host), ProfileKey.of(profiles[0].host), profiles)
    return profiles


def _undisturbed(names: list[str]) -> AbstractContextManager[Reservation]:
    """Hold all accelerators, for a training elsewhere would be measured along; not for ever, as one may last days."""
    return reserve(*([name] for name in names), holder="profile", patience_seconds=PATIENCE_SECONDS)


def _kept_at(host: str) -> Path:
    return Settings().profile_directory / f"{host}.json"
