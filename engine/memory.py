"""Memory: use of this process, free memory, fit of embedding tables, and detection of out-of-memory errors."""

import importlib
import os
import resource
import sys
from pathlib import Path

import torch

from shunter.engine.config import Execution
from shunter.engine.table_files import TABLES_IN_FILES
from shunter.errors import RequestError, TooLargeError
from shunter.hardware.devices.cgroup import memory_limit_bytes
from shunter.hardware.devices.memory_limits import memory_left_bytes
from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.spec import Features, ModelSpec

COMPILER_BYTES = 40 << 20  # memory that importing torch's compiler adds to a process with the rest of torch
# Torch's CPU allocator, the kernel and C++ report it only in the text of their errors.
OUT_OF_MEMORY_SIGNS = ("can't allocate memory", "not enough memory", "Cannot allocate memory", "bad_alloc")


def available_memory_bytes(device: torch.device) -> int:
    """Return the free memory of a device in bytes; an upper bound, because other processes take memory as well."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    limit = memory_limit_bytes()
    try:
        line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
        available = int(line.split()[1]) * 1024
    except (OSError, StopIteration):  # not Linux
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own = memory_left_bytes()
    return min(one for one in (available, limit, own) if one is not None)


def free_memory_bytes() -> int:
    """Return the main memory in bytes that this process could still take."""
    return available_memory_bytes(torch.device("cpu"))


def check_tables_fit(
    spec: ModelSpec, features: Features, execution: Execution, available_bytes: int | None = None
) -> None:
    """Check that the embedding tables fit into memory.

    Tables that exceed their own memory limit in `execution` are kept in a file, with a cache of rows. `available_bytes`
    None measures the free memory of the device.

    Raises:
        TooLargeError: The rows and their optimizer state exceed the memory; the message names the largest field.
        RequestError: The requested memory limit of the tables exceeds the free memory, is too small for the cache, or
            the tables cannot be kept in a file.
        MissingExtensionError: The memory of the tables is limited, and no extension keeps tables in files.
    """
    if available_bytes is None:
        available_bytes = available_memory_bytes(torch.device(execution.device))
    tables = spec.tables(features)
    sizes = [EmbeddingTables.count_bytes([table]) for table in tables]
    table_bytes = [size.weights + size.optimizer for size in sizes]
    asked = execution.embedding_memory_bytes
    if asked is not None and TABLES_IN_FILES.load("cached_rows")(spec, features, asked) is not None:
        if asked > available_bytes:
            raise RequestError(
                f"--embedding-memory permits {asked:,} bytes of embedding tables, but only "
                f"{available_bytes:,} bytes are free on {execution.device}: lower --embedding-memory."
            )
    elif sum(table_bytes) > available_bytes:
        owners = [field.name for field in features.categorical if field.table is None]
        most, rows, owner = max(zip(table_bytes, (table.rows for table in tables), owners, strict=True))
        can_halve = not spec.has_mixed_tables and spec.table_precision == "fp32"
        advice = ", or half as large in memory with --set table_precision=fp16" if can_halve else ""
        raise TooLargeError(
            f"The embedding tables take {sum(table_bytes):,} bytes, {most:,} of them for the {rows:,} rows "
            f"of the field {owner!r}, but only {available_bytes:,} bytes are free on {execution.device}: "
            "lower that field's rows or embedding_dim, or store the tables in a file with "
            f"--embedding-memory{advice}."
        )


def process_bytes() -> int:
    """Return the memory in bytes of this process, including the libraries that a training run loads at its first step.

    This function loads the embedding kernel, the safetensors library and the kernels of a dense layer, so that their
    memory is measured. Torch's compiler takes a second to load and few training runs need it. If the compiler is not
    loaded, an estimate of its memory is added.
    """
    choose_kernel("auto", torch.device("cpu"))
    importlib.import_module("safetensors.torch")
    _step_once()
    try:
        status = Path("/proc/self/status").read_text()
        resident = int(status.split("VmRSS:")[1].split()[0]) * 1024
    except (OSError, IndexError):  # the kernel reports only the peak
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return resident + (0 if "torch._dynamo" in sys.modules else COMPILER_BYTES)


def _step_once() -> None:
    """Run forward, backward and update of a tiny layer, which loads the kernels."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        layer = torch.nn.Linear(1, 1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(layer(torch.zeros(2, 1)), torch.zeros(2, 1))
        weights: list[torch.Tensor] = list(layer.parameters())
        gradients = list(torch.autograd.grad(loss, weights))
    # The operator is called directly: the optimizer around it would load torch's compiler.
    first, second, steps = [[torch.zeros_like(weight) for weight in weights] for _ in range(3)]
    with torch.no_grad():
        torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
            *(weights, gradients, first, second, []),
            [step.sum() for step in steps],
            lr=1e-3,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if the error says that torch, Python or the kernel ran out of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(sign in str(error) for sign in OUT_OF_MEMORY_SIGNS)
