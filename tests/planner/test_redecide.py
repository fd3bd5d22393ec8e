"""The second decision, while the training runs: same limits, same objective, threads alone may change."""

import pytest

from shunter.hardware.types import Placement
from shunter.planner.assessment import Candidate
from shunter.planner.decide import Decision, decide
from shunter.planner.rank.totals import Terms
from shunter.planner.redecide import alternatives, is_better_now, redecide
from shunter.requests import Limits
from tests.planner.test_decide import TEN_EPOCHS, candidate


def with_step(candidate: Candidate, step_seconds: float) -> Candidate:
    return candidate.model_copy(
        update={"prediction": candidate.prediction.model_copy(update={"step_seconds": step_seconds})}
    )


# Ten epochs: 1 h on one thread at 10 W and 10 ms a step; half of it on two at 30 W.
ONE = with_step(candidate(512, threads=1, seconds=360, joules=3_600), 0.01)
TWO = with_step(candidate(512, threads=2, seconds=180, joules=5_400), 0.005)
OTHER_BATCH = candidate(64, threads=2)
OTHER_MACHINE = candidate(512, threads=4, is_here=False)
TOO_LARGE = candidate(512, threads=8, memory_gib=99)


def decision(objective: str = "time", **limits: float) -> Decision:
    return decide([ONE, TWO, OTHER_BATCH, OTHER_MACHINE, TOO_LARGE], Terms.of(Limits(**limits), objective, TEN_EPOCHS))


def test_only_threads_of_this_machine_that_fit_may_take_over() -> None:
    first = decision()
    assert alternatives(first, TWO.placement) == [ONE.placement, TWO.placement]
    in_processes = TWO.placement.model_copy(update={"processes": 2})
    assert alternatives(first, in_processes) == [in_processes]


@pytest.mark.parametrize(
    ("objective", "limits", "seconds", "chosen"),
    [
        pytest.param("time", {}, (0.02, 0.03), ONE, id="two threads have become slower than one"),
        pytest.param("time", {}, (0.0097, 0.01), TWO, id="a gain within the noise changes nothing"),
        pytest.param("energy", {}, (0.02, 0.01), ONE, id="10 W for 20 ms need less than 30 W for 10 ms"),
        pytest.param("energy", {}, (0.02, 0.005), TWO, id="but more than 30 W for 5 ms"),
        pytest.param("energy", {"max_hours": 1.5}, (0.02, 0.01), TWO, id="one thread would break the limit"),
        pytest.param("time", {"max_hours": 0.01}, (0.02, 0.03), ONE, id="where all break it, the fastest"),
    ],
)
def test_choice(objective: str, limits: dict[str, float], seconds: tuple[float, float], chosen: Candidate) -> None:
    # Limits of the first decision may be ones that the machine keeps no more.
    first = decision(objective).model_copy(update={"limits": Limits(**limits)})
    measured = dict(zip((ONE.placement, TWO.placement), seconds, strict=True))
    assert redecide(first, TWO.placement, measured) == chosen.placement


def test_what_the_first_decision_did_not_know_is_no_choice() -> None:
    unknown = Placement(accelerator="cpu", threads=3, precision="fp32", batch_size=512)
    assert redecide(decision(), unknown, {unknown: 0.1}) == unknown


def one_core(placement: Placement) -> bool:
    return placement.threads == 1


@pytest.mark.parametrize(
    ("objective", "wait_hours", "begins"),
    [
        pytest.param("time", 0.6, True, id="an hour on one core ends before 0.6 h of waiting and half an hour on two"),
        pytest.param("time", 0.4, False, id="0.4 h of waiting and half an hour end earlier"),
        pytest.param("energy", 0.0, True, id="one core needs less energy, wherever there are two"),
        pytest.param("edp", 0.2, True, id="10 Wh in 1 h against 15 Wh in 0.7 h"),
        pytest.param("edp", 0.1, False, id="10 Wh in 1 h against 15 Wh in 0.6 h"),
    ],
)
def test_the_wait_counts_as_time_of_the_job(objective: str, wait_hours: float, begins: bool) -> None:
    assert is_better_now(decision(objective), one_core, {"cpu": wait_hours}) is begins


def test_without_anything_free_or_feasible_it_waits() -> None:
    assert not is_better_now(decision(), lambda _: False, {"cpu": 1.0})
    assert not is_better_now(decision(), one_core, {})  # the rest is free by now
