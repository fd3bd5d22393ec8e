"""Short trainings are not even measured, and a choice once made is kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.compilation import FEWEST_STEPS, FILE, Compilation, choose_compilation
from shunter.engine.job import TrainingJob
from shunter.engine.probes.steps import time_steps
from shunter.errors import CheckpointError
from shunter.models.registry import model_spec
from tests.engine.compilable import COMPILED, RATES, SPEC
from tests.engine.synthetic import write_dataset

EXECUTION = replace(COMPILED, compiled=False)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


def choose(dataset: Dataset, directory: Path, epochs: int) -> Compilation:
    schedule = Schedule(max_epochs=epochs)
    job = TrainingJob(dataset, SPEC, RATES, EXECUTION, schedule)
    return choose_compilation(job, directory=directory)


def test_a_few_steps_are_neither_compiled_nor_measured(dataset: Dataset, tmp_path: Path) -> None:
    choice = choose(dataset, tmp_path, epochs=2)
    assert choice.steps == 22
    assert (choice.compiled, choice.eager_step_seconds) == (False, None)


def test_a_recurrent_model_is_never_compiled(dataset: Dataset, tmp_path: Path) -> None:
    schedule = Schedule(max_epochs=FEWEST_STEPS)
    job = TrainingJob(dataset, model_spec(family="sequence"), Hyperparameters(), EXECUTION, schedule)
    choice = choose_compilation(job, directory=tmp_path)
    assert (choice.compiled, choice.eager_step_seconds) == (False, None)
    assert "recurrent steps" in choice.reason


def test_more_steps_are_measured_first_and_short_ones_not_compiled(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps are real; how long one takes is written down, for a busy machine may take long enough to compile."""
    monkeypatch.setattr(
        "shunter.engine.executors.compilation.time_steps",
        lambda *job, **options: replace(time_steps(*job, **options), step_seconds=0.001),
    )
    choice = choose(dataset, tmp_path, epochs=FEWEST_STEPS // 11 + 1)
    assert choice.eager_step_seconds == 0.001
    assert (choice.compiled, choice.compile_seconds) == (False, None)


@pytest.mark.long
def test_a_long_training_is_measured_compiled_too_and_the_figures_decide(dataset: Dataset, tmp_path: Path) -> None:
    choice = choose(dataset, tmp_path, epochs=1_000_000)
    assert choice.eager_step_seconds is not None
    assert choice.compiled_step_seconds is not None
    assert choice.compile_seconds is not None
    saved = choice.steps * (choice.eager_step_seconds - choice.compiled_step_seconds)
    assert choice.compiled == (saved > choice.compile_seconds)


def test_an_earlier_choice_is_kept_whatever_would_be_chosen_now(dataset: Dataset, tmp_path: Path) -> None:
    earlier = Compilation(compiled=True, reason="it paid", steps=10**6)
    (tmp_path / FILE).write_text(earlier.model_dump_json())
    assert choose(dataset, tmp_path, epochs=2) == earlier


def test_a_damaged_choice_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"compiled": 7}')
    with pytest.raises(CheckpointError, match="another checkpoint folder"):
        choose(dataset, tmp_path, epochs=2)
