"""Rates of an accelerator by small measurements, each the median of several repetitions.

Data sheets give peak rates; a training step reaches less, depending on library, clock and other load.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from shunter.hardware.devices.discovery import last_level_cache_bytes
from shunter.hardware.probes.tf32 import products_in_tf32
from shunter.hardware.probes.timing import SECONDS_EACH, measured_rate, measured_seconds, repeat, threads
from shunter.hardware.types import Accelerator, MatmulRate, Precision, Quantity
from shunter.hardware.uncompiled import Adam

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
ROW_BYTES = 64  # An embedding row of 16 float32, the most common width and one cache line.
# Dense layers of a recommender: batches of samples through square layers of these widths.
CURVE_BATCHES, CURVE_WIDTHS = (128, 512, 2048), (16, 64, 256, 1024)
CURVE_SHARE = 0.1  # time of a point of the curve over the time of a single measurement
PINNED_BYTES = 2**26
# On a processor without instructions for a data type, products take a hundred times as long as in fp32. The side is
# small enough for milliseconds even then. Below this share of the fp32 rate, no training uses the data type.
SMALL_SIDE, EMULATED_SHARE = 256, 0.1


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Measured rates of one accelerator, with all its usable cores.

    Attributes:
        matmul_flops_per_second: Square matrix product by data type, multiply and add counted as two.
        matmul_curve: Matrix products of the shapes of dense layers, small to large; empty for an emulated data type,
            whose products take seconds each and which is never used for training.
        copy_bytes_per_second: Bytes read plus bytes written of a copy too large for the caches.
        gather_bytes_per_second: Payload of reading random 64-byte rows from a table too large for the caches.
        operator_overhead_seconds: Cost of one small operator in a training step, on one thread.
        host_to_device_bytes_per_second: Copy from page-locked memory; None for a CPU.
    """

    matmul_flops_per_second: dict[Precision, Quantity]
    matmul_curve: dict[Precision, tuple[MatmulRate, ...]]
    copy_bytes_per_second: Quantity
    gather_bytes_per_second: Quantity
    operator_overhead_seconds: Quantity
    host_to_device_bytes_per_second: Quantity | None


def probe(accelerator: Accelerator, seconds_each: float = SECONDS_EACH) -> ProbeResult:
    """Measure the rates of one accelerator; takes about eight to ten times `seconds_each`."""
    device = torch.device(accelerator.name)
    with threads(accelerator.cores if accelerator.kind == "cpu" else 1), torch.random.fork_rng():
        torch.manual_seed(0)
        emulated = {
            precision for precision, dtype in DTYPES.items() if _is_emulated(device, dtype, seconds_each * CURVE_SHARE)
        }
        return ProbeResult(
            matmul_flops_per_second={
                precision: _square_matmul(device, dtype, seconds_each, small=precision in emulated)
                for precision, dtype in DTYPES.items()
            },
            matmul_curve={
                precision: tuple(
                    measure_matmul(device, dtype, (batch, width, width), seconds_each * CURVE_SHARE)
                    for width in CURVE_WIDTHS
                    for batch in CURVE_BATCHES
                    if precision not in emulated
                )
                for precision, dtype in DTYPES.items()
            },
            copy_bytes_per_second=_copy_bytes_per_second(device, large_bytes(accelerator), seconds_each),
            gather_bytes_per_second=_gather_bytes_per_second(device, large_bytes(accelerator), seconds_each),
            operator_overhead_seconds=_operator_overhead_seconds(device, seconds_each),
            host_to_device_bytes_per_second=_host_to_device(device, seconds_each) if device.type == "cuda" else None,
        )


def large_bytes(accelerator: Accelerator) -> int:
    """Return 8 x the last-level cache (7 of 8 rows come from memory), at most 1/16 of the memory and 1 GiB."""
    cache = last_level_cache_bytes() if accelerator.kind == "cpu" else 64 * 2**20
    return min(8 * cache, accelerator.memory_bytes // 16, 2**30)


def _is_emulated(device: torch.device, dtype: torch.dtype, seconds: float) -> bool:
    """Return True if small products in this data type run below `EMULATED_SHARE` of the fp32 rate."""
    if dtype == torch.float32:
        return False
    side = (SMALL_SIDE, SMALL_SIDE, SMALL_SIDE)
    rate, single = (measure_matmul(device, one, side, seconds).flops_per_second for one in (dtype, torch.float32))
    return rate.value < EMULATED_SHARE * single.value


def _square_matmul(device: torch.device, dtype: torch.dtype, seconds: float, *, small: bool) -> Quantity:
    # The side at which each kind of device is near its best rate and a product still takes milliseconds.
    side = SMALL_SIDE if small else 4096 if device.type == "cuda" else 1024
    return measure_matmul(device, dtype, (side, side, side), seconds).flops_per_second


def measure_matmul(
    device: torch.device, dtype: torch.dtype, shape: tuple[int, int, int], seconds: float, count: int = 1
) -> MatmulRate:
    """Measure the rate of the product `[m, k] x [k, n]`, or of `count` at once; on a GPU in TF32, as in training."""
    m, n, k = shape
    left = torch.randn(count, m, k, device=device, dtype=dtype)
    right = torch.randn(count, k, n, device=device, dtype=dtype)
    out = torch.empty(count, m, n, device=device, dtype=dtype)
    with products_in_tf32(device):
        if count == 1:
            durations = repeat(lambda: torch.mm(left[0], right[0], out=out[0]), device, seconds)
        else:
            durations = repeat(lambda: torch.bmm(left, right, out=out), device, seconds)
    return MatmulRate(m=m, n=n, k=k, flops_per_second=measured_rate(2 * count * m * n * k, durations))


def _copy_bytes_per_second(device: torch.device, size: int, seconds: float) -> Quantity:
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return measured_rate(2 * size, repeat(lambda: target.copy_(source), device, seconds))


def _gather_bytes_per_second(device: torch.device, size: int, seconds: float) -> Quantity:
    table = torch.ones(size // ROW_BYTES, ROW_BYTES // 4, device=device)
    rows = torch.randint(len(table), (2**18,), device=device)
    out = torch.empty(len(rows), table.shape[1], device=device)
    durations = repeat(lambda: torch.index_select(table, 0, rows, out=out), device, seconds)
    return measured_rate(len(rows) * ROW_BYTES, durations)


def _host_to_device(device: torch.device, seconds: float) -> Quantity:
    source = torch.ones(PINNED_BYTES, dtype=torch.uint8).pin_memory()
    target = torch.empty_like(source, device=device)
    return measured_rate(PINNED_BYTES, repeat(lambda: target.copy_(source, non_blocking=True), device, seconds))


def _operator_overhead_seconds(device: torch.device, seconds: float) -> Quantity:
    """Return the seconds per dispatched operator of a training step too small for noticeable arithmetic.

    The figure includes modules, autograd and the optimiser's bookkeeping, as every step does.
    """
    layers = [layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(8, 1)).to(device)
    optimizer = Adam(model.parameters(), fused=True)
    samples, labels = torch.randn(8, 8, device=device), torch.zeros(8, 1, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.binary_cross_entropy_with_logits(model(samples), labels).backward()
        optimizer.step()

    step()  # The optimiser creates its state in the first step, which must not be counted.
    with _CountOperators() as count:
        step()
    with threads(1):
        return measured_seconds([duration / count.operators for duration in repeat(step, device, seconds)])


class _CountOperators(TorchDispatchMode):
    """Dispatch mode that counts the operators that reach torch's dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing is compiled here, and True would import torch's whole compiler."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.operators += 1
        return func(*args, **(kwargs or {}))
