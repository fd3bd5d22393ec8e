"""Vectors that a schema brings for the values of a column: matched with its ids, or refused in one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.data.given import FOLDER, given_vectors
from shunter.errors import DataError
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.findings import findings_of_dataset
from shunter.ingestion.schema import Schema, read_schema
from tests.ingestion.conftest import Ingest

VECTORS = {"user": [0, 1, 2, 3, 99], "a": [0.5, 1, 2, 3, 9], "b": [0.0, -1, -2, -3, 9]}


def written(folder: Path, form: str) -> Path:
    """The same vectors in every form."""
    path, frame = folder / f"vectors.{form}", pl.DataFrame(VECTORS)
    if form == "csv":
        frame.write_csv(path)
    elif form == "npz":
        np.savez(path, ids=np.array(VECTORS["user"]), vectors=frame.select("a", "b").to_numpy())
    else:
        frame.select("user", vector=pl.concat_list("a", "b")).write_parquet(path)
    return path


@pytest.mark.parametrize("form", ["csv", "npz", "parquet"])
def test_each_id_gets_the_vector_of_its_value(
    tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest, form: str
) -> None:
    clicks.write_parquet(tmp_path / "clicks.parquet")
    user = {"column": "user", "vectors": str(written(tmp_path, form))}
    schema = {"label": "click", "numeric": "price", "categorical": ["shop", user]}

    dataset, _ = ingest_file(tmp_path / "clicks.parquet", schema)

    (given,) = given_vectors(dataset)
    assert (given.field, given.table, given.width, given.given, given.unused) == ("user", 1, 2, 4, 1)
    vectors = np.load(dataset.directory / FOLDER / "1.npy")
    frame = clicks.select("price", "shop", user=pl.lit(2)).head(1)
    (place,) = Encoder.load(dataset.directory / "encoder").encode(frame.to_pandas()).categorical[:, 1]
    assert vectors[place].tolist() == [2, -2]
    assert np.isnan(vectors[0]).all()
    told = [finding.words for finding in findings_of_dataset(dataset) if finding.kind == "vectors"]
    assert told == [given.sentence]
    assert told[0].startswith(f"4 of {given.ids} ids of user")


def test_other_vectors_are_another_data_set(tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest) -> None:
    clicks.write_parquet(tmp_path / "clicks.parquet")
    path = written(tmp_path, "csv")
    schema = {"label": "click", "numeric": "price", "categorical": [{"column": "user", "vectors": str(path)}]}
    first, _ = ingest_file(tmp_path / "clicks.parquet", schema)
    again, report = ingest_file(tmp_path / "clicks.parquet", schema)
    path.write_text(path.read_text().replace("9.0", "8.0"))
    other, _ = ingest_file(tmp_path / "clicks.parquet", schema)

    assert report.reused
    assert again.fingerprint == first.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("user,a\n1,0.5\n1,0.6\n", "more than one pretrained vector of 1"),
        ("user,a\n1,\n", "has NaN or infinity"),
        ("user,a\n77,1\n78,2\n", "None of the 2 values"),
        ("who,a\n1,1\n", "has no column user"),
        ("user,a\n1,x\n", "cannot be read as pretrained vectors of user"),
        ("user\n1\n", "has no pretrained vectors of user"),
    ],
)
def test_faults_are_one_sentence(
    tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest, text: str, fault: str
) -> None:
    clicks.write_parquet(tmp_path / "clicks.parquet")
    (tmp_path / "v.csv").write_text(text)
    schema = {
        "label": "click",
        "numeric": "price",
        "categorical": [{"column": "user", "vectors": str(tmp_path / "v.csv")}],
    }

    with pytest.raises(DataError, match=fault):
        ingest_file(tmp_path / "clicks.parquet", schema)


def test_vectors_of_two_widths(tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest) -> None:
    clicks.write_parquet(tmp_path / "clicks.parquet")
    pl.DataFrame({"user": [1, 2], "v": [[1.0], [1.0, 2.0]]}).write_parquet(tmp_path / "v.parquet")
    schema = {
        "label": "click",
        "numeric": "price",
        "categorical": [{"column": "user", "vectors": str(tmp_path / "v.parquet")}],
    }

    with pytest.raises(DataError, match="have different widths, from 1 to 2"):
        ingest_file(tmp_path / "clicks.parquet", schema)


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ({"vectors": "v.csv", "hash_size": 10}, "hash_size would map several vectors"),
        ({"freeze_vectors": True}, "has no pretrained vectors"),
        ({"vectors": "v.csv", "buckets": 3}, "has buckets"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, column: dict[str, Any], fault: str) -> None:
    schema = {"label": "click", "numeric": "price", "categorical": [{"column": "user", **column}]}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(schema))
    with pytest.raises(DataError, match=fault):
        read_schema(tmp_path / "schema.yaml", Schema)
