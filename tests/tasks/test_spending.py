"""What a run uses of its limits: of the accelerators that it holds, while it holds them."""

from pathlib import Path

import pytest

from hardware.meters import meter as meters
from hardware.meters.component import Component
from hardware.meters.source import EnergySource
from hardware.reservation import reserve
from hardware.types import Placement
from shunter.requests import Limits, TrainRequest
from tasks.run_state import StateFolder
from tasks.spending import spending


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
    monkeypatch.setattr("hardware.reservation._identity", lambda name: name.replace(":", "-"))
    monkeypatch.setattr(meters, "_device", lambda name, *, is_shared: Component(name, [counters[name]]))
    monkeypatch.setattr(meters, "_process_counter", lambda: counters["processor"])
    return counters


def test_what_another_flow_draws_on_an_accelerator_that_was_given_back_is_no_part_of_the_limit(
    tmp_path: Path, devices: dict[str, Counter]
) -> None:
    request = TrainRequest(data="log", limits=Limits(max_kwh=0.001))
    chosen = Placement(accelerator="cuda:0", threads=1, precision="fp32", batch_size=64)
    with StateFolder(tmp_path / "state", "run", lock=tmp_path / "lock") as state:
        with reserve(["cpu"], ["cuda:0"], ["cuda:1"], holder="test") as held, spending(state) as spent:
            devices["processor"].total += 1
            devices["cuda:0"].total += 10
            devices["cuda:1"].total += 100  # both are measured on before the choice
            held.keep(chosen)
            devices["cuda:1"].total += 1e6  # and then one is another flow's
            devices["cuda:0"].total += 20
            assert spent.total.joules == pytest.approx(1 + 30 + 100)
            assert spent.budget(request).joules == pytest.approx(1 + 30 + 100)
        state.finish()


def test_what_was_drawn_before_it_was_held_is_no_part_either(tmp_path: Path, devices: dict[str, Counter]) -> None:
    with StateFolder(tmp_path / "state", "run", lock=tmp_path / "lock") as state:
        with spending(state) as spent:
            devices["processor"].total += 5
            devices["cuda:0"].total += 1e6
            with reserve(["cuda:0"], holder="test"):
                devices["cuda:0"].total += 7
            devices["cuda:0"].total += 1e6
            assert spent.total.joules == pytest.approx(5 + 7)
        state.finish()
