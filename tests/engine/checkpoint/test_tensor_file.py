"""Single tensors of a safetensors file: those that the library itself reads, and errors that name what is wrong."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from shunter.engine.checkpoint.tensor_file import DTYPES, TensorFile
from shunter.errors import CheckpointError


def test_reads_and_maps_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: (100 * torch.rand(3, 1 + number, generator=generator)).to(dtype)
        for number, (name, dtype) in enumerate(DTYPES.items())
    }
    tensors |= {"none": torch.empty(0, 4), "number": torch.tensor(7)}
    save_file(tensors, path, {"said": "besides"})
    with path.open("rb") as file:
        stored = TensorFile(file, path)
        read = {name: stored.read(name) for name in stored.head}
        mapped = {name: stored.mapped(name) for name in stored.head}
    for name, wanted in load_file(path).items():
        for found in (read[name], mapped[name]):
            assert found.dtype == wanted.dtype
            assert torch.equal(found, wanted)
    assert read.keys() == mapped.keys() == tensors.keys()


@pytest.mark.parametrize("kept", [0, 5, 60, -3])
def test_tells_of_a_file_that_is_cut_short(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    save_file({"weight": torch.ones(5, 7)}, path)
    path.write_bytes(path.read_bytes()[:kept])
    with path.open("rb") as file, pytest.raises(CheckpointError, match="holds no safetensors"):
        TensorFile(file, path).read("weight")
    with path.open("rb") as file, pytest.raises(CheckpointError, match="holds no safetensors"):
        TensorFile(file, path).mapped("weight")


@pytest.mark.parametrize("place", [(0, 4 << 50), (-400, -396), (1 << 40, (1 << 40) + 4)], ids=str)
def test_tells_of_a_tensor_that_lies_outside_of_the_file(place: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    first, last = place
    head = json.dumps({"weight": {"dtype": "F32", "shape": [(last - first) // 4], "data_offsets": place}}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(64))
    with path.open("rb") as file:
        stored = TensorFile(file, path)
        for take in (stored.read, stored.mapped):
            with pytest.raises(CheckpointError, match="weight is outside of the file"):
                take("weight")


def test_tells_of_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    save_file({"weight": torch.ones(5, 7)}, path)
    with path.open("rb") as file, pytest.raises(CheckpointError, match="other"):
        TensorFile(file, path).read("other")
