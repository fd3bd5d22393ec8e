"""What nobody has used for long is found and goes; what a run, a version or the history needs stays."""

import json
import os
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from filelock import FileLock
from mlflow import MlflowClient

from shunter.settings import Settings
from shunter.tasks.retention import find_unused
from shunter.tasks.run_state import DATA, FINISHED
from shunter.tracking.leftovers import DAY_SECONDS
from shunter.tracking.retention import UNUSED_DAYS
from shunter.tracking.runs import INTERRUPTED, finish, open_run, start_run
from shunter.tracking.store import open_store, tracking_uri

LONG_AGO = time.time() - 2 * UNUSED_DAYS * DAY_SECONDS
AGE_SECONDS = UNUSED_DAYS * DAY_SECONDS


@pytest.fixture(autouse=True)
def own_traces(shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep them in the test's own home, unlike those of other tests."""
    monkeypatch.setattr(Settings, "traces_directory", shunter_home / "traces")


def aged(folder: Path) -> Path:
    for one in (*folder.rglob("*"), folder):
        os.utime(one, (LONG_AGO, LONG_AGO))
    return folder


def dataset(name: str) -> Path:
    folder = Settings().cache_directory / name
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_text("{}")
    (folder.parent / "locks").mkdir(exist_ok=True)
    return aged(folder)


def run_folder(name: str, data: str) -> Path:
    folder = Settings().runs_directory / name
    folder.mkdir(parents=True)
    (folder / DATA).write_text(data)
    return folder


def names() -> set[str]:
    return {Path(found.name).name for found in find_unused(AGE_SECONDS)}


@pytest.fixture(autouse=True)
def no_prefect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))


def test_a_data_set_goes_when_nobody_asks_for_it_and_no_run_goes_on_with_it(shunter_home: Path) -> None:
    unused, asked, needed, locked = (dataset(name) for name in ("unused", "asked", "needed", "locked"))
    os.utime(asked)  # as ingestion does
    young = run_folder("young", "needed")
    with FileLock(Settings().cache_directory / "locks" / "locked.lock"):
        found = find_unused(AGE_SECONDS)
    assert [leftover.name for leftover in found] == [str(unused)]
    for leftover in found:
        leftover.remove()
    assert not unused.exists()
    assert all(path.exists() for path in (asked, needed, locked, young))


@pytest.mark.parametrize("status", ["RUNNING", INTERRUPTED])
def test_an_interrupted_run_whose_state_goes_is_ended_in_mlflow(shunter_home: Path, status: str) -> None:
    given_up, complete = (start_run(name, "train") for name in ("given up", "complete"))
    if status == INTERRUPTED:
        finish(given_up, INTERRUPTED)
    finish(complete)
    for name, run_id in (("first", given_up), (f"second{FINISHED}", complete)):
        folder = run_folder(name, "gone")
        (folder / "identity.json").write_text(json.dumps({"parent_run_id": run_id}))
        aged(folder)
    for leftover in find_unused(AGE_SECONDS):
        leftover.remove()
    statuses = [open_store().mlflow.get_run(run_id).info.status for run_id in (given_up, complete)]
    assert statuses == ["KILLED", "FINISHED"]
    assert list(Settings().runs_directory.glob("*/")) == []


def test_a_counted_step_goes_when_nobody_asks_for_it(shunter_home: Path) -> None:
    folder = Settings().traces_directory
    folder.mkdir(parents=True)
    (folder / "unused.json").write_text("{}")
    aged(folder)
    (folder / "asked.json").write_text("{}")
    assert names() == {"unused.json"}


def test_a_temporary_file_beside_counted_steps_is_no_unused_count(shunter_home: Path) -> None:
    folder = Settings().traces_directory
    folder.mkdir(parents=True)
    (folder / "unused.json").write_text("{}")
    (folder / f"unused.json.{os.getpid()}.01234567.tmp").write_text("{")
    aged(folder)
    assert names() == {"unused.json"}


def test_an_interrupted_run_that_nobody_went_on_with_goes_with_its_data(shunter_home: Path) -> None:
    dataset("of the old run")
    aged(run_folder("old", "of the old run"))
    aged(run_folder(f"removed{FINISHED}", "other"))
    aged(run_folder("under way", "other"))
    run_folder("young", "other")
    with FileLock(Settings().runs_directory / "under way.lock"):
        assert names() == {"old", f"removed{FINISHED}", "of the old run"}


def test_samples_and_deleted_runs_of_mlflow_go_and_the_history_stays(tracking_root: Path) -> None:
    old, young, deleted, named = (start_run(name, "train") for name in ("old", "young", "deleted", "named"))
    for run in (old, young, deleted, named):
        open_run(run).log_metrics({"system/cpu": 1.0, "quality.auc": 0.7})
        finish(run)
    client = MlflowClient(tracking_uri())
    client.create_registered_model("shunter")
    client.create_model_version("shunter", "/nowhere", named)
    for run in (deleted, named):
        client.delete_run(run)
    with closing(sqlite3.connect(tracking_root / "mlflow.db")) as tables, tables:
        moment = int(LONG_AGO * 1000)
        tables.execute("UPDATE runs SET end_time = ? WHERE run_uuid != ?", (moment, young))
        tables.execute("UPDATE runs SET deleted_time = ? WHERE lifecycle_stage = 'deleted'", (moment,))
    found = {leftover.name: leftover for leftover in find_unused(AGE_SECONDS)}
    assert set(found) == {"3 rows of runs that are over", "1 run"}
    for leftover in found.values():
        assert leftover.size_bytes >= 0
        leftover.remove()
    assert find_unused(AGE_SECONDS) == []
    with closing(sqlite3.connect(tracking_root / "mlflow.db")) as tables:
        left = tables.execute("SELECT run_uuid FROM metrics WHERE key LIKE 'system/%'").fetchall()
        assert left == [(young,)]
        there = {run for (run,) in tables.execute("SELECT run_uuid FROM runs")}
    assert there == {old, young, named}
    assert open_store().mlflow.get_run(old).data.metrics["quality.auc"] == 0.7


def test_another_store_is_left_to_its_operator(tracking_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert find_unused(AGE_SECONDS) == []


def test_flow_runs_that_are_long_over_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "prefect"
    folder.mkdir()
    now = datetime.now(UTC).replace(tzinfo=None)
    moments = [now - timedelta(days=days) for days in (200, 100, 80)]
    states = ("COMPLETED", "RUNNING", "COMPLETED")
    with closing(sqlite3.connect(folder / "prefect.db")) as tables, tables:
        tables.execute("CREATE TABLE flow_run (id, state_type, parent_task_run_id, end_time)")
        tables.execute("CREATE TABLE log (flow_run_id, message)")
        for number, (state, moment) in enumerate(zip(states, moments, strict=True)):
            tables.execute("INSERT INTO flow_run VALUES (?, ?, NULL, ?)", (number, state, str(moment)))
            tables.execute("INSERT INTO log VALUES (?, ?)", (number, "x" * 100))
    [found] = find_unused(AGE_SECONDS)
    assert (found.name, found.size_bytes) == ("1 run", 100)
    assert found.age_seconds == pytest.approx(200 * DAY_SECONDS, rel=0.01)
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "postgresql://elsewhere")
    assert find_unused(AGE_SECONDS) == []


def test_the_services_know_what_is_used_to_remove_flow_runs() -> None:
    from prefect.server.services.db_vacuum import vacuum_old_flow_runs
    from prefect.settings import PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD

    assert callable(vacuum_old_flow_runs)
    assert PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD.value().days == UNUSED_DAYS
