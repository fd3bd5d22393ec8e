"""This machine, measured in a hurry: real figures for tests that need some and not their precision."""

from functools import partial

import pytest

from shunter.engine.profiling import profiles
from shunter.engine.profiling.profiles import ProfileKey, write_profiles
from shunter.hardware.devices.discovery import host_fingerprint, local_accelerators
from shunter.hardware.devices.identity import machine_id
from shunter.hardware.types import HardwareProfile
from shunter.settings import Settings

TABLE_BYTES = 2**24  # a table of a real measurement takes up to a GiB, whose pages take longer than the rest


def hurry(patch: pytest.MonkeyPatch, seconds_each: float = 0.02) -> None:
    """Let each measurement of a profile take this long, on small tables."""
    patch.setattr("shunter.hardware.probes.rates.large_bytes", lambda accelerator: TABLE_BYTES)
    patch.setattr(profiles, "measure", partial(profiles.measure, seconds_each=seconds_each))
    add_costs = profiles.with_training_costs
    patch.setattr(profiles, "with_training_costs", lambda profile, *_: add_costs(profile, seconds_each))


def measure_shortly(seconds_each: float = 0.02) -> list[HardwareProfile]:
    """Measure the accelerators shortly."""
    accelerators = local_accelerators()
    host = host_fingerprint(accelerators)
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch, seconds_each)
        measured = [profiles.measure(accelerator, host) for accelerator in accelerators]
    return [profile.model_copy(update={"machine": machine_id()}) for profile in measured]


def keep_profiles(measured: list[HardwareProfile]) -> None:
    """Write the profiles to the file where the step looks for them."""
    host = measured[0].host
    write_profiles(Settings().profile_directory / f"{host}.json", ProfileKey.of(host), measured)


def keep_short_profiles(seconds_each: float = 0.02) -> list[HardwareProfile]:
    """Measure the accelerators shortly, and keep the result where the step looks for it."""
    measured = measure_shortly(seconds_each)
    keep_profiles(measured)
    return measured
