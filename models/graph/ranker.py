"""A trained graph recommender as it is evaluated and served: vectors, and what to do for nodes without an edge."""

import torch
from torch import Tensor, nn

from models.graph.model import GraphModel

UNKNOWN = 0  # id of every user, or item, that training did not know
USERS_AT_ONCE = 256  # whose scores of all items lie in memory together


class Ranker(nn.Module):
    """Scores any item for any user; a higher score is a better rank among the items of the same user.

    The score is the product of the two vectors. Where that would mean nothing, a documented fallback does:

    - a user without an edge, or unknown, gets the popularity of each item as its log odds, `log((d + 1/2) /
      (n - d + 1/2))` for an item that `d` of `n` users with an edge chose: its own vector was never trained;
    - an unknown item gets the lowest score that any known item has for this user, so that it comes last;
    - an item that nobody chose keeps its own vector, which was trained as a negative.

    Scores of different users are not on one scale, and none is a probability.

    Args:
        user_vectors: `[users, dim]`.
        item_vectors: `[items, dim]`.
        user_degrees: Edges of each user, `[users]`.
        item_degrees: Edges of each item, `[items]`.
    """

    user_vectors: Tensor
    item_vectors: Tensor
    user_degrees: Tensor
    item_degrees: Tensor

    def __init__(self, user_vectors: Tensor, item_vectors: Tensor, user_degrees: Tensor, item_degrees: Tensor) -> None:
        super().__init__()
        self.register_buffer("user_vectors", user_vectors)
        self.register_buffer("item_vectors", item_vectors)
        self.register_buffer("user_degrees", user_degrees.long())
        self.register_buffer("item_degrees", item_degrees.long())

    @classmethod
    @torch.no_grad()
    def of(cls, model: GraphModel) -> "Ranker":
        """The ranker of a model as it stands, on the model's device."""
        users, items = model.all_vectors()
        degrees = [
            torch.from_numpy(counts).to(users.device)
            for counts in (model.graph.user_degrees(), model.graph.item_degrees())
        ]
        return cls(users.detach().clone(), items.detach().clone(), *degrees)

    @classmethod
    def empty(cls, users: int, items: int, width: int) -> "Ranker":
        """Room for the vectors of so many users and items."""
        return cls(
            torch.zeros(users, width),
            torch.zeros(items, width),
            torch.zeros(users, dtype=torch.int64),
            torch.zeros(items, dtype=torch.int64),
        )

    def by_popularity(self) -> "Ranker":
        """The baseline of every ranking: the same order for all users, by how many chose an item."""
        ones = torch.ones(len(self.user_vectors), 1, device=self.user_vectors.device)
        return Ranker(ones, self.popularity().unsqueeze(1), self.user_degrees, self.item_degrees)

    @torch.no_grad()
    def all_scores(self, users: Tensor) -> Tensor:
        """Scores of all items for some users, `[users]` to `[users, items]`."""
        scores = self.user_vectors[users] @ self.item_vectors.T
        scores = torch.where(self.user_degrees[users][:, None] > 0, scores, self.popularity()[None])
        scores[:, UNKNOWN] = scores[:, UNKNOWN + 1 :].amin(1)
        return scores

    @torch.no_grad()
    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Scores of pairs, `[pairs]` and `[pairs]` to `[pairs]`."""
        scores = (self.user_vectors[users] * self.item_vectors[items]).sum(1)
        scores = torch.where(self.user_degrees[users] > 0, scores, self.popularity()[items])
        unknown = (items == UNKNOWN).nonzero().flatten()
        for part in unknown.split(USERS_AT_ONCE):
            scores[part] = self.all_scores(users[part])[:, UNKNOWN]
        return scores

    def popularity(self) -> Tensor:
        """Log odds of each item among the users with an edge, `[items]`."""
        chosen, users = self.item_degrees.float(), (self.user_degrees > 0).sum()
        return torch.log((chosen + 0.5) / (users - chosen + 0.5))
