"""Losses of graph models: comparison of positives with negatives, and contrastive losses of nodes."""

import torch
from torch import Tensor, nn

TOGETHER = 512  # samples that share their items as negatives, which limits the number of scores in a large batch
FEWEST_SHARED = 64  # ratio of items to negatives up to which scoring all items is faster than gathering vectors


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """Return the mean of -log sigmoid(positive - negative), `[samples]` and `[samples, negatives]` to a scalar.

    Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", UAI 2009.
    """
    return nn.functional.softplus(negative - positive[:, None]).mean()


def cosine_contrastive(positive: Tensor, negative: Tensor, *, margin: float, negative_weight: float) -> Tensor:
    """Return the mean of `1 - positive + negative_weight * mean over negatives of max(0, negative - margin)`.

    Mao et al., "SimpleX: A Simple and Strong Baseline for Collaborative Filtering", CIKM 2021, equation 1.

    Args:
        positive: Cosines, `[samples]`.
        negative: Cosines, `[samples, negatives]`.
        margin: Cosine below which a negative adds no loss.
        negative_weight: Weight of all negatives together, relative to 1 for the positive.
    """
    return (1 - positive).mean() + negative_weight * torch.relu(negative - margin).mean()


def info_nce(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Return the mean over nodes of -log softmax of the cosine of the node's two views, among all nodes.

    Van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018, equation 4.

    Args:
        one: One view of each node, `[nodes, dim]`.
        other: Another view of each node, `[nodes, dim]`.
        temperature: Divisor of the cosines.
    """
    cosines = nn.functional.normalize(one) @ nn.functional.normalize(other).T
    return nn.functional.cross_entropy(cosines / temperature, torch.arange(len(one), device=one.device))


def products(users: Tensor, items: Tensor, ids: Tensor) -> Tensor:
    """Return dot products of each user's vector with some items' vectors.

    `users` is `[samples, dim]`, `items` is `[items, dim]` and `ids` is `[samples, chosen]`. With few items the products
    with all items are computed, since gathering vectors and scattering their gradients costs more.

    Returns:
        Dot products, `[samples, chosen]`.
    """
    if len(items) <= FEWEST_SHARED * ids.shape[1]:
        return (users @ items.T).gather(1, ids)
    chosen = items.index_select(0, ids.flatten()).view(*ids.shape, -1)
    return (users[:, None] * chosen).sum(2)


def logistic(vectors: Tensor, items: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Return the mean over samples of `-log sigmoid(positive) - mean over negatives of log(1 - sigmoid(negative))`.

    With one negative this is the loss of SASRec (Kang and McAuley, ICDM 2018, section III-E).

    Args:
        vectors: Vectors of the samples, `[samples, dim]`.
        items: Vectors of all items, `[items, dim]`.
        positives: Item ids, int64 `[samples]`.
        negatives: Item ids, int64 `[samples, negatives]`.
    """
    chosen, rejected = (products(vectors, items, ids) for ids in (positives[:, None], negatives))
    return (nn.functional.softplus(-chosen).mean(1) + nn.functional.softplus(rejected).mean(1)).mean()


def corrected_softmax(
    vectors: Tensor, positives: Tensor, negatives: Tensor, of_items: Tensor, shares: Tensor
) -> Tensor:
    """Return the mean cross entropy of each sample's positive among all positives and negatives of a group of samples.

    The sampling bias of the candidates is corrected (Yi et al., RecSys 2019, equation 3). The logarithm of each item's
    expected count among the candidates is subtracted from its score. An item is a positive by its share of the edges,
    and a negative with equal probability. Further copies of a sample's positive stay among the candidates, since the
    expected counts include them.

    Args:
        vectors: Vectors of the samples, `[samples, dim]`; their dot products with items are the scores.
        positives: Item ids, int64 `[samples]`.
        negatives: Item ids, int64 `[samples, negatives]`.
        of_items: Vectors of the positives, followed by those of the negatives, `[samples * (1 + negatives), dim]`.
        shares: Share of the edges of each item, `[items]`.
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
