"""This machine, measured in a hurry: real figures for tests that need some and not their precision."""

import pytest

from shunter.engine.profiling.cache import ProfileKey, write_profiles
from shunter.engine.profiling.profiles import measure
from shunter.hardware.devices.discovery import host_fingerprint, local_accelerators
from shunter.hardware.devices.identity import machine_id
from shunter.hardware.types import HardwareProfile
from shunter.settings import Settings

TABLE_BYTES = 2**24  # a table of a real measurement takes up to a GiB, whose pages take longer than the rest


def measure_shortly(seconds_each: float = 0.02) -> list[HardwareProfile]:
    """Measure the accelerators shortly."""
    accelerators = local_accelerators()
    host = host_fingerprint(accelerators)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shunter.hardware.probes.rates.large_bytes", lambda accelerator: TABLE_BYTES)
        measured = [measure(accelerator, host, seconds_each) for accelerator in accelerators]
    return [profile.model_copy(update={"machine": machine_id()}) for profile in measured]


def keep_profiles(profiles: list[HardwareProfile]) -> None:
    """Write the profiles to the file where the step looks for them."""
    host = profiles[0].host
    write_profiles(Settings().profile_directory / f"{host}.json", ProfileKey.of(host), profiles)


def keep_short_profiles(seconds_each: float = 0.02) -> list[HardwareProfile]:
    """Measure the accelerators shortly, and keep the result where the step looks for it."""
    profiles = measure_shortly(seconds_each)
    keep_profiles(profiles)
    return profiles
