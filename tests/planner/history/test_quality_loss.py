"""What a batch size costs in NE is learned from past runs and from trials beside others."""

import pytest

from shunter.planner.decide import NoFeasiblePlacementError, decide
from shunter.planner.history import PastRun
from shunter.planner.history.quality_loss import quality_losses
from shunter.planner.predict.predicted import with_quality_loss
from shunter.planner.rank.totals import Terms
from shunter.requests import Limits
from shunter.tracking.evidence import PairedTrial
from tests.planner.measurements import at, past_run
from tests.planner.test_decide import TEN_EPOCHS, candidate

SIZES = (256, 512, 1024)


def run(size: int, ne: float, pair: PairedTrial | None = None) -> PastRun:
    return past_run(at(size), ne=ne, seconds=1.0, pair=pair)


def chosen(
    seconds: dict[int, float], runs: list[PastRun], most: float | None = None, hours: float | None = None
) -> int:
    candidates = [candidate(size, seconds=taken, joules=1.0, price=None) for size, taken in seconds.items()]
    terms = Terms.of(Limits(max_hours=hours), "time", TEN_EPOCHS)
    return decide(with_quality_loss(candidates, runs, most), terms).placement.batch_size


def test_without_past_runs_nothing_is_known() -> None:
    assert quality_losses([], [at(size) for size in SIZES]) is None
    assert quality_losses([run(64, 0.2)], [at(size) for size in SIZES]) is None


@pytest.mark.parametrize("by_pair", [False, True])
def test_loss_is_that_of_runs_and_of_extra_trials(by_pair: bool) -> None:
    pair = PairedTrial(placement=at(1024), beside=at(512), seconds=1, seconds_ratio=1, epochs_ratio=1, ne_ratio=1.062)
    runs = [run(512, 0.2218, pair)] if by_pair else [run(512, 0.2218), run(1024, 0.2356)]
    losses = quality_losses(runs, [at(size) for size in SIZES])
    assert losses is not None
    assert losses[1].expected == pytest.approx(0.0)
    assert losses[2].expected == pytest.approx(0.058, abs=0.015)
    assert losses[2].low > losses[2].most == pytest.approx(0.0142, abs=1e-3)
    assert losses[0].low < 0 < losses[0].high


def test_repetitions_tell_the_noise() -> None:
    runs = [run(512, ne) for ne in (0.20, 0.22, 0.21, 0.24)]
    losses = quality_losses(runs, [at(512)])
    assert losses is not None
    assert losses[0].most > 0.05


def test_a_batch_size_that_costs_more_than_the_noise_is_not_chosen_unless_permitted() -> None:
    runs = [run(512, 0.2218), run(1024, 0.2356)]
    seconds = {512: 100.0, 1024: 60.0}
    assert chosen(seconds, runs) == 512
    assert chosen(seconds, runs, most=0.1) == 1024
    assert chosen(seconds, []) == 1024


def test_at_equal_time_the_better_one_wins() -> None:
    runs = [run(512, 0.2218), run(1024, 0.2230)]
    assert chosen({512: 100.0, 1024: 99.0}, runs) == 512
    assert chosen({512: 100.0, 1024: 90.0}, runs) == 1024


def test_noise_gives_way_to_limits_of_the_request_and_a_requested_loss_does_not() -> None:
    runs, seconds = [run(512, 0.2218), run(1024, 0.2356)], {512: 1000.0, 1024: 60.0}
    assert chosen(seconds, runs, hours=1.0) == 1024
    with pytest.raises(NoFeasiblePlacementError):
        chosen(seconds, runs, most=0.01, hours=1.0)
