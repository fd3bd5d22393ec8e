"""Dot products of each pair of a sample's vectors, by the compiled kernel."""

import torch
from torch import Tensor

from shunter.models.native.library import check, library


def suits(vectors: Tensor) -> bool:
    """Return True if the compiled kernel takes these vectors: real numbers in float32 on a processor.

    Where a mode of torch watches the operators, as one that counts FLOPs does, torch's own are taken.
    """
    is_real = type(vectors) is Tensor and vectors.device.type == "cpu" and vectors.dtype == torch.float32
    is_watched = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
    return is_real and not is_watched and library() is not None


def pairwise_products(vectors: Tensor) -> Tensor:
    """Multiply each pair (i, j), i > j, of a sample's vectors, in the order of the lower triangle.

    Args:
        vectors: float32 `[batch, vectors, dim]`.

    Returns:
        float32 `[batch, pairs]`.
    """
    batch, count, dim = vectors.shape
    vectors, products = vectors.contiguous(), vectors.new_empty(batch, count * (count - 1) // 2)
    loaded = library()
    assert loaded is not None, "`suits` comes first"
    sizes = batch, count, dim
    check(loaded.shunter_pair(vectors.data_ptr(), *sizes, products.data_ptr(), torch.get_num_threads()))
    return products


def pairwise_gradient(vectors: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the vectors by that of their products.

    Args:
        vectors: float32 `[batch, vectors, dim]`.
        gradient: float32 `[batch, pairs]`.

    Raises:
        ValueError: The gradient does not fit the vectors.
    """
    batch, count, _ = vectors.shape
    if gradient.shape != (batch, count * (count - 1) // 2) or gradient.dtype != torch.float32:
        raise ValueError(
            f"a gradient of {gradient.dtype} {tuple(gradient.shape)} does not fit vectors of shape "
            f"{tuple(vectors.shape)}"
        )
    vectors = vectors.contiguous()
    if gradient.stride(1) != 1:
        gradient = gradient.contiguous()
    result = torch.empty_like(vectors)
    loaded = library()
    assert loaded is not None, "`suits` comes first"
    given = vectors.data_ptr(), *vectors.shape, gradient.data_ptr(), gradient.stride(0), result.data_ptr()
    check(loaded.shunter_pair_backward(*given, torch.get_num_threads()))
    return result
