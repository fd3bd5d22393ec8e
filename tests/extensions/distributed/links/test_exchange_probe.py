"""The exchange through shared memory of the processes, timed between real processes."""

from shunter.extensions.distributed.links.collectives import SHARED_LINK, measure_shared_vectors
from shunter.hardware.types import SHARED_OPERATIONS


def test_the_exchange_is_timed_by_size_for_whole_tables_and_for_those_by_row() -> None:
    sizes = (2**14, 2**18, 2**22)
    costs = measure_shared_vectors(2, sizes)
    assert costs, "4 MiB take longer than 16 KiB one way at least"
    for cost in costs:
        assert cost.operation in SHARED_OPERATIONS
        assert (cost.link, cost.processes) == (SHARED_LINK, 2)
        assert [point.message_bytes for point in cost.points] == list(sizes)
        assert cost.bytes_per_second > 0
        assert cost.latency_seconds >= 0
