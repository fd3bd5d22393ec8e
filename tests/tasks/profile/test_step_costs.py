"""The probes of one accelerator, put together."""

from hardware.discovery import local_accelerators
from tasks.profile.step_costs import measure_step_costs


def test_one_thread_and_all_cores_are_measured() -> None:
    here = local_accelerators()[0].model_copy(update={"memory_bytes": 2**28})
    costs, cache_bytes = measure_step_costs(here, 0.0, seconds_each=0.001)
    assert [one.threads for one in costs] == sorted({1, here.cores})
    assert all(one.start_seconds > 0 for one in costs)
    assert cache_bytes > 2**16
