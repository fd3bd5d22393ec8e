"""What more cores gain here is what they are believed to gain elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.types import Placement, Prediction
from shunter.planner.assessment import Candidate
from shunter.planner.candidates.offers import catalogue_offers
from shunter.planner.candidates.placements import everywhere
from shunter.planner.history import History
from shunter.planner.predict.core_scaling import ASSUMED_SERIAL_SHARE, CoreScaling, serial_share
from shunter.planner.predict.predicted import absent_candidates
from tests.hardware.profiles import make_workload

SERVER = "AMD EPYC 9755"


def here(threads: int, step_seconds: float, batch_size: int = 512) -> Candidate:
    return Candidate(
        placement=Placement(accelerator="cpu", threads=threads, precision="fp32", batch_size=batch_size),
        prediction=Prediction(
            step_seconds=step_seconds,
            epoch_seconds=step_seconds,
            epoch_joules=None,
            memory_bytes=1,
            samples_per_second=1.0,
            step_seconds_source="measured",
            energy_source="unavailable",
        ),
        accelerator_memory_bytes=2**34,
    )


@given(st.floats(0, 1), st.integers(1, 64), st.integers(1, 64))
def test_serial_share_is_found_again_from_two_times(share: float, few: int, more: int) -> None:
    many = few + more
    seconds = {threads: share + (1 - share) / threads for threads in (few, many)}
    assert serial_share(seconds[many] / seconds[few], few, many) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "share"),
    [
        pytest.param(0.4, 0.0, id="more than the cores could give"),
        pytest.param(0.5, 0.0, id="all of it"),
        pytest.param(1.0, 1.0, id="nothing"),
        pytest.param(1.3, 1.0, id="a loss"),
    ],
)
def test_shares_stay_within_bounds(ratio: float, share: float) -> None:
    assert serial_share(ratio, 1, 2) == share


def test_gain_is_that_of_the_nearest_batch_size() -> None:
    scaling = CoreScaling.of([here(1, 1.0, 64), here(2, 1.0, 64), here(1, 16.0, 4096), here(2, 8.0, 4096)])
    small, large = (here(128, 1.0, size).placement for size in (32, 8192))
    assert scaling.factor(small) == pytest.approx(128)
    assert scaling.factor(large) == pytest.approx(1)


def test_one_core_tells_nothing_and_a_share_is_assumed() -> None:
    placement = here(101, 1.0).placement
    assert CoreScaling.of([here(1, 1.0)]).factor(placement) == pytest.approx(1 + 100 * ASSUMED_SERIAL_SHARE)


def test_server_is_no_faster_than_its_core_where_threads_gain_nothing_here() -> None:
    offers = catalogue_offers(SERVER, ())
    workload = make_workload()

    def seconds(gain: float) -> float:
        scaling = CoreScaling.of([here(1, 1.0), here(2, 1 / gain)])
        found = absent_candidates(workload, offers, History(), everywhere([512]), scaling=scaling)
        return next(one.prediction.step_seconds for one in found if one.placement.precision == "fp32")

    cores = offers[0].profile.accelerator.cores
    assert load_catalogue().find_accelerator(SERVER).kind == "cpu"
    assert seconds(1.0) == pytest.approx(cores * seconds(2.0))
    assert seconds(2.0) < seconds(1.5) < seconds(1.0)
