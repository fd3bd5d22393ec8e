"""Computation of the direction of a block's weight update from the gradient.

After Shi et al., "A Distributed Data-Parallel PyTorch Implementation of the Distributed Shampoo Optimizer for Training
Neural Networks At-Scale" (arXiv 2309.06497). The state of a block with k dimensions has an average of its gradient,
and:

    factors    one `[size, size]` matrix per dimension, the sum or average of the gradient contracted with itself
    roots      the factors' inverse 2k-th roots, empty until they are first computed
    grafting   the elementwise squared gradient of the grafting method, which determines the step length
"""

from typing import Any

import torch
from torch import Tensor

from shunter.errors import TrainingError
from shunter.extensions.shampoo.blocks import Block


def new_state(block: Block, options: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a block before its first step, with only the entries that its options need."""
    like = block.parameter
    state: dict[str, Any] = {
        "step": 0,
        "factors": [like.new_zeros(size, size) for size in block.shape],
        "roots": [],
    }
    if options["betas"][0]:
        state["gradient_average"] = like.new_zeros(block.shape)
    if options["grafting"] in ("adagrad", "rmsprop", "adam"):
        state["grafting_square"] = like.new_zeros(block.shape)
    if options["momentum"]:
        state["momentum"] = like.new_zeros(block.shape)
    return state


def search_direction(
    block: Block, options: dict[str, Any], state: dict[str, Any], weight: Tensor, gradient: Tensor
) -> Tensor:
    """Advance a block by one step and return the direction P of its update `weight -= lr * P`.

    Args:
        block: Block.
        options: Options of the block's parameter group.
        state: State of the block, changed in place.
        weight: Weights of the block, `[*block.shape]`, for the weight decay.
        gradient: Gradient of the block, `[*block.shape]`; not changed.

    Raises:
        TrainingError: A factor is not finite, or has no finite root.
    """
    state["step"] += 1
    if options["weight_decay"] and not options["decoupled_weight_decay"]:
        gradient = gradient.add(weight, alpha=options["weight_decay"])
    factors, beta = state["factors"], options["betas"][1]
    for dimension, factor in enumerate(factors):  # the gradient contracted with itself over all other dimensions
        unfolded = gradient.movedim(dimension, 0).reshape(factor.shape[0], -1)
        factor.addmm_(unfolded, unfolded.mT, beta=beta, alpha=_new_share(beta))
    if is_root_step(block, options, state["step"]):
        exponent = options["root_exponent"] or 1 / (2 * len(factors))
        bias, epsilons = _accumulated_share(beta, state["step"]), (options["epsilon"], options["relative_epsilon"])
        state["roots"] = [inverse_root(factor / bias, exponent, *epsilons) for factor in factors]
    average, decay = gradient, options["betas"][0]
    if decay:  # corrected for its bias towards zero
        average = state["gradient_average"].lerp_(gradient, 1 - decay) / _accumulated_share(decay, state["step"])
    direction = _graft(state, gradient, average, options)
    if state["roots"]:
        preconditioned = average
        for root in state["roots"]:  # each contraction moves the first dimension to the end
            preconditioned = torch.tensordot(preconditioned, root, dims=([0], [0]))  # pyright: ignore[reportArgumentType]
        if options["grafting"] == "none":
            direction = preconditioned
        else:
            direction = preconditioned * (direction.norm() / (preconditioned.norm() + 1e-16))
    if options["weight_decay"] and options["decoupled_weight_decay"]:
        direction = direction.add(weight, alpha=options["weight_decay"])
    if not options["momentum"]:
        return direction
    damped = direction * (1 - options["dampening"])
    momentum = state["momentum"].mul_(options["momentum"]).add_(damped)
    return damped.add_(momentum, alpha=options["momentum"]) if options["nesterov"] else momentum


def is_root_step(block: Block, options: dict[str, Any], step: int) -> bool:
    """Return True if a block recomputes its inverse roots in this step, by its slot among `root_every_steps` steps."""
    since_start = step - options["start_step"]
    return since_start >= 0 and since_start % options["root_every_steps"] == block.slot


def _graft(state: dict[str, Any], gradient: Tensor, average: Tensor, options: dict[str, Any]) -> Tensor:
    """Return the direction of the grafting method, of which only the length is used once there are roots."""
    method = options["grafting"]
    if method in ("none", "sgd"):
        return average
    beta = 1.0 if method == "adagrad" else options["grafting_beta"]
    square = state["grafting_square"].mul_(beta).addcmul_(gradient, gradient, value=_new_share(beta))
    bias = _accumulated_share(beta, state["step"]) if method == "adam" else 1.0
    return average / (square / bias).sqrt_().add_(options["grafting_epsilon"])


def _new_share(beta: float) -> float:
    """Return the weight of the newest term: 1 - beta for an average, 1 for a sum (beta = 1)."""
    return 1.0 if beta == 1 else 1 - beta


def _accumulated_share(beta: float, step: int) -> float:
    """Return the sum of the weights of all terms so far; 1 for a sum, whose bias needs no correction."""
    return 1.0 if beta == 1 else 1 - beta**step


def inverse_root(matrix: Tensor, exponent: float, epsilon: float, relative_epsilon: float = 0.0) -> Tensor:
    """Compute `(matrix + shift I)^-exponent` by eigendecomposition, in float64 if float32 is too imprecise.

    The shift is epsilon, plus a share of the largest eigenvalue, plus the size of the most negative eigenvalue, which
    is a rounding error. Without the share of the largest eigenvalue, directions without gradients would get large
    factors from rounding errors.

    Args:
        matrix: Symmetric positive semi-definite matrix, `[size, size]`.
        exponent: Exponent, such as 0.25 for the inverse fourth root.
        epsilon: Number above 0 that is added to each eigenvalue.
        relative_epsilon: Share of the largest eigenvalue that is added to each eigenvalue too.

    Returns:
        Matrix `[size, size]`, in the dtype of `matrix`.

    Raises:
        TrainingError: The matrix contains NaN or infinity, or has no finite root in float64 either.
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
        # The inverse root of an infinite eigenvalue is 0, which is finite, so the eigenvalues are checked too.
        if bool(torch.isfinite(values).all() & torch.isfinite(root).all()):
            return root.to(matrix.dtype)
    raise TrainingError(
        f"A Shampoo factor of size {matrix.shape[0]} has no finite inverse root, even in float64: "
        f"raise epsilon above {epsilon:g} or clip the gradients."
    )
