"""The outbox over a real SQLite store of MLflow: torn lines, full disks and answers that are lost change nothing."""

import json
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from shunter.errors import TrackingError
from shunter.tracking.client import TrackingClient
from shunter.tracking.outbox import MOST_FAILURES, Outbox
from shunter.tracking.store import experiment_id, open_store, tracking_uri

WRITES = ("create_run", "log_batch", "log_text", "log_artifact", "log_inputs", "set_terminated")


class Faulty:
    """MLflow's own client, whose writes fail as told; reads always answer unless it is away."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self.is_away = False
        self.before: Callable[[str], bool] = lambda _: False
        self.after: Callable[[str], bool] = lambda _: False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if not callable(call):
            return call

        def attempt(*args: Any, **options: Any) -> Any:
            if self.is_away or (name in WRITES and self.before(name)):
                raise MlflowException("injected")
            answer = call(*args, **options)
            if name in WRITES and self.after(name):
                raise MlflowException("the answer is lost")
            return answer

        return attempt


@pytest.fixture
def client(tracking_root: Path, monkeypatch: pytest.MonkeyPatch) -> TrackingClient:
    open_store()
    monkeypatch.setattr("shunter.tracking.outbox.RETRY_SECONDS", 0.0)
    client = TrackingClient(tracking_uri(), experiment_id)
    client.mlflow = Faulty(client.mlflow)  # type: ignore[assignment]
    return client


def faulty(client: TrackingClient) -> Faulty:
    assert isinstance(client.mlflow, Faulty)
    return client.mlflow


def journal() -> Path:
    return Outbox(tracking_uri()).directory / "journal.jsonl"


def write_a_tree(client: TrackingClient) -> None:
    parent = client.create_run("parent", {"run.kind": "parent"})
    for number in range(3):
        child = client.create_run(f"member-{number}", {"mlflow.parentRunId": parent})
        client.log_metrics(child, [("loss", 1.0 - step / 10, 1_000 + step, step) for step in range(4)])
        client.log_params(child, {"number": str(number)})
        client.log_text(child, f"text {number}", "note.txt")
        client.set_terminated(child, "FINISHED")
    client.set_terminated(parent, "FINISHED")


def check_the_tree() -> None:
    """Everything is there once."""
    client = MlflowClient(tracking_uri())
    found = client.search_runs(["1"])
    runs = {str(run.info.run_name): run for run in found}
    assert sorted(runs) == ["member-0", "member-1", "member-2", "parent"]
    assert len(found) == len(runs)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    for number in range(3):
        run = runs[f"member-{number}"]
        assert run.data.tags["mlflow.parentRunId"] == runs["parent"].info.run_id
        assert run.data.params == {"number": str(number)}
        history = client.get_metric_history(run.info.run_id, "loss")
        assert sorted((point.step, point.value) for point in history) == [(step, 1.0 - step / 10) for step in range(4)]
        path = Path(client.download_artifacts(run.info.run_id, "note.txt"))
        assert path.read_text() == f"text {number}"


def deliver(client: TrackingClient) -> int:
    for _ in range(400):
        if client.deliver().waiting == 0:
            return 0
    return client.deliver().waiting


def test_answers_that_are_lost_deliver_nothing_twice(client: TrackingClient) -> None:
    """The store has each write and says that it failed, two times of three."""
    asked: list[str] = []

    def lost(name: str) -> bool:
        asked.append(name)
        return len(asked) % 3 != 0

    faulty(client).after = lost
    write_a_tree(client)
    assert deliver(client) == 0
    check_the_tree()


def test_writes_that_fail_while_reads_answer_wait(client: TrackingClient, capsys: pytest.CaptureFixture[str]) -> None:
    faulty(client).before = lambda _: True
    write_a_tree(client)
    for _ in range(3 * MOST_FAILURES):  # however long
        assert client.deliver().refused == 0
    assert "failed to take an entry" in capsys.readouterr().err
    faulty(client).before = lambda _: False
    assert deliver(client) == 0
    check_the_tree()


def test_a_write_that_alone_fails_for_ever_is_set_aside(client: TrackingClient) -> None:
    faulty(client).before = lambda name: name == "log_text"
    run = client.create_run("one", {})
    client.log_text(run, "poison", "note.txt")
    client.set_terminated(run, "FINISHED")
    assert deliver(client) == 0
    assert json.loads((journal().parent / "refused.jsonl").read_text())["text"] == "poison"
    (found,) = MlflowClient(tracking_uri()).search_runs(["1"])
    assert found.info.status == "FINISHED"


@pytest.mark.parametrize("torn", [b'{"call": "log_b', b"\x00" * 40, b"\xff\xfe{", b"[1]", b'"text"'])
def test_a_torn_line_is_set_aside_and_the_rest_is_delivered(client: TrackingClient, torn: bytes) -> None:
    """The power is cut in the middle of a line; what comes after the next start is written behind it."""
    faulty(client).is_away = True
    run = client.create_run("one", {})
    with journal().open("ab") as stream:
        stream.write(torn)
    client.log_params(run, {"after": "1"})
    client.set_terminated(run, "FINISHED")
    with journal().open("ab") as stream:
        stream.write(torn)
    faulty(client).is_away = False
    done = client.deliver()
    assert (done.refused, done.waiting) == (1, 0)
    assert "the line is damaged" in (journal().parent / "refused.jsonl").read_text()
    (found,) = MlflowClient(tracking_uri()).search_runs(["1"])
    assert (found.info.status, found.data.params) == ("FINISHED", {"after": "1"})


@pytest.mark.parametrize("lost", ["", "x", "{", "3.5", '{"journal": "other", "position": 9, "failures": 0}'])
def test_a_damaged_note_of_what_is_delivered_repeats_and_doubles_nothing(client: TrackingClient, lost: str) -> None:
    faulty(client).is_away = True
    write_a_tree(client)
    taken: list[str] = []

    def stop(name: str) -> bool:
        taken.append(name)
        return len(taken) > 7

    faulty(client).is_away = False
    faulty(client).before = stop
    client.deliver()
    (journal().parent / "delivered").write_text(lost)
    faulty(client).before = lambda _: False
    assert deliver(client) == 0
    check_the_tree()


def test_a_kill_before_the_note_is_removed_does_not_pass_over_what_comes_next(client: TrackingClient) -> None:
    faulty(client).is_away = True
    run = client.create_run("one", {})
    note = json.dumps({"journal": "0" * 16, "position": 1, "failures": 0})
    (journal().parent / "delivered").write_text(note)  # of a journal that is delivered and gone
    client.set_terminated(run, "FINISHED")
    faulty(client).is_away = False
    assert client.deliver().delivered == 2


@pytest.fixture
def full_disk(tracking_root: Path) -> Iterator[Callable[[int | None], None]]:
    """What a full disk is to a file: it may not grow above so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, before if most is None else (most, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_whole_lines(client: TrackingClient, full_disk: Callable[[int | None], None]) -> None:
    faulty(client).is_away = True
    run = client.create_run("one", {})
    size = journal().stat().st_size
    full_disk(size + 20)
    with pytest.raises(TrackingError, match="free some space"):
        client.log_params(run, {"lost": "x" * 100})
    assert journal().stat().st_size == size
    full_disk(None)
    client.set_terminated(run, "FINISHED")
    faulty(client).is_away = False
    done = client.deliver()
    assert (done.delivered, done.refused, done.waiting) == (2, 0, 0)


def test_a_full_disk_during_the_delivery_delays_it(
    client: TrackingClient, full_disk: Callable[[int | None], None]
) -> None:
    faulty(client).is_away = True
    write_a_tree(client)
    faulty(client).is_away = False
    full_disk(0)
    assert client.deliver().waiting > 0
    full_disk(None)
    assert deliver(client) == 0
    check_the_tree()
