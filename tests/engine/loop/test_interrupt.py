"""What a signal's handler raises ends a training after its step, whoever's handler it is."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from shunter.engine.loop import interrupt
from shunter.engine.loop.interrupt import deferred_interrupt, stopped_between_steps
from shunter.python_processes import run_python


class StoppedByOrchestrator(BaseException):
    """What the handler of an orchestrator raises."""


@pytest.fixture
def orchestrated() -> Iterator[None]:
    """An orchestrator's handler, and Python's own of Ctrl-C, which is not there when a shell started us with `&`."""

    def handler(number: int, frame: object) -> None:
        raise StoppedByOrchestrator

    former = signal.signal(signal.SIGTERM, handler), signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, former[0])
    signal.signal(signal.SIGINT, former[1])


def endless(done: list[str], within_a_step: Callable[[], None]) -> str:
    """Steps without end, each in two halves."""
    with deferred_interrupt() as raise_if_interrupted:
        while len(done) < 10_000:
            done.append("begun")
            within_a_step()
            time.sleep(0.001)
            done.append("ended")
            try:
                raise_if_interrupted()
            except KeyboardInterrupt:
                done.append("saved")
                raise
    return "to the end"


def kill_once(number: int) -> Callable[[], None]:
    pending = [number]

    def kill() -> None:
        while pending:
            os.kill(os.getpid(), pending.pop())

    return kill


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, StoppedByOrchestrator), (signal.SIGINT, KeyboardInterrupt)]
)
def test_signal_within_a_step_ends_it_whole_saves_and_raises_what_its_handler_raises(
    orchestrated: None, number: int, raised: type[BaseException]
) -> None:
    done: list[str] = []
    with pytest.raises(raised):
        stopped_between_steps(endless)(done, kill_once(number))
    assert done[-3:] == ["begun", "ended", "saved"]
    assert done.count("begun") == done.count("ended")


def test_failure_to_save_is_the_cause_of_what_is_raised(orchestrated: None) -> None:
    def training() -> None:
        try:
            endless([], kill_once(signal.SIGTERM))
        except KeyboardInterrupt:
            raise OSError("No space left on device") from None

    with pytest.raises(StoppedByOrchestrator) as raised:
        stopped_between_steps(training)()
    assert isinstance(raised.value.__cause__, OSError)


def test_results_and_failures_come_out_unchanged() -> None:
    assert stopped_between_steps(lambda *, a, b: a + b)(a=1, b=2) == 3

    def fails() -> None:
        raise ValueError("of the training")

    with pytest.raises(ValueError, match="of the training"):
        stopped_between_steps(fails)()


def test_outside_the_main_thread_it_runs_where_it_is_called() -> None:
    names: list[str] = []
    thread = threading.Thread(
        target=stopped_between_steps(lambda: names.append(threading.current_thread().name)), name="caller"
    )
    thread.start()
    thread.join()
    assert names == ["caller"]


def test_steps_of_its_own_context_are_told_and_no_others(orchestrated: None) -> None:
    with pytest.raises(StoppedByOrchestrator):
        stopped_between_steps(endless)([], kill_once(signal.SIGTERM))
    with deferred_interrupt() as raise_if_interrupted:
        raise_if_interrupted()


class Finalized:
    """What sends a signal to this process while Python drops every exception."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_whose_exception_was_lost_ends_the_next_training(
    orchestrated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupt, "RECEIVED", interrupt.SignalRecord())
    interrupt.RECEIVED.begin()
    try:
        assert stopped_between_steps(lambda: 1)() == 1
        Finalized()
        done: list[str] = []
        with pytest.raises(KeyboardInterrupt):
            stopped_between_steps(endless)(done, lambda: None)
        assert done == []
    finally:
        signal.set_wakeup_fd(-1)


def test_a_forked_process_reads_no_signals_of_its_parent() -> None:
    script = (
        "import os, signal; from shunter.engine.loop.interrupt import RECEIVED; RECEIVED.begin();"
        "signal.signal(signal.SIGTERM, lambda number, frame: None); os.kill(os.getpid(), signal.SIGTERM);"
        "child = os.fork() or os._exit(RECEIVED.is_end_requested());"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), RECEIVED.is_end_requested())"
    )
    assert run_python("-c", script).stdout.split() == ["0", "True"]
