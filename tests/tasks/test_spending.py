"""What a run uses of its limits: of the accelerators that it holds, while it holds them."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

from shunter import parallel
from shunter.engine.stopping import StopKind, StopLimit, StoppedError, StopReason
from shunter.hardware.meters import meter as meters
from shunter.hardware.meters.component import Component
from shunter.hardware.meters.source import EnergySource
from shunter.hardware.reservation import reserve
from shunter.hardware.types import Placement
from shunter.planner.choose import choose
from shunter.requests import Limits, TrainRequest
from shunter.search.minutes import BASELINES
from shunter.tasks.run_state import StateFolder
from shunter.tasks.spending import Spent, charged, check_time, limits_begun_anew, spending
from shunter.tasks.step_clock import ProcessEnergy
from tests.engine.reasons import HandClock
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile


class Counter(EnergySource):
    """A device that this process and others work on; the test sets the joules."""

    method, description = "measured", "counter of the test"

    def __init__(self) -> None:
        self.total = 1000.0

    def joules(self) -> float:
        return self.total


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter]:
    """Two GPUs and a processor, whose counters the test moves."""
    counters = {name: Counter() for name in ("processor", "cuda:0", "cuda:1")}
    monkeypatch.setattr("shunter.hardware.leases._identity", lambda name: name.replace(":", "-"))
    monkeypatch.setattr(meters, "_device", lambda name, *, is_shared: Component(name, [counters[name]]))
    monkeypatch.setattr(meters, "_process_counter", lambda: counters["processor"])
    return counters


def test_what_another_flow_draws_on_an_accelerator_that_was_given_back_is_no_part_of_the_limit(
    tmp_path: Path, devices: dict[str, Counter]
) -> None:
    request = TrainRequest(data="log", limits=Limits(max_kwh=0.001))
    chosen = Placement(accelerator="cuda:0", threads=1, precision="fp32", batch_size=64)
    with StateFolder(tmp_path / "state", "run", lock=tmp_path / "lock") as state:
        with reserve(["cpu"], ["cuda:0"], ["cuda:1"], holder="test") as held, spending(state, HandClock()) as spent:
            devices["processor"].total += 1
            devices["cuda:0"].total += 10
            devices["cuda:1"].total += 100  # both are measured on before the choice
            held.keep(chosen)
            devices["cuda:1"].total += 1e6  # and then one is another flow's
            devices["cuda:0"].total += 20
            assert spent.total.joules == pytest.approx(1 + 30 + 100)
            assert spent.budget(request).joules == pytest.approx(1 + 30 + 100)
        state.finish()


def test_the_steps_before_the_choice_count_too(tmp_path: Path, devices: dict[str, Counter]) -> None:
    with StateFolder(tmp_path / "state", "run", lock=tmp_path / "lock") as state:
        with spending(state, HandClock(before=10.0), outside=ProcessEnergy(10.0)) as spent:
            devices["processor"].total += 5
            assert spent.start is not None
            assert spent.start.joules
            assert spent.budget(TrainRequest(data="log")).joules == pytest.approx(5 + spent.start.joules)
        state.finish()


def test_a_limit_that_left_no_result_counts_from_the_start_of_the_next_attempt(
    tmp_path: Path, devices: dict[str, Counter]
) -> None:
    request = TrainRequest(data="log", limits=Limits(max_hours=1.0))

    def attempt(reason: StopReason | None, seconds: float) -> tuple[float, float, float | None]:
        clock = HandClock()
        found = (0.0, 0.0, None)
        with (
            StateFolder(tmp_path / "state", "run", lock=tmp_path / "lock") as state,
            suppress(StoppedError),
            clock.kept_in(state.directory),
            limits_begun_anew(state, clock),
            clock.counting(BASELINES),
            spending(state, clock) as spent,
        ):
            clock.now += seconds
            devices["processor"].total += seconds
            budget = spent.budget(request)
            found = budget.seconds, clock.wall_seconds, budget.joules
            if reason is not None:
                raise StoppedError("stopped", reason)
        return found

    assert attempt(StopReason(StopKind.EXPLORATION), 10.0) == (10.0, 10.0, 10.0)
    assert attempt(StopReason(StopKind.LIMIT, StopLimit.TIME), 5.0) == (15.0, 15.0, 15.0)
    assert attempt(None, 2.0) == (2.0, 17.0, 2.0)
    with StateFolder(tmp_path / "state", "run", lock=tmp_path / "lock") as state:
        assert spent_of(state) == 15.0
        state.finish()


def test_what_was_drawn_before_it_was_held_is_no_part_either(tmp_path: Path, devices: dict[str, Counter]) -> None:
    with StateFolder(tmp_path / "state", "run", lock=tmp_path / "lock") as state:
        with spending(state, HandClock()) as spent:
            devices["processor"].total += 5
            devices["cuda:0"].total += 1e6
            with reserve(["cuda:0"], holder="test"):
                devices["cuda:0"].total += 7
            devices["cuda:0"].total += 1e6
            assert spent.total.joules == pytest.approx(5 + 7)
        state.finish()


def test_what_a_killed_attempt_had_used_counts_once_though_it_could_say_nothing(
    tmp_path: Path, devices: dict[str, Counter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the killed attempts a copy of their folder is taken while they are amid a step."""
    monkeypatch.setattr(parallel, "INTERVAL_SECONDS", 0.01)
    folder = tmp_path / "state"
    for attempt in range(1, 4):
        with (
            StateFolder(folder, "run", lock=tmp_path / f"lock{attempt}") as state,
            spending(state, HandClock()) as spent,
        ):
            devices["processor"].total += 10
            kept = folder.with_name(f"kill{attempt}")
            wait_until_kept(state, 10 * attempt)
            wait_until_kept(state, 10 * attempt)  # it is not more each time
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("*.tmp"))
            assert spent.budget(TrainRequest(data="log")).joules == pytest.approx(10 * attempt)
        folder = kept


def spent_of(state: StateFolder) -> float | None:
    spent = state.recall("spent", Spent)
    return spent.energy.joules if spent else None


def wait_until_kept(state: StateFolder, joules: float) -> None:
    """Wait until the folder is written anew, with so many."""
    (state.directory / "spent.json").unlink(missing_ok=True)
    deadline = time.monotonic() + 60
    while spent_of(state) != pytest.approx(joules):
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestPrices:
    """A file of prices takes the place of `--price-per-hour`, from the choice to the limit that ends the work."""

    @pytest.fixture
    def request_with_prices(self, tmp_path: Path) -> TrainRequest:
        path = tmp_path / "prices.yaml"
        path.write_text("accelerators: {cpu: 3.5}\n")
        return TrainRequest(objective="cost", prices=str(path), limits=Limits(max_cost=7.0))

    def test_the_choice_and_the_budget_use_them(self, tmp_path: Path, request_with_prices: TrainRequest) -> None:
        dataset = write_dataset(tmp_path / "data", rows=20_000)
        decision = choose(dataset, request_with_prices, [make_profile(cores=2)], probe_seconds=0)
        assert decision.chosen.candidate.price_source == "given"
        assert decision.cost == pytest.approx(3.5 * decision.hours)
        assert charged(request_with_prices, decision).pricing.price_per_hour == 3.5
        with (
            StateFolder(tmp_path / "state", "run", lock=tmp_path / "lock") as state,
            spending(state, HandClock()) as spent,
        ):
            assert spent.budget(charged(request_with_prices)).max_cost == pytest.approx(7.0)
            state.finish()

    def test_a_price_that_is_given_counts_before_them(self, request_with_prices: TrainRequest) -> None:
        given = request_with_prices.model_copy(update={"price_per_hour": 1.0})
        assert given.pricing.prices_path is None
        assert charged(given) == given

    def test_the_users_own_file_counts_without_being_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SHUNTER_HOME", str(tmp_path))
        with pytest.raises(ValueError, match="--prices"):
            TrainRequest(objective="cost")
        (tmp_path / "prices.yaml").write_text("accelerators: {cpu: 2.0}\n")
        assert charged(TrainRequest(objective="cost")).pricing.price_per_hour == 2.0


def test_a_step_that_the_limits_leave_no_time_for_is_not_begun() -> None:
    hours, cost = TrainRequest(max_hours=0.01), TrainRequest(max_cost=0.036, price_per_hour=3.6)
    for request, limit in ((hours, StopLimit.TIME), (cost, StopLimit.COST)):
        check_time(request, HandClock(before=20.0), 15.0)
        with pytest.raises(StoppedError) as stopped:
            check_time(request, HandClock(before=20.0), 16.0)
        assert stopped.value.reason.limit is limit
