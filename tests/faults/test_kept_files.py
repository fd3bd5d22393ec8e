"""Damage in what a home keeps beside data: state of runs, key of models, databases, services, the outbox."""

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from shunter.database import fault_of
from shunter.engine.checkpoint.checked_files import read_json, write_json
from shunter.engine.data.arrays import fault_of_result, read_result, write_result
from shunter.errors import CheckpointError, DamagedFileError, ShunterError, TrackingError
from shunter.flows.command.environment import ensure_home
from shunter.hardware.devices import power_limit
from shunter.quarantine import FOLDER
from shunter.settings import Settings
from shunter.tasks.run_state import StateFolder
from shunter.tracking.outbox import Outbox
from shunter.tracking.registry.model_keys import check_model_key
from shunter.tracking.registry.signing import sign_folder
from tests.faults.damage import DAMAGES, Damage, cut, flip_bytes, garbage


class Kept(BaseModel):
    """A value that a run remembers."""

    number: int


def quarantined(home: Path, part: str) -> int:
    """How many files of a part lie in the quarantine."""
    return sum(1 for path in (home / FOLDER / part).rglob("*") if path.is_file())


@pytest.fixture
def state(shunter_home: Path) -> StateFolder:
    return StateFolder(shunter_home / "runs" / "some", "training")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_state_counts_as_absent_and_is_quarantined(
    damage: Damage, state: StateFolder, shunter_home: Path
) -> None:
    with state:
        state.remember("decision", Kept(number=3))
        damage(state.directory / "decision.json")
        assert state.recall("decision", Kept) is None
        assert quarantined(shunter_home, "runs") == 1
        state.remember("decision", Kept(number=4))
        assert state.recall("decision", Kept) == Kept(number=4)


def test_state_of_another_version_is_absent_but_not_damaged(state: StateFolder, shunter_home: Path) -> None:
    with state:
        write_json(state.directory / "decision.json", json.dumps({"figure": 3}))
        assert state.recall("decision", Kept) is None
        assert quarantined(shunter_home, "runs") == 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_repeats_only_what_belongs_to_the_damaged_file(
    damage: Damage, state: StateFolder, shunter_home: Path
) -> None:
    trained: list[str] = []

    def train() -> list[int]:
        for name in ("one", "two"):
            folder = state.directory / "members" / name
            if not (folder / "trained.json").exists():
                trained.append(name)
                folder.mkdir(parents=True)
                write_json(folder / "trained.json", json.dumps({"number": len(trained)}))
        return [read_json(state.directory / "members" / name / "trained.json")["number"] for name in ("one", "two")]

    with state:
        assert state.recovering(train) == [1, 2]
        damage(state.directory / "members" / "two" / "trained.json")
        assert state.recovering(train) == [1, 3]
    assert trained == ["one", "two", "two"]
    assert quarantined(shunter_home, "runs") == 1


def test_damage_elsewhere_ends_a_run(state: StateFolder, tmp_path: Path) -> None:
    def fail() -> None:
        raise CheckpointError("wrapped") from DamagedFileError(tmp_path / "model.json", "cut")

    with state, pytest.raises(CheckpointError, match="wrapped"):
        state.recovering(fail)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_computed_again(damage: Damage, shunter_home: Path) -> None:
    path = shunter_home / "runs" / "scores.npy"
    path.parent.mkdir(parents=True)
    write_result(path, np.arange(100, dtype=np.float32))
    assert np.array_equal(np.load(path), np.arange(100))
    found = read_result(path)
    assert found is not None
    assert np.array_equal(found, np.arange(100))
    damage(path)
    assert read_result(path) is None
    assert quarantined(shunter_home, "runs") == 1
    np.save(path, np.arange(3))  # as a former version kept it: computed again, but not damaged
    assert read_result(path) is None
    assert fault_of_result(path) is None
    assert quarantined(shunter_home, "runs") == 1


@pytest.fixture
def key(tmp_path: Path, shunter_home: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file.json").write_text("{}")
    sign_folder(tmp_path / "data")
    return Settings().model_key_path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_key_is_named_before_a_training(damage: Damage, key: Path, tmp_path: Path) -> None:
    check_model_key()
    damage(key)
    with pytest.raises(TrackingError, match=str(key)):
        check_model_key()
    with pytest.raises(TrackingError, match=str(key)):
        sign_folder(tmp_path / "data")


def test_a_removed_key_is_made_anew(key: Path, tmp_path: Path) -> None:
    key.unlink()
    check_model_key()
    sign_folder(tmp_path / "data")
    check_model_key()


def test_a_key_of_a_former_version_gets_its_record_when_it_signs(key: Path, tmp_path: Path) -> None:
    record = key.with_name("model.key.check")
    record.unlink()
    check_model_key()
    sign_folder(tmp_path / "data")
    assert record.exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_of_a_key_is_made_again(damage: Damage, key: Path, tmp_path: Path, shunter_home: Path) -> None:
    damage(key.with_name("model.key.check"))
    sign_folder(tmp_path / "data")
    check_model_key()
    assert len(list((shunter_home / FOLDER).glob("model.key.check.*"))) == 1


@pytest.fixture
def prefect(shunter_home: Path, empty_prefect: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prefect's database in the home, with tables."""
    monkeypatch.setenv("PREFECT_HOME", str(shunter_home / "prefect"))
    (shunter_home / "prefect").mkdir(parents=True)
    database = shunter_home / "prefect" / "prefect.db"
    database.write_bytes(empty_prefect.read_bytes())
    return database


@pytest.mark.parametrize("damage", [garbage, cut])
def test_a_damaged_database_of_prefect_is_begun_anew(damage: Damage, prefect: Path, shunter_home: Path) -> None:
    damage(prefect)
    assert fault_of(prefect) is not None
    ensure_home()
    assert fault_of(prefect) is None
    assert quarantined(shunter_home, "prefect") == 1
    ensure_home()
    assert quarantined(shunter_home, "prefect") == 1


def test_a_damaged_database_that_is_open_is_left(prefect: Path) -> None:
    content = garbage(prefect) or prefect.read_bytes()
    with sqlite3.connect(prefect) as tables:
        with pytest.raises(sqlite3.DatabaseError):
            tables.execute("SELECT 1 FROM sqlite_master")
        with pytest.raises(ShunterError, match="in use"):
            ensure_home()
    tables.close()
    assert prefect.read_bytes() == content
    ensure_home()
    assert fault_of(prefect) is None


def test_a_busy_database_is_no_damaged_one(prefect: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.database.BUSY_SECONDS", 0.1)
    tables = sqlite3.connect(prefect, isolation_level=None)
    tables.execute("PRAGMA locking_mode = EXCLUSIVE")
    tables.execute("BEGIN EXCLUSIVE")
    assert fault_of(prefect) is None
    tables.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_of_power_limits_is_named(
    damage: Damage, shunter_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = power_limit.default_record()
    power_limit._write(record, {"gpu": {"watts": 300.0, "pid": 1, "mark": "gone"}})
    assert power_limit._entries(record)["gpu"]["watts"] == 300
    damage(record)
    assert power_limit._entries(record) == {}
    assert len([line for line in caplog.records if line.name == power_limit.log.name]) == 1


@pytest.mark.parametrize("name", ["runs.json", "delivered"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_of_the_outbox_delivers_all_again(damage: Damage, name: str, shunter_home: Path) -> None:
    outbox, taken = Outbox("http://store"), []
    for call in ("create_run", "log_batch", "log_text"):
        outbox.append({"call": call, "run_id": "local-1"})

    def deliver(entry: dict[str, object]) -> str | None:
        taken.append((entry["call"], entry["run_id"]))
        if entry["call"] == "log_text" and len(taken) <= 3:
            from shunter.tracking.outbox import StoreAwayError

            raise StoreAwayError("away")
        return "real-1" if entry["call"] == "create_run" else None

    assert outbox.deliver(deliver).waiting == 1
    damage(outbox.directory / name)
    assert Outbox("http://store").deliver(deliver).waiting == 0
    assert [call for call, _ in taken[3:]] == ["create_run", "log_batch", "log_text"]
    assert taken[4:] == [("log_batch", "real-1"), ("log_text", "real-1")]
    assert quarantined(shunter_home, "outbox") == 1


def test_a_flipped_byte_of_a_write_is_set_aside(shunter_home: Path) -> None:
    outbox, taken = Outbox("http://store"), []
    for number in range(3):
        outbox.append({"call": "log_batch", "run_id": "r", "value": number})
    journal = outbox.directory / "journal.jsonl"
    flip_bytes(journal, journal.read_bytes().index(b'"value": 1') + 9, 1)
    done = outbox.deliver(lambda entry: taken.append(entry["value"]))
    assert (done.delivered, done.refused, taken) == (2, 1, [0, 2])
