"""Checksums of small JSON files and of blocks of large files: no flipped byte is missed."""

import errno
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.checked_folder import BLOCK_BYTES, MANIFEST, checked_file, seal_folder, verify_folder
from shunter.checked_json import json_object, read_checked, read_or_quarantine, seal, unseal, write_checked
from shunter.errors import DamagedDataError, DamagedFileError
from shunter.quarantine import FOLDER
from tests.faults.damage import DAMAGES, Damage, flip_bytes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=12).filter(lambda name: name != "file_checksum"), VALUES, max_size=6)


@given(OBJECTS, st.sampled_from([None, 1]))
def test_what_is_sealed_is_read_back_and_is_plain_json(values: dict[str, object], indent: int | None) -> None:
    text = seal(json.dumps(values, indent=indent))
    assert json.loads(unseal(text.encode())) == values
    found = json.loads(text)
    del found["file_checksum"]
    assert found == values


@given(OBJECTS)
def test_a_file_of_a_former_version_is_read_as_it_is(values: dict[str, object]) -> None:
    assert json.loads(unseal(json.dumps(values).encode())) == values


@given(OBJECTS, st.data())
def test_no_flipped_bytes_are_missed(values: dict[str, object], data: st.DataObject) -> None:
    content = bytearray(seal(json.dumps(values)).encode())
    first = data.draw(st.integers(0, len(content) - 1))
    for at in range(first, min(first + data.draw(st.integers(1, 4)), len(content))):
        content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError):  # noqa: PT011 - which one depends on the place
        unseal(bytes(content))


@given(OBJECTS, st.data())
def test_no_cut_is_missed(values: dict[str, object], data: st.DataObject) -> None:
    content = seal(json.dumps(values)).encode()
    with pytest.raises(json.JSONDecodeError):
        unseal(content[: data.draw(st.integers(0, len(content) - 1))])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_or_quarantined(damage: Damage, shunter_home: Path) -> None:
    path = shunter_home / "profiles" / "machine.json"
    write_checked(path, json.dumps({"speed": 1.5, "names": ["a", "b"]}))
    damage(path)

    with pytest.raises(DamagedFileError) as caught:
        read_checked(path, json_object)
    assert caught.value.path == path
    assert read_or_quarantine(path, json_object) is None
    assert not path.exists()
    assert len(list((shunter_home / FOLDER / "profiles").iterdir())) == 1
    assert read_or_quarantine(path, json_object) is None  # it is absent now, which is no damage
    assert len(list((shunter_home / FOLDER / "profiles").iterdir())) == 1


def test_what_its_reader_refuses_is_damage(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(DamagedFileError):
        read_checked(tmp_path / "list.json", lambda text: json_object(text)["name"])


@pytest.mark.parametrize("error", [DamagedFileError(Path("a"), "cut"), DamagedDataError("cut", Path("a"))])
def test_errors_of_damage_pass_between_processes(error: DamagedFileError | DamagedDataError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.path) == (type(error), str(error), error.path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "inner").mkdir(parents=True)
    random = np.random.default_rng(0)
    for name, size in (("large", 3 * BLOCK_BYTES + 17), ("exact", BLOCK_BYTES), ("small", 5), ("inner/deep", 900)):
        (made / name).write_bytes(random.bytes(size))
    (made / "nothing").touch()
    seal_folder(made)
    return made


def test_an_undamaged_folder_is_verified(folder: Path) -> None:
    verify_folder(folder)
    (folder / "unknown").touch()
    assert checked_file(folder / "unknown") is None


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["large", "exact", "small", "inner/deep", MANIFEST])
def test_damage_of_any_file_is_found(damage: Damage, name: str, folder: Path) -> None:
    damage(folder / name)
    with pytest.raises(DamagedFileError):
        verify_folder(folder)


def test_a_missing_or_longer_file_is_found(folder: Path) -> None:
    with (folder / "nothing").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DamagedFileError):
        verify_folder(folder)
    (folder / "nothing").unlink()
    with pytest.raises(DamagedFileError) as caught:
        verify_folder(folder)
    assert caught.value.path == folder / "nothing"


def test_no_flipped_byte_of_a_folder_is_missed(folder: Path) -> None:
    random = np.random.default_rng(1)
    paths = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    for _ in range(100):
        path = paths[random.integers(len(paths))]
        first = int(random.integers(path.stat().st_size))
        flip_bytes(path, first, 1)
        with pytest.raises(DamagedFileError):
            verify_folder(folder)
        flip_bytes(path, first, 1)
    verify_folder(folder)


def test_a_block_is_verified_once_and_only_when_it_is_read(folder: Path) -> None:
    flip_bytes(folder / "large", 2 * BLOCK_BYTES + 5, 1)
    found = checked_file(folder / "large")
    assert found is not None
    found.verify_bytes(0, BLOCK_BYTES + 1)
    with pytest.raises(DamagedFileError):
        found.verify_bytes(2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 1)
    flip_bytes(folder / "large", 5, 1)
    found.verify_bytes(0, BLOCK_BYTES)  # as this process has verified it before


def test_a_file_that_was_replaced_is_not_taken_for_the_one_that_is_mapped(folder: Path) -> None:
    found = checked_file(folder / "large")
    assert found is not None
    copy = folder / "copy"
    copy.write_bytes((folder / "large").read_bytes())
    copy.replace(folder / "large")
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is compared
        found.verify()
    assert caught.value.errno == errno.ESTALE
    again = checked_file(folder / "large")
    assert again is not None
    again.verify()
