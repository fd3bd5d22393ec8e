"""Partitioning of fields into towers whose fields interact most, or least (DMT, arXiv 2403.00877).

The paper's Tower Partitioner has three steps. It measures interactions of fields on the embeddings of a flat model (a
model without towers), gives the fields coordinates with matching distances, and clusters them into towers of equal
size. Details not in the paper: the interaction is the absolute value of the mean cosine, divided by the largest.
Coordinates minimise the stress by L-BFGS (multidimensional scaling, Kruskal, 1964). Clusters come from k-means whose
assignment is an exact matching of fields to slots (Bradley, Bennett and Demiriz, "Constrained K-Means Clustering",
2000).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shunter.errors import RequestError
from shunter.extensions.towers.dmt import Towers

Strategy = Literal["coherent", "diverse"]
COORDINATES = 2
STRESS_ITERATIONS, STRESS_GRADIENT = 2000, 1e-9  # limits of L-BFGS: iterations, and largest final gradient
START_NOISE = 0.01
RESTARTS, MOST_ROUNDS = 10, 50
LOAD_BALANCE = 1.1
LEAST_GAIN = 1e-9  # minimum decrease of the cost by a move, so that rounding errors cannot cause cycles


@dataclass(frozen=True, kw_only=True)
class TowerPartition:
    """Towers, with their loads and interactions.

    Attributes:
        towers: Positions of the fields of each tower, ascending; the tower of the first field comes first.
        loads: Load of each tower: the sum of its fields' loads, or its number of fields if no loads are given.
        within: Mean interaction of two fields of the same tower; 0 if no tower has two fields.
        between: Mean interaction of two fields of different towers; 0 if there is only one tower.
    """

    towers: Towers
    loads: tuple[float, ...]
    within: float
    between: float


@torch.no_grad()
def interactions(pooled: Iterable[Tensor]) -> Tensor:
    """Return the interaction strength of each pair of fields: `|mean over samples of cos(e_i, e_j)|`.

    The absolute value is applied to the mean, not to each cosine, because unrelated vectors have cosines of either
    sign.

    Args:
        pooled: Batches `[batch, fields, dim]` of looked-up embeddings of a trained flat model, some hundred samples.

    Returns:
        `[fields, fields]`, symmetric, between 0 and 1; the diagonal is 0.
    """
    total, samples = torch.zeros(()), 0
    for batch in pooled:
        unit = torch.nn.functional.normalize(batch.double(), dim=2)
        total = total + torch.einsum("bfn,bgn->fg", unit, unit).cpu()
        samples += len(batch)
    assert samples, "interactions are seen in samples"
    return ((total + total.T) / (2 * samples)).abs().clamp(max=1.0).fill_diagonal_(0.0)


def partition_fields(
    interaction: Tensor,
    towers: int,
    *,
    strategy: Strategy = "coherent",
    loads: Sequence[float] | None = None,
    load_balance: float = LOAD_BALANCE,
    seed: int = 0,
) -> TowerPartition:
    """Divide the fields into towers.

    Without loads, the numbers of fields of two towers differ by at most one. With loads, no tower's load exceeds
    `load_limit`.

    Args:
        interaction: `[fields, fields]`, from `interactions`.
        towers: Number of towers, one for each host.
        strategy: `coherent` puts fields that interact into the same tower, `diverse` fields that do not interact.
        loads: Load of each field, such as its number of ids per sample; None counts fields.
        load_balance: Largest ratio of a tower's load to the mean, if a partition can reach this ratio.
        seed: Seed of the coordinates and the clusters.

    Raises:
        RequestError: There is no tower, more towers than fields, or a negative load.
    """
    fields = len(interaction)
    if not 1 <= towers <= fields:
        raise RequestError(f"{fields} categorical fields cannot be divided into {towers} towers: use 1 to {fields}.")
    if loads is not None and min(loads) < 0:
        raise RequestError(
            f"The load {min(loads):g} of a field is negative: give 0 or more, such as the field's ids per sample."
        )
    # Interactions are divided by the largest one: if all are weak, unscaled points would have nearly equal distances.
    scaled = interaction / interaction.max().clamp(min=torch.finfo(interaction.dtype).tiny)
    distance = 1 - scaled if strategy == "coherent" else scaled
    points = field_coordinates(distance, seed=seed)
    weights = np.ones(fields) if loads is None else np.asarray(loads, dtype=float)
    limit = load_limit(weights, towers, load_balance)

    def assign(cost: np.ndarray) -> np.ndarray:
        return _match(cost) if loads is None else _assign_under(cost, weights, limit)

    return _describe(balanced_clusters(points, towers, assign, seed=seed), interaction.numpy(), weights)


def field_coordinates(distance: Tensor, *, seed: int) -> np.ndarray:
    """Return points that minimise `sum_{i<j} (|x_i - x_j| - D_ij)^2`, so that their distances approach `distance`.

    L-BFGS runs until the gradient vanishes, so that the points are the same on every processor. The start is classical
    scaling (Torgerson, 1952), because a random start may end in a local minimum with two points exchanged. Noise is
    added to the start, because equal points would never separate.

    Args:
        distance: Target distances `[fields, fields]`, symmetric.
        seed: Seed of the noise.

    Returns:
        `[fields, 2]` float64.
    """
    from scipy.optimize import minimize  # imported here, so that training does not need scipy

    fields = len(distance)
    generator = torch.Generator().manual_seed(seed)
    noise = START_NOISE * torch.randn(fields, COORDINATES, generator=generator, dtype=torch.float64)
    # Coordinates along the principal axes of points with these distances.
    squares = distance.double().square()
    centred = squares - squares.mean(0, keepdim=True) - squares.mean(1, keepdim=True) + squares.mean()
    spread, directions = torch.linalg.eigh(-0.5 * centred)
    scaled = (directions * spread.clamp(min=0).sqrt()).flip(1)[:, :COORDINATES]
    start = (torch.nn.functional.pad(scaled, (0, COORDINATES - scaled.shape[1])) + noise).numpy()
    if fields == 1:
        return start
    found = minimize(
        _stress,
        start.ravel(),
        args=(distance.double().numpy(),),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": STRESS_ITERATIONS, "maxfun": 2 * STRESS_ITERATIONS, "gtol": STRESS_GRADIENT, "ftol": 0.0},
    )
    return found.x.reshape(fields, COORDINATES)


def _stress(flat: np.ndarray, wanted: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the stress of the points against the target distances, and its gradient."""
    points = flat.reshape(-1, COORDINATES)
    between = points[:, None] - points
    apart = np.sqrt((between**2).sum(2) + 1e-12)
    off = apart - wanted
    np.fill_diagonal(off, 0.0)
    slope = 2 * ((off / apart)[:, :, None] * between).sum(1)
    return float((off**2).sum() / 2), slope.ravel()


def balanced_clusters(
    points: np.ndarray, clusters: int, assign: Callable[[np.ndarray], np.ndarray], *, seed: int
) -> np.ndarray:
    """Run k-means with a constraint on the clusters from several starts, and return the best result.

    Args:
        points: `[points, dim]`.
        clusters: Number of clusters.
        assign: Function from squared distances `[points, clusters]` to a label per point that satisfies the constraint.
        seed: Seed of the starts.

    Returns:
        Labels of the points.
    """
    random = np.random.default_rng(seed)
    best, least = np.zeros(len(points), dtype=int), np.inf
    for _ in range(RESTARTS):
        labels = assign(_squared(points, points[random.choice(len(points), clusters, replace=False)]))
        inertia = _inertia(points, labels, clusters)
        for _ in range(MOST_ROUNDS):
            moved = assign(_squared(points, _centroids(points, labels, clusters)))
            lower = _inertia(points, moved, clusters)
            if lower >= inertia - LEAST_GAIN:
                break
            labels, inertia = moved, lower
        if inertia < least - LEAST_GAIN:
            best, least = labels, inertia
    return best


def load_limit(loads: np.ndarray, towers: int, load_balance: float = LOAD_BALANCE) -> float:
    """Return the load limit of a tower: `load_balance` times the mean load, but at least what `longest_first` reaches.

    The mean times `load_balance` may be unreachable, for instance if one field has most of the load.
    """
    reached = np.bincount(longest_first(loads, towers), weights=loads, minlength=towers).max()
    return float(max(load_balance * loads.sum() / towers, reached))


def _match(cost: np.ndarray) -> np.ndarray:
    """Return the cluster of each point in the cheapest assignment whose cluster sizes differ by at most one.

    `cost` is `[points, clusters]`. Each cluster has slots for the smaller size and, if points are left over, one
    additional slot. The price of an additional slot is so high that all other slots are filled first.
    """
    from scipy.optimize import linear_sum_assignment  # imported here, so that training does not need scipy

    points, clusters = cost.shape
    size, left_over = divmod(points, clusters)
    price = (cost.max() + 1.0) * points if left_over else 0.0
    places = [cost] * size + [cost + price] * (1 if left_over else 0)
    _, chosen = linear_sum_assignment(np.hstack(places))
    return chosen % clusters


def _assign_under(cost: np.ndarray, loads: np.ndarray, limit: float) -> np.ndarray:
    """Return the cluster of each point in a cheap assignment: no cluster is empty or exceeds the load limit.

    The assignment is greedy by regret: first come points whose second-best cluster costs most more than the best. If
    this finds no assignment, `longest_first` is used. Then single points are moved or swapped as long as the cost
    decreases.
    """
    labels = _greedy(cost, loads, limit)
    return _improve(longest_first(loads, cost.shape[1]) if labels is None else labels, cost, loads, limit)


def _greedy(cost: np.ndarray, loads: np.ndarray, limit: float) -> np.ndarray | None:
    """Return the cluster of each point, the nearest with load left; None if none has, or a cluster stays empty."""
    nearest = np.sort(cost, axis=1)
    regret = nearest[:, min(1, cost.shape[1] - 1)] - nearest[:, 0]
    room = np.full(cost.shape[1], limit)
    labels = np.zeros(len(cost), dtype=int)
    for point in np.argsort(-regret, kind="stable"):
        fitting = np.flatnonzero(room >= loads[point])
        if not len(fitting):
            return None
        labels[point] = fitting[cost[point, fitting].argmin()]
        room[labels[point]] -= loads[point]
    labels_used = len(np.unique(labels))
    carried = np.bincount(labels, weights=loads, minlength=cost.shape[1])
    return labels if labels_used == cost.shape[1] and carried.max() <= limit else None


def longest_first(loads: np.ndarray, clusters: int) -> np.ndarray:
    """Assign points, heaviest first, to the cluster with the least load, on ties to the cluster with fewest points.

    Graham, "Bounds on Multiprocessing Timing Anomalies", 1969: the largest load is at most 4/3 of the optimum.
    """
    carried, members = np.zeros(clusters), np.zeros(clusters, dtype=int)
    labels = np.zeros(len(loads), dtype=int)
    for point in np.argsort(-loads, kind="stable"):
        cluster = np.lexsort((members, carried))[0]
        labels[point] = cluster
        carried[cluster] += loads[point]
        members[cluster] += 1
    return labels


def _improve(labels: np.ndarray, cost: np.ndarray, loads: np.ndarray, limit: float) -> np.ndarray:
    """Make the best move of one point or swap of two points within the limit, until no change lowers the cost."""
    labels = labels.copy()
    clusters = cost.shape[1]
    every = np.arange(len(labels))
    while True:
        carried = np.bincount(labels, weights=loads, minlength=clusters)
        members = np.bincount(labels, minlength=clusters)
        gain = cost[every, labels][:, None] - cost  # gain of moving a point to a cluster
        may_move = (carried + loads[:, None] <= limit) & (members[labels] > 1)[:, None]
        moves = np.where(may_move, gain, 0.0)
        swaps = gain[:, labels] + gain[:, labels].T  # gain of exchanging the clusters of two points
        after = carried[labels][:, None] - loads[:, None] + loads  # load of the first point's cluster after the swap
        swaps = np.where(np.maximum(after, after.T) <= limit, swaps, 0.0)
        if max(moves.max(), swaps.max()) <= LEAST_GAIN:
            return labels
        if moves.max() >= swaps.max():
            point, cluster = np.unravel_index(moves.argmax(), moves.shape)
            labels[point] = cluster
        else:
            one, other = np.unravel_index(swaps.argmax(), swaps.shape)
            labels[[one, other]] = labels[[other, one]]


def _squared(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return ((points[:, None] - centres) ** 2).sum(2)


def _centroids(points: np.ndarray, labels: np.ndarray, clusters: int) -> np.ndarray:
    return np.stack([points[labels == cluster].mean(0) for cluster in range(clusters)])


def _inertia(points: np.ndarray, labels: np.ndarray, clusters: int) -> float:
    return float(((points - _centroids(points, labels, clusters)[labels]) ** 2).sum())


def _describe(labels: np.ndarray, interaction: np.ndarray, loads: np.ndarray) -> TowerPartition:
    """Return the partition with its loads and mean interactions; towers are in the order of their first fields."""
    first_seen = list(dict.fromkeys(labels.tolist()))
    same = labels[:, None] == labels
    pairs = np.triu(np.ones_like(same), k=1)
    means = [float(interaction[chosen & pairs].mean()) if (chosen & pairs).any() else 0.0 for chosen in (same, ~same)]
    return TowerPartition(
        towers=tuple(tuple(np.flatnonzero(labels == label).tolist()) for label in first_seen),
        loads=tuple(float(loads[labels == label].sum()) for label in first_seen),
        within=means[0],
        between=means[1],
    )
