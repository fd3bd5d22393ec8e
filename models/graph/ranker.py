"""A trained graph recommender as it is evaluated and served, and what to do for nodes without an edge."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from shunter.models.graph.model import GraphModel

UNKNOWN = 0  # id of every user, or item, that training did not know
USERS_AT_ONCE = 256  # whose scores of all items lie in memory together


class Ranker(nn.Module, ABC):
    """Scores any item for any user; a higher score is a better rank among the items of the same user.

    How a known user scores an item, a kind of ranker says. Where that would mean nothing, a documented fallback does:

    - a user without an edge, or unknown, gets the popularity of each item as its log odds, `log((d + 1/2) /
      (n - d + 1/2))` for an item that `d` of `n` users with an edge chose: nothing was learned of them;
    - an unknown item gets the lowest score that any known item has for this user, so that it comes last;
    - an item that nobody chose keeps the score that its kind of ranker gives it.

    Scores of different users are not on one scale, and none is a probability.

    Args:
        user_degrees: Edges of each user, `[users]`.
        item_degrees: Edges of each item, `[items]`.

    Attributes:
        kind: Name of the kind, as files have it.
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
        """Scores of all items for users with an edge, `[users]` to `[users, items]`; of others they are left out."""

    def known_pairs(self, users: Tensor, items: Tensor) -> Tensor:
        """The same of pairs, `[pairs]` and `[pairs]` to `[pairs]`: by all scores of each user that is asked for."""
        distinct, places = torch.unique(users, return_inverse=True)
        scores = torch.zeros(len(users), device=self.device)
        for first in range(0, len(distinct), USERS_AT_ONCE):
            of_users = self.known_scores(distinct[first : first + USERS_AT_ONCE])
            here = ((places >= first) & (places < first + USERS_AT_ONCE)).nonzero().flatten()
            scores[here] = of_users[places[here] - first, items[here]]
        return scores

    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """What `empty` takes beside the users and items."""

    @classmethod
    @abstractmethod
    def empty(cls, users: int, items: int, **shape: Any) -> "Ranker":
        """Room for what a file holds of so many users and items."""

    @property
    def device(self) -> torch.device:
        """Device where it lies."""
        return self.item_degrees.device

    @property
    def item_count(self) -> int:
        """Ids of items, the unknown one among them."""
        return len(self.item_degrees)

    def by_popularity(self) -> "VectorRanker":
        """The baseline of every ranking: the same order for all users, by how many chose an item."""
        return popularity_ranker(self.user_degrees, self.item_degrees)

    @torch.no_grad()
    def all_scores(self, users: Tensor) -> Tensor:
        """Scores of all items for some users, `[users]` to `[users, items]`."""
        scores = self.known_scores(users)
        is_cold = self.user_degrees[users] == 0
        if is_cold.any():
            scores[is_cold] = self.popularity()  # in place, for a copy of all scores takes half as long as to make them
        scores[:, UNKNOWN] = scores[:, UNKNOWN + 1 :].amin(1)
        return scores

    @torch.no_grad()
    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Scores of pairs, `[pairs]` and `[pairs]` to `[pairs]`."""
        scores = self.known_pairs(users, items)
        scores = torch.where(self.user_degrees[users] > 0, scores, self.popularity()[items])
        unknown = (items == UNKNOWN).nonzero().flatten()
        for part in unknown.split(USERS_AT_ONCE):
            scores[part] = self.all_scores(users[part])[:, UNKNOWN]
        return scores

    def popularity(self) -> Tensor:
        """Log odds of each item among the users with an edge, `[items]`."""
        chosen, users = self.item_degrees.float(), (self.user_degrees > 0).sum()
        return torch.log((chosen + 0.5) / (users - chosen + 0.5))


class VectorRanker(Ranker):
    """Scores by the product of a vector of the user and one of the item.

    An item that nobody chose keeps its own vector, which was trained as a negative.

    Args:
        user_vectors: `[users, dim]`.
        item_vectors: `[items, dim]`.
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
    def of(cls, model: GraphModel[Any]) -> "VectorRanker":
        """The ranker of a model as it stands, on the model's device."""
        users, items = model.all_vectors()
        degrees = [
            torch.from_numpy(counts).to(users.device)
            for counts in (model.graph.user_degrees(), model.graph.item_degrees())
        ]
        return cls(users.detach().clone(), items.detach().clone(), *degrees)

    @classmethod
    def empty(cls, users: int, items: int, **shape: int) -> "VectorRanker":
        """Room for vectors of `width`."""
        return cls(
            torch.zeros(users, shape["width"]),
            torch.zeros(items, shape["width"]),
            torch.zeros(users, dtype=torch.int64),
            torch.zeros(items, dtype=torch.int64),
        )

    def shape(self) -> dict[str, int]:
        """The width of the vectors."""
        return {"width": self.user_vectors.shape[1]}

    def known_scores(self, users: Tensor) -> Tensor:
        """By the products."""
        return self.user_vectors[users] @ self.item_vectors.T

    def known_pairs(self, users: Tensor, items: Tensor) -> Tensor:
        """By the products."""
        return (self.user_vectors[users] * self.item_vectors[items]).sum(1)


def popularity_ranker(user_degrees: Tensor, item_degrees: Tensor) -> VectorRanker:
    """Ranks the items by how many chose them, for every user alike; the scores are the log odds of `Ranker`."""
    found = VectorRanker(
        torch.ones(len(user_degrees), 1, device=user_degrees.device),
        torch.zeros(len(item_degrees), 1, device=user_degrees.device),
        user_degrees,
        item_degrees,
    )
    found.item_vectors = found.popularity().unsqueeze(1)
    return found
