"""The kernels of `kernels.cpp`, loaded by their plain C interface.

They are compiled when the package is installed (`setup.py`), where there is a compiler.
"""

import ctypes
import logging
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

LIBRARY = "_kernels"
DONE, BAD_OFFSETS, NO_MEMORY = -1, -2, -3  # what the library's functions return, or the place of an id without a row
# Arguments of the library's functions: p(ointer), i(nteger of 64 bits), f(loat).
FUNCTIONS = {
    "shunter_look_up": "pppi",
    "shunter_update": "pppiffi",
    "shunter_pair": "piiipi",
    "shunter_pair_backward": "piiipipi",
}
TYPES: dict[str, Any] = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "f": ctypes.c_float}
log = logging.getLogger(__name__)


class Batch(ctypes.Structure):
    """Struct `Batch` of kernels.cpp: pointers to ids, offsets and weights of a batch, and their sizes."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("ids", "offsets", "id_weights")),
        *((name, ctypes.c_int64) for name in ("count", "samples")),
        *((name, ctypes.c_int32) for name in ("wide_ids", "wide_offsets")),
    )


class Tables(ctypes.Structure):
    """Struct `Tables` of kernels.cpp: pointers to the embedding tables and their sizes."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "sums", "rows", "widths", "first_number", "first_row")),
        *((name, ctypes.c_void_p) for name in ("first_bag", "l2")),
        *((name, ctypes.c_int64) for name in ("tables", "dim")),
    )


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled kernels; None if they were not built on this machine or do not load."""
    found = [path for end in EXTENSION_SUFFIXES if (path := Path(__file__).with_name(LIBRARY + end)).exists()]
    if not found:
        return None
    import torch  # noqa: F401 - its OpenMP is that of the kernels

    try:
        loaded = ctypes.CDLL(str(found[0]))
        for name, arguments in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = [TYPES[one] for one in arguments], ctypes.c_int64
    except (OSError, AttributeError) as error:
        log.warning("The compiled kernels do not load, so torch's operators take their place: %s", error)
        return None
    return loaded


def check(found: int) -> None:
    """Raise the error that a function of the compiled library has returned as a code.

    Raises:
        MemoryError: Not enough memory.
        ValueError: The offsets do not ascend from 0 to the number of ids.
        IndexError: An id has no row.
    """
    if found == NO_MEMORY:
        raise MemoryError("There is not enough memory for the gradients of the embedding rows: use a smaller batch")
    if found == BAD_OFFSETS:
        raise ValueError("the offsets of a batch must ascend from 0 to the number of its ids")
    if found != DONE:
        raise IndexError(f"the id at position {found} of a batch has no row in the embedding table")
