"""The card and the summary say of each table how its values become ids, and what rows and map take."""

from pathlib import Path

import numpy as np
import polars as pl

from shunter.ingestion.cache import ingest_source
from shunter.ingestion.findings import findings_of_dataset
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.tabular import CsvSource
from shunter.reporting.card.facts import data_facts

SCHEMA = Schema.model_validate(
    {
        "label": "click",
        "numeric": [{"column": "price", "buckets": [2, 5]}],
        "categorical": ["user", {"column": "shop", "hash_size": 5}, {"column": "item", "learned_rows": 9}],
    }
)


def test_each_kind_of_vocabulary_with_its_rows_and_the_bytes_of_its_map(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = {name: random.integers(0, 30, 2_000) for name in ("user", "shop", "item", "price")}
    pl.DataFrame({"click": random.integers(0, 2, 2_000), **values}).write_csv(tmp_path / "log.csv")
    dataset, _ = ingest_source(CsvSource("log", SCHEMA, (tmp_path / "log.csv",)), tmp_path / "cache", 0, 0.01)

    tables = {table.field: table for table in data_facts(dataset).tables}

    assert {name: (table.vocabulary, table.rows) for name, table in tables.items()} == {
        "user": ("exact", 31),
        "shop": ("hashed", 6),
        "item": ("learned", 10),
        "price": ("buckets", 4),
    }
    assert [tables[name].map_bytes for name in ("user", "shop", "price")] == [240, 0, 8]
    assert 30 < tables["item"].map_bytes < 80
    assert (
        tables["item"].words == "8 of one value, 0 of values alike, 1 of rare and new values"
    )  # for clicks that chance draws
    [told] = [finding.words for finding in findings_of_dataset(dataset) if finding.kind == "learned"]
    assert told.startswith("item: 30 values share 10 rows by a learned map of ")
