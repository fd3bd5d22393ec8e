"""Products of fp32 matrices on the tensor cores of a GPU, with torch alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def products_in_tf32(device: torch.device, *, wanted: bool = True) -> Iterator[None]:
    """Let a GPU round the factors of fp32 products to TF32, 10 bits of mantissa, and give back what held before.

    Sums stay in fp32. GPUs from NVIDIA's Ampere on compute such products several times as fast; others, and a
    processor, are left alone.

    Args:
        device: Device of the products.
        wanted: Whether to do so at all; if not, a GPU computes in full precision.
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
