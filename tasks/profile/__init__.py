"""Step `profile`: what the accelerators of this machine really do."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from hardware.discovery import host_fingerprint, local_accelerators
from hardware.types import HardwareProfile
from shunter.settings import Settings
from tasks.profile.cache import ProfileKey, read_profiles, write_profiles
from tasks.profile.measure import measure

__all__ = ["local_profiles", "profile_hardware"]


@task(name="profile", cache_policy=NO_CACHE)
def profile_hardware(refresh: bool = False) -> list[HardwareProfile]:
    """Profile every accelerator of this machine, from the day's file unless `refresh`."""
    return local_profiles(refresh=refresh)


def local_profiles(*, refresh: bool = False) -> list[HardwareProfile]:
    """Profiles of this machine's accelerators, the CPU first; measured at most once a day.

    Args:
        refresh: measure even if today's figures are there.

    Raises:
        HardwareError: a device refuses to be measured.
    """
    accelerators = local_accelerators()
    host = host_fingerprint(accelerators)
    path, key = Settings().profile_directory / f"{host}.json", ProfileKey.of(host)
    profiles = None if refresh else read_profiles(path, key)
    if profiles is None:
        profiles = [measure(accelerator, host) for accelerator in accelerators]
        write_profiles(path, key, profiles)
    return profiles
