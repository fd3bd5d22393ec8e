"""Small click logs in every format."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import Dataset
from shunter.ingestion.cache import IngestReport, ingest_source
from shunter.ingestion.sources.open import open_source
from shunter.ingestion.sources.synthetic import SyntheticSource
from tests.ingestion.criteo_files import write_criteo

Ingest = Callable[..., tuple[Dataset, IngestReport]]


@pytest.fixture
def ingest_file(tmp_path: Path) -> Ingest:
    """Ingest a file into a cache of the test's own; `schema` is written as YAML first."""

    def ingest(
        path: Path | str, schema: dict[str, Any] | None = None, seed: int = 0, max_bad_share: float = 0.01
    ) -> tuple[Dataset, IngestReport]:
        schema_file = tmp_path / "schema.yaml"
        schema_file.write_text(yaml.safe_dump(schema))
        source = open_source(str(path), None, str(schema_file) if schema else None, tmp_path / "downloads")
        return ingest_source(source, tmp_path / "cache", seed, max_bad_share)

    return ingest


@pytest.fixture
def criteo_file(tmp_path: Path) -> Path:
    """1,000 generated rows as Criteo text."""
    path = tmp_path / "log.tsv"
    write_criteo(path, SyntheticSource(1_000, seed=5))
    return path


@pytest.fixture
def clicks() -> pl.DataFrame:
    """200 rows with a column of each kind, sorted by nothing."""
    rows = range(200)
    return pl.DataFrame(
        {
            "click": [int(row % 3 == 0) for row in rows],
            "price": [None if row % 10 == 0 else row / 4 - 5 for row in rows],
            "user": [row % 7 for row in rows],
            "shop": [("north", "south", None)[row % 3] for row in rows],
            "tags": ["|".join(("new", "sale", "blue")[: row % 4]) for row in rows],
            "when": [1_700_000_000 + (row * 37) % 101 for row in rows],
        }
    )


CLICKS_SCHEMA: dict[str, Any] = {
    "label": "click",
    "numeric": ["price"],
    "categorical": ["user", "shop"],
    "multi_valued": [{"column": "tags", "separator": "|"}],
}


@pytest.fixture
def clicks_schema() -> dict[str, Any]:
    """The schema of `clicks`, without its time."""
    return dict(CLICKS_SCHEMA)
