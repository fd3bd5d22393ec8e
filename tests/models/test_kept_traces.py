"""Traces that one run keeps for the next."""

from pathlib import Path

import pytest

import shunter.models.counting
from shunter.models.counting import count_model
from shunter.models.families.dlrm import DlrmSpec
from shunter.models.spec import CategoricalFeature, Features
from shunter.settings import Settings

SPEC = DlrmSpec(embedding_dim=8, bottom_widths=(10,), top_widths=(12,))


def features(rows: int, dense: int = 3) -> Features:
    return Features(
        dense=tuple(f"d{i}" for i in range(dense)),
        categorical=(CategoricalFeature(name="a", rows=rows), CategoricalFeature(name="b", rows=50)),
    )


@pytest.fixture(autouse=True)
def own_traces(shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep them in the test's own home, unlike those of other tests."""
    monkeypatch.setattr(Settings, "traces_directory", shunter_home / "traces")


@pytest.fixture
def next_run(monkeypatch: pytest.MonkeyPatch, shunter_home: Path) -> pytest.MonkeyPatch:
    """As of a new process, which remembers nothing itself."""
    shunter.models.counting._trace.cache_clear()
    return monkeypatch


def forget_and_forbid(run: pytest.MonkeyPatch) -> None:
    shunter.models.counting._trace.cache_clear()
    run.setattr(shunter.models.counting, "trace_step", lambda *_, **__: pytest.fail("it was traced again"))


def test_a_later_run_counts_the_same_without_tracing(next_run: pytest.MonkeyPatch) -> None:
    counts = count_model(SPEC, features(100))
    forget_and_forbid(next_run)
    assert count_model(SPEC, features(100)) == counts


def test_other_data_of_the_same_fields_needs_no_trace(next_run: pytest.MonkeyPatch) -> None:
    count_model(SPEC, features(100))
    forget_and_forbid(next_run)
    read = count_model(SPEC, features(101))
    next_run.undo()
    next_run.setenv("SHUNTER_HOME", str(Settings().home / "another"))
    shunter.models.counting._trace.cache_clear()
    assert count_model(SPEC, features(101)) == read


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (DlrmSpec(embedding_dim=8, bottom_widths=(10,), top_widths=(14,)), features(100)),
        (DlrmSpec(embedding_dim=4, bottom_widths=(10,), top_widths=(12,)), features(100)),
        (SPEC, features(100, dense=4)),
    ],
)
def test_another_shape_is_another_trace(next_run: pytest.MonkeyPatch, spec: DlrmSpec, fields: Features) -> None:
    counts = count_model(SPEC, features(100))
    assert count_model(spec, fields) != counts


def test_a_damaged_file_is_traced_again(next_run: pytest.MonkeyPatch) -> None:
    counts = count_model(SPEC, features(100))
    kept = sorted(Settings().traces_directory.iterdir())
    assert len(kept) == 4
    for file, text in zip(kept, ("", "{", '{"operators": [{}]}', '{"operators": [{"dtype": "nn"}]}'), strict=True):
        file.write_text(text)
    shunter.models.counting._trace.cache_clear()
    assert count_model(SPEC, features(100)) == counts


def test_a_home_that_cannot_be_written_is_no_obstacle(next_run: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    next_run.setenv("SHUNTER_HOME", str(file))
    assert count_model(SPEC, features(100)).matmul_flops_per_sample > 0
