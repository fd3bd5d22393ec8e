"""`shunter doctor`: every kept file is compared, what can be made again is quarantined, everything else is named."""

import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from shunter.engine.checkpoint.checked_files import write_json
from shunter.flows.command.cli import app
from shunter.quarantine import FOLDER
from shunter.settings import Settings
from shunter.tasks.doctor import Action, Finding, examine
from shunter.tracking.registry.signing import accept_model, digest_of
from shunter.tracking.runs import INTERRUPTED, start_run, status_of
from tests.faults.damage import DAMAGES, Damage, cut, emptied, flip_bytes, flipped, garbage
from tests.faults.homes import RUN, write_home

Home = Callable[[], Path]
MADE_AGAIN = {
    "data sets": "cache/*/train.label.npy",
    "profiles": "profiles/machine.json",
    "traces": "traces/trace.json",
    "operators": "operators/machine.json",
    "plans": "plans/executed.jsonl",
    "interrupted runs": f"runs/{RUN}/decision.json",
    "nights": "nights/shop/days/day.json",
    "services": "services/opened_roots.json",
    "leases": "locks/cpu-0.json",
    "record of the key": "model.key.check",
}
NAMED = {
    "frames": "frames/*/frame.parquet",
    "power limits": "power_limits.json",
    "outbox": "outbox/*/journal.jsonl",
    "model key": "model.key",
    "registered models": "mlflow/artifacts/models/*/artifacts/data/recommender/model/model.json",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, empty_prefect: Path) -> Path:
    home = tmp_path_factory.mktemp("doctor") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        patch.setattr(Settings, "traces_directory", home / "traces")  # not those that all tests share
        write_home(empty_prefect)
    return home


@pytest.fixture
def home(whole: Path, shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PREFECT_HOME", raising=False)
    monkeypatch.setattr(Settings, "traces_directory", shunter_home / "traces")
    shutil.copytree(whole, shunter_home)
    return shunter_home


def damaged(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.fault is not None]


def test_a_whole_home_is_sound_and_every_part_is_compared(home: Path) -> None:
    found = examine()
    assert damaged(found) == []
    assert {one.part for one in found} == {*MADE_AGAIN, *NAMED, "Prefect", "kept key"}
    assert all(one.is_settled and one.action is Action.NONE for one in found)
    assert not (home / FOLDER).exists()


# Every damage of one file, and two of each other: what finds them is the same for all files.
@pytest.mark.parametrize(
    ("part", "damage"),
    [*product(["data sets"], DAMAGES), *product([part for part in MADE_AGAIN if part != "data sets"], [cut, flipped])],
)
def test_what_can_be_made_again_is_quarantined(part: str, damage: Damage, home: Path) -> None:
    (path,) = home.glob(MADE_AGAIN[part])
    damage(path)
    before = sorted(home.rglob("*"))
    (only_told,) = damaged(examine(mends=False))
    assert sorted(home.rglob("*")) == before
    assert (only_told.part, only_told.action, path.exists()) == (part, Action.REPORTED, True)
    assert not only_told.is_settled
    (mended,) = damaged(examine())
    assert (mended.part, mended.action, path.exists()) == (part, Action.QUARANTINED, False)
    assert mended.is_settled
    assert damaged(examine()) == []


@pytest.mark.parametrize(("part", "damage"), [*product(["outbox"], DAMAGES), *product(NAMED, [emptied, flipped])])
def test_what_cannot_be_made_again_is_named_and_left(part: str, damage: Damage, home: Path) -> None:
    (path,) = home.glob(NAMED[part])
    damage(path)
    content = path.read_bytes()
    (found,) = damaged(examine())
    assert (found.part, found.action, path.read_bytes()) == (part, Action.REPORTED, content)
    assert found.advice
    assert not found.is_settled


@pytest.mark.parametrize("damage", [garbage, cut])
def test_a_damaged_database_of_prefect_is_quarantined(damage: Damage, home: Path) -> None:
    damage(home / "prefect" / "prefect.db")
    (found,) = damaged(examine())
    assert (found.part, found.action) == ("Prefect", Action.QUARANTINED)


@pytest.mark.parametrize("name", ["decision.json", "dataset", "members/member-0/model.safetensors"])
def test_a_run_under_way_is_left(name: str, home: Path) -> None:
    path = home / "runs" / RUN / name
    flipped(path)
    with FileLock(home / "runs" / f"{RUN}.lock"):
        (found,) = damaged(examine())
    assert (found.action, path.exists()) == (Action.IN_USE, True)


def test_an_array_without_a_checksum_is_left_alone(home: Path) -> None:
    path = home / "runs" / RUN / "members" / "member-0" / "validation-0.npy"
    np.save(path, np.arange(50, dtype=np.float32))
    content = path.read_bytes()
    assert damaged(examine()) == []
    assert path.read_bytes() == content


def test_a_file_that_a_process_has_open_is_left(home: Path) -> None:
    (path,) = home.glob(MADE_AGAIN["data sets"])
    flipped(path)
    with path.open("rb"):
        (found,) = damaged(examine())
    assert (found.action, path.exists()) == (Action.IN_USE, True)
    (found,) = damaged(examine())
    assert found.action is Action.QUARANTINED


@pytest.mark.parametrize(("folder", "field"), [(f"runs/{RUN}", "parent_run_id"), ("nights/shop/state", "run_id")])
def test_a_killed_run_is_told_and_ended_in_mlflow_until_it_resumes(folder: str, field: str, home: Path) -> None:
    run_id = start_run("killed", "train")
    lock = home / (f"{folder}.lock" if field == "parent_run_id" else "nights/shop/lock")
    (home / folder).mkdir(exist_ok=True)
    write_json(home / folder / "identity.json", json.dumps({field: run_id}))
    with FileLock(lock):
        assert damaged(examine()) == [], "its process lives"
    (told,) = damaged(examine(mends=False))
    assert (told.part, told.path, told.action) == ("killed runs", str(home / folder), Action.REPORTED)
    assert run_id in str(told.fault)
    assert not told.is_settled
    assert status_of(run_id) == "RUNNING"
    (ended,) = damaged(examine())
    assert (ended.action, ended.is_settled) == (Action.ENDED, True)
    assert status_of(run_id) == INTERRUPTED
    assert damaged(examine()) == []
    assert start_run("killed", "train", run_id=run_id) == run_id
    assert status_of(run_id) == "RUNNING"


def test_no_flipped_byte_of_a_home_is_missed(home: Path) -> None:
    random = Random(7)
    skipped = ("data", "prefect")
    files = sorted(path for path in home.rglob("*") if path.is_file() and path.stat().st_size)
    files = [path for path in files if path.relative_to(home).parts[0] not in skipped and path.suffix != ".lock"]
    assert len(files) > 30
    for _ in range(40):
        path = random.choice(files)
        first, count = random.randrange(path.stat().st_size), random.randint(1, 4)
        flip_bytes(path, first, count)
        assert damaged(examine(mends=False)), (path, first, count)
        flip_bytes(path, first, count)
    assert damaged(examine(mends=False)) == []


def test_a_model_without_a_signature_is_named_until_it_is_accepted(home: Path) -> None:
    (signature,) = home.rglob("signed.json")
    signature.unlink()
    (found,) = damaged(examine())
    assert (found.part, found.action) == ("registered models", Action.REPORTED)
    accept_model(digest_of(signature.parent))
    assert damaged(examine()) == []


def test_the_command_says_what_it_did_and_ends_with_its_code(home: Path) -> None:
    run = CliRunner().invoke
    assert run(app, ["doctor"]).exit_code == 0
    (memo,) = home.glob("cache/file-hashes.json")
    flipped(memo)
    assert run(app, ["doctor", "--quiet"]).exit_code == 0
    flipped(home / "profiles" / "machine.json")
    told = run(app, ["doctor", "--check", "--json"])
    assert told.exit_code == 1
    (found,) = [one for one in json.loads(told.stdout) if one["state"] == "damaged"]
    assert (found["part"], found["action"]) == ("profiles", "reported")
    mended = run(app, ["doctor", "--json"])
    assert mended.exit_code == 0
    assert [one["action"] for one in json.loads(mended.stdout) if one["state"] == "damaged"] == ["quarantined"]
    flipped(Settings().model_key_path)
    assert run(app, ["doctor"]).exit_code == 1
