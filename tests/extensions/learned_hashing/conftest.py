"""Logs of the tests of ingestion."""

from tests.ingestion.conftest import ingest_file

__all__ = ["ingest_file"]  # fixture
