"""Memory that is freed and taken again is not asked of the system again."""

import resource
import subprocess
import sys

import pytest
import torch

from shunter.engine.loop.malloc_retention import LARGEST_KEPT_BYTES, malloc_retention

PAGE_BYTES = resource.getpagesize()
ARRAY_BYTES = 24 << 20  # of an array of a step
REPEATS = 8


def _new_pages() -> int:
    """Pages that the system hands out while arrays are filled and freed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(REPEATS):
        arrays = [torch.ones(ARRAY_BYTES // 4) for _ in range(3)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc is of Linux")
def test_arrays_of_a_step_are_taken_from_memory_that_is_kept() -> None:
    assert ARRAY_BYTES < LARGEST_KEPT_BYTES
    with malloc_retention():
        torch.ones(ARRAY_BYTES)
        _new_pages()
        with malloc_retention():
            pass  # as a validation within a training, which gives nothing back
        assert _new_pages() < ARRAY_BYTES // PAGE_BYTES


TRAINING = """
import resource, threading, torch
from shunter.engine.loop.malloc_retention import malloc_retention

def train():
    model = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())))
    samples, pages = torch.ones(65_536, 64), []
    for _ in range(30):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        model(samples).sum().backward()
        pages.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
    print(sum(pages[:10]), sum(pages[10:]))

with malloc_retention():
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc is of Linux")
def test_so_are_those_of_a_training_in_a_thread_of_its_own() -> None:
    """In a process of its own: what else has been freed in this one decides where arrays lie."""
    done = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, check=True)
    first, later = map(int, done.stdout.split())
    assert later < first / 10, "without heaps that are kept about as many again"
