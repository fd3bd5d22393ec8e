"""What starting, training and stopping took of one job."""

from shunter.extensions.fleet.live.record import Seen
from shunter.extensions.fleet.live.training import Costs


def test_a_job_that_was_moved_shows_its_costs_where_they_arose() -> None:
    costs = Costs()
    costs.send(10.0, "cpu", is_free=True)
    for now in (13.0, 14.0):
        costs.step(now, is_first=True)
    costs.stop(20.0)
    costs.cease(22.0, is_lost=False)
    costs.send(22.0, "A100", is_free=True)
    costs.step(26.0, is_first=False)
    costs.cease(30.0, is_lost=False)
    assert costs.seen == {
        "cpu": Seen(train_seconds=7.0, start_seconds=3.0, checkpoint_seconds=(2.0,)),
        "A100": Seen(train_seconds=4.0, restore_seconds=(4.0,)),
    }
    assert costs.is_whole


def test_waiting_for_another_that_saves_its_state_is_no_cost_of_its_own() -> None:
    costs = Costs()
    costs.send(10.0, "cpu", is_free=False)
    costs.step(60.0, is_first=True)
    costs.cease(70.0, is_lost=False)
    assert costs.seen == {"cpu": Seen(train_seconds=10.0)}


def test_steps_that_were_lost_are_taken_twice() -> None:
    costs = Costs()
    costs.send(0.0, "cpu", is_free=True)
    costs.step(2.0, is_first=True)
    costs.cease(9.0, is_lost=True)
    assert not costs.is_whole
