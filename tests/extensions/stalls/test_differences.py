"""From steps to stalls: the arithmetic by hand, the identity for any times, and nothing that is not there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.extensions.stalls.differences import DIFFERENCES, Stall, cache_what_if, find_stalls, run_times
from shunter.extensions.stalls.plan import RUNS, StallMeasurements
from tests.extensions.stalls.stall_values import make_measurements


def stalls_of(measurements: StallMeasurements) -> dict[str, Stall]:
    times, replicates = run_times(measurements)
    return {stall.name: stall for stall in find_stalls(measurements, times, replicates)}


def test_differences_by_hand() -> None:
    """In milliseconds: compute 10, contention 1, all-reduce 2, exchange 3, prep 4, fetch 5, network 6, memory 7."""
    found = stalls_of(make_measurements())
    expected = {
        "interconnect": (6, "measured"),
        "contention": (1, "measured"),
        "all_reduce": (2, "measured"),
        "embedding_exchange": (3, "measured"),
        "prep": (4, "measured"),
        "fetch": (5, "measured"),
        "network": (6, "simulated"),
        "slow_memory": (7, "measured"),
    }
    assert {name: (round(1e3 * (stall.seconds or 0)), stall.state) for name, stall in found.items()} == expected
    assert found["interconnect"].share_of_slow_run == pytest.approx(6 / 16)
    assert found["network"].slow_down == pytest.approx(22 / 16)
    assert found["prep"].total_seconds == pytest.approx(0.008), "the reader alone, warm"
    assert found["fetch"].total_seconds == pytest.approx(0.009), "what it takes more when cold"


@settings(deadline=None, max_examples=15)
@given(st.lists(st.floats(1e-4, 1.0), min_size=len(RUNS), max_size=len(RUNS)), st.integers(0, 100))
def test_what_a_step_from_disk_takes_is_the_sum_and_no_stall_is_negative(times: list[float], seed: int) -> None:
    measurements = make_measurements(dict(zip(RUNS, times, strict=True)), noise=0.1, seed=seed)
    found = stalls_of(measurements)
    runs, _ = run_times(measurements)
    parts = [found[name].difference_seconds for name in ("interconnect", "prep", "fetch")]
    assert runs["S1"].seconds + sum(part or 0.0 for part in parts) == pytest.approx(runs["S3"].seconds)
    inner = [found[name].difference_seconds for name in ("contention", "all_reduce", "embedding_exchange")]
    assert sum(part or 0.0 for part in inner) == pytest.approx(found["interconnect"].difference_seconds)
    for stall in found.values():
        assert stall.low_seconds is not None
        assert (stall.seconds is not None) == (stall.low_seconds > 0)
        if stall.seconds is not None:
            assert stall.share_of_slow_run is not None
            assert stall.seconds > 0
            assert 0 < stall.share_of_slow_run < 1


def test_what_cannot_be_told_from_noise_is_not_detectable() -> None:
    """The same time in all runs: a 95 % interval of the difference should hold zero nearly always."""
    states = [
        stall.state
        for seed in range(20)
        for stall in stalls_of(make_measurements(dict.fromkeys(RUNS, 0.01), noise=0.2, seed=seed, rounds=7)).values()
    ]
    assert np.mean([state == "not detectable" for state in states]) > 0.9


def test_a_stall_in_few_long_steps_is_seen() -> None:
    """A median over the steps would hide reads that come every tenth step."""
    measurements = make_measurements(noise=0.01)
    for seconds in measurements.seconds["S3"]:
        seconds[:] = [0.020 + (0.05 if step % 10 == 0 else 0.0) for step in range(len(seconds))]
    assert stalls_of(measurements)["fetch"].seconds == pytest.approx(0.005, rel=0.05)


def test_what_was_not_measured_says_why() -> None:
    measurements = make_measurements(missing={"S2": "one device", "S1g": "one device", "S6": "one device", "S5": "no"})
    found = stalls_of(measurements)
    for name in ("interconnect", "contention", "all_reduce", "embedding_exchange", "network"):
        assert found[name].state == "not measurable"
        assert found[name].seconds is None
        assert found[name].reason in ("one device", "no")
    assert found["prep"].fast_run == "S1", "with one device, reading is told from computing on it"
    assert round(1e3 * (found["prep"].seconds or 0)) == 10
    assert {stall.slow_run for stall in found.values()} == {slow for slow, _ in DIFFERENCES.values()}


def test_the_draws_are_of_their_seed() -> None:
    measurements = make_measurements(noise=0.1)
    assert run_times(measurements)[0] == run_times(measurements)[0]
    assert run_times(measurements, seed=1)[0]["S1"].low != run_times(measurements)[0]["S1"].low


def test_with_all_data_in_memory_the_step_is_the_warm_one_and_with_none_the_disk_decides() -> None:
    """A batch of 1 MB: 10 ms from a disk of 100 MB/s beside 2 ms of preparing, against a step of 5 ms."""
    table = cache_what_if(warm_step_seconds=0.005, warm_read_seconds=0.002, batch_bytes=1e6, disk_bytes_per_second=1e8)
    assert table[0] == (0.0, pytest.approx(0.012))
    assert table[-1] == (1.0, pytest.approx(0.005))
    assert dict(table)[0.7] == pytest.approx(0.005), "0.3 x 10 ms + 2 ms"
    assert dict(table)[0.65] > 0.005
    assert [seconds for _, seconds in table] == sorted((seconds for _, seconds in table), reverse=True)
