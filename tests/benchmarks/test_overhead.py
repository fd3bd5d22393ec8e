"""The account that the command prints is read as it is written, and overhead is what is neither ingestion nor steps."""

import pytest

from benchmarks.overhead import account_of, overhead_seconds, unaccounted_share
from shunter.flows.command.summary import format_time

STAGES = {"start": 4.0, "ingest": 6.0, "tune": 9.5, "other": 0.5, "end": 1.0}


def test_the_line_of_the_summary_is_read_back() -> None:
    summary = f"Data              synthetic: 3 rows\nTime              {format_time(STAGES, 21.0)}\nEnergy   5 J"
    assert account_of(summary) == {"reported_seconds": 21.0, "account": STAGES}


def test_what_is_neither_ingestion_nor_a_step_is_overhead() -> None:
    one = {"wall_seconds": 22.0, "reported_seconds": 21.0, "account": STAGES, "bare": {"wall_seconds": 7.0}}
    assert overhead_seconds(one) == 9.0
    assert unaccounted_share(one) == pytest.approx(1 / 22)
