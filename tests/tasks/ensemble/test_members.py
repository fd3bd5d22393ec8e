"""Which trainings make the members: trials taken over, and seeds in the time that these spare."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shunter.requests import TrainRequest
from tasks.ensemble import members
from tasks.ensemble.members import train_members


def asked(
    monkeypatch: pytest.MonkeyPatch,
    request: TrainRequest,
    trials: list[int | None],
    stop_after: int = 99,
    searched: float = 0.0,
) -> Any:
    """Settings and turns that are asked for, where the members are trials or None for those that were trained."""
    made: list[tuple[str, int]] = []

    def member(run: Any, setting: str, turn: int, folder: str, name: str) -> Any:
        made.append((setting, turn))
        return SimpleNamespace(name=name, trial=trials[len(made) - 1] if len(made) <= len(trials) else None)

    monkeypatch.setattr(members, "_member", member)
    run = SimpleNamespace(request=request, should_stop=lambda: len(made) >= stop_after)
    found = train_members(
        cast("Any", run),
        cast(
            "Any",
            SimpleNamespace(winners=("best", "next", "third"), seconds=searched, best=SimpleNamespace(seconds=30.0)),
        ),
    )
    assert len({member.name for member in found}) == len(found) == len(made)
    return made


def test_trainings_that_trials_spare_go_to_seeds_of_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    request = TrainRequest(search_minutes=5, ensemble_size=3)
    own = [("best", 0), ("next", 0), ("third", 0)]
    assert asked(monkeypatch, request, [7, 4, 1]) == [*own, ("best", 1), ("best", 2), ("best", 3)]
    assert asked(monkeypatch, request, [7, None, 1]) == [*own, ("best", 1), ("best", 2)]
    assert asked(monkeypatch, request, [None, None, None]) == own


def test_seeds_are_as_many_as_the_searchs_minutes_have_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial of the best setting took 30 s."""
    request = TrainRequest(search_minutes=5, ensemble_size=3)
    for searched, seeds in ((212.0, 3), (240.0, 2), (268.0, 1), (290.0, 0), (400.0, 0)):
        assert len(asked(monkeypatch, request, [7, 4, 1], searched=searched)) == 3 + seeds
    assert len(asked(monkeypatch, request, [7, None, 1], searched=240.0)) == 3 + 1


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
    monkeypatch.setattr(members, "train_to_the_end", lambda *_, checkpoints, **__: kept.append(checkpoints))
    run = SimpleNamespace(
        request=TrainRequest(checkpoint_copy="/mnt/shared"),
        checkpoints="those of the run",
        directory=Path("run"),
        run_id="1",
        should_stop=None,
    )
    members._member(cast("Any", run), cast("Any", "best"), 0, "0", "member-0", place=cast("Any", "place"))
    assert kept == ["those of the run"]
