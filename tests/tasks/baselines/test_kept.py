"""Stored baselines: trained once for the same content, and anew where content differs or is damaged."""

from pathlib import Path

import pytest

import shunter.tasks.baselines
from shunter.engine.data.dataset import Dataset
from shunter.requests import TREES
from shunter.settings import Settings
from shunter.tasks.baselines import kept, train_baselines, train_rivals
from shunter.tasks.train import train_model
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.tasks.baselines.test_baselines import PLACEMENT, context_of


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=2_000)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the trainings, in their order."""
    names: list[str] = []

    def train(*arguments: object, name: str, **options: object) -> object:
        names.append(name)
        return train_model(*arguments, name=name, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(shunter.tasks.baselines, "train_member", train)
    return names


def test_a_second_run_trains_no_baseline_and_says_since_when(
    dataset: Dataset, tmp_path: Path, trained: list[str]
) -> None:
    first = train_baselines(context_of(dataset, tmp_path / "first"))
    assert len(trained) == 4
    later = train_baselines(context_of(dataset, tmp_path / "second", answers=[ENOUGH] * 9))  # without a second to spare
    assert len(trained) == 4
    assert [one.trained_at is not None for one in (*first, *later)] == [False, False, True, True]
    assert [one.model.validation for one in later] == [one.model.validation for one in first]
    assert [one.train_seconds for one in later] == [one.train_seconds for one in first]


@pytest.mark.parametrize("name", ["baseline.json", "model.json", "model.safetensors"])
def test_a_damaged_one_is_quarantined_and_trained_anew(
    dataset: Dataset, tmp_path: Path, trained: list[str], name: str
) -> None:
    first = train_baselines(context_of(dataset, tmp_path / "first", baselines="lr"))
    (file,) = Settings().baselines_directory.glob(f"*/{name}")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    again = train_baselines(context_of(dataset, tmp_path / "second", baselines="lr"))
    assert len(trained) == 4
    assert again[0].trained_at is None
    assert again[0].model.validation == first[0].model.validation
    assert any((Settings().home / "quarantine").iterdir())
    third = train_baselines(context_of(dataset, tmp_path / "third", baselines="lr"))
    assert len(trained) == 4
    assert third[0].trained_at is not None


def test_other_content_is_trained_anew(
    dataset: Dataset, tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train_baselines(context_of(dataset, tmp_path / "first", baselines="lr"))
    other = write_dataset(tmp_path / "other", rows=2_001)
    train_baselines(context_of(other, tmp_path / "data_differs", baselines="lr"))
    train_baselines(context_of(dataset, tmp_path / "seed_differs", baselines="lr", seed=1))
    train_baselines(context_of(dataset, tmp_path / "metric_differs", baselines="lr", select_by="auc"))
    monkeypatch.setattr(kept, "_digest_of_code", lambda: "of a later version")
    train_baselines(context_of(dataset, tmp_path / "code_differs", baselines="lr"))
    assert len(trained) == 10


def test_a_repeated_run_chooses_as_the_first_did(dataset: Dataset, tmp_path: Path, trained: list[str]) -> None:
    first = context_of(dataset, tmp_path / "first", baselines="lr")
    train_baselines(first)
    again = context_of(dataset, tmp_path / "again", baselines="lr")
    again.decision.placement = PLACEMENT.model_copy(update={"batch_size": 256})
    reused = train_baselines(again)
    assert reused[0].model.placement == PLACEMENT
    for of, trainings in ((first, 4), (again, 4)):
        repeat = context_of(dataset, tmp_path / f"repeat of {of.directory.name}", baselines="lr")
        (repeat.directory / "baselines").mkdir(parents=True)
        choice = (of.directory / "baselines" / "lr.choice.json").read_bytes()
        (repeat.directory / "baselines" / "lr.choice.json").write_bytes(choice)
        assert train_baselines(repeat)[0].model.validation == reused[0].model.validation
        assert len(trained) == trainings


def test_what_a_limit_has_ended_is_not_stored(dataset: Dataset, tmp_path: Path, trained: list[str]) -> None:
    train_baselines(context_of(dataset, tmp_path, baselines="lr", answers=[None, None, ENOUGH, ENOUGH, ENOUGH]))
    assert not Settings().baselines_directory.exists()


def test_trees_are_stored_too(dataset: Dataset, tmp_path: Path) -> None:
    first, later = (train_rivals(context_of(dataset, tmp_path / name, baselines=TREES)) for name in ("one", "two"))
    assert [one.trained_at is not None for one in (*first, *later)] == [False, True]
    assert first[0].validation == later[0].validation
