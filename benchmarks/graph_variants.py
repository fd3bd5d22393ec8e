"""What parts of the graph models are worth: edges that SAGE hides from itself, its normalisation, hetero's attributes.

The data are the MovieLens-1M ratings of every twelfth user as implicit feedback, split at random: eight tenths to learn
from, a tenth that decides when to stop, a tenth that is scored at the end, by full ranking as in `benchmarks.graph`.
The attributes are what MovieLens knows of users (gender, age, occupation) and of films (genres). Every variant learns
with the same settings, and with the same seeds; the means are over these.

    python -m benchmarks.graph_variants [--quick] [--seeds 0 1]
"""

import argparse
from statistics import fmean

import numpy as np
import pandas as pd

from benchmarks import report
from shunter.engine.config import Execution, Schedule
from shunter.engine.job import TrainingJob
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.evaluation import RankingMetrics, evaluate_ranking
from shunter.engine.ranking.interactions import Interactions
from shunter.engine.ranking.trainer import RankingData, train_ranking
from shunter.models.graph import Attribute, Graph, GraphSpec, graph_spec
from shunter.models.graph.ranker import VectorRanker
from shunter.models.graph.spec import Side
from shunter.settings import PROJECT_ROOT

FOLDER = PROJECT_ROOT.parent / "shared" / "data"
EVERY, QUICK_EVERY = 12, 60  # of the users one
SPLIT_SEED = 7
RATES = RankingHyperparameters(learning_rate=0.02)
BATCH_SIZE = 2_048
MOST_EPOCHS, PATIENCE = 25, 3
SAGE = {"family": "sage", "embedding_dim": 64, "layers": 2}
# Name, architecture, and whether it is given the attributes.
VARIANTS: dict[str, tuple[GraphSpec, bool]] = {
    "sage_before": (graph_spec(**SAGE, hide_targets=False, normalised=False), False),
    "sage_hidden": (graph_spec(**SAGE, hide_targets=True, normalised=False), False),
    "sage_normalised": (graph_spec(**SAGE, hide_targets=False, normalised=True), False),
    "sage": (graph_spec(**SAGE, hide_targets=True, normalised=True), False),
    "hetero_without": (graph_spec(family="hetero"), False),
    "hetero": (graph_spec(family="hetero"), True),
    "lightgcn": (graph_spec(family="lightgcn"), False),
}


def main() -> None:
    """Train every variant with every seed, print and publish."""
    arguments = report.parse_arguments(__doc__, _add_options)
    parts, attributes = read_parts(QUICK_EVERY if arguments.quick else EVERY)
    seeds = arguments.seeds[:1] if arguments.quick else arguments.seeds
    runs = []
    for name, (spec, is_given) in VARIANTS.items():
        for seed in seeds:
            epochs = 1 if arguments.quick else MOST_EPOCHS
            quality, best_epoch = trained(parts, attributes if is_given else (), spec, seed=seed, epochs=epochs)
            runs.append({"variant": name, "seed": seed, "best_epoch": best_epoch, **quality.to_dict()})
            print(f"{name} seed {seed}: NDCG@20 {quality.ndcg20:.4f} after {best_epoch} epochs", flush=True)
    headline = {f"{name}_ndcg20": _mean(runs, name) for name in VARIANTS}
    rows = [(name, f"{value:.4f}") for name, value in headline.items()]
    report.table(f"NDCG@20, mean of {len(seeds)} seeds", ("variant", "value"), rows)
    report.publish("graph_variants", headline, {"runs": runs}, seeds=seeds, quick=arguments.quick)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])


def _mean(runs: list[dict[str, float]], name: str) -> float:
    return round(fmean(run["ndcg20"] for run in runs if run["variant"] == name), 4)


def read_parts(every: int) -> tuple[dict[str, Interactions], tuple[Attribute, ...]]:
    """What some users rated, in three parts, and what is known of them and of the films; ids are those of the files."""
    with np.load(FOLDER / "ml-1m_ratings.npz") as stored:
        users, items = stored["user"].astype(np.int64), stored["item"].astype(np.int64)
    kept = users % every == 0
    part = np.random.default_rng(SPLIT_SEED).choice(3, int(kept.sum()), p=[0.8, 0.1, 0.1])
    parts = {
        name: Interactions.of(users[kept][part == number], items[kept][part == number])
        for number, name in enumerate(("train", "validation", "test"))
    }
    people, films = (pd.read_parquet(FOLDER / f"ml-1m_{name}.parquet") for name in ("users", "movies"))
    people = people.loc[people["user"] % every == 0]
    films = films.assign(genre=films["genres"].str.split("|")).explode("genre")
    of_people = [_attribute("user", name, people) for name in ("gender", "age", "occupation")]
    return parts, (*of_people, _attribute("item", "genre", films))


def _attribute(side: Side, name: str, frame: pd.DataFrame | pd.Series) -> Attribute:
    codes, known = pd.factorize(np.asarray(frame[name], object))
    return Attribute(
        name=name,
        side=side,
        values=len(known) + 1,
        nodes=np.array(frame[side], np.int64),
        ids=codes.astype(np.int64) + 1,
    )


def trained(
    parts: dict[str, Interactions], attributes: tuple[Attribute, ...], spec: GraphSpec, *, seed: int, epochs: int
) -> tuple[RankingMetrics, int]:
    """Quality on the test part of the epoch that ranks the validation part best, and which one that is."""
    train, validation = parts["train"], parts["validation"]
    graph = Graph(
        users=_count("user", [part.users for part in parts.values()], attributes),
        items=_count("item", [part.items for part in parts.values()], attributes),
        edge_users=train.users,
        edge_items=train.items,
        attributes=attributes,
    )
    data = RankingData(graph=graph, validation=validation, fingerprint="graph_variants")
    schedule = Schedule(max_epochs=epochs, patience=PATIENCE, seed=seed, select_by="ndcg@20")
    result = train_ranking(TrainingJob(data, spec, RATES, Execution(batch_size=BATCH_SIZE, threads=1), schedule))
    ranker = VectorRanker.of(result.model)
    return evaluate_ranking(ranker, parts["test"], train.union(validation), name="test"), result.best_epoch


def _count(side: Side, ids: list[np.ndarray], attributes: tuple[Attribute, ...]) -> int:
    known = [*ids, *(one.nodes for one in attributes if one.side == side)]
    return 1 + max(int(one.max()) for one in known)


if __name__ == "__main__":
    main()
