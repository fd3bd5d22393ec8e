"""TF32 products of fp32 matrices on the tensor cores of a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def products_in_tf32(device: torch.device, *, wanted: bool = True) -> Iterator[None]:
    """Let a GPU round the factors of fp32 products to TF32, 10 bits of mantissa, while the block runs.

    Sums stay in fp32. GPUs from NVIDIA's Ampere on compute such products several times as fast; other GPUs and CPUs are
    not affected.

    Args:
        device: Device of the products.
        wanted: Whether to use TF32; if not, a GPU computes in full precision.
    """
    if device.type != "cuda":
        yield
        return
    products = torch.backends.cuda.matmul
    before, products.allow_tf32 = products.allow_tf32, wanted
    try:
        yield
    finally:
        products.allow_tf32 = before
