"""Frames of every library become the same file, which is read without a loss; what is no frame is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from shunter.errors import ColumnError, RequestError
from shunter.flows.python.frames import is_frame, polars_of, schema_path, store_frame
from shunter.ingestion.schema import Schema, read_schema

LARGE = 2**60 + 1  # no float64 holds it
COLUMNS = {"id": [LARGE, 3], "price": [0.1, 1e-300], "user": ["007", "7"], "genres": [["a", "b"], []]}


def structured() -> np.ndarray:
    return np.array(
        list(zip(*list(COLUMNS.values())[:3], strict=True)), dtype=[("id", "i8"), ("price", "f8"), ("user", "U3")]
    )


FRAMES = {
    "pandas": lambda: pd.DataFrame(COLUMNS, index=[5, 9]),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "lazy": lambda: pl.LazyFrame(COLUMNS),
    "arrow": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
    "numpy": structured,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_is_kept_without_a_loss(kind: str) -> None:
    frame = FRAMES[kind]()
    assert is_frame(frame)
    read = pa_parquet.read_table(store_frame(frame)).to_pydict()
    assert read == {name: values for name, values in COLUMNS.items() if name in read}
    assert len(read) == (3 if kind == "numpy" else 4)


def test_the_same_rows_are_kept_once_and_others_beside_them(shunter_home: Path) -> None:
    first, second = store_frame(pd.DataFrame(COLUMNS), "shop"), store_frame(pd.DataFrame(COLUMNS, index=[2, 3]), "shop")
    assert first == second
    assert first.name == "shop.parquet"
    assert first.parent.parent == shunter_home / "frames"
    assert store_frame(pd.DataFrame({"id": [1]})) != first
    assert not [*(shunter_home / "frames").glob("*.tmp")]


def test_missing_values_stay_missing() -> None:
    frame = pd.DataFrame({"price": [None, 1.5], "user": ["a", None], "when": pd.to_datetime(["2026-01-02", None])})
    assert polars_of(frame).null_count().row(0) == (1, 1, 1)


@pytest.mark.parametrize("frame", [3, [1, 2], np.zeros((2, 2)), pd.Series([1]), None])
def test_what_is_no_frame_is_refused(frame: Any) -> None:
    assert not is_frame(frame)
    with pytest.raises(RequestError):
        store_frame(frame)


def test_a_column_of_several_types_is_named() -> None:
    with pytest.raises(ColumnError) as refused:
        store_frame(pd.DataFrame({"price": [1.0, 2.0], "user": ["a", 3]}))
    assert refused.value.column == "user"
    with pytest.raises(RequestError):
        store_frame(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_schema_is_a_file_a_mapping_text_or_a_schema(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("label: click\nnumeric: [price]\n")
    wanted = read_schema(tmp_path / "schema.yaml", Schema)
    given = [tmp_path / "schema.yaml", str(tmp_path / "schema.yaml"), {"label": "click", "numeric": ["price"]}]
    for schema in (*given, "label: click\nnumeric: [price]\n", wanted):
        assert read_schema(schema_path(schema), Schema) == wanted
    with pytest.raises(RequestError):
        schema_path(3)
