"""What an accelerator really does: four small measurements, each the median of several repetitions.

A data sheet tells the peak; a training step gets what the library, the clock and the neighbours leave of it.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hardware.discovery import last_level_cache_bytes
from hardware.types import Accelerator, Precision

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
ROW_BYTES = 64  # An embedding row of 16 float32, the commonest width and one cache line.


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Measured rates of one accelerator, with all its usable cores.

    Attributes:
        matmul_flops_per_second: square matrix product by data type, multiply and add counted as two.
        copy_bytes_per_second: bytes read plus bytes written of a copy too large for the caches.
        gather_bytes_per_second: payload of reading random 64-byte rows from a table too large for the caches.
        operator_overhead_seconds: cost of one small operator in a training step, on one thread.
    """

    matmul_flops_per_second: dict[Precision, float]
    copy_bytes_per_second: float
    gather_bytes_per_second: float
    operator_overhead_seconds: float


def probe(accelerator: Accelerator, seconds_each: float = 0.5) -> ProbeResult:
    """Measure one accelerator; takes about five to eight times `seconds_each`.

    Args:
        accelerator: a CPU or a CUDA device of this machine.
        seconds_each: time after which a measurement stops repeating; each repeats at least three times.
    """
    device = torch.device(accelerator.name)
    with threads(accelerator.cores if accelerator.kind == "cpu" else 1), torch.random.fork_rng():
        torch.manual_seed(0)
        return ProbeResult(
            matmul_flops_per_second={
                precision: _matmul_flops_per_second(device, dtype, seconds_each) for precision, dtype in DTYPES.items()
            },
            copy_bytes_per_second=_copy_bytes_per_second(device, _large_bytes(accelerator), seconds_each),
            gather_bytes_per_second=_gather_bytes_per_second(device, _large_bytes(accelerator), seconds_each),
            operator_overhead_seconds=_operator_overhead_seconds(device, seconds_each),
        )


def _matmul_flops_per_second(device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    # The sides at which either kind of device is near its best rate and one product still takes milliseconds.
    side = 4096 if device.type == "cuda" else 1024
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty(side, side, device=device, dtype=dtype)
    return 2 * side**3 / _median_seconds(lambda: torch.mm(left, right, out=out), device, seconds)


def _copy_bytes_per_second(device: torch.device, size: int, seconds: float) -> float:
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * size / _median_seconds(lambda: target.copy_(source), device, seconds)


def _gather_bytes_per_second(device: torch.device, size: int, seconds: float) -> float:
    table = torch.ones(size // ROW_BYTES, ROW_BYTES // 4, device=device)
    rows = torch.randint(len(table), (2**18,), device=device)
    out = torch.empty(len(rows), table.shape[1], device=device)
    return len(rows) * ROW_BYTES / _median_seconds(lambda: torch.index_select(table, 0, rows, out=out), device, seconds)


def _operator_overhead_seconds(device: torch.device, seconds: float) -> float:
    """A training step too small to compute anything, by the number of operators that it dispatches.

    So modules, autograd and the optimiser's own bookkeeping are in it, as they are in every step.
    """
    layers = [layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    samples, labels = torch.randn(8, 8, device=device), torch.zeros(8, 1, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.binary_cross_entropy_with_logits(model(samples), labels).backward()
        optimizer.step()

    step()  # The optimiser makes its state in the first step, which would be counted.
    with _CountOperators() as count:
        step()
    with threads(1):
        return _median_seconds(step, device, seconds) / count.operators


class _CountOperators(TorchDispatchMode):
    """Counts what reaches torch's dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.operators += 1
        return func(*args, **(kwargs or {}))


def _median_seconds(work: Callable[[], Tensor | None], device: torch.device, seconds: float) -> float:
    """Median time of `work`, after one unmeasured call, repeated for `seconds` but at least three times."""
    durations: list[float] = []
    work()
    _synchronize(device)
    begin = time.perf_counter()
    while len(durations) < 3 or time.perf_counter() - begin < seconds:
        started = time.perf_counter()
        work()
        _synchronize(device)
        durations.append(time.perf_counter() - started)
    return statistics.median(durations)


def _large_bytes(accelerator: Accelerator) -> int:
    """Eight times the last-level cache, so that seven of eight rows come from memory; at most 1/16 of the memory."""
    cache = last_level_cache_bytes() if accelerator.kind == "cpu" else 64 * 2**20
    return min(8 * cache, accelerator.memory_bytes // 16, 2**30)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Run with `number` intra-operator threads, then as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
