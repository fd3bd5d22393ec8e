"""The step as a user's request reaches it, on real logs."""

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from prefect import flow

from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.request import ingest_request
from shunter.ingestion.sources.criteo import CATEGORICAL, NUMERIC
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tasks.ingest import ingest


def test_criteo_kaggle(shared_data: Path) -> None:
    path = shared_data / "criteo_kaggle_first10k.tsv.gz"

    dataset, report = ingest_request(TrainRequest(data=str(path)))

    assert (dataset.rows, dataset.quarantined_rows, dataset.split_by) == (10_000, 0, "hash")
    assert sum(split.positives for split in dataset.splits.values()) == 2_182
    assert dataset.features.dense == NUMERIC
    assert tuple(field.name for field in dataset.features.categorical) == CATEGORICAL
    assert report.rows_per_second > 0

    # Against polars: the number of values that occur twice in the training part cannot be counted without the split,
    # but over all rows it bounds the vocabulary.
    frame = pl.read_csv(gzip.decompress(path.read_bytes()), separator="\t", has_header=False, infer_schema=False)
    for field, column in zip(dataset.features.categorical, frame.columns[14:], strict=True):
        counts = frame[column].drop_nulls().value_counts()
        assert field.rows - 1 <= (counts["count"] >= 2).sum()
        statistics = next(entry for entry in dataset.fields if entry.name == field.name)
        assert statistics.cardinality <= len(counts)
        assert statistics.missing_share == pytest.approx(frame[column].null_count() / 10_000, abs=0.02)


def test_several_files_are_one_data_set(shared_data: Path, tmp_path: Path) -> None:
    text = gzip.decompress((shared_data / "criteo_kaggle_first10k.tsv.gz").read_bytes()).splitlines(keepends=True)
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "day_0.gz").write_bytes(gzip.compress(b"".join(text[:4000])))
    (tmp_path / "days" / "day_1").write_bytes(b"".join(text[4000:]))
    (tmp_path / "all.tsv").write_bytes(b"".join(text))

    parts, _ = ingest_request(TrainRequest(data=str(tmp_path / "days")))
    whole, _ = ingest_request(TrainRequest(data=str(tmp_path / "all.tsv")))

    assert (parts.name, parts.splits, parts.features) == ("days", whole.splits, whole.features)
    for array in whole.directory.glob("*.npy"):
        assert np.array_equal(np.load(array), np.load(parts.directory / array.name))


def test_frappe_in_parquet(shared_data: Path, tmp_path: Path) -> None:
    with np.load(shared_data / "frappe_x1_train_valid.npz") as stored:
        inputs, labels = stored["train_x"], stored["train_y"]
    columns = [f"field_{index}" for index in range(inputs.shape[1])]
    frame = pl.DataFrame(inputs, schema=columns).with_columns(label=pl.Series(labels))
    frame.write_parquet(tmp_path / "frappe.parquet")
    schema = tmp_path / "frappe.yaml"
    schema.write_text(yaml.safe_dump({"label": "label", "categorical": columns, "vocabulary": {"min_count": 1}}))

    dataset, _ = ingest_request(TrainRequest(data=str(tmp_path / "frappe.parquet"), schema_file=str(schema)))

    assert dataset.rows == 202_027
    assert sum(split.positives for split in dataset.splits.values()) == labels.sum()
    assert not (dataset.directory / "train.dense.npy").exists()
    # Ids are ranks by frequency, so decoding by frequency gives back what was encoded.
    encoder = Encoder.load(dataset.directory / "encoder")
    encoded = encoder.encode(frame.head(1000).to_pandas())
    for index in range(len(columns)):
        pairs = set(zip(inputs[:1000, index].tolist(), encoded.categorical[:, index].tolist(), strict=True))
        known = {(value, number) for value, number in pairs if number}
        assert len(known) == len({value for value, _ in known}) == len({number for _, number in known})


def test_task_runs_in_a_flow_and_finds_its_work_again(
    prefect_server: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = TrainRequest(data="synthetic:2000")

    @flow
    def twice() -> tuple[Dataset, Dataset]:
        return ingest(request), ingest(request)

    first, second = twice()

    assert first == second
    assert first.directory.parent == Settings().cache_directory
    messages = [record.getMessage() for record in caplog.records]
    assert any("Ingested 2,000 rows of synthetic" in message for message in messages)
    assert any("found in the cache: 2,000 rows" in message for message in messages)


def test_error_of_the_task_is_the_users_error(prefect_server: None) -> None:
    @flow
    def absent() -> Dataset:
        return ingest(TrainRequest(data="absent.csv"))

    with pytest.raises(DataError, match=r"absent\.csv"):
        absent()
