"""The disk and the collectives of this machine: real, small, and without a trace."""

from pathlib import Path

import pytest

from shunter.errors import HardwareError
from shunter.extensions.distributed.links.collectives import measure_collectives
from shunter.hardware.probes.disk import measure_disk


def test_the_disk_is_read_in_sequence_and_at_random_and_the_file_is_gone(tmp_path: Path) -> None:
    try:
        rates = measure_disk(tmp_path / "cache", file_bytes=2**22)
    except HardwareError as error:
        pytest.skip(str(error))
    for figure in (rates.sequential_bytes_per_second, rates.random_reads_per_second):
        assert figure.source == "measured"
        assert figure.low is not None
        assert figure.high is not None
        assert 0 < figure.low <= figure.value <= figure.high
    assert not list((tmp_path / "cache").iterdir())


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HardwareError, match="4,096"):
        measure_disk(tmp_path / "file", file_bytes=4096)


def test_collectives_are_timed_between_processes() -> None:
    sizes = (4096, 2**18, 2**22)
    costs = measure_collectives(2, sizes)
    assert costs, "4 MiB take longer than 4 KiB in at least one operation"
    for cost in costs:
        assert cost.processes == 2
        assert cost.link == "gloo over loopback"
        assert [point.message_bytes for point in cost.points] == list(sizes)
        assert cost.bytes_per_second > 0
        assert cost.latency_seconds >= 0
