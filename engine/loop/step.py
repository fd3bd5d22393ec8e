"""Training step of a click model, with its optimizer, device settings and memory measurement."""

import os
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.data.pipeline import DeviceCopy, Prefetcher
from shunter.engine.loop.loss import mean_losses, weighted_sum
from shunter.engine.loop.malloc_retention import malloc_retention
from shunter.errors import HardwareError
from shunter.hardware.probes.tf32 import products_in_tf32
from shunter.models.optimizers import DENSE_OPTIMIZERS
from shunter.models.registry import Model

# cuBLAS sums in a fixed order only with a workspace of fixed size; NVIDIA documents this value for reproducibility.
# cuBLAS reads the environment variable once per process, at the first matrix product.
CUBLAS_WORKSPACE = ":4096:8"


def build_dense_optimizer(model: nn.Module, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    """Build the optimizer of the dense layers; the embeddings update themselves in the backward pass.

    Weight decay acts on the weights and not on the biases.

    Raises:
        UnknownNameError: There is no optimizer of that name.
        MissingExtensionError: The optimizer belongs to an extension that is not installed.
    """
    parameters = list(model.parameters())
    groups: list[dict[str, Any]] = [{"params": parameters}]
    if hyperparameters.weight_decay:  # otherwise one group: a second one would cost a second operator per step
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": hyperparameters.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1]},
        ]
    build = DENSE_OPTIMIZERS.load(hyperparameters.dense_optimizer)
    return build(groups, hyperparameters.dense_learning_rate)


def train_step(
    model: Model, optimizer: torch.optim.Optimizer, batch: Batch, precision: str, weights: Tensor | None = None
) -> Tensor:
    """Run forward, backward and update on one batch, compiled or as a CUDA graph if `model.compiled_step` suits it.

    Args:
        model: Model in training mode.
        optimizer: Optimizer of the model's dense part.
        batch: Batch on the same device.
        precision: `fp32` or `bf16`.
        weights: Weights of the losses of several tasks (`shunter.engine.loop.loss.task_weights`).

    Returns:
        Mean loss, `[]`, or with several tasks `[tasks]`, on the device; reading it waits for the device.
    """
    if model.compiled_step is not None and model.compiled_step.suits(batch):
        return model.compiled_step(batch, weights)
    return plain_step(model, optimizer, batch, precision, weights)


def plain_step(
    model: Model,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    precision: str,
    weights: Tensor | None = None,
) -> Tensor:
    """Run forward, backward and update on one batch, operator by operator; see `train_step`."""
    optimizer.zero_grad(set_to_none=True)
    with model.around_step(model.layers) if model.around_step else nullcontext():
        around_forward = model.around_forward() if model.around_forward else nullcontext()
        with autocast(batch.labels.device, precision), around_forward:
            logits = model(*batch.inputs)
        losses = mean_losses(logits, batch.labels, batch.shares, model.loss, batch.groups)
        weighted_sum(losses, weights).backward()
    model.embeddings.after_backward()
    optimizer.step()
    return losses.detach()


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context of automatic mixed precision, enabled if `precision` is bf16."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def prefetch(source: Iterable[Batch], execution: Execution) -> Prefetcher[Batch]:
    """Read batches in a background thread and copy them to the device."""
    device = torch.device(execution.device)

    if device.type == "cpu":
        return Prefetcher(source, depth=execution.prefetch_depth)
    copy = DeviceCopy(device)
    return Prefetcher(source, depth=execution.prefetch_depth, prepare=copy.send, receive=copy.receive)


def admitted_batches(batches: Iterator[Batch], model: Model) -> Iterator[Batch]:
    """Yield each training batch once its embedding rows are in the cache of the model's tables.

    `prefetch` iterates over this generator in the background.

    Raises:
        RequestError: A batch has more rows than fit into the cache of tables that are stored in a file.
    """
    tables = model.embeddings
    tables.begin()
    try:
        for batch in batches:
            values = tables.admit(batch.values, batch.offsets)
            yield batch if values is batch.values else replace(batch, values=values)
    finally:
        tables.leave()


@contextmanager
def trained(model: Model) -> Iterator[None]:
    """Return the context for training on `admitted_batches`; leave it before the reader of the batches is closed."""
    try:
        yield
    finally:
        model.embeddings.end()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's random generators for the block, and restore their former state afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def applied(execution: Execution) -> Iterator[torch.device]:
    """Use the threads and the device of `execution` in the block, and restore the former settings afterwards.

    In the block a GPU sums in a fixed order (`repeatable`), and multiplies in TF32 unless `execution.tf32` is off. On a
    CPU, `malloc` retains freed memory (`shunter.engine.loop.malloc_retention`).

    Raises:
        HardwareError: The device is of an unsupported type or not present.
    """
    device = torch.device(execution.device)
    if device.type not in ("cpu", "cuda"):
        raise HardwareError(f"Training on the device {execution.device} is not supported: use cpu or cuda:0.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise HardwareError(
            f"The device {execution.device} does not exist: torch finds {torch.cuda.device_count()} CUDA devices."
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(execution.threads)
    try:
        if device.type == "cpu":
            with malloc_retention():
                yield device
            return
        with torch.cuda.device(device), repeatable(), products_in_tf32(device, wanted=execution.tf32):
            yield device
    finally:
        torch.set_num_threads(threads)


def reset_peak_memory(device: torch.device) -> None:
    """Restart the measurement of the peak that `peak_memory_bytes` returns."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # the peak then counts from the start of the process: an upper bound


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes since `reset_peak_memory`: allocated on a GPU, resident on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def repeatable() -> Iterator[None]:
    """Make a GPU sum in a fixed order in the block, and restore the former settings afterwards.

    torch then sums rows of tables by sorting instead of in the order of the threads (`index_add_`). FBGEMM sums a row
    that occurs more than 1,024 times in a batch in one block of threads instead of several. The first change costs a
    sort. The second change processes the few most frequent rows with less parallelism. An operator without a
    deterministic variant runs with a warning.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)
    before, only_warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # a debugging aid that costs a write
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)
        memory.fill_uninitialized_memory = filled
