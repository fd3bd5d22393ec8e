"""Named data sets: generated ones, and MovieLens out of its wheel."""

import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import SPLITS
from shunter.engine.job import TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.errors import DataError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.columns import text_keys
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sources import named
from shunter.ingestion.sources.criteo import parse_text
from shunter.ingestion.sources.names import is_named, named_datasets
from shunter.ingestion.sources.open import open_source, with_loss
from shunter.ingestion.sources.synthetic import CHUNK_ROWS, SyntheticSource
from shunter.models.registry import model_spec
from tests.ingestion.criteo_files import write_criteo


@pytest.fixture(scope="session")
def downloads(movielens_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Downloads that hold the wheel of MovieLens."""
    folder = tmp_path_factory.mktemp("downloads")
    (folder / named._WHEEL).symlink_to(movielens_wheel)
    return folder


def test_movielens_is_whole_and_split_by_time(downloads: Path, tmp_path: Path) -> None:
    source = open_source("ml-100k", None, None, downloads)
    dataset, _ = ingest_source(source, tmp_path, 0, 0.0)

    # The published size of MovieLens-100K, and its ratings of 4 (34,174) and 5 (21,201).
    assert (dataset.rows, dataset.quarantined_rows, dataset.split_by) == (100_000, 0, "time")
    assert sum(split.positives for split in dataset.splits.values()) == 34_174 + 21_201
    names = {*dataset.features.dense, *(field.name for field in dataset.features.categorical)}
    assert names == {"age", "release_year", "user_id", "item_id", "gender", "occupation", "zip_code", "genres"}
    assert {"rating", "timestamp"}.isdisjoint(names)
    [table] = source.paths
    frame = pl.read_parquet(table)
    first_test_time = frame["timestamp"].sort()[90_000]
    later = (frame["timestamp"] >= first_test_time).sum()
    assert dataset.splits["test"].rows == later
    assert frame.null_count().select(pl.exclude("release_year")).sum_horizontal().item() == 0

    # Trained on the past only: what first appears later has no id.
    encoder = Encoder.load(dataset.directory / "encoder")
    train = frame.sort("timestamp")[: dataset.splits["train"].rows]
    unseen = set(frame["user_id"]) - set(train["user_id"])
    users = next(field for field in encoder.categorical if field.name == "user_id")
    assert unseen
    assert not users.ids.ids(text_keys(pl.Series(sorted(unseen)))).any()


def test_wheel_with_another_digest_is_refused(downloads: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / named._WHEEL, "w") as forged:
        forged.writestr(named._MEMBER.format("inter"), "forged")

    # Whatever lies there, it is fetched again, and then must have the digest that was asked for.
    with pytest.raises(
        DataError,
        match=r"recbole==1.2.1 of a built-in data set (does not have the expected sha256|cannot be downloaded)",
    ):
        named.fetch_wheel(named._WHEEL, "0" * 64, tmp_path)


def test_unreachable_index_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")

    with pytest.raises(DataError, match="cannot be downloaded: check that pip reaches its package index") as caught:
        open_source("ml-100k", None, None, tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_every_named_data_set_is_described() -> None:
    assert [entry.name.split("[")[0] for entry in named_datasets()] == ["ml-100k", "synthetic"]
    assert all(is_named(entry.name.split("[")[0]) and entry.licence for entry in named_datasets())


def test_generated_rows_depend_on_seed_alone(tmp_path: Path) -> None:
    source = SyntheticSource(CHUNK_ROWS + 10, seed=4)
    chunks = list(source.chunks())

    assert [rows for _, rows in chunks] == [CHUNK_ROWS, 10]
    one, again = source.parse(chunks[1]), SyntheticSource(10**9, seed=4).parse((1, 10))
    other = SyntheticSource(10**9, seed=5).parse((1, 10))
    assert np.array_equal(one.columns.keys, again.columns.keys)
    assert not np.array_equal(one.columns.keys, other.columns.keys)


def test_generated_text_is_what_was_generated(tmp_path: Path) -> None:
    source = SyntheticSource(300, seed=2)
    write_criteo(tmp_path / "log.tsv", source)

    read = parse_text((tmp_path / "log.tsv").read_bytes(), "log", 1)

    drawn = source.parse((0, 300))
    assert read.rejected == []
    assert np.array_equal(read.labels, drawn.labels)
    assert np.array_equal(read.columns.numeric, drawn.columns.numeric, equal_nan=True)
    assert np.array_equal(read.columns.keys, drawn.columns.keys)


def test_generated_clicks_can_be_learned(tmp_path: Path) -> None:
    dataset, _ = ingest_source(named.open_synthetic("30_000:1", None, tmp_path), tmp_path, 0, 0.0)

    def load(split: str) -> tuple[np.ndarray, np.ndarray]:
        ids = np.load(dataset.directory / f"{split}.categorical.npy")
        frequent = [ids[:, [column]] == np.arange(1, 30) for column in range(ids.shape[1])]
        dense = np.load(dataset.directory / f"{split}.dense.npy")
        return np.hstack([dense, *frequent]), np.load(dataset.directory / f"{split}.label.npy")

    assert 0.15 < dataset.splits["train"].base_rate < 0.35
    inputs, labels = load("train")
    model = LogisticRegression(max_iter=60, C=0.1).fit(inputs, labels)
    inputs, labels = load("test")
    assert roc_auc_score(labels, model.predict_proba(inputs)[:, 1]) > 0.65
    assert set(dataset.splits) == set(SPLITS)


def test_ratings_of_movielens_are_predicted_better_than_by_their_mean(downloads: Path, tmp_path: Path) -> None:
    """On later rows a linear model has an RMSE of about 1.04; the mean of the earlier ones has 1.14."""
    source = with_loss(open_source("ml-100k", None, None, downloads), "mse")
    dataset, _ = ingest_source(source, tmp_path, 0, 0.0)
    rates = Hyperparameters(embedding_learning_rate=0.05)
    job = TrainingJob(dataset, model_spec("lr"), rates, Execution(batch_size=512), Schedule(max_epochs=1))
    found = evaluate(train(job).model, dataset, "test", job.execution)
    of_mean = np.sqrt(np.mean((found.labels - dataset.splits["train"].base_rate) ** 2))
    assert found.metrics.rmse is not None
    assert found.metrics.rmse < 0.95 * of_mean
