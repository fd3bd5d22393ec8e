"""Trained graph recommender for evaluation and serving, with fallbacks for nodes without edges."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from shunter.models.graph.model import GraphModel

UNKNOWN = 0  # id of every user or item that is not in the training data
USERS_AT_ONCE = 256  # users whose scores of all items are in memory at the same time


class Ranker(nn.Module, ABC):
    """Recommender that scores any item for any user; items of the same user are ranked by descending score.

    A subclass defines the score of an item for a known user. Other scores have fallbacks:
    - an unknown user, or a user without edges, gets the popularity of each item, because nothing is known about the
    user. The score is the log odds `log((d + 1/2) / (n - d + 1/2))` of an item that `d` of `n` users with an edge
    chose;
    - an unknown item gets the lowest score of any known item for this user, so that it is last;
    - an item without interactions keeps the score that the subclass gives it.

    Scores of different users are not comparable, and none is a probability.

    Args:
        user_degrees: Edges of each user, `[users]`.
        item_degrees: Edges of each item, `[items]`.

    Attributes:
        kind: Name of the kind in files.
    """

    kind: ClassVar[str]

    user_degrees: Tensor
    item_degrees: Tensor

    def __init__(self, user_degrees: Tensor, item_degrees: Tensor) -> None:
        super().__init__()
        self.register_buffer("user_degrees", user_degrees.long())
        self.register_buffer("item_degrees", item_degrees.long())

    @abstractmethod
    def known_scores(self, users: Tensor) -> Tensor:
        """Return scores of all items, `[users]` to `[users, items]`; callers replace rows of users without edges."""

    def known_pairs(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the score of each (user, item) pair, `[pairs]`, without fallbacks; all items of a user are scored."""
        distinct, places = torch.unique(users, return_inverse=True)
        scores = torch.zeros(len(users), device=self.device)
        for first in range(0, len(distinct), USERS_AT_ONCE):
            of_users = self.known_scores(distinct[first : first + USERS_AT_ONCE])
            here = ((places >= first) & (places < first + USERS_AT_ONCE)).nonzero().flatten()
            scores[here] = of_users[places[here] - first, items[here]]
        return scores

    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """Return the arguments of `empty` in addition to the numbers of users and items."""

    @classmethod
    @abstractmethod
    def empty(cls, users: int, items: int, **shape: Any) -> "Ranker":
        """Create an uninitialised ranker, to load a file with these numbers of users and items."""

    @property
    def device(self) -> torch.device:
        """Torch device of the ranker's weights."""
        return self.item_degrees.device

    @property
    def item_count(self) -> int:
        """Number of item ids, including the unknown item."""
        return len(self.item_degrees)

    @property
    def is_popularity(self) -> bool:
        """Return True if the scores of every user are the popularity of the items."""
        return False

    def by_popularity(self) -> "VectorRanker":
        """Return the baseline of every ranking: items by number of interactions, the same for all users."""
        return popularity_ranker(self.user_degrees, self.item_degrees)

    @torch.no_grad()
    def all_scores(self, users: Tensor) -> Tensor:
        """Return scores of all items for some users, `[users]` to `[users, items]`."""
        scores = self.known_scores(users)
        is_cold = self.user_degrees[users] == 0
        if is_cold.any():
            scores[is_cold] = self.popularity()  # in place: a copy takes half as long as computing them
        scores[:, UNKNOWN] = scores[:, UNKNOWN + 1 :].amin(1)
        return scores

    @torch.no_grad()
    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the score of each (user, item) pair: `[pairs]` users and `[pairs]` items to `[pairs]`."""
        scores = self.known_pairs(users, items)
        scores = torch.where(self.user_degrees[users] > 0, scores, self.popularity()[items])
        unknown = (items == UNKNOWN).nonzero().flatten()
        for part in unknown.split(USERS_AT_ONCE):
            scores[part] = self.all_scores(users[part])[:, UNKNOWN]
        return scores

    def popularity(self) -> Tensor:
        """Return the log odds that a user with edges has chosen each item, `[items]`."""
        chosen, users = self.item_degrees.float(), (self.user_degrees > 0).sum()
        return torch.log((chosen + 0.5) / (users - chosen + 0.5))


class VectorRanker(Ranker):
    """Ranker that scores by the dot product of a user vector and an item vector.

    An item without interactions keeps its own vector, which was trained as a negative.

    Args:
        user_vectors: User vectors, `[users, dim]`.
        item_vectors: Item vectors, `[items, dim]`.
        user_degrees: Edges of each user, `[users]`.
        item_degrees: Edges of each item, `[items]`.
    """

    kind = "vectors"

    user_vectors: Tensor
    item_vectors: Tensor

    def __init__(self, user_vectors: Tensor, item_vectors: Tensor, user_degrees: Tensor, item_degrees: Tensor) -> None:
        super().__init__(user_degrees, item_degrees)
        self.register_buffer("user_vectors", user_vectors)
        self.register_buffer("item_vectors", item_vectors)

    @classmethod
    @torch.no_grad()
    def of(cls, model: "GraphModel[Any]") -> "VectorRanker":
        """Return the ranker of a model with its present weights, on the model's device."""
        users, items = model.all_vectors()
        degrees = [
            torch.from_numpy(counts).to(users.device)
            for counts in (model.graph.user_degrees(), model.graph.item_degrees())
        ]
        return cls(users.detach().clone(), items.detach().clone(), *degrees)

    @classmethod
    def empty(cls, users: int, items: int, **shape: int) -> "VectorRanker":
        """Create an uninitialised ranker with vectors of this `width`."""
        return cls(
            torch.zeros(users, shape["width"]),
            torch.zeros(items, shape["width"]),
            torch.zeros(users, dtype=torch.int64),
            torch.zeros(items, dtype=torch.int64),
        )

    @property
    def is_popularity(self) -> bool:
        """Return True if the scores of every user are the popularity of the items."""
        is_shared = self.user_vectors.shape[1] == 1 and bool((self.user_vectors == 1).all())
        return is_shared and torch.equal(self.item_vectors[:, 0], self.popularity())

    def shape(self) -> dict[str, int]:
        """Return the width of the user and item vectors."""
        return {"width": self.user_vectors.shape[1]}

    def known_scores(self, users: Tensor) -> Tensor:
        """Return the dot products of user vectors and all item vectors."""
        return self.user_vectors[users] @ self.item_vectors.T

    def known_pairs(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the dot products of pairs of user and item vectors."""
        return (self.user_vectors[users] * self.item_vectors[items]).sum(1)


def popularity_ranker(user_degrees: Tensor, item_degrees: Tensor) -> VectorRanker:
    """Return a ranker by number of interactions, the same for every user; the scores are the log odds of `Ranker`."""
    found = VectorRanker(
        torch.ones(len(user_degrees), 1, device=user_degrees.device),
        torch.zeros(len(item_degrees), 1, device=user_degrees.device),
        user_degrees,
        item_degrees,
    )
    found.item_vectors = found.popularity().unsqueeze(1)
    return found
