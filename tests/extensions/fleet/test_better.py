"""A training of this machine that began on one core goes on on both, once the other is given back."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.execution import execution_of
from shunter.engine.executors.move_monitor import TrainingProgress
from shunter.engine.job import TrainingJob
from shunter.extensions.fleet.better import DeviceUpgrade, select_upgrade
from shunter.hardware.leases import all_leases
from shunter.hardware.reservation_queue import in_queue
from shunter.models.registry import model_spec
from shunter.planner.decide import Decision
from shunter.tasks.accelerators import holds_all, reserve_for_flow
from shunter.tasks.train import train_model
from shunter.tracking.runs import closing, start_run
from shunter.tracking.tree import read_tree
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile
from tests.planner.test_redecide import ONE, TWO, decision
from tests.tasks.test_accelerators import one_core_used

GOING = TrainingProgress(share=0.1, seconds_left=1000.0, start_seconds=1.0)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.hardware.leases.usable_cores", lambda: 2)
    ticks = itertools.count()  # a second passes whenever the clock is read
    monkeypatch.setattr(
        "shunter.engine.executors.move_monitor.time", SimpleNamespace(monotonic=lambda: float(next(ticks)))
    )


def on_one() -> Decision:
    """What an interrupted run had chosen."""
    return decision("energy")


def test_it_moves_through_its_checkpoint_to_the_cores_that_another_gives_back(
    tmp_path: Path, tracking_root: Path
) -> None:
    dataset = write_dataset(tmp_path / "data", rows=4_000)
    rates = Hyperparameters(dense_learning_rate=5e-3)
    job = TrainingJob(
        dataset, model_spec(embedding_dim=4), rates, execution_of(ONE.placement), Schedule(max_epochs=12, patience=12)
    )
    run_id = start_run("one", "train")
    profiles = [make_profile()]
    with closing(run_id), one_core_used(60) as other, reserve_for_flow(profiles, decision=on_one()) as held:
        assert not holds_all(held, profiles)
        place = DeviceUpgrade(held, decision)
        assert place.choose(ONE.placement, GOING) is None, "the other core is used"
        epochs: list[int] = []

        def watch(report: Any) -> None:
            epochs.append(report.epoch)
            if report.epoch == 2:
                other.kill()
                other.wait()

        trained = train_model(job, ONE.placement, tmp_path / "model", parent_run_id=run_id, place=place, watch=watch)
        assert trained.placement == TWO.placement
        assert epochs == sorted(epochs), "no epoch is trained twice"
        assert epochs[-1] == 12
        assert held.cores == 2
        assert [lease.cores for _, lease in all_leases()] == [2]
        assert place.executor(ONE.placement).placement == TWO.placement, "the next member begins there"
    (member,) = read_tree(run_id).children
    assert (
        member.tags["training.moves"] == "cpu x2 fp32 b512 is free: the training at cpu x1 fp32 b512 continues there."
    )
    assert load_model(tmp_path / "model") is not None


def test_who_waits_is_served_first_and_what_is_gone_is_not_taken() -> None:
    with one_core_used(60) as other, reserve_for_flow([make_profile()], decision=on_one()) as held:
        place = DeviceUpgrade(held, decision)
        assert place.choose(ONE.placement, GOING) is None
        assert not place.take(ONE.placement, TWO.placement)
        assert held.cores == 1
        assert sorted(lease.cores for _, lease in all_leases()) == [1, 1]
        other.kill()
        other.wait()
        with in_queue("another", 0, ["cpu"]):
            assert place.choose(ONE.placement, GOING) is None
        assert place.choose(ONE.placement, GOING) == TWO.placement
        assert place.take(ONE.placement, TWO.placement)
        assert held.cores == 2


TOTALS = {"cpu x1": 4.0, "cpu x2": 2.0, "cuda:0": 1.0}


@pytest.mark.parametrize(
    ("free", "share", "left", "start", "found"),
    [
        pytest.param(("cpu x2", "cuda:0"), 0.1, 400.0, 10.0, "cuda:0", id="the fastest that is free"),
        pytest.param(("cpu x2",), 0.1, 400.0, 10.0, "cpu x2", id="the best of what is free"),
        pytest.param((), 0.1, 400.0, 10.0, None, id="nothing is free"),
        pytest.param(("cpu x2",), 0.9, 40.0, 10.1, None, id="it saves 20 s, and a move would have to save 20.2"),
        pytest.param(("cpu x2",), 0.9, 40.0, 9.9, "cpu x2", id="or 19.8"),
    ],
)
def test_it_moves_where_that_saves_twice_what_the_move_takes(
    free: tuple[str, ...], share: float, left: float, start: float, found: str | None
) -> None:
    totals = {name: TOTALS[name] for name in ("cpu x1", *free)}
    assert select_upgrade(totals, "cpu x1", TrainingProgress(share, left, start)) == found


def test_from_the_fastest_it_goes_nowhere() -> None:
    assert select_upgrade(TOTALS, "cuda:0", TrainingProgress(0.0, 1000.0, 0.1)) is None
