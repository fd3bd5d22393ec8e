"""Quality of the graph models on Movielens1M_m1, by full ranking, beside what is published for LightGCN.

The data are the published split of MovieLens-1M as implicit feedback (UltraGCN's files): 6,022 users, 3,043 films,
796,244 pairs to learn from and 99,455 to find. The protocol is NGCF's and LightGCN's: every film that the user has not
in the training part is ranked; Recall@20 and NDCG@20 are means over users.

Settings and number of epochs were found with a tenth of the training part held out for validation and model seed 0
(`--validate` shows that curve). Then each seed learns from the whole training part for so many epochs, and the test
part is looked at once, at the end. LightGCN's protocol takes Adam with 1e-3, batches of 2,048 and one negative; each of
its steps pays for a propagation along all edges, so here batches are larger, with more negatives and larger steps.

    python -m benchmarks.graph [--quick] [--models lightgcn sage hetero] [--seeds 0 1 2] [--validate]

Each training is written down as soon as it is done, so that an interrupted run goes on where it stopped, and models and
seeds may be trained by processes of their own; a run of all of them, which finds them done, publishes the result. The
file says nothing of films and users, so `hetero` has no attributes here.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

from benchmarks import report
from shunter.engine.config import Execution
from shunter.engine.loop.step import applied
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.evaluation import RankingMetrics, evaluate_ranking
from shunter.engine.ranking.interactions import Interactions
from shunter.engine.ranking.trainer import build_optimizer, ranking_step, step_seed
from shunter.engine.ranking.triples import TripleBatches
from shunter.models.graph import Graph, GraphSpec, build_graph_model, graph_spec
from shunter.models.graph.ranker import Ranker, VectorRanker
from shunter.settings import PROJECT_ROOT

FILE = PROJECT_ROOT.parent / "shared" / "data" / "ml-1m_ultragcn.npz"
USERS, ITEMS = 6_023, 3_044  # id 0 is the unknown one, which the file does not have
VALIDATION_SEED, VALIDATION_SHARE = 123, 0.1
SEEDS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one model is trained.

    Attributes:
        spec: The architecture.
        hyperparameters: Found on the held-out tenth of the training part.
        batch_size: Positives a step.
        epochs: Epochs of each training, found in the same way.
        published_ndcg20: NDCG@20 of LightGCN, from UltraGCN's README; None where there is no such model.
        published_recall20: Recall@20 of LightGCN, from the same place.
        least_ndcg20: Gate for the mean over the seeds; None is no gate.
        least_recall20: The same.
    """

    spec: GraphSpec
    hyperparameters: RankingHyperparameters
    batch_size: int
    epochs: int
    published_ndcg20: float | None = None
    published_recall20: float | None = None
    least_ndcg20: float | None = None
    least_recall20: float | None = None


LEARNED_WITH = RankingHyperparameters(learning_rate=0.03, weight_decay=1e-3, negatives=4)
RECIPES = {
    "lightgcn": Recipe(
        spec=graph_spec(family="lightgcn", embedding_dim=64, layers=2),
        hyperparameters=LEARNED_WITH,
        batch_size=16_384,
        epochs=18,
        published_ndcg20=0.2427,
        published_recall20=0.2576,
        least_ndcg20=0.242,
        least_recall20=0.255,
    ),
    "sage": Recipe(
        spec=graph_spec(family="sage", embedding_dim=64, layers=2, neighbours=10),
        hyperparameters=RankingHyperparameters(learning_rate=0.02, weight_decay=1e-3, negatives=4),
        batch_size=16_384,
        epochs=10,
    ),
    "hetero": Recipe(
        spec=graph_spec(family="hetero", embedding_dim=64, layers=2),
        hyperparameters=RankingHyperparameters(learning_rate=0.02, weight_decay=1e-3, negatives=4),
        batch_size=16_384,
        epochs=6,
    ),
}


def main() -> None:
    """Train what is missing, judge, print and publish."""
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    if arguments.validate:
        for model in arguments.models:
            validate(model)
        return
    runs = []
    for model in arguments.models:
        for seed in arguments.seeds:
            runs.append(kept(model, seed, quick=arguments.quick, threads=arguments.threads))
    headline = judge(runs)
    is_whole = set(arguments.models) == set(RECIPES) and set(arguments.seeds) == set(SEEDS)
    if not (is_whole or arguments.quick):
        print(json.dumps(headline))
        return
    details = {"dgl": version("dgl"), "runs": runs}
    report.publish("graph", headline, details, seeds=arguments.seeds, quick=arguments.quick)
    for run in runs:
        partial_of(run["model"], run["seed"], quick=arguments.quick).unlink()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one epoch of one seed")
    parser.add_argument("--models", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--validate", action="store_true", help="only print the quality on held-out training pairs")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seeds = arguments.seeds[:1]
    return arguments


def kept(model: str, seed: int, *, quick: bool, threads: int) -> dict[str, Any]:
    """One training, or what an earlier process wrote of the same one."""
    recipe = RECIPES[model]
    epochs = 1 if quick else recipe.epochs
    identity = json.loads(json.dumps({"model": model, "seed": seed, "epochs": epochs, "recipe": asdict(recipe)}))
    partial = partial_of(model, seed, quick=quick)
    if partial.exists():
        found = json.loads(partial.read_text())
        if identity.items() <= found.items():
            return found
    run = identity | train_one(model, seed, epochs, threads)
    report.RESULTS.mkdir(exist_ok=True)
    partial.write_text(json.dumps(run))
    return run


def partial_of(model: str, seed: int, *, quick: bool) -> Path:
    """Where one training is written down until all are done."""
    return report.RESULTS / f"graph.{model}.{seed}{'.quick' if quick else ''}.partial.json"


def train_one(model: str, seed: int, epochs: int, threads: int) -> dict[str, Any]:
    """Learn from the whole training part, then look at the test part."""
    train, test = read_part("train"), read_part("test")
    watch = report.Stopwatch()
    states = list(learn(model, train, seed, epochs, threads))
    clock = watch.read()
    quality = evaluate_ranking(states[-1][2], test, train, name="test")
    print(f"{model} seed {seed}: NDCG@20 {quality.ndcg20:.4f}, recall@20 {quality.recall20:.4f}", flush=True)
    return {"test": quality.to_dict(), "train_loss": [loss for _, loss, _ in states], "threads": threads, **clock}


def validate(model: str) -> None:
    """Print the quality on a held-out tenth of the training part after each epoch: what recipes are chosen by."""
    whole = read_part("train")
    held_out = np.random.default_rng(VALIDATION_SEED).random(len(whole)) < VALIDATION_SHARE
    train, validation = (
        Interactions(users=whole.users[rows], items=whole.items[rows]) for rows in (~held_out, held_out)
    )
    for epoch, loss, ranker in learn(model, train, 0, 2 * RECIPES[model].epochs, torch.get_num_threads()):
        quality: RankingMetrics = evaluate_ranking(ranker, validation, train, name="validation")
        figures = f"NDCG@20 {quality.ndcg20:.4f}, recall@20 {quality.recall20:.4f}"
        print(f"{model} epoch {epoch}: loss {loss:.4f}, {figures}", flush=True)


def learn(model: str, train: Interactions, seed: int, epochs: int, threads: int) -> Iterator[tuple[int, float, Ranker]]:
    """Epoch after epoch: its number, its mean loss, and the ranker after it."""
    recipe = RECIPES[model]
    graph = Graph(users=USERS, items=ITEMS, edge_users=train.users, edge_items=train.items)
    with applied(Execution(threads=threads)):
        built = build_graph_model(recipe.spec, graph, seed=seed).train()
        optimizer = build_optimizer(built, recipe.hyperparameters)
        negatives = recipe.hyperparameters.negatives
        batches = TripleBatches(graph, recipe.batch_size, negatives=negatives, seed=seed)
        for epoch in range(epochs):
            total = 0.0
            for index in range(len(batches)):
                triples = batches.batch(epoch, index)
                built.reseed(step_seed(seed, epoch, index))
                loss = ranking_step(built, optimizer, triples, recipe.hyperparameters)
                total += loss.item() * triples.samples
            yield epoch + 1, total / batches.samples, VectorRanker.of(built)


def read_part(part: str) -> Interactions:
    """Pairs of one part, ids counted from 1."""
    with np.load(FILE) as stored:
        lengths = np.diff(stored[f"{part}_ptr"])
        users = np.repeat(stored[f"{part}_user"], lengths).astype(np.int64) + 1
        return Interactions.of(users, stored[f"{part}_item"].astype(np.int64) + 1)


def judge(runs: Sequence[dict[str, Any]]) -> dict[str, float | bool]:
    """Mean and spread of each model over its seeds, against gates and published figures.

    Returns:
        `<model>_ndcg20`, `<model>_recall20`, their standard deviations and the seconds of a training;
        `lightgcn_gates_met` where no gate is missed.
    """
    headline: dict[str, float | bool] = {}
    rows = []
    for model in dict.fromkeys(run["model"] for run in runs):
        own, recipe = [run for run in runs if run["model"] == model], RECIPES[model]
        for name, gate in (("ndcg20", recipe.least_ndcg20), ("recall20", recipe.least_recall20)):
            values = [run["test"][name] for run in own]
            headline[f"{model}_{name}"] = round(fmean(values), 4)
            headline[f"{model}_{name}_std"] = round(stdev(values), 5) if len(values) > 1 else 0.0
            if gate is not None:
                met = headline.get(f"{model}_gates_met", True)
                headline[f"{model}_gates_met"] = bool(met and round(fmean(values), 4) >= gate)
        for clock in ("processor_seconds", "wall_seconds"):
            headline[f"{model}_{clock}"] = round(fmean(run[clock] for run in own), 1)
        published = (recipe.published_ndcg20, recipe.published_recall20)
        gates = (recipe.least_ndcg20, recipe.least_recall20)
        rows.append((model, *_row(headline, model), *(f"{one:.4f}" if one else "-" for one in (*published, *gates))))
    columns = ("model", "NDCG@20", "sd", "recall@20", "sd", "cpu s", "published NDCG", "recall", "gate NDCG", "recall")
    report.table(f"Movielens1M_m1, mean of {len({run['seed'] for run in runs})} seeds", columns, rows)
    return headline


def _row(headline: dict[str, float | bool], model: str) -> list[str]:
    names = ("ndcg20", "ndcg20_std", "recall20", "recall20_std")
    return [f"{headline[f'{model}_{name}']:.4f}" for name in names] + [f"{headline[f'{model}_processor_seconds']:.0f}"]


if __name__ == "__main__":
    main()
