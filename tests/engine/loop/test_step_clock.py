"""A step takes as long as its device works on it, however early its launch returns."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.cuda_graph_step import STEPS_UNTIL_RECORDED
from shunter.engine.loop.step_clock import DeviceClock, HostClock, StepClock, StepSeconds, step_clock
from shunter.engine.loop.trainer import train
from shunter.engine.probes.steps import time_steps
from shunter.models.registry import model_spec
from tests.engine.interruptions import interrupt_at
from tests.engine.late_clock import LateClock
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset

LAUNCH = 0.001  # seconds that the host takes for one step


class Device:
    """A stand-in for a GPU: work is launched at the host's time, and done one after the other in its own."""

    def __init__(self) -> None:
        self.host = self.free_at = 0.0
        self.synchronizations = 0

    def launch(self, seconds: float) -> None:
        self.free_at = max(self.free_at, self.host) + seconds
        self.host += LAUNCH

    def event(self) -> "Event":
        return Event(self)


class Event:
    """As `torch.cuda.Event`: its time is when the device has done all that was launched before it."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def record(self) -> None:
        self.at = max(self._device.free_at, self._device.host)

    def query(self) -> bool:
        return self.at <= self._device.host

    def synchronize(self) -> None:
        if not self.query():
            self._device.synchronizations += 1
            self._device.host = self.at

    def elapsed_time(self, end: "Event") -> float:
        assert self.query()
        assert end.query()
        return 1_000 * (end.at - self.at)


def test_a_step_counts_until_its_device_has_done_it() -> None:
    device = Device()
    clock = DeviceClock(device.event)
    for seconds in (0.05, 0.07, 0.02):
        with clock.step():
            device.launch(seconds)
    assert list(clock.finished()) == [], "nothing has ended, and the host does not wait"
    assert device.synchronizations == 0
    assert [taken.compute for taken in clock.finished(wait=True)] == pytest.approx([0.05, 0.07, 0.02])
    assert list(clock.finished(wait=True)) == []


def test_steps_are_told_as_they_end() -> None:
    device = Device()
    clock = DeviceClock(device.event)
    for _ in range(3):
        with clock.step():
            device.launch(0.1)
    device.host = 0.25
    assert [taken.compute for taken in clock.finished()] == pytest.approx([0.1, 0.1])
    assert device.synchronizations == 0
    assert len(list(clock.finished(wait=True))) == 1


def test_a_device_waits_only_while_it_stands_still() -> None:
    device = Device()
    clock = DeviceClock(device.event)
    for read_seconds in (0.3, 0.04, 0.5):
        device.host += read_seconds  # the second batch comes while the first is computed
        with clock.step():
            device.launch(0.1)
    taken = list(clock.finished(wait=True))
    assert [step.wait for step in taken] == pytest.approx([0.3, 0.0, 0.842 - 0.5])
    assert sum(step.wait + step.compute for step in taken) == pytest.approx(device.free_at)


def test_what_comes_between_two_steps_is_part_of_none() -> None:
    device = Device()
    clock = DeviceClock(device.event)
    for _ in range(2):
        with clock.step():
            device.launch(0.1)
        device.launch(7.0)  # a validation
        clock.resume_after_pause()
    assert [(step.wait, step.compute) for step in clock.finished(wait=True)] == [
        (pytest.approx(0.0), pytest.approx(0.1)),
        (pytest.approx(0.0), pytest.approx(0.1)),
    ]


@pytest.mark.parametrize("clock", [HostClock(lambda: 0.0), DeviceClock(Device().event)])
def test_a_step_that_fails_does_not_count(clock: StepClock) -> None:
    with suppress(ValueError), clock.step():
        raise ValueError
    with clock.step():
        pass
    assert len(list(clock.finished(wait=True))) == 1


def test_on_a_processor_the_reader_says_what_was_waited() -> None:
    waited = iter([3.0, 3.5, 3.75])
    clock = HostClock(lambda: next(waited))
    for _ in range(2):
        with clock.step():
            pass
    assert [taken.wait for taken in clock.finished()] == [0.5, 0.25]


@pytest.mark.parametrize("stops_at", [None, 4])
def test_a_training_counts_the_steps_that_ended_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops_at: int | None
) -> None:
    clocks: list[LateClock] = []
    monkeypatch.setattr(
        "shunter.engine.loop.trainer.step_clock", lambda device, waited: clocks.append(LateClock(waited)) or clocks[-1]
    )
    dataset = write_dataset(tmp_path, rows=1_000)
    steps: list[int] = []
    hooks = Hooks(
        on_step=lambda step, _: steps.append(step), should_stop=lambda: ENOUGH if len(steps) == stops_at else None
    )
    schedule = Schedule(max_epochs=2, checks=(0.5,))
    result = train(TrainingJob(dataset, model_spec(), Hyperparameters(), Execution(batch_size=100), schedule), hooks)
    assert len(clocks) == (2 if stops_at is None else 1)
    assert all(report.compute_seconds > 0 for report in result.history)
    assert result.compute_seconds + result.wait_seconds <= result.train_seconds
    assert not any(list(clock.finished(wait=True)) for clock in clocks), "every step was counted"


class _WarmingUp(HostClock):
    warm_up_steps = 3


def test_the_first_steps_of_each_attempt_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.engine.loop.trainer.step_clock", lambda device, waited: _WarmingUp(waited))
    dataset = write_dataset(tmp_path / "data", rows=1_000)
    schedule = Schedule(max_epochs=2, patience=2)
    job = TrainingJob(dataset, model_spec(), Hyperparameters(), Execution(batch_size=100), schedule)
    undisturbed = train(job)
    assert (undisturbed.warm_up_steps, undisturbed.history[0].warm_up_steps) == (3, 3), "the second epoch has none"
    assert 0 < undisturbed.warm_up_seconds < undisturbed.wait_seconds + undisturbed.compute_seconds

    checkpointing = Checkpointing(tmp_path / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        train(job, Hooks(on_step=interrupt_at(5)), checkpointing)
    resumed = train(job, checkpointing=checkpointing)
    assert resumed.warm_up_steps == 6
    assert resumed.figures.warm_up_seconds == resumed.history[-1].warm_up_seconds


def test_a_probe_takes_its_times_from_the_clock_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(HostClock):
        def finished(self, *, wait: bool = False) -> Iterator[StepSeconds]:
            assert wait
            return (StepSeconds(wait=1.0, compute=number) for number, _ in enumerate(super().finished(wait=True)))

    monkeypatch.setattr("shunter.engine.probes.steps.step_clock", lambda device, waited: Told(waited))
    dataset = write_dataset(tmp_path, rows=500)
    timing = time_steps(dataset, model_spec(), Hyperparameters(), Execution(batch_size=64), steps=5)
    assert (timing.steps, timing.step_seconds, timing.wait_seconds) == (5, 3.0, 1.0)


def test_a_gpu_is_timed_by_its_own_events_and_takes_some_steps_to_get_going(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Device().event())
    on_gpu, on_processor = (step_clock(torch.device(name), lambda: 0.0) for name in ("cuda:0", "cpu"))
    assert isinstance(on_gpu, DeviceClock)
    assert isinstance(on_processor, HostClock)
    assert (on_gpu.warm_up_steps, on_processor.warm_up_steps) == (STEPS_UNTIL_RECORDED, 0)
