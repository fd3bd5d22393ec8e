"""Dot products of each pair of a sample's vectors, by the compiled kernel.

Both functions are operators of torch too, `torch.ops.shunter.pairwise_products` and `pairwise_gradient`, so that a
compiled step calls them.
"""

import torch
from torch import Tensor

from shunter.models.native.library import check, library


def is_built() -> bool:
    """Return True if the compiled kernel was built and can be loaded."""
    return library() is not None


def suits(vectors: Tensor) -> bool:
    """Return True if the compiled kernel takes these vectors: real numbers in float32 on a processor.

    Torch's built-in operators are used instead if a `TorchDispatchMode` is active, such as a counter of FLOPs, and in
    exported programs, which run without this project.
    """
    if vectors.device.type != "cpu" or vectors.dtype != torch.float32 or torch.compiler.is_exporting():
        return False
    return torch.compiler.is_compiling() or (type(vectors) is Tensor and not torch._C._len_torch_dispatch_stack())


def pairwise_products(vectors: Tensor) -> Tensor:
    """Multiply each pair (i, j), i > j, of a sample's vectors, in the order of the lower triangle.

    Args:
        vectors: float32 `[batch, vectors, dim]`.

    Returns:
        float32 `[batch, pairs]`.

    Raises:
        ValueError: The vectors have another type or number of dimensions.
    """
    batch, count, dim = _checked(vectors).shape
    vectors, products = vectors.contiguous(), _empty_products(vectors)
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
        ValueError: The gradient does not fit the vectors, or these have another type or number of dimensions.
    """
    batch, count, _ = _checked(vectors).shape
    if gradient.shape != (batch, count * (count - 1) // 2) or gradient.dtype != torch.float32:
        raise ValueError(
            f"a gradient of {gradient.dtype} {tuple(gradient.shape)} does not fit vectors of shape "
            f"{tuple(vectors.shape)}"
        )
    vectors = vectors.contiguous()
    if gradient.stride(1) != 1:
        gradient = gradient.contiguous()
    result = _empty_gradient(vectors, gradient)
    loaded = library()
    assert loaded is not None, "`suits` comes first"
    given = vectors.data_ptr(), *vectors.shape, gradient.data_ptr(), gradient.stride(0), result.data_ptr()
    check(loaded.shunter_pair_backward(*given, torch.get_num_threads()))
    return result


def _checked(vectors: Tensor) -> Tensor:
    """Return the vectors if the kernel can read them: any caller may pass any tensor to a registered operator."""
    if vectors.dtype != torch.float32 or vectors.ndim != 3:
        raise ValueError(f"vectors of {vectors.dtype} {tuple(vectors.shape)} are not float32 [batch, vectors, dim]")
    return vectors


def _empty_products(vectors: Tensor) -> Tensor:
    batch, count, _ = vectors.shape
    return vectors.new_empty(batch, count * (count - 1) // 2)


def _empty_gradient(vectors: Tensor, gradient: Tensor) -> Tensor:
    return torch.empty_like(vectors, memory_format=torch.contiguous_format)


# Operators of torch, with fake implementations that give torch.compile the shapes.
for _name, _arguments, _function, _empty in (
    ("shunter::pairwise_products", "(Tensor vectors)", pairwise_products, _empty_products),
    ("shunter::pairwise_gradient", "(Tensor vectors, Tensor gradient)", pairwise_gradient, _empty_gradient),
):
    torch.library.define(_name, f"{_arguments} -> Tensor")
    torch.library.impl(_name, "CPU", _function)
    torch.library.register_fake(_name, _empty)
