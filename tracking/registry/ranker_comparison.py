"""Comparison of two ranking models, champion and challenger, by NDCG@20 of each user that both models know."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shunter.engine.checkpoint.warm_start import SharedRows
from shunter.engine.config import Repeats
from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.evaluation import evaluate_users
from shunter.engine.ranking.interactions import Interactions, read_before_test, read_interactions
from shunter.engine.ranking.storage import load_ranker
from shunter.errors import DataError
from shunter.frozen import Frozen
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.shared_rows import shared_rows
from shunter.statistics import one_sided_bounds, resampled_block_means
from shunter.tracking.registry.versions import ModelFiles

if TYPE_CHECKING:
    from shunter.models.graph.ranker import Ranker


class RankingComparison(Frozen):
    """Comparison of champion and challenger on the same users.

    Attributes:
        kind: Constant that distinguishes a stored record from a `ChampionComparison` by log loss.
        users: Number of users that both models know and who chose an item on the day.
        champion_ndcg20: Mean over the users of the champion's NDCG@20.
        challenger_ndcg20: Mean over the users of the challenger's NDCG@20.
        popularity_ndcg20: Mean NDCG@20 of a ranking by the items' popularity on the previous days.
        gain: NDCG@20 of the challenger minus that of the champion; positive if the challenger is better.
        gain_low: Lower confidence bound of the gain.
        gain_high: Upper one-sided confidence bound of the gain.
        needed: Gain that must be exceeded: margin times the champion's NDCG@20.
        confidence: Requested confidence.
        is_better: Whether `gain_low` exceeds `needed`.
    """

    kind: Literal["ranking"] = "ranking"
    users: int
    champion_ndcg20: float
    challenger_ndcg20: float
    popularity_ndcg20: float
    gain: float
    gain_low: float
    gain_high: float
    needed: float
    confidence: float
    is_better: bool

    @property
    def is_overtaken(self) -> bool:
        """Return True if popularity ranks as well as the champion, and the challenger ranks better by any amount."""
        return self.gain > 0 and self.champion_ndcg20 <= self.popularity_ndcg20

    def sides(self) -> list[dict[str, Any]]:
        """Return table rows with name and NDCG@20 of champion, challenger and the ranking by popularity."""
        sides = ("champion", "challenger", "popularity")
        return [{"name": side, "NDCG@20": getattr(self, f"{side}_ndcg20")} for side in sides]

    def explain(self) -> str:
        """Return the result of the comparison, in one sentence."""
        relation = "above" if self.is_better else "not above"
        return (
            f"On {self.users:,} users that both models know, the challenger has NDCG@20 "
            f"{self.challenger_ndcg20:.4f} against {self.champion_ndcg20:.4f} of the champion; "
            f"with probability {self.confidence:.0%} the gain is above {self.gain_low:+.4f}, {relation} the "
            f"required {self.needed:.4f}."
        )

    def figures(self) -> dict[str, float]:
        """Return the comparison of two ranking models as metrics for MLflow."""
        names = [f"{side}_ndcg20" for side in ("champion", "challenger", "popularity")]
        names += ["gain", "gain_low", "gain_high", "needed", "users"]
        return {name: float(getattr(self, name)) for name in names}


def compare_rankers(
    dataset: Dataset,
    champion: ModelFiles,
    challenger: Path,
    *,
    margin: float,
    confidence: float,
    seed: int,
    repeats: Repeats = "drop",
) -> tuple[RankingComparison, NDArray[np.float64]]:
    """Rank the test part with both models, and compare their NDCG@20; see `compare_losses`.

    The models rank items for the users that both models know, by default without items that a user has seen before. An
    item that the champion does not know is not in the champion's lists, and counts as a miss if a user chose it. Unless
    `repeats` is `drop`, pairs that occur in earlier rows count too, and seen items are ranked.

    Returns:
        The comparison, and the mean gain of each resample.

    Raises:
        DataError: No user that both models know chose an item in the test part.
        CheckpointError: A model is damaged.
    """
    before, now = load_ranker(champion.model), load_ranker(challenger)
    shared = shared_rows(Encoder.load(dataset.directory / "encoder"), Encoder.load(champion.encoder))
    if not {now.user, now.item} <= shared.keys():
        raise DataError(
            "Champion and challenger read users or items in different forms and cannot be compared: train a "
            "new champion."
        )
    counts = len(now.ranker.user_degrees), len(now.ranker.item_degrees)
    translated = _Translated(before.ranker, shared[now.user], shared[now.item], *counts)
    seen = read_before_test(dataset)
    every = read_interactions(dataset, "test")
    kept = (translated.known & (now.ranker.user_degrees > 0).numpy())[every.users]
    chosen = Interactions(users=every.users[kept], items=every.items[kept], left_out=every.left_out)
    if not len(chosen.without(seen) if repeats == "drop" else chosen):
        raise DataError(
            "No user known to both champion and challenger has a new item on the evaluation day, so they "
            "cannot be compared: raise --train-days, or name another day with --day."
        )
    rankers = (translated, now.ranker, now.ranker.by_popularity())
    old, new, popular = (evaluate_users(one, chosen, seen, name="test", repeats=repeats).ndcg20 for one in rankers)
    gains = resampled_block_means(new - old, seed)
    low, high = one_sided_bounds(gains, confidence)
    needed = margin * float(old.mean())
    judgement = RankingComparison(
        users=len(old),
        champion_ndcg20=float(old.mean()),
        challenger_ndcg20=float(new.mean()),
        popularity_ndcg20=float(popular.mean()),
        gain=float((new - old).mean()),
        gain_low=low,
        gain_high=high,
        needed=needed,
        confidence=confidence,
        is_better=bool(low > needed),
    )
    return judgement, gains


@dataclass(frozen=True, eq=False)
class _Translated:
    """Wrapper that ranks with the ids of another encoder; items that the ranker does not know are not ranked."""

    ranker: "Ranker"
    users: SharedRows
    items: SharedRows
    user_count: int
    item_count: int

    @property
    def device(self) -> torch.device:
        """Device of the ranker."""
        return self.ranker.device

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return a mask of the users, in the other encoder's ids, with interactions in training, `[users]`."""
        learned = (self.ranker.user_degrees > 0).cpu().numpy()
        found = np.zeros(self.user_count, bool)
        found[self.users.now] = learned[self.users.former]
        return found

    def all_scores(self, users: Tensor) -> Tensor:
        """Return the scores of all items for known users, `[users, items]`, in the ids of the other encoder."""
        former = torch.zeros(self.user_count, dtype=torch.int64)
        former[torch.from_numpy(self.users.now)] = torch.from_numpy(self.users.former)
        own = self.ranker.all_scores(former[users.cpu()].to(self.device))
        scores = torch.full((len(users), self.item_count), -torch.inf, device=self.device)
        known = torch.from_numpy(self.items.former > 0)
        scores[:, torch.from_numpy(self.items.now)[known]] = own[:, torch.from_numpy(self.items.former)[known]]
        return scores
