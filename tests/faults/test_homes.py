"""Homes of any name, read-only and full ones: each works, or is refused at once with one sentence."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shunter.errors import RequestError, StorageError
from shunter.files import check_room
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tracking.reports import log_texts
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import open_store
from tests.engine.synthetic import write_dataset
from tests.faults.household import SHUNTER

TRAIN = ("train", "--data", "synthetic:2000")
SMALL_BYTES = 6 << 20
needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")


@pytest.mark.parametrize("name", ["with spaces", "number #1", "100 % new", "größe", "a;b&c=d", "a:b@c"])
def test_a_home_of_any_other_name_holds_its_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "homes" / name
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    run_id = start_run_tree(TrainRequest(), write_dataset(tmp_path / "data", rows=200))
    log_texts(run_id, {"notes.txt": "words"})
    assert open_store().mlflow.get_run(run_id).info.status == "RUNNING"
    assert [path.name for path in home.rglob("notes.txt")] == ["notes.txt"]
    assert [path.name for path in home.parent.iterdir()] == [name], "nothing is beside the home"
    assert home.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["what?", "50%2f", "%41"])
@pytest.mark.parametrize("variable", ["SHUNTER_HOME", "SHUNTER_TRACKING_DIRECTORY"])
def test_a_name_that_addresses_cannot_hold_is_refused(
    name: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / name))
    with pytest.raises(RequestError):
        Settings()


def test_a_relative_home_is_that_of_the_current_folder_in_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHUNTER_HOME", "home")
    assert Settings().home == tmp_path / "home"
    assert Settings().absolute_paths(os.environ)["SHUNTER_HOME"] == str(tmp_path / "home")


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mount", *options, str(folder)], check=False, capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def run(home: Path, *arguments: str, file_bytes: int | None = None) -> "subprocess.CompletedProcess[str]":
    limited = [] if file_bytes is None else ["prlimit", f"--fsize={file_bytes}"]
    return subprocess.run(
        [*limited, SHUNTER, *arguments],
        env={**os.environ, "SHUNTER_HOME": str(home), "PREFECT_HOME": str(home / "prefect")},
        capture_output=True,
        text=True,
        check=False,
    )


def assert_refused(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == StorageError.exit_code, done.stderr
    assert len(done.stderr.splitlines()) == 1


@needs_mounts
def test_a_read_only_home_is_refused_by_what_writes_and_can_be_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with mounted(home, "-t", "tmpfs", "-o", "ro", "none"):
        for arguments in (TRAIN, ("up",)):
            assert_refused(run(home, *arguments))
        for arguments in (("runs",), ("datasets",)):
            assert run(home, *arguments).returncode == 0


@needs_mounts
def test_a_full_disk_refuses_a_training_at_once_and_what_makes_room_works(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with mounted(home, "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "none"):
        assert_refused(run(home, *TRAIN))
        for arguments in (("runs",), ("down",)):
            done = run(home, *arguments)
            assert done.returncode == 0, done.stderr


def test_a_limit_on_the_size_of_files_refuses_a_training_at_once(tmp_path: Path) -> None:
    assert_refused(run(tmp_path / "home", *TRAIN, file_bytes=SMALL_BYTES))


def test_room_is_looked_for_without_leaving_anything(tmp_path: Path) -> None:
    check_room(tmp_path, SMALL_BYTES)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError):  # noqa: PT011 - more than any disk has
        check_room(tmp_path, 1 << 60)
