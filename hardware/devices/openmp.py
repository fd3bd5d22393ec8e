"""The threads that OpenMP keeps waiting for the next parallel loop of whoever called it last.

libgomp keeps a team of threads for each thread that has run a parallel loop. As soon as all teams together have more
threads than there are cores, none of them spins while it waits any more: each loop wakes its threads anew, on the core
of the waker as a rule, and a small training step takes three times as long (`gomp_throttled_spin_count_var` of libgomp;
measured by `benchmarks/train_step` as waiting threads that sleep). So a thread that hands work over to another and
waits for it ends its own team first, and one that works beside a training has none.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_HARD = 2  # omp_pause_hard of omp.h: the next parallel loop starts threads anew


def end_waiting_threads() -> None:
    """End the OpenMP threads that wait for this thread; its next parallel loop starts others.

    Nothing happens where no libgomp is loaded, or one without this function of OpenMP 5.
    """
    for path in _loaded_libraries():
        with suppress(OSError, AttributeError):
            ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LOCAL).omp_pause_resource_all(_HARD)


def work_without_team() -> None:
    """From now on this thread does torch's parallel loops alone, so that the team of the thread it works for may spin.

    Those of MKL (large matrix products, `exp`) are told how many threads to take, and would begin a team still.
    """
    import torch

    torch.get_num_threads()  # the first question of a thread sets the number for it, which would undo this
    for path in _loaded_libraries():
        with suppress(OSError, AttributeError):
            ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LOCAL).omp_set_num_threads(1)


def _loaded_libraries() -> set[str]:
    """Files of the OpenMP libraries in this process; a compiler's may stand beside that of torch."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return set()
    return {line.split(maxsplit=5)[-1] for line in lines if "libgomp" in line}
