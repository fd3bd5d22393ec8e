"""A graph model that begins at the vectors by which another ranks, instead of at random ones."""

import torch

from shunter.engine.checkpoint.warm_start import WarmStart
from shunter.engine.ranking.storage import load_ranker
from shunter.models.graph import GraphModel, VectorRanker
from shunter.models.graph.fusion import FusedRanker
from shunter.models.graph.ranker import Ranker


@torch.no_grad()
def take_vectors(model: GraphModel, start: WarmStart) -> int:
    """Let the embeddings of known users and items begin at the vectors by which the former model ranks, in place.

    A file holds the final vectors and not the embeddings that these came of, so that what passes along edges, or
    through a tower, passes once more: a place to begin at, not the same ranking. Users and items that are new, or had
    no edge, begin where they were initialised, as do all other weights.

    Args:
        model: The model as it was initialised.
        start: The former model, and which ids of its user and its item field mean the same; a member of a fused one.

    Returns:
        Vectors taken; 0 of a former model that has none, or others of another width.

    Raises:
        CheckpointError: The former model is missing or damaged.
    """
    stored = load_ranker(start.directory)
    former = member_of(stored.ranker, start.member)
    if not isinstance(former, VectorRanker) or former.shape()["width"] != model.items.shape[1]:
        return 0
    taken = 0
    sides = (
        (stored.user, model.users, former.user_vectors, former.user_degrees),
        (stored.item, model.items, former.item_vectors, former.item_degrees),
    )
    for name, embeddings, vectors, degrees in sides:
        if not len(embeddings):  # users who have none of their own
            continue
        shared = start.rows[name]
        ids, former_ids = torch.from_numpy(shared.now), torch.from_numpy(shared.former)
        learned = degrees[former_ids] > 0
        embeddings[ids[learned].to(embeddings.device)] = vectors[former_ids[learned]].to(embeddings.device)
        taken += int(learned.sum())
    return taken


def member_of(ranker: Ranker, member: int) -> Ranker:
    """A member of a fused ranker; any other is its own only member."""
    return ranker.rankers[member] if isinstance(ranker, FusedRanker) else ranker
