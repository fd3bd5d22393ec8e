"""What killed processes leave behind is found and removed, and nothing else is."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock
from mlflow import MlflowClient
from typer.testing import CliRunner

from shunter.flows.command.cli import app
from shunter.settings import Settings
from shunter.tracking.leftovers import find_leftovers
from shunter.tracking.registry.client import RegistryClient
from shunter.tracking.runs import start_run
from shunter.tracking.store import tracking_uri

OLD = time.time() - 3 * 86_400


def aged(path: Path) -> Path:
    for one in (*path.rglob("*"), path):
        os.utime(one, (OLD, OLD))
    return path


def written(path: Path, size: int = 1_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


@pytest.fixture
def dead() -> int:
    """Id of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_only_what_is_old_and_nobodys_is_found_and_removed(tracking_root: Path, temporary: Path, dead: int) -> None:
    cache, home = Settings().cache_directory, Settings().home
    (cache / "locks").mkdir(parents=True)
    pending = RegistryClient(MlflowClient(tracking_uri()))
    unfinished = pending.logged_model(start_run("one", "train"), "shunter")
    gone = [
        aged(written(temporary / "shunter-model-abc" / "model" / "model.safetensors", 5_000).parents[1]),
        aged(written(cache / ".0123456789abcdef.building" / "dense.npy").parent),
        aged(written(home / "runs" / "r" / f"model.json.{dead}.tmp")),
        aged(written(cache / f"hashes.{dead}.partial")),
    ]
    kept = [
        written(temporary / "shunter-model-new" / "model.json").parent,  # somebody may be at work on it
        aged(written(temporary / "of somebody else" / "model.json").parent),
        aged(written(cache / ".fedcba9876543210.building" / "dense.npy").parent),  # locked below
        aged(written(home / "runs" / "r" / f"model.json.{os.getpid()}.tmp")),
        aged(written(home / "runs" / "r" / "study.db").parent),
        aged(written(cache / "0123456789abcdef" / "dataset.json").parent),
    ]
    with FileLock(cache / "locks" / "fedcba9876543210.lock"):
        found = find_leftovers()
        assert sorted(leftover.name for leftover in found) == sorted(map(str, gone))
        assert [leftover.size_bytes for leftover in found] == [5_000, 1_000, 1_000, 1_000]
        assert {leftover.name for leftover in find_leftovers(0)} >= {unfinished.model_id}
        for leftover in found:
            leftover.remove()
        assert find_leftovers() == []
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in gone)
    (model,) = (leftover for leftover in find_leftovers(0) if leftover.name == unfinished.model_id)
    model.remove()
    assert unfinished.model_id not in {leftover.name for leftover in find_leftovers(0)}


def test_the_command_lists_before_it_removes(tracking_root: Path, temporary: Path) -> None:
    folder = aged(written(temporary / "shunter-model-abc" / "model.json").parent)
    listed = CliRunner().invoke(app, ["clean"])
    assert "1 leftover," in listed.stdout
    assert "shunter-model-abc" in listed.stdout.replace("\n", "").replace(" ", "")
    assert folder.exists()
    removed = CliRunner().invoke(app, ["clean", "--remove"])
    assert "1 leftover removed" in removed.stdout
    assert not folder.exists()
    assert "There are no leftovers." in CliRunner().invoke(app, ["clean"]).stdout


def test_what_other_processes_remove_meanwhile_is_passed_over(tracking_root: Path, temporary: Path, dead: int) -> None:
    """Another process makes and removes what is looked for all the while."""
    home, over = Settings().home, threading.Event()

    def work() -> None:
        while not over.is_set():
            for folder in (temporary / "shunter-model-abc", home / "cache" / ".0123.building", home / "runs" / "one"):
                written(folder / "deep" / f".weights.{dead}.tmp", 10)
                shutil.rmtree(folder)

    with ThreadPoolExecutor(1) as other:
        working = other.submit(work)
        try:
            found = {one.name for _ in range(200) for one in find_leftovers(0)}
        finally:
            over.set()
        working.result()
    assert found
    assert all(name.startswith((str(temporary), str(home))) for name in found)


def test_what_has_gone_since_it_was_found_needs_no_removal(tracking_root: Path, temporary: Path, dead: int) -> None:
    copy = written(temporary / "shunter-model-abc" / "model.safetensors").parent
    unfinished = written(Settings().home / f".weights.{dead}.tmp")
    found = find_leftovers(0)
    assert {leftover.name for leftover in found} == {str(copy), str(unfinished)}
    shutil.rmtree(copy)
    unfinished.unlink()
    for leftover in found:
        leftover.remove()
