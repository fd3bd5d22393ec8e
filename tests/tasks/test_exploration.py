"""An exploration is bounded: it is given up at its end, and the run goes on at the best known placement."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shunter.engine.stopping import WORK, StopConditions, StopKind, StopLimit, StoppedError, StopReason
from shunter.errors import QualityMissedError
from shunter.flows import train as flow
from shunter.hardware.types import EnergyReading
from shunter.planner.decide import Decision
from shunter.planner.explore import gone_back
from shunter.requests import TrainRequest
from shunter.tasks.run_context import RunContext, exploration_limit
from shunter.tasks.run_state import StateFolder
from shunter.tasks.spending import Spent
from shunter.tasks.step_clock import StepClock
from shunter.tracking.evidence import ending_of
from tests.engine.reasons import ENOUGH, HandClock
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile
from tests.planner.test_explore import after, by_plan, night

TOO_LONG = StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": 2.0})


def exploration() -> Decision:
    decision = after([night(by_plan(), number) for number in range(3)])
    assert decision.exploration is not None
    return decision


def test_its_time_counts_from_the_search_on(tmp_path: Path) -> None:
    clock, decision = HandClock(before=500.0), exploration()
    assert decision.exploration is not None
    limit = exploration_limit(clock, decision)
    assert limit is not None
    clock.now += 1e6  # baselines were trained meanwhile
    assert limit() is None
    clock.now += 3600 * decision.exploration.stop_hours
    reason = limit()
    assert reason == TOO_LONG
    assert ending_of(error=StoppedError("It took too long.", TOO_LONG)).limit == "early_stop"
    assert ending_of(reason=TOO_LONG).limit == "early_stop"
    assert exploration_limit(clock, by_plan()) is None


def test_it_ends_the_search_and_the_members_but_no_baseline() -> None:
    clock = HandClock(exploration=1e9)
    limit = exploration_limit(clock, exploration())
    run: RunContext = cast("Any", RunContext)(
        *[None] * 7, StopConditions(clock, (lambda: None,)).also(limit), exploration=limit
    ).within(lambda: None)
    assert run.should_stop() == TOO_LONG
    assert run.baseline_stop.check() is None
    assert run.within(lambda: ENOUGH).baseline_stop.check() == ENOUGH
    with pytest.raises(StoppedError):
        run.check_exploration(run.should_stop())
    run.check_exploration(ENOUGH)
    run.check_exploration(None)


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
    clock = StepClock()
    clock.command = HandClock(work=5.0, trials=4.0)
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
    flow.train_on(TrainRequest(), write_dataset(tmp_path / "data", rows=100), clock)
    assert decisions[0] is None
    assert decisions[1] is not None
    assert decisions[1].placement == by_plan().placement
    assert spent[1] is not None
    assert spent[1].energy.seconds == 5.0  # what the exploration took counts against the limits
    assert (clock.command.seconds_of(WORK), clock.command.seconds_of("trials")) == (5.0, 0.0)


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
