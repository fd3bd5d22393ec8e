"""YAML and JSON that would take minutes or gigabytes: refused within a second, wherever they come from others."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shunter.engine.checkpoint.tensor_file import TensorFile
from shunter.errors import CheckpointError, DataError, RequestError, ShunterError, TrackingError
from shunter.hardware.catalogue import rows
from shunter.hardware.catalogue.prices import Prices
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.schema import Schema, read_schema
from shunter.tracking.registry.signing import check_model_folder, checked_copy, faults_of_models
from shunter.yaml_file import DEEPEST, LARGEST_BYTES, YamlError, load_yaml

SECONDS = 5.0  # where each bomb took more than 45, or all of the memory


def powers(line: str) -> str:
    """Thirty lines, each of which holds the one before it twice."""
    return "a0: &a0 {k: v}\n" + "".join(line.format(one=number, before=number - 1) for number in range(1, 30))


BOMBS = {
    "merges": powers("a{one}: &a{one} {{<<: [*a{before}, *a{before}], k{one}: 1}}\n"),
    "aliases": powers("a{one}: &a{one} [*a{before}, *a{before}]\n"),
    "lists in lists": "a: " + "[" * 100_000,
    "lists on one line": "- " * 100_000,
    "aliases in aliases": "a0: &a0 [1]\n"
    + "".join(f"a{number}: &a{number} [*a{number - 1}]\n" for number in range(1, DEEPEST + 1)),
    "a list of itself": "a: &a [*a]",
    "values": "a: [" + "1," * (LARGEST_BYTES // 4) + "]",
    "a number": "a: 1" + ":59" * (LARGEST_BYTES // 4),
    "a fraction": "a: 1" + ":59" * (LARGEST_BYTES // 4) + ".5",
    "merge keys": "b: &b {c: 1}\na:\n" + "  <<: *b\n" * 50_000,
    "directives": "".join(f"%TAG !{number}! x\n" for number in range(100_000)) + "---\na: 1",
    "a tag without its value": "a: !!bool perhaps",
}


@pytest.fixture(params=BOMBS)
def bomb(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "MLmodel"
    path.write_text(BOMBS[request.param])
    return path


def catalogue(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_CATALOGUE", str(path))
        rows.load_catalogue()


READERS: dict[str, tuple[Callable[[Path], object], type[ShunterError]]] = {
    "text": (lambda path: load_yaml(path.read_text()), YamlError),  # pyright: ignore[reportAssignmentType]
    "schema": (lambda path: read_schema(path, Schema), ShunterError),
    "catalogue": (catalogue, RequestError),
    "prices": (Prices.read, RequestError),
    "MLmodel": (lambda path: check_model_folder(path.parent, "a model"), TrackingError),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_bomb_is_refused_at_once(reader: str, bomb: Path) -> None:
    read, kind = READERS[reader]
    begin = time.process_time()
    with pytest.raises(kind):
        read(bomb)
    assert time.process_time() - begin < SECONDS


def test_merges_aliases_and_long_texts_within_the_bounds_are_read() -> None:
    text = "base: &base {a: 1, b: 2}\nnew: {<<: *base, b: 3}\nboth: [*base, *base]\nlong: " + "9" * 900
    found = load_yaml(text + f"\ntext: {'x' * 100_000}\nday: 2026-01-02")
    assert found["new"] == {"a": 1, "b": 3}
    assert found["both"] == [{"a": 1, "b": 2}] * 2
    assert (found["long"], len(found["text"]), found["day"]) == (int("9" * 900), 100_000, "2026-01-02")


NESTED = "[" * 100_000


def test_a_signature_that_is_nested_too_deeply_is_damage(shunter_home: Path, tmp_path: Path) -> None:
    data = tmp_path / "model" / "data" / "recommender"
    (data / "model").mkdir(parents=True)
    (data / "signed.json").write_text(NESTED)
    (data / "model" / "model.json").write_text(NESTED)
    with pytest.raises(TrackingError):
        checked_copy(data, tmp_path / "copy", "shop")
    assert [fault is not None for _, fault in faults_of_models(tmp_path)] == [True]


def test_files_of_a_model_that_are_nested_too_deeply_are_unreadable(shunter_home: Path, tmp_path: Path) -> None:
    (tmp_path / "encoder.json").write_text(NESTED)
    (tmp_path / "vocabulary.npz").write_bytes(b"")
    with pytest.raises(DataError):
        Encoder.load(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(len(NESTED).to_bytes(8, "little") + NESTED.encode())
    with weights.open("rb") as file, pytest.raises(CheckpointError):
        TensorFile(file, weights)
