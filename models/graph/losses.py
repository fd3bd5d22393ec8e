"""What graph models learn by: a positive compared with negatives, and nodes told apart by their vectors."""

import torch
from torch import Tensor, nn

TOGETHER = 512  # samples whose items are each other's negatives, so that scores stay few in a large batch
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


def logistic(vectors: Tensor, items: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Mean over samples of `-log sigmoid(positive) - mean over negatives of log(1 - sigmoid(negative))`.

    With one negative the loss of SASRec (Kang and McAuley, ICDM 2018, section III-E).

    Args:
        vectors: `[samples, dim]`.
        items: Vectors of all items, `[items, dim]`.
        positives: Int64 `[samples]`.
        negatives: Int64 `[samples, negatives]`.
    """
    chosen, rejected = (products(vectors, items, ids) for ids in (positives[:, None], negatives))
    return (nn.functional.softplus(-chosen).mean(1) + nn.functional.softplus(rejected).mean(1)).mean()


def corrected_softmax(
    vectors: Tensor, positives: Tensor, negatives: Tensor, of_items: Tensor, shares: Tensor
) -> Tensor:
    """Mean cross entropy of each sample's positive among the items of the samples with it, and their negatives.

    What stands there once too often by how it was drawn is set right (Yi et al., RecSys 2019, equation 3): from the
    score of an item goes the logarithm of how often it is expected among the candidates, as a positive by its share of
    the edges, and as a negative alike for all. Further copies of a sample's positive stay among them: without them the
    sum would fall short of it.

    Args:
        vectors: `[samples, dim]`, whose products with those of items are the scores.
        positives: Int64 `[samples]`.
        negatives: Int64 `[samples, negatives]`.
        of_items: Vectors of the positives, and behind them of the negatives, `[samples * (1 + negatives), dim]`.
        shares: Share of the edges that each item has, `[items]`.
    """
    count, each = len(positives), negatives.shape[1]
    parts: list[Tensor] = []
    for first in range(0, count, TOGETHER):
        here, drawn = slice(first, first + TOGETHER), slice(count + first * each, count + (first + TOGETHER) * each)
        candidates = torch.cat([positives[here], negatives[here].flatten()])
        samples = len(positives[here])
        uniform = (len(candidates) - samples) / (len(shares) - 1)  # the unknown item is never drawn
        expected = samples * shares[candidates] + uniform
        scores = vectors[here] @ torch.cat([of_items[:count][here], of_items[drawn]]).T - expected.log()
        target = torch.arange(samples, device=scores.device)
        parts.append(nn.functional.cross_entropy(scores, target, reduction="sum"))
    return torch.stack(parts).sum() / count
