"""The outbox by itself: writes arrive once and in their order, or are set aside with the reason."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shunter.tracking.outbox import Entry, Outbox, StoreAwayError


class Store:
    """Takes writes while it is up; refuses those that say so."""

    def __init__(self) -> None:
        self.is_up = False
        self.taken: list[Entry] = []
        self.patience: int | None = None

    def __call__(self, entry: Entry) -> str | None:
        if not self.is_up or self.patience == 0:
            raise StoreAwayError("away")
        if self.patience is not None:
            self.patience -= 1
        if entry.get("bad"):
            raise ValueError("there is no such run")
        self.taken.append(entry)
        return f"real-{len(self.taken)}" if entry["call"] == "create_run" else None


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.one_of(st.just("write"), st.just("bad"), st.integers(0, 3)), max_size=12))
def test_writes_arrive_once_and_in_order(tmp_path_factory: pytest.TempPathFactory, steps: list[str | int]) -> None:
    """A number is an attempt during which the store takes so many writes before it goes away again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(tmp_path_factory.mktemp("home")))
        outbox, store = Outbox("http://store"), Store()
        expected, refused = [], 0
        for number, step in enumerate(steps):
            if isinstance(step, int):
                store.is_up, store.patience = True, step
                refused += outbox.deliver(store).refused
            else:
                outbox.append({"call": "log_batch", "run_id": "r", "number": number, "bad": step == "bad"})
                expected += [number] if step == "write" else []
        store.is_up, store.patience = True, None
        refused += outbox.deliver(store).refused
        assert [entry["number"] for entry in store.taken] == expected
        assert refused == steps.count("bad")
        assert outbox.is_empty
        assert outbox.waiting() == 0


def test_runs_opened_meanwhile_are_known_by_the_stores_ids_afterwards() -> None:
    outbox, store = Outbox("http://store"), Store()
    outbox.append({"call": "create_run", "run_id": "local-1", "tags": {}})
    outbox.append({"call": "create_run", "run_id": "local-2", "tags": {"mlflow.parentRunId": "local-1"}})
    outbox.append({"call": "log_batch", "run_id": "local-2"})
    assert outbox.real_id("local-1") == "local-1"
    store.is_up = True
    assert outbox.deliver(store).delivered == 3
    assert outbox.real_id("local-1") == "real-1"
    assert [entry.get("tags") for entry in store.taken][1] == {"mlflow.parentRunId": "real-1"}
    assert store.taken[2]["run_id"] == "real-2"
    assert Outbox("http://store").real_id("local-2") == "real-2"  # another process knows it too


def test_refused_writes_are_kept_with_the_reason() -> None:
    outbox, store = Outbox("http://store"), Store()
    outbox.append({"call": "log_batch", "run_id": "gone", "bad": True})
    store.is_up = True
    assert outbox.deliver(store).refused == 1
    kept = json.loads((outbox.directory / "refused.jsonl").read_text())
    assert (kept["because"], kept["run_id"]) == ("there is no such run", "gone")


def test_files_are_kept_until_they_are_delivered(tmp_path: Path) -> None:
    outbox, store = Outbox("http://store"), Store()
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"png")
    outbox.append({"call": "log_artifact", "run_id": "r", "file": outbox.keep_file(picture)})
    picture.unlink()
    store.is_up = True
    seen = []
    outbox.deliver(lambda entry: seen.append((outbox.directory / entry["file"]).read_bytes()))
    assert seen == [b"png"]
    assert not (outbox.directory / "files").exists()


def test_line_that_a_kill_cut_short_is_passed_over() -> None:
    outbox, store = Outbox("http://store"), Store()
    outbox.append({"call": "log_batch", "run_id": "r"})
    with (outbox.directory / "journal.jsonl").open("a") as stream:
        stream.write('{"call": "log_b')
    store.is_up = True
    assert outbox.deliver(store).delivered == 1


def test_stores_do_not_share_an_outbox_and_passwords_are_in_none() -> None:
    first, other = Outbox("http://me:geheim-geheim@one"), Outbox("http://other")
    first.append({"call": "log_batch", "run_id": "r"})
    assert other.is_empty
    assert Outbox("http://me:changed-since@one").waiting() == 1
    assert not [path for path in first.directory.rglob("*") if path.is_file() and b"geheim" in path.read_bytes()]


def test_a_clock_that_was_put_back_delays_no_delivery(shunter_home: Path) -> None:
    outbox = Outbox("http://store")
    outbox.append({"call": "log_batch", "run_id": "r"})
    outbox.deliver(Store())
    attempted = outbox.directory / "attempted"
    assert not outbox.is_due()
    ahead = attempted.stat().st_mtime + 86_400
    os.utime(attempted, (ahead, ahead))
    assert outbox.is_due()
