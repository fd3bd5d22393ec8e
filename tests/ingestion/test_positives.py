"""A log that only says who chose what is enough for models that rank items, and refused for all others."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shunter.errors import DataError
from shunter.ingestion.request import ingest_request
from shunter.requests import TrainRequest


def log_of(folder: Path, label: int) -> dict[str, str]:
    random = np.random.default_rng(0)
    chosen = {"user": random.integers(30, size=600), "item": random.integers(40, size=600), "chosen": [label] * 600}
    pl.DataFrame(chosen).write_csv(folder / "log.csv")
    schema = folder / "schema.yaml"
    schema.write_text("label: chosen\ncategorical: [user, item]\nuser: user\nitem: item\nvocabulary: {min_count: 1}\n")
    return {"data": str(folder / "log.csv"), "schema_file": str(schema)}


@pytest.mark.parametrize("model", ["lightgcn", "popularity", "ials"])
def test_positives_alone_are_enough_to_rank_items(model: str, tmp_path: Path) -> None:
    dataset, _ = ingest_request(TrainRequest(**log_of(tmp_path, 1), model=model))
    assert dataset.rows == 600
    assert all(split.positives == split.rows > 0 for split in dataset.splits.values())


def test_other_models_refuse_them_in_the_cache_too(tmp_path: Path) -> None:
    log = log_of(tmp_path, 1)
    told = r"Every label of log is 1, .* or take a --model that ranks items by positives alone \(.*lightgcn.*ials\)"
    with pytest.raises(DataError, match=told):
        ingest_request(TrainRequest(**log, model="dlrm"))
    ingest_request(TrainRequest(**log, model="ease"))
    with pytest.raises(DataError, match=told):
        ingest_request(TrainRequest(**log, model="dlrm"))


def test_a_log_without_a_choice_is_enough_for_nobody(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Every label of log is 0"):
        ingest_request(TrainRequest(**log_of(tmp_path, 0), model="lightgcn"))
