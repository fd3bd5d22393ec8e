"""Control of the OpenMP worker threads that wait for the next parallel loop of the thread that created them.

libgomp keeps a team of threads for each thread that has run a parallel loop. If all teams together have more threads
than there are cores, waiting threads no longer spin. Each loop then wakes its threads again, usually on the waker's
core, and a small training step takes three times as long (`gomp_throttled_spin_count_var` of libgomp;
`benchmarks/train_step` measures sleeping threads). A thread that hands work to another thread and waits for it
therefore ends its own team first. A thread that works beside a training run has no team.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_HARD = 2  # omp_pause_hard of omp.h: the next parallel loop starts new threads


def end_waiting_threads() -> None:
    """End the OpenMP worker threads of this thread; its next parallel loop starts new ones.

    Nothing happens if no libgomp is loaded, or if it lacks this function of OpenMP 5.
    """
    for path in _loaded_libraries():
        with suppress(OSError, AttributeError):
            ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LOCAL).omp_pause_resource_all(_HARD)


def work_without_team() -> None:
    """Run this thread's torch loops on one thread from now on, so that the training thread's team keeps spinning.

    MKL's loops (large matrix products, `exp`) get an explicit thread count and would still start a team.
    """
    import torch

    torch.get_num_threads()  # a thread's first call sets its thread count and would undo the line below
    for path in _loaded_libraries():
        with suppress(OSError, AttributeError):
            ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LOCAL).omp_set_num_threads(1)


def _loaded_libraries() -> set[str]:
    """Return the paths of the libgomp libraries in this process; a compiler's copy can be loaded beside torch's."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return set()
    return {line.split(maxsplit=5)[-1] for line in lines if "libgomp" in line}
