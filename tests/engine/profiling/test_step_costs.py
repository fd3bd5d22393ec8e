"""The probes of one accelerator, put together."""

from shunter.engine.profiling.step_costs import with_step_costs
from shunter.hardware.devices.discovery import local_accelerators
from tests.hardware.profiles import make_profile


def test_one_thread_and_all_cores_are_measured() -> None:
    here = local_accelerators()[0].model_copy(update={"memory_bytes": 2**28})
    profile = with_step_costs(make_profile().model_copy(update={"accelerator": here}), seconds_each=0.001)
    assert [one.threads for one in profile.step_costs] == sorted({1, here.cores})
    assert all(one.memory_factor >= 1 for one in profile.step_costs)
    assert profile.cache_bytes > 2**16
