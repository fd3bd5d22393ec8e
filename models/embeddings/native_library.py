"""Compiled embedding kernel for processors (`native_kernel.cpp`), loaded by its plain C interface.

It is compiled when the package is installed (`setup.py`), where there is a compiler.
"""

import ctypes
import logging
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

LIBRARY = "_native_kernel"
DONE, BAD_OFFSETS, NO_MEMORY = -1, -2, -3  # what the library's functions return, or the place of an id without a row
log = logging.getLogger(__name__)


class Batch(ctypes.Structure):
    """`Batch` of the library."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("ids", "offsets", "id_weights")),
        *((name, ctypes.c_int64) for name in ("count", "samples")),
        *((name, ctypes.c_int32) for name in ("wide_ids", "wide_offsets")),
    )


class Tables(ctypes.Structure):
    """`Tables` of the library."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "sums", "rows", "widths", "first_number", "first_row")),
        *((name, ctypes.c_void_p) for name in ("first_bag", "l2")),
        *((name, ctypes.c_int64) for name in ("tables", "dim")),
    )


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled kernel; None if it was not built here or does not load."""
    found = [path for end in EXTENSION_SUFFIXES if (path := Path(__file__).with_name(LIBRARY + end)).exists()]
    if not found:
        return None
    try:
        loaded = ctypes.CDLL(str(found[0]))  # after torch, whose OpenMP it uses
        loaded.shunter_look_up.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        loaded.shunter_update.argtypes = (
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64),
            *(ctypes.c_float, ctypes.c_float, ctypes.c_int64),
        )
        loaded.shunter_look_up.restype = loaded.shunter_update.restype = ctypes.c_int64
    except (OSError, AttributeError) as error:
        log.warning("The embedding kernel for processors does not load, so torch's operators take its place: %s", error)
        return None
    return loaded


def check(found: int) -> None:
    """Raise what a function of the library has returned.

    Raises:
        MemoryError: There was no memory.
        ValueError: The offsets do not ascend from 0 to the number of ids.
        IndexError: An id has no row.
    """
    if found == NO_MEMORY:
        raise MemoryError("no memory is left for the gradients of the embedding rows")
    if found == BAD_OFFSETS:
        raise ValueError("the offsets of a batch do not ascend from 0 to the number of its ids")
    if found != DONE:
        raise IndexError(f"the id at place {found} of a batch has no row")
