"""What checkpoints and interruptions took of past trainings is added to the next one's time, and said."""

from types import SimpleNamespace
from typing import Any

import pytest

from shunter.planner.history.interruptions import Interruptions
from shunter.planner.job_size import JobSize


def past(*restores: float, seconds: float = 3_600.0) -> list[Any]:
    counted = {"checkpoint.stall_seconds": 36.0, "time.train_seconds": seconds}
    runs = [{**counted, "checkpoint.restores": count} for count in restores]
    return [SimpleNamespace(metrics=metrics) for metrics in ({"time.train_seconds": 9e9}, *runs)]


def test_half_an_interval_is_lost_at_each_interruption() -> None:
    found = Interruptions.of(past(2, 0, 1, 1))
    assert (found.trainings, found.seconds, found.restores) == (4, 14_400.0, 4)
    assert found.stall_share == pytest.approx(0.01)
    assert found.recomputed_share(600.0) == pytest.approx(4 * 300 / 14_400)
    assert found.lost_share(600.0) == pytest.approx(0.01 + 1 / 12)
    [note] = found.notes(600.0)
    assert "Checkpoints add 9.33% to the time: 1.00% of waiting and 8.33% of repeating work" in note
    assert "measured over 4 past training runs of 4 h together, resumed from a checkpoint 4 times;" in note


def test_a_training_shorter_than_the_interval_loses_half_of_itself() -> None:
    assert Interruptions.of(past(1, seconds=60.0)).recomputed_share(600.0) == pytest.approx(0.5)


def test_without_a_past_nothing_is_added_and_without_interruptions_that_is_said() -> None:
    assert Interruptions.of(past()).lost_share(600.0) == 0.0
    assert Interruptions.of(past()).notes(600.0) == []
    assert "from a checkpoint never;" in Interruptions.of(past(0)).notes(600.0)[0]


def test_the_jobs_epochs_count_it() -> None:
    job = JobSize(tuning_epochs=3.0, final_epochs=1.0, evaluation_share=0.05)
    assert job.model_copy(update={"lost_share": 0.1}).epochs == pytest.approx(4 * 1.15)
