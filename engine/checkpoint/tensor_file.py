"""Single tensors of a safetensors file, read into memory or memory-mapped.

The safetensors library maps the whole file as private writable memory. A limit on the memory of a process
(`RLIMIT_DATA`) counts all of it, though hardly any is used. This module maps tables read-only, which no such limit
counts, and reads all other tensors.
"""

import io
import mmap
import os
import warnings
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shunter.checked_json import parse_json
from shunter.errors import CheckpointError

LARGEST_HEAD_BYTES = 100 << 20  # limit of the safetensors library
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class TensorFile:
    """Tensors of an open safetensors file.

    Args:
        file: File whose checksum has been compared; a mapping outlives the open file.
        path: Name of the file, for errors.

    Attributes:
        head: Header entry of each tensor, with the position of its first byte in the file as `start`.

    Raises:
        CheckpointError: The file has no valid header.
    """

    def __init__(self, file: io.BufferedReader, path: Path) -> None:
        self._file, self._path = file, path
        file.seek(0)
        try:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= LARGEST_HEAD_BYTES:
                raise ValueError("its header has no length")
            head: dict[str, Any] = parse_json(file.read(length))
            self.head: dict[str, dict[str, Any]] = {
                name: {**one, "start": 8 + length + int(one["data_offsets"][0])}
                for name, one in head.items()
                if name != "__metadata__"
            }
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise self._damaged(error) from error

    def read(self, name: str) -> Tensor:
        """Return a tensor of the file, copied into memory of its own.

        Raises:
            CheckpointError: The file does not hold the tensor.
        """
        dtype, shape, size, start = self._place(name)
        content = bytearray(size)
        self._file.seek(start)
        if self._file.readinto(content) != size:
            raise self._damaged(f"it ends within {name}")
        return _tensor(content, dtype, shape, 0)

    def mapped(self, name: str) -> Tensor:
        """Return a read-only tensor mapped from the file; a tensor with an unsuitable alignment is read into memory.

        Raises:
            CheckpointError: The file does not hold the tensor.
        """
        dtype, shape, size, start = self._place(name)
        if not size:
            return torch.empty(shape, dtype=dtype)
        if start % dtype.itemsize:
            return self.read(name)
        first = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        try:
            content = mmap.mmap(self._file.fileno(), start - first + size, prot=mmap.PROT_READ, offset=first)
        except ValueError as error:  # the file is shorter
            raise self._damaged(error) from error
        return _tensor(content, dtype, shape, start - first)

    def _place(self, name: str) -> tuple[torch.dtype, list[int], int, int]:
        """Return type, shape, size in bytes and position in bytes of a tensor."""
        try:
            one = self.head[name]
            dtype, shape = DTYPES[one["dtype"]], [int(size) for size in one["shape"]]
            size, start = prod(shape) * dtype.itemsize, int(one["start"])
            if min(shape, default=0) < 0 or size != int(one["data_offsets"][1]) - int(one["data_offsets"][0]):
                raise ValueError(f"the size of {name} does not match its shape")
            if start < 0 or start + size > os.fstat(self._file.fileno()).st_size:  # before memory is allocated
                raise ValueError(f"{name} is outside of the file")
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise self._damaged(error) from error
        return dtype, shape, size, start

    def _damaged(self, reason: object) -> CheckpointError:
        return CheckpointError(f"The file {self._path} holds no safetensors ({reason}): restore it or start anew.")


def _tensor(content: bytearray | mmap.mmap, dtype: torch.dtype, shape: list[int], offset: int) -> Tensor:
    if not prod(shape):
        return torch.empty(shape, dtype=dtype)
    with warnings.catch_warnings():  # torch has no read-only tensors; no code writes to this tensor
        warnings.simplefilter("ignore")
        return torch.frombuffer(content, dtype=dtype, count=prod(shape), offset=offset).view(shape)
