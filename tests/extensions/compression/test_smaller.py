"""Compressions as rivals: the fastest that keeps the floor is taken, and where none does the nearest is named."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.errors import InfeasibleError
from shunter.extensions.compression.bench import Bench
from shunter.extensions.compression.compress_flow import try_rivals
from shunter.extensions.compression.compression_card import COLUMNS, comparison
from shunter.extensions.compression.compression_passes import INT8
from shunter.extensions.compression.fine_tune import FineTuning
from shunter.extensions.compression.layer_forms import is_compressed
from shunter.extensions.compression.subject import CompressionLimits, CompressionSubject, QualityLimit
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import NumberLabel
from tests.engine.synthetic import write_dataset

SPEC = model_spec(embedding_dim=4, bottom_widths=(40,), top_widths=(48, 32))
ANY_AUC = QualityLimit("auc", 0.0)
Stopwatch = Callable[[Sequence[Callable[[], object]]], list[float]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=800)


def subject_of(
    dataset: Dataset, seconds: tuple[float, float], limit: QualityLimit = ANY_AUC, max_bytes: int | None = None
) -> CompressionSubject:
    """A model whose other forms take the second number of seconds, and it the first."""

    def stopwatch(works: Sequence[Callable[[], object]]) -> list[float]:
        for work in works:
            work()
        return [seconds[0], *[seconds[1]] * (len(works) - 1)]

    rows = BatchLoader(dataset, "train", 300).read(slice(0, 300))
    return CompressionSubject(
        model=build_model(SPEC, dataset.features).eval(),
        bench=Bench(dataset, Execution(), lambda model, given: model(*given.inputs), rows, stopwatch, batch_rows=64),
        calibration=rows,
        fine_tuning=FineTuning(rows=600, batch_rows=100),
        limits=CompressionLimits(limit, max_bytes),
    )


def test_what_is_faster_and_keeps_the_floor_wins(dataset: Dataset) -> None:
    subject = subject_of(dataset, (2.0, 1.0))
    rivals = try_rivals(subject, "shunter/1")
    assert rivals.winner is not None
    assert is_compressed(rivals.subject.model) == (rivals.winner == "int8")
    assert not is_compressed(subject.model)
    (record,) = [record for record in rivals.records if record.name == "int8"]
    figures = {one.name: (one.before, one.after) for one in record.figures}
    assert figures["batch_milliseconds"] == (2000.0, 1000.0)
    assert figures["weight_bytes"][1] < figures["weight_bytes"][0]
    shown = {row[0]: row[COLUMNS.index("ms a batch")] for row in comparison(rivals.records)}
    assert (shown["none"], shown["int8"]) == ("-", "1000.00 (original 2000.00)")


def test_what_is_not_faster_is_left(dataset: Dataset) -> None:
    rivals = try_rivals(subject_of(dataset, (1.0, 1.0)), "shunter/1")
    assert rivals.winner is None
    assert all(not record.is_kept for record in rivals.records)


def test_a_floor_that_nothing_keeps_names_the_nearest(dataset: Dataset) -> None:
    with pytest.raises(InfeasibleError, match=r"No compression keeps AUC 0\.99.*the nearest is \w+ with AUC"):
        try_rivals(subject_of(dataset, (2.0, 1.0), QualityLimit("auc", 0.99)), "shunter/1")


def test_bytes_that_nothing_fits_name_the_nearest(dataset: Dataset) -> None:
    with pytest.raises(InfeasibleError, match=r"fits 10 bytes: the nearest is \w+"):
        try_rivals(subject_of(dataset, (2.0, 1.0), max_bytes=10), "shunter/1")


def test_where_bytes_are_limited_a_slower_model_will_do(dataset: Dataset, tmp_path: Path) -> None:
    subject = subject_of(dataset, (1.0, 1.5))
    sizes = INT8.gain(subject, INT8.apply(replace(subject, limits=CompressionLimits(ANY_AUC, 1)))).figures[-1]
    subject = replace(subject, limits=CompressionLimits(ANY_AUC, int(sizes.after)))
    assert "int8" in {record.name for record in try_rivals(subject, "shunter/1").records if record.is_kept}


def test_a_model_of_numbers_keeps_its_rmse(dataset: Dataset) -> None:
    of_number = replace(dataset, features=replace(dataset.features, number=NumberLabel(loss="mse", scale=0.5)))
    rivals = try_rivals(subject_of(of_number, (2.0, 1.0), QualityLimit("rmse", 10.0)), "shunter/1")
    kept = {record.name: [one.name for one in record.figures] for record in rivals.records if record.is_kept}
    assert {"int8", "product", "pruning"} <= kept.keys()
    assert {names[0] for names in kept.values()} == {"rmse"}
    with pytest.raises(InfeasibleError, match="--max-rmse"):
        try_rivals(subject_of(of_number, (2.0, 1.0), QualityLimit("rmse", 1e-3)), "shunter/1")


def test_a_compressed_model_is_not_compressed_again(dataset: Dataset) -> None:
    subject = subject_of(dataset, (2.0, 1.0))
    again = INT8.applies(INT8.apply(subject))
    assert again is not None
    assert "already" in again
