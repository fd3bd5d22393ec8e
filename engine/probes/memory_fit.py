"""The largest batch that fits into memory, found by trying: each trial is a process of its own, which may die of it.

No formula knows what an allocator wastes and what a library keeps. A trial that runs out of memory, or is killed by the
kernel for it, is an answer and never an accident: the process that asks goes on.
"""

import importlib
import multiprocessing
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from engine.config import Execution, Hyperparameters
from engine.data.dataset import Dataset
from engine.probes.steps import time_steps
from models.embeddings.pooled import choose_kernel
from models.spec import ModelSpec
from shunter.errors import HardwareError, ShunterError

LARGEST_BATCH = 1 << 20
# How a process ends that the kernel, or its own allocator, has stopped for want of memory.
OUT_OF_MEMORY_SIGNALS = frozenset((signal.SIGKILL, signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV))
TRIAL_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One batch size that was tried.

    Attributes:
        batch_size: samples a step.
        peak_memory_bytes: most memory used, of the process or the device; None when it did not suffice.
    """

    batch_size: int
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class MemoryFit:
    """What was found.

    Attributes:
        batch_size: the largest that fits, 0 when not even one sample does.
        trials: in the order in which they were made.
    """

    batch_size: int
    trials: tuple[Trial, ...]


class _Training(NamedTuple):
    """What is trained, in the order in which `time_steps` takes it."""

    spec: ModelSpec
    hyperparameters: Hyperparameters
    execution: Execution


def process_bytes() -> int:
    """Memory of this process with the libraries that a training loads at its first step: what the rest comes on top of.

    They are loaded here, so that they count once and for all: the embedding kernel, torch's compiler, which every
    optimiser brings in, and the writer of checkpoints.
    """
    choose_kernel("auto", torch.device("cpu"))
    for library in ("torch._dynamo", "safetensors.torch"):
        importlib.import_module(library)
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> int:
    """A figure of this process from the kernel; the peak of its memory where the kernel does not tell."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split(f"{name}:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fit_batch(
    dataset: Dataset,
    spec: ModelSpec,
    hyperparameters: Hyperparameters,
    execution: Execution,
    *,
    limit_bytes: int,
    largest: int | None = None,
    tolerance: float = 0.125,
) -> MemoryFit:
    """Find the largest batch whose training keeps within a limit, by doubling and then halving the gap.

    Args:
        dataset: the data; a batch is never larger than its training part.
        spec: the architecture.
        hyperparameters: which optimiser keeps how much state.
        execution: where; its batch size is tried first.
        limit_bytes: memory of the process for a CPU, of the device for a GPU.
        largest: batch size beyond which nothing is tried.
        tolerance: share of the batch size to which the boundary is found.

    Raises:
        RequestError: the model cannot be built at all.
        HardwareError: a trial failed, and not for want of memory.
    """
    trials: list[Trial] = []

    def fits(batch_size: int) -> bool:
        tried = replace(execution, batch_size=batch_size)
        peak = _try(dataset, spec, hyperparameters, tried, limit_bytes)
        trials.append(Trial(batch_size=batch_size, peak_memory_bytes=peak))
        return peak is not None

    bound = min(largest or LARGEST_BATCH, dataset.splits["train"].rows)
    found = largest_that_fits(fits, start=min(execution.batch_size, bound), largest=bound, tolerance=tolerance)
    return MemoryFit(batch_size=found, trials=tuple(trials))


def largest_that_fits(fits: Callable[[int], bool], *, start: int, largest: int, tolerance: float) -> int:
    """The largest number that fits, when all smaller ones do: by doubling or halving from `start`, then bisection.

    Args:
        fits: asked at most once for each number.
        start: tried first.
        largest: never exceeded.
        tolerance: the true boundary lies at most this share above the answer; 0 finds it exactly.

    Returns:
        0 when 1 does not fit.
    """
    assert 1 <= start <= largest, "the search starts within its bounds"
    good, bad = 0, largest + 1
    candidate = start
    while good < candidate < bad:
        if fits(candidate):
            good, candidate = candidate, min(2 * candidate, largest)
        else:
            bad, candidate = candidate, candidate // 2
        if good and bad <= largest:
            break
    while bad - good > 1 and bad - good > tolerance * good:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good


def _try(
    dataset: Dataset, spec: ModelSpec, hyperparameters: Hyperparameters, execution: Execution, limit_bytes: int
) -> int | None:
    """Peak memory of a few steps in a process of their own; None when the memory did not suffice."""
    context = _context()
    here, there = context.Pipe(duplex=False)
    process = context.Process(
        target=_trial,
        args=(there, dataset.directory, _Training(spec, hyperparameters, execution), limit_bytes),
        name=f"memory trial of {execution.batch_size} samples",
        daemon=True,
    )
    process.start()
    there.close()
    kind: str = "died"
    answer: Any = None
    try:
        kind, answer = here.recv()
    except EOFError:
        pass  # it died before it could say anything
    finally:
        here.close()
        process.join()
    if kind == "peak":
        return answer if answer <= limit_bytes else None
    if kind == "memory" or (kind == "died" and -(process.exitcode or 0) in OUT_OF_MEMORY_SIGNALS):
        return None
    if kind == "refused":
        raise answer
    raise HardwareError(
        f"A trial with {execution.batch_size} samples a step failed on {execution.device} "
        f"({answer or f'exit code {process.exitcode}'}): train a few steps there to see the whole error."
    )


def _context() -> ForkServerContext:
    """Processes that are forked from one in which nothing but the imports has happened."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _trial(pipe: Connection, directory: Path, training: _Training, limit_bytes: int) -> None:
    """What the process does: train a few steps under the limit, and tell the peak or the reason."""
    answer: tuple[Literal["peak", "memory", "refused", "failed"], Any]
    try:
        _limit_memory(training.execution.device, limit_bytes)
        timing = time_steps(Dataset.load(directory), *training, steps=TRIAL_STEPS, warmup_steps=1)
        answer = "peak", timing.peak_memory_bytes
    except ShunterError as error:
        answer = "refused", error
    except (MemoryError, RuntimeError, OSError) as error:
        words = " ".join(str(error).split())
        answer = ("memory", None) if is_out_of_memory(error) else ("failed", words[:300])
    pipe.send(answer)
    pipe.close()


def is_out_of_memory(error: Exception) -> bool:
    """Whether torch, Python or the kernel ran out of memory; torch's CPU allocator says so only in its text."""
    words = str(error)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        sign in words for sign in ("can't allocate memory", "not enough memory", "Cannot allocate memory", "bad_alloc")
    )


def _limit_memory(device: str, limit_bytes: int) -> None:
    """Let allocations beyond the limit fail, in this process alone.

    For a CPU that is the kernel's limit on private memory. What the process has reserved so far without using it does
    not count, so the limit is on what it will use.
    """
    if torch.device(device).type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
        return
    reserved, used = _status_bytes("VmData"), _status_bytes("VmRSS")
    allowed = max(reserved, limit_bytes + max(0, reserved - used))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = allowed if hard == resource.RLIM_INFINITY else min(allowed, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
