"""An exploration is bounded: it is given up at its end, and the run goes on at the best known placement."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shunter.engine.stopping import StopKind, StopLimit, StoppedError, StopReason
from shunter.errors import QualityMissedError
from shunter.flows import train as flow
from shunter.hardware.types import EnergyReading
from shunter.planner.decide import Decision, Exploration
from shunter.planner.explore import gone_back
from shunter.requests import TrainRequest
from shunter.tasks.run_context import ExplorationEnd
from shunter.tasks.run_state import StateFolder
from shunter.tasks.spending import Spent
from shunter.tasks.step_clock import StepClock
from shunter.tracking.evidence import ending_of
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile
from tests.planner.test_explore import after, by_plan, night

TOO_LONG = StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": 2.0})


def exploration() -> Decision:
    decision = after([night(by_plan(), number) for number in range(3)])
    assert decision.exploration is not None
    return decision


def test_its_time_counts_from_the_search_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("shunter.tasks.run_context.time.monotonic", lambda: now[0])
    best = by_plan().placement
    end = ExplorationEnd(Exploration(best_known=best, stop_multiple=2.0, stop_hours=10 / 3600))
    now[0] = 500.0  # baselines were trained meanwhile
    assert end.reached() is None
    now[0] = 509.0
    assert end.reached() is None
    now[0] = 511.0
    reason = end.reached()
    assert reason == TOO_LONG
    assert ending_of(error=StoppedError("It took too long.", TOO_LONG)).limit == "early_stop"
    assert ending_of(reason=TOO_LONG).limit == "early_stop"


def test_the_best_known_takes_over_with_the_figures_of_its_row() -> None:
    tried = exploration()
    decision = gone_back(tried, "It took too long.")
    assert tried.exploration is not None
    assert decision.placement == tried.exploration.best_known == decision.chosen.candidate.placement
    assert decision.exploration is None
    assert (decision.hours, decision.prediction) == (decision.chosen.hours, decision.chosen.candidate.prediction)
    assert [row.rank for row in decision.table] == list(range(1, len(tried.table) + 1))
    assert f"{tried.placement.label} was tried first: It took too long." in decision.reason


@pytest.mark.parametrize("error", [StoppedError("It took too long.", TOO_LONG), QualityMissedError("AUC .6.", 0.6)])
def test_a_run_goes_on_after_an_exploration_that_came_to_nothing(
    error: Exception, tmp_path: Path, shunter_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions: list[Decision | None] = []
    spent: list[Spent | None] = []

    def train(job: Any) -> Any:
        state: StateFolder = job.state
        decisions.append(state.recall("decision", Decision))
        spent.append(state.recall("spent", Spent))
        if len(decisions) == 1:
            state.remember("decision", exploration())
            state.remember("spent", Spent(energy=EnergyReading.of(7.0, 5.0, "estimated", "a model")))
            (state.directory / "tune").mkdir()
            raise error
        assert not (state.directory / "tune").exists()
        return SimpleNamespace(run_id="run", minutes=None, model_copy=lambda **_: None)

    recipe = SimpleNamespace(check=lambda *_: None, publish=lambda *_: None)
    monkeypatch.setattr(flow, "recipe_of", lambda _: recipe)
    monkeypatch.setattr(flow, "open_run", lambda _: SimpleNamespace(log_metrics=lambda _: None))
    monkeypatch.setattr(flow, "profile_hardware", lambda _: [make_profile()])
    monkeypatch.setattr(flow, "_train_held", train)
    flow.train_on(TrainRequest(), write_dataset(tmp_path / "data", rows=100), StepClock())
    assert decisions[0] is None
    assert decisions[1] is not None
    assert decisions[1].placement == by_plan().placement
    assert spent[1] is not None
    assert spent[1].energy.seconds == 5.0  # what the exploration took counts against the limits


@pytest.mark.parametrize(
    ("decided", "error"),
    [(by_plan, QualityMissedError("AUC .6.", 0.6)), (exploration, StoppedError("The time is used up.", ENOUGH))],
)
def test_a_run_ends_with_its_error_where_it_explored_nothing_or_a_limit_ended_it(
    decided: Callable[[], Decision],
    error: Exception,
    tmp_path: Path,
    shunter_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def train(job: Any) -> Any:
        job.state.remember("decision", decided())
        raise error

    monkeypatch.setattr(flow, "recipe_of", lambda _: SimpleNamespace(check=lambda *_: None))
    monkeypatch.setattr(flow, "profile_hardware", lambda _: [make_profile()])
    monkeypatch.setattr(flow, "_train_held", train)
    with pytest.raises(type(error)):
        flow.train_on(TrainRequest(), write_dataset(tmp_path / "data", rows=100), StepClock())
