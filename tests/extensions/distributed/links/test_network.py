"""The network's arithmetic, on figures that a person can check."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.distributed.links.communication import WIRE_SHARES, Link, transfer_seconds, wire_bytes

LINK = Link(bytes_per_second=1e6, latency_seconds=0.001, machines=2)


@pytest.mark.parametrize(
    ("operation", "processes", "seconds"),
    [
        ("all_reduce", 2, 1.0 + 2 * 0.001),  # 2 (g - 1) / g = 1 of the message, 2 (g - 1) messages
        ("all_to_all", 2, 0.5 + 0.001),
        ("reduce_scatter", 2, 0.5 + 0.001),
        ("all_gather", 2, 1.0 + 0.001),
        ("all_reduce", 4, 1.5 + 6 * 0.001),
        ("all_to_all", 4, 2 * 0.5 + 3 * 0.001),  # two processes of a machine send half of their message each
        ("broadcast", 4, 1.0 + 0.001),
    ],
)
def test_a_megabyte_over_a_megabyte_a_second(operation: str, processes: int, seconds: float) -> None:
    assert transfer_seconds(operation, 1e6, processes, LINK) == pytest.approx(seconds)


@pytest.mark.parametrize("operation", WIRE_SHARES)
def test_within_one_machine_nothing_crosses_a_link(operation: str) -> None:
    alone = Link(bytes_per_second=1.0, latency_seconds=1.0, machines=1)
    assert transfer_seconds(operation, 1e6, 4, alone) == 0
    assert wire_bytes(operation, 1e6, 1) == 0


@given(
    operation=st.sampled_from(sorted(WIRE_SHARES)),
    size=st.floats(1, 1e9),
    processes=st.integers(2, 64),
    factor=st.floats(1, 100),
)
def test_larger_messages_and_slower_links_never_take_less(
    operation: str, size: float, processes: int, factor: float
) -> None:
    slower = Link(bytes_per_second=1e6 / factor, latency_seconds=0.001 * factor, machines=2)
    base = transfer_seconds(operation, size, processes, LINK)
    assert transfer_seconds(operation, size * factor, processes, LINK) >= base
    assert transfer_seconds(operation, size, processes, slower) >= base
