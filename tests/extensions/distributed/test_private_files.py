"""Files that are unpickled come from folders in which nobody else can write."""

from pathlib import Path

import pytest

from shunter.errors import TrainingError
from shunter.extensions.distributed.private_files import read_private, write_private


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    path.mkdir(mode=0o700)
    return path


def test_a_value_comes_back(folder: Path) -> None:
    write_private({"a": (1, 2.0)}, folder / "value")
    assert read_private(folder / "value") == {"a": (1, 2.0)}
    assert (folder / "value").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755])
def test_a_folder_that_others_can_open_is_refused(folder: Path, mode: int) -> None:
    write_private(1, folder / "value")
    folder.chmod(mode)
    with pytest.raises(TrainingError, match="other users could change"):
        read_private(folder / "value")
    with pytest.raises(TrainingError, match="other users could change"):
        write_private(2, folder / "other")


def test_a_file_that_others_can_write_or_own_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "value"
    write_private(1, path)
    path.chmod(0o602)
    with pytest.raises(TrainingError, match="other users could change"):
        read_private(path)
    path.chmod(0o600)
    monkeypatch.setattr("os.geteuid", lambda: 12_345)
    with pytest.raises(TrainingError, match="belongs to user"):
        read_private(path)


def test_no_link_is_followed_and_no_file_overwritten(folder: Path, tmp_path: Path) -> None:
    write_private(1, folder / "value")
    (folder / "link").symlink_to(folder / "value")
    with pytest.raises(OSError, match="link"):
        read_private(folder / "link")
    with pytest.raises(FileExistsError):
        write_private(2, folder / "value")
