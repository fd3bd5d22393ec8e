"""Inverse roots of symmetric positive semi-definite matrices."""

import torch
from torch import Tensor

from shunter.errors import TrainingError


def inverse_root(matrix: Tensor, exponent: float, epsilon: float, relative_epsilon: float = 0.0) -> Tensor:
    """Compute `(matrix + shift I)^-exponent` by eigendecomposition, in float64 where float32 does not suffice.

    The shift is epsilon, plus a share of the largest eigenvalue, plus the most negative eigenvalue that rounding left.
    Without that share, directions that the matrix has not seen weigh by the rounding errors of those that it has.

    Args:
        matrix: `[size, size]`, symmetric positive semi-definite.
        exponent: 0.25 for the inverse fourth root.
        epsilon: Added to each eigenvalue, more than 0.
        relative_epsilon: Share of the largest eigenvalue that is added too.

    Returns:
        `[size, size]`, in the type of `matrix`.

    Raises:
        TrainingError: The matrix holds NaN or infinity, or has no finite root in float64 either.
    """
    if not bool(torch.isfinite(matrix).all()):
        raise TrainingError(
            f"A Shampoo factor of size {matrix.shape[0]} holds NaN or infinity where finite squares of gradients were "
            "expected: lower the learning rate or clip the gradients."
        )
    for dtype in (matrix.dtype, torch.float64):
        try:
            values, vectors = torch.linalg.eigh(matrix.to(dtype))
        except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage]
            continue
        values = values - values.min().clamp(max=0) + relative_epsilon * values.max().clamp(min=0) + epsilon
        root = (vectors * values.pow(-exponent)) @ vectors.mT
        # An infinite eigenvalue has a finite root, 0, so the eigenvalues are looked at too.
        if bool(torch.isfinite(values).all() & torch.isfinite(root).all()):
            return root.to(matrix.dtype)
    raise TrainingError(
        f"A Shampoo factor of size {matrix.shape[0]} has no finite inverse root, even in float64: "
        f"raise epsilon above {epsilon:g} or clip the gradients."
    )
