"""Choice of the library for embedding lookups."""

import logging
from typing import Literal

import torch

from shunter.errors import RequestError
from shunter.models.embeddings.request import Kernel
from shunter.models.native.library import library

Chosen = Literal["native", "fbgemm", "torch"]
log = logging.getLogger(__name__)


def choose_kernel(kernel: Kernel, device: torch.device) -> Chosen:
    """Resolve `auto`: the native kernel on a processor, FBGEMM on a GPU, or torch's operators if these are missing.

    `auto` measures nothing: on the one processor that was measured, a Xeon with AMX, the native kernel took the least
    time for lookup and update together at all eight sizes (`benchmarks/results/embedding_kernels.json`).

    Raises:
        RequestError: The requested kernel is not installed.
    """
    on_cpu = device.type == "cpu"
    if kernel == "torch" or (kernel == "auto" and on_cpu and library() is None):
        return "torch"
    if on_cpu and kernel != "fbgemm":
        if library() is None:
            raise RequestError(
                "The native embedding kernel was not built on this machine: install a C++ compiler and run "
                "`make setup` again, or use kernel torch."
            )
        return "native"
    if kernel == "native":
        raise RequestError(
            f"The native embedding kernel runs on processors only, not on {device.type}: use kernel auto."
        )
    if _fbgemm_works(device.type):
        return "fbgemm"
    if kernel == "fbgemm":
        raise RequestError(
            f"The embedding kernel fbgemm is not installed for {device.type}: install fbgemm-gpu, or use kernel torch."
        )
    return "torch"


def _fbgemm_works(device_type: str) -> bool:
    try:
        import fbgemm_gpu
        import fbgemm_gpu.split_table_batched_embeddings_ops_training
    except ModuleNotFoundError:
        return False
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # a build for another torch
        log.warning("FBGEMM is installed but cannot be used; plain torch is used instead: %s", error)
        return False
    return device_type == "cpu" or getattr(fbgemm_gpu, "__variant__", "cpu") != "cpu"
