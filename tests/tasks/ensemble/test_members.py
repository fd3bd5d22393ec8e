"""Trainings of the members: trials taken over, seeds in the time that these spare, and parallel trainings."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shunter.engine.executors.role import ComputeTarget
from shunter.engine.stopping import StopConditions
from shunter.engine.trained_model import FILE
from shunter.hardware.types import Placement
from shunter.requests import TrainRequest, effort
from shunter.search.minutes import Minutes
from shunter.tasks.ensemble import ending, members
from shunter.tasks.ensemble.members import side_by_side, train_members
from tests.engine.reasons import ENOUGH, HandClock

PLACEMENT = Placement(accelerator="cpu", threads=2, precision="fp32", batch_size=64)


def asked(
    monkeypatch: pytest.MonkeyPatch,
    request: TrainRequest,
    trials: list[int | None],
    stop_after: int = 99,
    searched: float = 0.0,
    *,
    folder: Path = Path("nowhere"),
    winners: int = 3,
    kept: Sequence[int] | None = None,
) -> Any:
    """Settings and turns that are asked for, where the members are trials or None for those that were trained."""
    made: list[tuple[str, int]] = []

    def member(run: Any, setting: Any, turn: int, folder: str, name: str, *_: Any) -> Any:
        made.append((setting.name, turn))
        return SimpleNamespace(name=name, trial=trials[len(made) - 1] if len(made) <= len(trials) else None)

    monkeypatch.setattr(members, "_member", member)
    known = [number for number, trial in enumerate(trials) if trial is not None] if kept is None else kept
    monkeypatch.setattr(ending, "stored_trial_model", lambda _, number: Path() if number in known else None)
    clock = HandClock(trials=searched)
    run = SimpleNamespace(
        request=request,
        stop=SimpleNamespace(clock=clock),
        should_stop=lambda: ENOUGH if len(made) >= stop_after else None,
        directory=folder,
        search_directory=folder,
    )
    run.within = lambda until: run
    settings = [
        SimpleNamespace(name=name, trial_number=number, seconds=30.0, costs={})
        for number, name in enumerate(("best", "next", "third", "fourth", "fifth")[:winners])
    ]
    minutes = Minutes.of(request.search, clock) if searched else None
    tuned = SimpleNamespace(winners=settings, best=settings[0])
    found = train_members(cast("Any", run), cast("Any", tuned), minutes)
    assert len({member.name for member in found}) == len(found) == len(made)
    return made


def test_trainings_that_trials_spare_go_to_seeds_of_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    request = TrainRequest(search_minutes=5, ensemble_size=3)
    own = [("best", 0), ("next", 0), ("third", 0)]
    assert asked(monkeypatch, request, [7, 4, 1]) == [*own, ("best", 1), ("best", 2), ("best", 3)]
    assert asked(monkeypatch, request, [7, None, 1]) == [*own, ("best", 1), ("best", 2)]
    assert asked(monkeypatch, request, [None, None, None]) == own


def test_trained_trials_are_members_once_a_limit_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    request = TrainRequest(ensemble_size=3)
    adopted = asked(monkeypatch, request, [7, 4, 1], stop_after=0, kept=[0, 2])
    assert adopted == [("best", 0), ("third", 0)]


def test_seeds_are_as_many_as_the_searchs_minutes_have_room_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A trial of the best setting took 30 s."""
    request = TrainRequest(search_minutes=5, ensemble_size=3)
    for searched, seeds in ((212.0, 3), (240.0, 2), (268.0, 1), (290.0, 0), (400.0, 0)):
        assert len(asked(monkeypatch, request, [7, 4, 1], searched=searched, folder=tmp_path)) == 3 + seeds
    assert len(asked(monkeypatch, request, [7, None, 1], searched=215.0, folder=tmp_path)) == 3 + 2


def test_members_without_room_give_way_to_trials_that_were_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each training takes 30 s of the 300."""
    request = TrainRequest(search_minutes=5, ensemble_size=3)

    def members_of(searched: float, kept: Sequence[int]) -> list[tuple[str, int]]:
        return asked(monkeypatch, request, [7] * 5, searched=searched, folder=tmp_path, winners=5, kept=kept)

    assert members_of(290.0, [0, 2, 4]) == [("best", 0), ("third", 0), ("fifth", 0)]
    assert members_of(290.0, [3]) == [("fourth", 0)]
    assert members_of(245.0, [0, 2, 4])[:3] == [("best", 0), ("next", 0), ("third", 0)]
    assert members_of(290.0, []) == [("best", 0)]  # without one there is no model
    done = tmp_path / ending.MEMBERS / "seed-1"
    done.mkdir(parents=True)
    (done / FILE).write_text("{}")  # by an attempt that was interrupted
    assert members_of(400.0, [0, 1, 2]) == [("best", 0), ("next", 0), ("third", 0), ("best", 1)]


def test_without_a_size_trials_that_came_to_their_end_are_members_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They cost no training, and so do not depend on what time is left."""

    def names_of(request: TrainRequest, searched: float, kept: Sequence[int]) -> list[str]:
        made = asked(monkeypatch, request, [7] * 5, searched=searched, folder=tmp_path, winners=5, kept=kept)
        return [name for name, _ in made]

    by_default, three = TrainRequest(search_minutes=5), TrainRequest(search_minutes=5, ensemble_size=3)
    assert names_of(by_default, 400.0, range(5)) == ["best", "next", "third", "fourth", "fifth"]
    assert names_of(by_default, 245.0, [0, 3, 4])[:5] == ["best", "next", "third", "fourth", "fifth"]
    assert names_of(three, 400.0, range(5)) == ["best", "next", "third"]
    monkeypatch.setattr(effort, "MOST_MEMBERS", 4)
    assert names_of(by_default, 400.0, range(5)) == ["best", "next", "third", "fourth"]


def test_what_others_take_to_their_end_follows_from_their_steps() -> None:
    best: Any = SimpleNamespace(seconds=60.0, costs={"step_seconds": 0.02})
    for costs, seconds, expected in (({"step_seconds": 0.005}, 2.0, 15.0), ({"step_seconds": 0.005}, 20.0, 20.0)):
        assert ending.whole_seconds(cast("Any", SimpleNamespace(seconds=seconds, costs=costs)), best) == expected
    assert ending.whole_seconds(cast("Any", SimpleNamespace(seconds=2.0, costs={})), best) == 60.0


def test_where_nothing_is_there_the_best_is_trained_as_long_as_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock(trials=400.0)
    minutes = Minutes(clock, 300.0)
    ended: list[Any] = []

    def train(run: Any, *_: Any) -> Any:
        for seconds in (0.0, 29.0, 1.0):
            clock.now += seconds
            ended.append(run.stop.check())
        return SimpleNamespace(name="member-0", trial=None)

    monkeypatch.setattr(members, "_member", train)
    monkeypatch.setattr(ending, "stored_trial_model", lambda *_: None)
    request = TrainRequest(search_minutes=5, ensemble_size=1)
    run = SimpleNamespace(request=request, stop=StopConditions(clock), directory=Path(), search_directory=Path())
    run.within = lambda condition: SimpleNamespace(**{**vars(run), "stop": run.stop.also(condition)})
    best = SimpleNamespace(name="best", trial_number=0, seconds=30.0, costs={})
    train_members(cast("Any", run), cast("Any", SimpleNamespace(winners=[best], best=best)), minutes)
    assert ended == [None, None, minutes.used_up]


def test_of_few_settings_seeds_go_on_where_the_turns_end(monkeypatch: pytest.MonkeyPatch) -> None:
    request = TrainRequest(search_minutes=5, ensemble_size=4)
    made = asked(monkeypatch, request, [7, 4, 1, None])
    assert made == [("best", 0), ("next", 0), ("third", 0), ("best", 1), ("best", 2), ("best", 3), ("best", 4)]


def test_what_the_job_was_not_planned_with_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nine trials of one epoch all come to their end, and the plan counts on it."""
    assert len(asked(monkeypatch, TrainRequest(trials=9, max_epochs=1, ensemble_size=3), [7, 4, 1])) == 3
    assert len(asked(monkeypatch, TrainRequest(search_minutes=5, ensemble_size=1), [7])) == 1
    assert len(asked(monkeypatch, TrainRequest(search_minutes=5, ensemble_size=3), [7, 4, 1], stop_after=4)) == 4


def test_members_side_by_side_keep_their_copies_with_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody removes them when the run has ended, and the next run would go on from them."""
    kept: list[Any] = []
    monkeypatch.setattr(members, "planned", lambda *_: ("job", "placement", "expected"))
    monkeypatch.setattr(members, "_adopted", lambda *_: None)
    monkeypatch.setattr(members, "train_model", lambda *_, checkpoints, **__: kept.append(checkpoints))
    run = SimpleNamespace(
        request=TrainRequest(checkpoint_copy="/mnt/shared"),
        checkpoints="those of the run",
        directory=Path("run"),
        run_id="1",
        should_stop=None,
    )
    members._member(cast("Any", run), cast("Any", "best"), 0, "0", "member-0", place=cast("Any", "place"))
    assert kept == ["those of the run"]


def number_of(number: int, place: ComputeTarget | None = None) -> int:
    return number


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(placement: Placement, count: int, place: ComputeTarget | None) -> Iterator[Sequence[Any]]:
        yield [f"executor-{number}" for number in range(count)]

    monkeypatch.setattr(members, "open_executors", opened)


@pytest.mark.usefixtures("executors")
@pytest.mark.parametrize("count", [2, 3])
def test_each_has_an_executor_of_its_own_while_it_trains(count: int) -> None:
    busy: set[str] = set()
    together, lock = threading.Barrier(count, timeout=30), threading.Lock()

    def training(number: int, place: ComputeTarget | None = None) -> int:
        assert place is not None
        own = cast("str", place.executor(PLACEMENT))
        with lock:
            assert own not in busy
            busy.add(own)
        if number < count:
            together.wait()  # so many do train at a time
        with lock:
            busy.remove(own)
        return number

    trainings = [partial(training, number) for number in range(5)]
    assert side_by_side(trainings, PLACEMENT, count, None) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("executors")
def test_what_one_raises_reaches_the_caller() -> None:
    def fails(place: ComputeTarget | None = None) -> int:
        raise ValueError("of the second")

    with pytest.raises(ValueError, match="of the second"):
        side_by_side([partial(number_of, 0), fails], PLACEMENT, 2, None)
