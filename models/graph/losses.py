"""What graph models learn by: a positive compared with negatives, and nodes told apart by their vectors."""

import torch
from torch import Tensor, nn

FEWEST_SHARED = 64  # times as many items as negatives, up to which all items' scores cost less than rows of vectors


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """Mean of -log sigmoid(positive - negative), `[samples]` and `[samples, negatives]` to a scalar.

    Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", UAI 2009.
    """
    return nn.functional.softplus(negative - positive[:, None]).mean()


def cosine_contrastive(positive: Tensor, negative: Tensor, *, margin: float, negative_weight: float) -> Tensor:
    """Mean of `1 - positive + negative_weight * mean over negatives of max(0, negative - margin)`.

    Mao et al., "SimpleX: A Simple and Strong Baseline for Collaborative Filtering", CIKM 2021, equation 1.

    Args:
        positive: Cosines, `[samples]`.
        negative: Cosines, `[samples, negatives]`.
        margin: Cosine below which a negative is far enough.
        negative_weight: Weight of the negatives together, beside the positive's 1.
    """
    return (1 - positive).mean() + negative_weight * torch.relu(negative - margin).mean()


def info_nce(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Mean over nodes of -log softmax of the cosine between their two views among those with all other nodes.

    Van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018, equation 4.

    Args:
        one: A view of each node, `[nodes, dim]`.
        other: Another view of each, `[nodes, dim]`.
        temperature: What the cosines are divided by.
    """
    cosines = nn.functional.normalize(one) @ nn.functional.normalize(other).T
    return nn.functional.cross_entropy(cosines / temperature, torch.arange(len(one), device=one.device))


def products(users: Tensor, items: Tensor, ids: Tensor) -> Tensor:
    """Products of each user's vector with those of some items: `[samples, dim]`, `[items, dim]`, `[samples, some]`.

    Of few items those with all are computed at once: rows of vectors, and the scatter of their gradients, cost more.

    Returns:
        `[samples, some]`.
    """
    if len(items) <= FEWEST_SHARED * ids.shape[1]:
        return (users @ items.T).gather(1, ids)
    chosen = items.index_select(0, ids.flatten()).view(*ids.shape, -1)
    return (users[:, None] * chosen).sum(2)
