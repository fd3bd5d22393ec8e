"""Each finding has one sentence, whose figures follow from the measured ones by hand."""

import pytest

from shunter.extensions.distributed.links.communication import Link
from shunter.extensions.stalls.advice import (
    advise,
    latency_seconds,
    link_seconds,
    required_bandwidth,
    smallest_cached_share,
)
from shunter.extensions.stalls.differences import DIFFERENCES
from tests.extensions.stalls.stall_values import SECONDS, make_measurements, make_report
from tests.hardware.profiles import make_profile


def sentence(words: str, sentences: tuple[str, ...]) -> str:
    (found,) = [one for one in sentences if words in one]
    return found


def test_every_stall_has_one_sentence_and_the_largest_comes_first() -> None:
    sentences = advise(make_report(), make_profile())
    assert len(sentences) == len(DIFFERENCES)
    assert all(one.endswith(".") and "\n" not in one for one in sentences)
    assert sentences[0].startswith("Keep the embedding tables in memory"), "7 ms of slow memory"
    assert sentences[-1].startswith("Use fewer processes"), "1 ms of contention"


def test_savings_of_an_epoch_of_100_steps() -> None:
    sentences = advise(make_report(), make_profile())
    assert "5.00" in sentence("Read the files once", sentences)
    assert "so half as many steps would save 0.1 s an epoch (estimated)" in sentence("Double the batch", sentences)
    assert "3.00" in sentence("Keep a copy", sentences)
    assert "4.00" in sentence("Speed up the reading", sentences)
    assert "1,000" in sentence("in a file", sentences)


def test_processes_are_kept_where_they_are_faster_than_one() -> None:
    """500 samples in 8 ms alone are 62,500 a second; 1,000 in 16 ms together as many; in 12.5 ms 80,000."""
    slower = make_report(make_measurements({**SECONDS, "S0": 0.005}))
    assert "100,000" in (sentence("Train in one process", advise(slower, make_profile())))
    faster = make_report(make_measurements({**SECONDS, "S0": 0.010}))
    assert sentence("Keep the 2 processes", advise(faster, make_profile()))


def test_the_network_is_judged_by_its_bytes_or_its_latency() -> None:
    """Of each step 100 kB are all-reduced and 300 kB exchanged: 250 kB on the wire of each of two processes."""
    report = make_report()
    assert required_bandwidth(report) == pytest.approx(250e3 / 0.0016)
    assert link_seconds(report) == pytest.approx(8e-4 + 250e3 / 1.25e8)
    assert latency_seconds(report) == pytest.approx(2 * 2e-4 + 4 * 1e-4), "two all-reduces, four all-to-alls"
    assert "at least 1.2 Gbit/s" in sentence("(simulated)", advise(report, make_profile()))
    slow = Link(bytes_per_second=1e12, latency_seconds=1e-3, machines=2)
    assert "8.00" in sentence("Send fewer and larger messages", advise(make_report(link=slow), make_profile()))


def test_a_data_set_larger_than_memory_is_told_how_much_of_it_to_keep() -> None:
    profile = make_profile(memory_bytes=60_000_000)
    known = make_report(cache_what_if=((0.0, 0.030), (0.5, 0.021), (0.55, 0.020), (1.0, 0.020)))
    assert smallest_cached_share(known) == 0.55, "there a step takes the 20 ms of S4"
    assert "Keep 55% of the files (48 MiB) in memory" in sentence("(estimated), which saves", advise(known, profile))
    assert smallest_cached_share(make_report()) is None
    assert sentence("on a faster disk", advise(make_report(), profile))


def test_nothing_found_means_nothing_said() -> None:
    calm = make_report(make_measurements(dict.fromkeys(SECONDS, 0.01)))
    assert advise(calm, make_profile()) == ()
