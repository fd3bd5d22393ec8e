"""Files of arrays that are far smaller than what they hold: refused by their headers, before memory is taken."""

import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shunter.engine.data.arrays import read_npz
from shunter.errors import DataError, RequestError
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.schema import Schema
from shunter.ingestion.vectors import _read, vector_files

MOST_BYTES = 32 << 20


def bomb(path: Path, *names: str) -> None:
    """An archive of a megabyte whose arrays take four gigabytes; the data are less, for the headers are what counts."""
    zeros = bytes(1 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(
                    member, {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 1 << 10)}
                )
                for _ in range(100):
                    member.write(zeros)


def peak_of(path: Path) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="times the file"):
            read_npz(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_memory_is_taken_for_a_bomb(tmp_path: Path) -> None:
    bomb(tmp_path / "vectors.npz", "ids", "vectors")
    assert (tmp_path / "vectors.npz").stat().st_size < 1 << 20
    assert peak_of(tmp_path / "vectors.npz") < MOST_BYTES


def test_vectors_and_vocabularies_are_bounded(tmp_path: Path) -> None:
    bomb(tmp_path / "vectors.npz", "ids", "vectors")
    with pytest.raises(DataError):
        _read(tmp_path / "vectors.npz", "item")
    bomb(tmp_path / "vocabulary.npz", "keys", "ends")
    (tmp_path / "encoder.json").write_text("{}")
    with pytest.raises(DataError):
        Encoder.load(tmp_path)


def test_a_parquet_file_of_vectors_is_bounded_as_a_log_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"item": range(1_000), "vector": np.zeros((1_000, 4_000), np.float32)})
    frame.write_parquet(tmp_path / "vectors.parquet")
    assert _read(tmp_path / "vectors.parquet", "item")[1].shape == (1_000, 4_000)
    monkeypatch.setenv("SHUNTER_MAX_INPUT_BYTES", "1000000")
    with pytest.raises(DataError):
        _read(tmp_path / "vectors.parquet", "item")


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_vectors_outside_the_folders_that_may_be_read_are_refused(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"vectors.{ending}").write_bytes(b"")
    column = {"column": "item", "vectors": str(tmp_path / f"vectors.{ending}")}
    schema = Schema.model_validate({"label": "click", "categorical": [column]})
    assert len(vector_files(schema)) == 1
    monkeypatch.setenv("SHUNTER_DATA_ROOTS", str(tmp_path / "data"))
    with pytest.raises(RequestError):
        vector_files(schema)


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "content", [header("(-1, 5)"), header("(3,)"), b"", b"\x93NUMPY\x03\x00", header("(2**50,)")], ids=range(5)
)
def test_headers_that_lie_are_refused(content: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        read_npz(tmp_path / "a.npz")


def test_arrays_that_are_as_large_as_their_file_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", zeros=np.zeros((1 << 20, 4)), texts=np.array(["a", "bc"]))
    found = read_npz(tmp_path / "a.npz")
    assert (found["zeros"].shape, list(found["texts"])) == ((1 << 20, 4), ["a", "bc"])
