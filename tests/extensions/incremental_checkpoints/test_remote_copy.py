"""Copies of checkpoints elsewhere: what is fetched is what was copied, whatever is slow, fails or is damaged there."""

import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from shunter.checked_json import unseal
from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.errors import RequestError
from shunter.extensions.incremental_checkpoints.remote_copy import RemoteCopy, check_address, remove_copies
from shunter.models.registry import Model
from tests.extensions.incremental_checkpoints.test_changing_tables import fresh, tables_of, touch

IDENTITY = {"data fingerprint": "1", "seed": 0}


class Elsewhere(MemoryFileSystem):
    """An address whose writes wait, and fail while it is said so."""

    protocol = "elsewhere"
    is_open, fails = threading.Event(), False

    def put_file(self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **options: Any) -> None:
        assert self.is_open.wait(60)
        if Elsewhere.fails:
            raise OSError("no route to host")
        self.pipe_file(rpath, Path(lpath).read_bytes())


@pytest.fixture
def elsewhere() -> Iterator[type[Elsewhere]]:
    fsspec.register_implementation("elsewhere", Elsewhere, clobber=True)
    Elsewhere.store.clear()
    Elsewhere.fails = False
    Elsewhere.is_open.set()
    yield Elsewhere
    Elsewhere.is_open.set()


def begun(
    folder: Path, seed: int = 0, copied_to: str = "elsewhere://checkpoints", **identity: Any
) -> tuple[Model, torch.optim.Optimizer, CheckpointDirectory[Model]]:
    model, optimizer = fresh(seed)
    checkpoint_settings = CheckpointSettings(rows="consecutive", copied_to=copied_to)
    kept = CheckpointDirectory(folder, {**IDENTITY, **identity}, checkpoint_settings)
    kept.follow(model)
    kept.fetch()
    return model, optimizer, kept


def steps(
    model: Model, optimizer: torch.optim.Optimizer, kept: CheckpointDirectory[Model], numbers: range
) -> list[list[torch.Tensor]]:
    """The tables after each step."""
    tables = []
    for step in numbers:
        touch(model, kept, [(step, step)])
        kept.write(model, optimizer, {"step": step})
        kept._writer.wait()
        tables.append(tables_of(model))
    return tables


def there() -> set[str]:
    return {Path(name).name for name in Elsewhere.store}


def test_the_same_training_elsewhere_goes_on_from_the_copy(elsewhere: type[Elsewhere], tmp_path: Path) -> None:
    model, optimizer, kept = begun(tmp_path / "here")
    tables = steps(model, optimizer, kept, range(6))
    kept.finish()
    assert kept.figures.copied > 0
    assert kept.figures.copies_failed == 0
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert there() == names - {"checkpoint.json"}, "what no kept state needs has gone"
    again, its_optimizer, reading = begun(tmp_path / "there", 1)
    assert reading.read(again, its_optimizer)["step"] == 5
    assert all(map(torch.equal, tables_of(again), tables[-1]))
    steps(again, its_optimizer, reading, range(6, 8))
    reading.finish()
    assert not begun(tmp_path / "other", seed=1, data="2")[2].exists(), "another training finds none"


def test_a_damaged_copy_is_passed_over_for_the_one_before(
    elsewhere: type[Elsewhere], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer, kept = begun(tmp_path / "here")
    tables = []
    for step in range(3):
        tables += steps(model, optimizer, kept, range(step, step + 1))
        kept.finish()
    newest = max(name for name in Elsewhere.store if "rows-" in name)
    Elsewhere.store[newest].seek(0)
    Elsewhere.store[newest].write(b"damaged")
    with caplog.at_level(logging.WARNING):
        again, its_optimizer, reading = begun(tmp_path / "there", 1)
    assert "is incomplete" in caplog.text
    assert reading.read(again, its_optimizer)["step"] == 1
    assert all(map(torch.equal, tables_of(again), tables[1]))


def test_what_was_half_copied_when_it_was_killed_is_copied_again(elsewhere: type[Elsewhere], tmp_path: Path) -> None:
    model, optimizer, kept = begun(tmp_path / "here")
    steps(model, optimizer, kept, range(3))
    kept.finish()
    base = next(name for name in Elsewhere.store if "rows-000001" in name)
    elsewhere().pipe_file(base, b"half")  # a rows file that all later states are laid upon
    again, its_optimizer, resumed = begun(tmp_path / "here", 1)
    resumed.read(again, its_optimizer)
    tables = steps(again, its_optimizer, resumed, range(3, 5))
    resumed.finish()
    other, other_optimizer, reading = begun(tmp_path / "there", 2)
    assert reading.read(other, other_optimizer)["step"] == 4
    assert all(map(torch.equal, tables_of(other), tables[-1]))


def test_newer_states_of_an_attempt_that_was_given_up_make_room(elsewhere: type[Elsewhere], tmp_path: Path) -> None:
    model, optimizer, kept = begun(tmp_path / "here")
    steps(model, optimizer, kept, range(5))
    kept.finish()
    for name in [name for name in Elsewhere.store if "generation-" in name]:
        elsewhere().pipe_file(name, b"damaged")
    anew, its_optimizer, beginning = begun(tmp_path / "anew", 1)
    assert not beginning.exists()
    tables = steps(anew, its_optimizer, beginning, range(2))
    beginning.finish()
    assert beginning.figures.copies_failed == 0
    other, other_optimizer, reading = begun(tmp_path / "there", 2)
    assert reading.read(other, other_optimizer)["step"] == 1
    assert all(map(torch.equal, tables_of(other), tables[-1]))


@pytest.mark.parametrize("name", ["../written", "/tmp/written-by-a-copy", "a/../../written"])
def test_a_list_that_names_files_elsewhere_is_not_fetched(
    name: str, elsewhere: type[Elsewhere], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer, kept = begun(tmp_path / "a" / "here")
    steps(model, optimizer, kept, range(1))
    kept.finish()
    (listed,) = (one for one in Elsewhere.store if "generation-" in one)
    values = json.loads(unseal(elsewhere().cat_file(listed)))
    values["best"] = {"name": name, "sha256": hashlib.sha256(b"hostile").hexdigest()}
    elsewhere().pipe_file(listed, json.dumps(values).encode())
    for target in {f"{listed.rpartition('/')[0]}/{name}", f"{listed.rpartition('/')[0]}/{name.rpartition('/')[2]}"}:
        elsewhere().pipe_file(target, b"hostile")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    _, _, reading = begun(tmp_path / "b" / "there", 1)
    assert not reading.exists()
    assert "is in another folder" in caplog.text
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_slow_address_holds_nothing_up_and_keeps_what_it_copies(elsewhere: type[Elsewhere], tmp_path: Path) -> None:
    Elsewhere.is_open.clear()
    model, optimizer, kept = begun(tmp_path / "here")
    tables = steps(model, optimizer, kept, range(10))  # the first is on its way all the time
    assert (tmp_path / "here" / "generation-000001.json").exists()
    Elsewhere.is_open.set()
    kept.finish()
    assert kept.figures.copied == 2
    again, its_optimizer, reading = begun(tmp_path / "there", 1)
    assert reading.read(again, its_optimizer)["step"] == 9
    assert all(map(torch.equal, tables_of(again), tables[-1]))


def test_an_address_that_fails_is_said_once_and_tried_again(
    elsewhere: type[Elsewhere], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Elsewhere.fails = True
    model, optimizer, kept = begun(tmp_path / "here")
    for step in range(4):
        steps(model, optimizer, kept, range(step, step + 1))
        assert isinstance(kept._copy, RemoteCopy)
        kept._copy._writer.wait()
    assert caplog.text.count("no route to host") == 1
    Elsewhere.fails = False
    kept.finish()
    assert (kept.figures.copied, kept.figures.copies_failed) == (1, 4)
    again, its_optimizer, reading = begun(tmp_path / "there", 1)
    assert reading.read(again, its_optimizer)["step"] == 3


def test_copies_are_removed(elsewhere: type[Elsewhere], tmp_path: Path) -> None:
    model, optimizer, kept = begun(tmp_path / "here")
    steps(model, optimizer, kept, range(2))
    kept.finish(is_over=True)
    assert there()
    remove_copies("elsewhere://checkpoints")
    assert not there()


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("nowhere://folder", "Checkpoints cannot be copied to nowhere://folder"),
        ("data:text/plain,words", "name an address with permission to write"),
    ],
)
def test_an_address_that_nothing_can_be_written_to_is_refused(address: str, what: str) -> None:
    with pytest.raises(RequestError, match=what):
        check_address(address)


def test_an_address_of_a_folder_is_fine(tmp_path: Path) -> None:
    check_address(f"file://{tmp_path / 'new'}")
    assert not list((tmp_path / "new").iterdir())
