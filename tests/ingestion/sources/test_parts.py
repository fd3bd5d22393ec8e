"""Parts that the log itself gives: as files of their own, or in a column."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import SPLITS, Dataset
from shunter.errors import DataError, RequestError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.request import ingest_request
from shunter.ingestion.sources.criteo import CriteoSource
from shunter.ingestion.sources.open import open_source
from shunter.ingestion.sources.synthetic import SyntheticSource
from shunter.requests import TrainRequest
from tests.ingestion.conftest import Ingest
from tests.ingestion.criteo_files import write_criteo
from tests.ingestion.sources.test_tabular import arrays, quarantined

ROWS = {"train": (0, 120), "validation": (120, 150), "test": (150, 200)}


@pytest.fixture
def files(tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any]) -> dict[str, str]:
    """The log in three files, and its schema; a user of the training part never stands in the others and vice versa."""
    clicks = clicks.with_columns(user=pl.when(pl.int_range(200) < 120).then("user").otherwise(pl.col("user") + 100))
    for part, (first, end) in ROWS.items():
        clicks[first:end].write_csv(tmp_path / f"{part}.csv")
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({**clicks_schema, "time": "when"}))
    return {name: str(tmp_path / f"{name}.csv") for name in ROWS} | {"schema": str(tmp_path / "schema.yaml")}


def ingest(folder: Path, files: dict[str, str], *parts: str, seed: int = 0) -> Dataset:
    held_out = {part: files[part] for part in parts}
    source = open_source(files["train"], None, files["schema"], folder, held_out)
    return ingest_source(source, folder / "cache", seed, 0.1)[0]


def test_files_stay_the_parts_that_they_are_and_only_training_gives_ids(tmp_path: Path, files: dict[str, str]) -> None:
    dataset = ingest(tmp_path, files, "validation", "test")

    assert dataset.split_by == "given parts"
    found = arrays(dataset)
    for part, (first, end) in ROWS.items():
        assert dataset.splits[part].rows == end - first
        assert found[f"{part}.label.npy"].tolist() == [float(row % 3 == 0) for row in range(first, end)]
    users = {part: found[f"{part}.categorical.npy"][:, 0] for part in SPLITS}
    assert users["train"].all()
    assert not users["validation"].any()
    assert not users["test"].any()


def test_a_split_of_each_user_beside_files_of_parts_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    schema = yaml.safe_load(Path(files["schema"]).read_text())
    Path(files["schema"]).write_text(yaml.safe_dump({**schema, "user": "user", "split": {"per_user": "shares"}}))
    with pytest.raises(DataError) as refused:
        ingest(tmp_path, files, "test")
    assert refused.value.code == "unusable-data"


def test_a_part_without_a_file_is_cut_from_the_training_file_alone(tmp_path: Path, files: dict[str, str]) -> None:
    dataset = ingest(tmp_path, files, "test")

    assert dataset.splits["test"].rows == 50
    assert 0 < dataset.splits["validation"].rows < 40
    assert dataset.splits["train"].rows + dataset.splits["validation"].rows == 120
    assert arrays(dataset)["validation.categorical.npy"][:, 0].all()


def test_a_column_gives_the_same_parts_as_files_do(
    tmp_path: Path, files: dict[str, str], clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    by_file = ingest(tmp_path, files, "validation", "test")
    words = {"train": " Train", "validation": "valid", "test": "TEST"}
    tables = [pl.read_csv(files[part], infer_schema=False).with_columns(split=pl.lit(words[part])) for part in SPLITS]
    pl.concat(tables).sample(fraction=1, shuffle=True, seed=1).write_csv(tmp_path / "whole.csv")

    by_column, _ = ingest_file(tmp_path / "whole.csv", {**clicks_schema, "time": "when", "part": "split"})

    assert by_column.split_by == by_file.split_by
    assert by_column.fingerprint != by_file.fingerprint
    assert by_column.splits == by_file.splits
    for name, rows in arrays(by_file).items():
        if name.endswith(("categorical.npy", "label.npy")):
            assert np.array_equal(np.sort(rows, axis=0), np.sort(arrays(by_column)[name], axis=0))


def test_the_schema_and_rows_without_a_part_are_refused(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    words = pl.Series("split", ["train", "validation", "test", "train"] * 50)
    words[8] = "later"
    clicks.with_columns(words).write_csv(tmp_path / "log.csv")

    dataset, _ = ingest_file(tmp_path / "log.csv", {**clicks_schema, "part": "split"}, max_bad_share=0.01)
    assert quarantined(dataset) == [(10, "split is 'later', expected train, validation or test")]
    with pytest.raises(DataError, match="the column user names the split of each row and cannot be used"):
        ingest_file(tmp_path / "log.csv", {**clicks_schema, "part": "user"})
    clicks.with_columns(split=pl.lit("train")).write_csv(tmp_path / "log.csv")
    with pytest.raises(
        DataError, match=r"validation part of log would have no row .*: give a validation part with both"
    ):
        ingest_file(tmp_path / "log.csv", {**clicks_schema, "part": "split"})


def test_which_file_is_which_part_decides_about_the_data_set(tmp_path: Path, files: dict[str, str]) -> None:
    exchanged = {**files, "validation": files["test"], "test": files["validation"]}

    sets = [
        ingest(tmp_path, files, "validation", "test"),
        ingest(tmp_path, exchanged, "validation", "test"),
        ingest(tmp_path, files, "test"),
    ]

    assert len({dataset.fingerprint for dataset in sets}) == 3
    assert ingest(tmp_path, files, "validation", "test").fingerprint == sets[0].fingerprint


def test_what_does_not_go_together_is_one_sentence(
    tmp_path: Path, files: dict[str, str], clicks: pl.DataFrame, clicks_schema: dict[str, Any]
) -> None:
    clicks.drop("shop").write_csv(tmp_path / "poor.csv")
    clicks.write_parquet(tmp_path / "other.parquet")
    for name, text in {
        "poor": "poor.csv lacks the columns shop",
        "train": "train.csv is in --data and in --test",
    }.items():
        with pytest.raises(DataError, match=text):
            ingest(tmp_path, files | {"test": str(tmp_path / f"{name}.csv")}, "validation", "test")
    with pytest.raises(DataError, match="is parquet, that of the training part csv: give all parts in one format"):
        ingest(tmp_path, files | {"test": str(tmp_path / "other.parquet")}, "test")
    with pytest.raises(RequestError, match="synthetic:100"):
        open_source("synthetic:100", None, None, tmp_path, {"test": files["test"]})
    history = {"column": "seen", "items": "shop", "by": "user"}
    for more, text in (
        ({"part": "split"}, "split of the schema gives the split of each row, but --test gives a part"),
        ({"time": "when", "sequences": [history]}, "With --test the sequence seen is built by time"),
    ):
        (tmp_path / "schema.yaml").write_text(yaml.safe_dump({**clicks_schema, **more}))
        with pytest.raises(DataError, match=text):
            ingest(tmp_path, files, "test")


def test_the_request_names_the_parts(files: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "home"))
    parts = {"validation": files["validation"], "test": files["test"]}
    request = TrainRequest(data=files["train"], schema_file=files["schema"], **parts)

    assert request.flat() == TrainRequest(source={**request.source.model_dump()}).flat()
    dataset, _ = ingest_request(request)
    assert [dataset.splits[part].rows for part in SPLITS] == [120, 30, 50]


def test_files_in_the_layout_of_criteo(tmp_path: Path) -> None:
    for seed, part in enumerate(SPLITS):
        write_criteo(tmp_path / f"{part}.tsv", SyntheticSource(300, seed=seed))
    held_out = {part: str(tmp_path / f"{part}.tsv") for part in SPLITS[1:]}

    dataset, _ = ingest_source(
        open_source(str(tmp_path / "train.tsv"), None, None, tmp_path, held_out), tmp_path / "cache", 0, 0
    )

    assert [dataset.splits[part].rows for part in SPLITS] == [300, 300, 300]
    source = open_source(str(tmp_path / "test.tsv"), None, None, tmp_path)
    assert isinstance(source, CriteoSource)
    labels = np.concatenate([source.parse(chunk).labels for chunk in source.chunks()])
    assert np.array_equal(np.load(dataset.directory / "test.label.npy"), labels)
