"""Model card of a graph model, as one Markdown page in the MLflow run."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.evaluation import UserFigures
from shunter.engine.ranking.interactions import UNKNOWN, Interactions, read_before_test
from shunter.engine.ranking.item_index import (
    FEWEST_ITEMS,
    LARGE_CATALOGUE,
    LEAST_RECALL,
    MEASURED_AT,
    TRIED_USERS,
    MeasuredIndex,
    build_index,
    pays,
    why_exact,
)
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.storage import load_ranker
from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.models.graph import Graph, learns_in_steps
from shunter.models.graph.counting import count_graph_model
from shunter.models.graph.ranker import Ranker
from shunter.models.graph.spec import FusionSpec
from shunter.reporting.card.document import REPEATS
from shunter.reporting.card.ranking_baselines import RankingBaseline
from shunter.reporting.card.ranking_breakdown import RankingBreakdown, groups_table, lengths_table
from shunter.statistics import mean_interval

MIB = 2**20
LIMITS = (
    "A score says where an item ranks among those of the same user; it is no probability, so that it has no "
    "calibration, and scores of different users do not compare.",
    "A user without a positive in training, or unknown, gets the items by their popularity.",
    "An item that training did not know ranks last; one that nobody chose is scored by its own embedding, or 0 where "
    "items are weighed against each other.",
    "Nothing keeps what a user chose before out of a prediction, whatever the protocol of these figures.",
)


def ranking_card(
    trained: TrainedRanker,
    dataset: Dataset,
    graph: Graph,
    figures: UserFigures,
    breakdown: RankingBreakdown,
    *,
    baselines: Sequence[RankingBaseline] = (),
    reason: str = "",
    index: str = "",
) -> str:
    """Return the whole model card of a ranking model."""
    title = f"# Model card: {trained.spec.family} on {dataset.name}"
    parts = [
        title,
        *([reason] if reason else []),
        "## Quality on the test part",
        _table(_quality(trained, figures)),
        *(["## Baselines", _baselines(baselines)] if baselines else []),
        "## By length of the list",
        lengths_table(breakdown),
        "## For which items, for whom",
        groups_table(breakdown),
        *(["## Finding the best items", index] if index else []),
        "## Architecture",
        _table([(name, str(value)) for name, value in trained.spec.to_dict().items()]),
        "How it scores an item for a user, the file of the family in `models/graph` says.",
        "## Demand",
        _table(_demand(trained, graph)),
        "## Training",
        _table(_training(trained)),
        REPEATS,
        "## Training data",
        _table(_data(dataset, graph)),
        "## Limits",
        "\n".join(f"- {sentence}" for sentence in LIMITS),
    ]
    return "\n\n".join(parts) + "\n"


def _quality(trained: TrainedRanker, figures: UserFigures) -> list[tuple[str, str]]:
    rows = []
    for title, values in (("NDCG@20", figures.ndcg20), ("recall@20", figures.recall20)):
        low, high = mean_interval(values)
        rows.append((title, f"{values.mean():.4f} ({low:.4f} to {high:.4f} with 95 %, bootstrap over users)"))
    if trained.popularity is not None:
        rows.append(("NDCG@20 of the items by their popularity, the baseline", f"{trained.popularity.ndcg20:.4f}"))
    return [
        *rows,
        ("users judged", f"{trained.test.users:,}"),
        ("protocol", protocol_text(trained)),
        ("NDCG@20 on validation, which chose the epoch", f"{trained.validation.ndcg20:.4f}"),
    ]


def protocol_text(trained: TrainedRanker) -> str:
    """Return a text about the ranked items and the evaluated positive rows of the test part."""
    rows, drops = trained.test, trained.schedule.repeats == "drop"
    ranked = "items that the user has not seen are ranked" if drops else "all items are ranked"
    if not rows.positives:  # an earlier version of the project did not count positives
        return f"{ranked}; {rows.left_out:,} positives of users or items new since training left out"
    return (
        f"{ranked} for {rows.pairs:,} pairs of {rows.positives:,} positive rows; {rows.repeats:,} rows repeat earlier "
        f"pairs ({'left out' if drops else 'judged'}), {rows.left_out:,} are of users or items new since training"
    )


def _baselines(baselines: Sequence[RankingBaseline]) -> str:
    head = "| baseline | NDCG@20 | recall@20 | NDCG@20 on validation | seconds | J |\n|---|---|---|---|---|---|"
    rows = [
        f"| {one.name} {one.options} | {one.ndcg20:.4f} | {one.recall20:.4f} | {one.validation_ndcg20:.4f} | "
        f"{one.train_seconds:.1f} | {'-' if one.joules is None else f'{one.joules:,.0f}'} |"
        for one in baselines
    ]
    return "\n".join([head, *rows, "", *(f"- {one.summary}" for one in baselines)])


def _demand(trained: TrainedRanker, graph: Graph) -> list[tuple[str, str]]:
    if isinstance(trained.spec, FusionSpec):
        return [
            ("parameters", f"{trained.parameters:,}"),
            ("members, of each the demand adds up", trained.spec.members),
        ]
    counts = count_graph_model(trained.spec, graph, negatives=trained.hyperparameters.negatives)
    products = sum(
        2 * matmul.count * matmul.m * matmul.n * matmul.k for matmul in counts.matmuls if matmul.batch_axis == "none"
    )
    return [
        ("parameters", f"{trained.parameters:,}"),
        ("FLOPs a training sample, counted", f"{counts.matmul_flops_per_sample:,.0f}"),
        ("FLOPs of matrix products a step, counted", f"{products:,.0f}"),
        ("bytes moved along edges and by the update a step, counted", f"{counts.fp32.traffic_bytes_per_step:,.0f}"),
        ("weights and optimiser, counted", f"{(counts.parameter_bytes + counts.optimizer_bytes) / MIB:.1f} MiB"),
        ("most memory of the training, measured", f"{trained.peak_memory_bytes / MIB:.0f} MiB"),
    ]


def _training(trained: TrainedRanker) -> list[tuple[str, str]]:
    energy, family = trained.energy, trained.spec.family
    joules = "unavailable" if energy.joules is None else f"{energy.joules:,.0f} J, {energy.method}"
    return [
        ("placement", trained.placement.label),
        # A model that is solved in closed form has no hyperparameters.
        *((name, f"{value:g}") for name, value in trained.hyperparameters.to_dict().items() if learns_in_steps(family)),
        ("epochs, the best", f"{len(trained.history)}, {trained.best_epoch}"),
        ("ended by", trained.stopped_because),
        ("seed", str(trained.schedule.seed)),
        ("wall clock, measured", f"{trained.train_seconds:.1f} s"),
        ("energy", joules),
    ]


def _data(dataset: Dataset, graph: Graph) -> list[tuple[str, str]]:
    users, items = graph.user_degrees()[1:], graph.item_degrees()[1:]
    return [
        ("fingerprint", dataset.fingerprint),
        *(("version of the table", version) for version in dataset.versions),
        *([("rows where", dataset.where)] if dataset.where else []),
        ("user, item", f"{dataset.user}, {dataset.item}"),
        ("known users, of them without an edge", f"{len(users):,}, {(users == 0).sum():,}"),
        ("known items, of them without an edge", f"{len(items):,}, {(items == 0).sum():,}"),
        ("edges", f"{graph.edges:,}"),
        (
            "attributes",
            ", ".join(f"{attribute.name} of the {attribute.side}" for attribute in graph.attributes) or "none",
        ),
        ("split by", dataset.split_by),
    ]


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


class IndexFigures(Frozen):
    """Search method of `shunter serve --items` and `shunter predict --top` for a ranker, measured after its training.

    Attributes:
        sentence: Summary in one sentence.
        items: Number of items that the ranker ranks.
        recall: Share of the exact best items that the index finds, by the length of the list; empty without an index.
        build_seconds: Time to build the index; None without an index.
    """

    sentence: str
    items: int
    recall: dict[int, float] = Field(default_factory=dict)
    build_seconds: float | None = None

    def metrics(self) -> dict[str, float]:
        """Return the MLflow metrics `index.*`; empty without an index."""
        if self.build_seconds is None:
            return {}
        recalls = {f"index.recall{length}": recall for length, recall in self.recall.items()}
        return {**recalls, "index.items": float(self.items), "index.build_seconds": self.build_seconds}


def index_of(dataset: Dataset, trained: TrainedRanker) -> IndexFigures:
    """Build an index as a server does, and measure its recall for users and their interactions before the test part.

    Raises:
        CheckpointError: A file of the model is damaged.
    """
    return try_index(load_ranker(trained.directory).ranker, read_before_test(dataset))


def try_index(ranker: Ranker, seen: Interactions) -> IndexFigures:
    """Build an index of a ranker in memory, and measure its recall without items that users saw; see `index_of`."""
    items = np.arange(UNKNOWN + 1, len(ranker.item_degrees))
    exact = f"The best of {len(items):,} items are found by all scores (exact)"
    if (reason := why_exact(ranker)) is not None:
        return IndexFigures(sentence=f"{exact}: {reason}.", items=len(items))
    if len(items) < FEWEST_ITEMS:
        why = f"an index has no lists of {max(MEASURED_AT)} to offer below {FEWEST_ITEMS:,}"
        return IndexFigures(sentence=f"{exact}: {why}.", items=len(items))
    try:
        known = np.flatnonzero(ranker.user_degrees.numpy() > 0)
        users = np.random.default_rng(0).permutation(known)[:TRIED_USERS]
        ends = zip(*(np.searchsorted(seen.users, users, side=side) for side in ("left", "right")), strict=True)
        seen_places = [seen.items[begin:end] - UNKNOWN - 1 for begin, end in ends]
        measured = build_index(ranker, items, (users, seen_places), least_recall=0.0).measured
    except RequestError as error:
        return IndexFigures(sentence=f"{exact}: {error}", items=len(items))
    assert measured is not None
    return IndexFigures(
        sentence=_as_text(measured), items=len(items), recall=measured.recall, build_seconds=measured.build_seconds
    )


def _as_text(measured: MeasuredIndex) -> str:
    if min(measured.recall.values()) < LEAST_RECALL:
        use = f"less than {LEAST_RECALL:g}: it is refused, and all scores are compared (exact)"
    elif pays(measured.items, None):
        use = "and a server takes it by itself"
    else:
        use = f"and is taken with --index approximate, by itself only from {LARGE_CATALOGUE:,} items on"
    return (
        f"An index of the vectors of {measured.items:,} items (FAISS), built in {measured.build_seconds:.1f} s, finds "
        f"a share of the exact best of {measured.recall_as_text()} (measured on {measured.users} users), {use}."
    )
