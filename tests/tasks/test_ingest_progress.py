"""What an ingestion that takes long shows in Prefect."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from prefect import flow
from prefect.artifacts import Artifact

from shunter.ingestion.progress import READING, Progress
from shunter.tasks.ingest import ingest_progress, text_of


def clock(*seconds: float) -> Callable[[], float]:
    """A clock that shows these times, one after the other."""
    return iter(seconds).__next__


def test_log_and_bar_of_the_flow_tell_the_share_and_what_is_left(
    prefect_server: None, caplog: pytest.LogCaptureFixture
) -> None:
    @flow
    def waiting() -> None:
        # Asked at the start (twice), then whether it is time to tell, and when it was told.
        with ingest_progress(clock(0, 0, 10, 30, 30, 31)) as on_progress:
            for share in (0.1, 0.25, 0.26):
                on_progress(Progress(READING, share, 1_000_000, 256 << 20, 1024 << 20))

    with caplog.at_level(logging.INFO):
        waiting()

    told = [record.getMessage() for record in caplog.records if "Ingestion" in record.getMessage()]
    words = "reading (1,000,000 rows, 256 of 1,024 MiB read)"
    assert told == [f"Ingestion: 25% done, {words}; about 90 s left."]
    artifact: Any = Artifact.get("ingest")
    assert (artifact.type, artifact.data, artifact.description) == ("progress", 100.0, "The log is ingested.")


def test_outside_of_a_flow_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), ingest_progress(clock(0, 0, 60, 60)) as on_progress:
        on_progress(Progress(READING, 0.5, 1, 1, 2))
    assert not [record for record in caplog.records if "Ingestion" in record.getMessage()]


def test_words_name_stage_rows_and_bytes() -> None:
    assert text_of(Progress(READING, 0.5, 1_234, 3 << 20, 5 << 20)) == "reading (1,234 rows, 3 of 5 MiB read)"
