"""Breakdown of a ranking by list length and by groups of items and users, with intervals, for page, card and MLflow.

The metrics are defined in `shunter.engine.ranking.breakdown`.
"""

from collections.abc import Sequence

import numpy as np

from shunter.engine.ranking.breakdown import CUTOFFS, GROUPS, Breakdown, quarters_of_users
from shunter.engine.ranking.evaluation import CUTOFF
from shunter.engine.ranking.interactions import UNKNOWN
from shunter.frozen import Frozen
from shunter.statistics import mean_interval

SIDES = "ranking.json"  # name of the artifact of a run
QUARTERS = ("shortest", "second", "third", "longest")


class LengthFigures(Frozen):
    """Quality of lists of one length; each metric is the mean over users."""

    cutoff: int
    ndcg: float
    ndcg_low: float
    ndcg_high: float
    recall: float
    precision: float
    hit_rate: float


class ItemGroup(Frozen):
    """Group of items by their popularity: number of items, share of the interactions, and share of the recommendations.

    `recall20` is the mean recall@20 of the group's items over the `users` who chose any of these items; None without
    such users.
    """

    name: str
    items: int
    chosen_share: float
    exposure_share: float
    users: int
    recall20: float | None
    recall20_low: float | None
    recall20_high: float | None


class UserGroup(Frozen):
    """Quarter of the users by number of seen items, which ranges from `shortest` to `longest` in the quarter."""

    name: str
    users: int
    shortest: int
    longest: int
    recall20: float
    ndcg20: float
    ndcg20_low: float
    ndcg20_high: float


class RankingBreakdown(Frozen):
    """Breakdown of one ranking of the test part, with 95 % intervals by the bootstrap over users."""

    name: str
    by_length: tuple[LengthFigures, ...]
    coverage20: float
    novelty20_bits: float
    item_groups: tuple[ItemGroup, ...]
    user_groups: tuple[UserGroup, ...]

    def metrics(self, prefix: str) -> dict[str, float]:
        """Return the MLflow metrics, such as `quality.test.ndcg10`; the same names for the result and each baseline."""
        values: dict[str, float | None] = {
            f"{figure}{one.cutoff}": getattr(one, figure)
            for one in self.by_length
            for figure in ("ndcg", "recall", "precision", "hit_rate")
        }
        values |= {"coverage20": self.coverage20, "novelty20_bits": self.novelty20_bits}
        for group in self.item_groups:
            values |= {f"{group.name}.recall20": group.recall20, f"{group.name}.exposure20": group.exposure_share}
        for quarter in self.user_groups:
            values |= {f"history_{quarter.name}.{name}": getattr(quarter, name) for name in ("ndcg20", "recall20")}
        return {f"{prefix}.{name}": value for name, value in values.items() if value is not None}


class RankingSides(Frozen):
    """Breakdowns of the result of a run and of its baselines, stored as an artifact of the run."""

    result: RankingBreakdown
    baselines: tuple[RankingBreakdown, ...] = ()

    def metrics(self) -> dict[str, float]:
        """Return the MLflow metrics of all breakdowns: `quality.test.*` and `baseline.<name>.test.*`."""
        values = self.result.metrics("quality.test")
        for one in self.baselines:
            values |= one.metrics(f"baseline.{one.name}.test")
        return values


def summarise_ranking(name: str, breakdown: Breakdown) -> RankingBreakdown:
    """Return means and intervals of a ranking that `shunter.engine.ranking.breakdown.break_down` returned."""
    shown = breakdown.novelty[np.isfinite(breakdown.novelty)]
    return RankingBreakdown(
        name=name,
        by_length=tuple(_length(breakdown, position) for position in range(len(CUTOFFS))),
        coverage20=breakdown.coverage,
        novelty20_bits=float(shown.mean()) if len(shown) else 0.0,
        item_groups=tuple(_item_group(breakdown, group) for group in range(len(GROUPS))),
        user_groups=tuple(_user_groups(breakdown)),
    )


def lengths_table(breakdown: RankingBreakdown) -> str:
    """Return the quality by the length of the list, as Markdown."""
    head = "| first | NDCG | recall | precision | hit rate |\n|---|---|---|---|---|"
    rows = [
        f"| {one.cutoff} | {one.ndcg:.4f} ({one.ndcg_low:.4f} to {one.ndcg_high:.4f}) | {one.recall:.4f} | "
        f"{one.precision:.4f} | {one.hit_rate:.4f} |"
        for one in breakdown.by_length
    ]
    return "\n".join([head, *rows])


def groups_table(breakdown: RankingBreakdown) -> str:
    """Return the quality by groups of items and of users, as Markdown."""
    items = ["| items | count | of what was chosen | of what is shown | recall@20 of theirs |\n|---|---|---|---|---|"]
    for group in breakdown.item_groups:
        recall = "-" if group.recall20 is None else f"{group.recall20:.4f}"
        items.append(
            f"| {group.name} | {group.items:,} | {group.chosen_share:.1%} | {group.exposure_share:.1%} | {recall} |"
        )
    users = ["| users by items seen | count | from | to | NDCG@20 | recall@20 |\n|---|---|---|---|---|---|"]
    users += [
        f"| {one.name} | {one.users:,} | {one.shortest:,} | {one.longest:,} | {one.ndcg20:.4f} "
        f"({one.ndcg20_low:.4f} to {one.ndcg20_high:.4f}) | {one.recall20:.4f} |"
        for one in breakdown.user_groups
    ]
    words = (
        f"The first {CUTOFF} of all users hold {breakdown.coverage20:.1%} of the known items (coverage); the mean "
        f"self-information of an item among them is {breakdown.novelty20_bits:.2f} bits (novelty)."
    )
    return "\n\n".join([words, "\n".join(items), "\n".join(users)])


def _length(breakdown: Breakdown, position: int) -> LengthFigures:
    low, high = mean_interval(breakdown.ndcg[:, position])
    return LengthFigures(
        cutoff=CUTOFFS[position],
        ndcg=float(breakdown.ndcg[:, position].mean()),
        ndcg_low=low,
        ndcg_high=high,
        recall=float(breakdown.recall[:, position].mean()),
        precision=float(breakdown.precision[:, position].mean()),
        hit_rate=float(breakdown.hit_rate[:, position].mean()),
    )


def _item_group(breakdown: Breakdown, group: int) -> ItemGroup:
    of_group = breakdown.group_of_item == group
    of_group[UNKNOWN] = False
    chosen, hits = breakdown.group_chosen[:, group], breakdown.group_hits[:, group]
    asked = chosen > 0
    shares = hits[asked] / chosen[asked]
    low, high = mean_interval(shares) if len(shares) else (None, None)
    return ItemGroup(
        name=GROUPS[group],
        items=int(of_group.sum()),
        chosen_share=float(chosen.sum() / breakdown.group_chosen.sum()),
        exposure_share=float(breakdown.exposure[of_group].sum() / max(1, breakdown.exposure.sum())),
        users=int(asked.sum()),
        recall20=float(shares.mean()) if len(shares) else None,
        recall20_low=low,
        recall20_high=high,
    )


def _user_groups(breakdown: Breakdown) -> Sequence[UserGroup]:
    quarters, found = quarters_of_users(breakdown.history), []
    for quarter, name in enumerate(QUARTERS):
        here = quarters == quarter
        if not here.any():
            continue
        gains, lengths = breakdown.figures.ndcg20[here], breakdown.history[here]
        low, high = mean_interval(gains)
        found.append(
            UserGroup(
                name=name,
                users=int(here.sum()),
                shortest=int(lengths.min()),
                longest=int(lengths.max()),
                recall20=float(breakdown.figures.recall20[here].mean()),
                ndcg20=float(gains.mean()),
                ndcg20_low=low,
                ndcg20_high=high,
            )
        )
    return found
