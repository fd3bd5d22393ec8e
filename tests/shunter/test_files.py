"""What Shunter makes is for its owner alone, whatever the umask says."""

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shunter.files import begin_private, open_regular, replace_file, replacing
from shunter.flows.command.environment import ensure_home
from shunter.settings import Settings
from shunter.tracking.store import open_store


@pytest.fixture(autouse=True)
def lavish_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_and_its_databases_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "deep" / "home"
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    monkeypatch.setenv("PREFECT_HOME", str(home / "prefect"))
    ensure_home()
    open_store()
    assert {path.name: mode(path) for path in (home, home / "prefect", home / "mlflow")} == {
        "home": 0o700,
        "prefect": 0o700,
        "mlflow": 0o700,
    }
    assert mode(home / "prefect" / "prefect.db") == mode(Settings().tracking_root / "mlflow.db") == 0o600


def test_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_text("kept")
    path.chmod(0o644)
    begin_private(path)
    assert (path.read_text(), mode(path)) == ("kept", 0o644)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it is a folder"):
        open_regular(tmp_path)


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_file_is_replaced_with_its_folder_and_nothing_is_left_beside_it(tmp_path: Path, is_durable: bool) -> None:
    path = tmp_path / "deep" / "file.json"
    replace_file(path, "old", is_durable=is_durable)
    replace_file(path, b"new", is_durable=is_durable)
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_a_replacement_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    replace_file(path, "old")
    with pytest.raises(FileNotFoundError), replacing(path) as temporary:
        temporary.with_name("absent").read_text()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_threads_that_replace_one_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "file.json"

    def write(content: str) -> None:
        for _ in range(50):
            replace_file(path, content)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, ("a" * 10_000, "b" * 10_000, "c" * 10_000, "d" * 10_000)))
    assert len(path.read_text()) == 10_000
    assert len(set(path.read_text())) == 1
