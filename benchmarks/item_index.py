"""The best 20 items of a large catalogue: an index of the item vectors beside the exact ways.

The items of Amazon's games with the vectors of width 64 that iALS has learned of them, and generated catalogues of
100,000 and 1,000,000 items, each a learned vector with noise of a third of its length, for users made likewise. Each is
a registered model that is loaded as `shunter serve --items` loads it, once exact and once with an index; the items that
a user has are left out. Users are asked for one by one, as requests come, and 256 together, as `shunter predict --top`
does. Beside it, without names and without leaving anything out: the product of vectors in torch with its topk, and
FAISS's flat index, each with the number of users together at which it is fastest. Recall is the product's own, measured
at the start on users that set nothing.

    python -m benchmarks.item_index [--quick]
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as `shunter serve` sets it, before torch is loaded

import faiss
import numpy as np
import pandas as pd
import torch

from benchmarks import next_item, report
from shunter.engine.ranking.interactions import read_graph
from shunter.engine.ranking.storage import StoredRanker, save_ranker
from shunter.models.graph import Graph, graph_spec
from shunter.models.graph.ials import Ials
from shunter.models.graph.ranker import VectorRanker

SEED, WIDTH, TOP = 0, 64, 20
NOISE = 1 / 3  # as a share of the length of a learned vector
USERS, HAS = 20_000, 20
QUICK_USERS = 1_500
SECONDS = 2.0  # of each way of asking
TOGETHER = (16, 64, 256)
PASSES = 3  # of iALS
USER, ITEM = "user", "item"


def main() -> None:
    """Ask in all ways, print and publish."""
    given = report.parse_arguments(__doc__)
    rows, headline, details = [], {}, {}
    learned = None
    for items in (None, 20_000) if given.quick else (None, 100_000, 1_000_000):
        name = "games" if items is None else f"generated_{items // 1_000}k"
        with TemporaryDirectory() as folder:
            parts = generated_log(items) if items else next_item.read_parts(QUICK_USERS if given.quick else None)
            files = next_item.write_files(parts, Path(folder))
            found, ranker = asked(files, Path(folder), 0.5 if given.quick else SECONDS, learned)
        learned = learned or ranker
        details[name] = found
        for way, figures in found["queries_per_second"].items():
            rows.append((f"{name}, {way}", *(f"{figures[batch]:,.0f}" for batch in ("one", "many"))))
            headline |= {f"{name}_{way}_qps_{batch}": round(figures[batch], 1) for batch in ("one", "many")}
        headline |= {f"{name}_torch_slowdown": round(found["torch_slowdown"], 2)}
        if found["index"]:
            headline |= {
                f"{name}_recall20": round(found["index"]["recall"]["20"], 4),
                f"{name}_build_seconds": round(found["index"]["build_seconds"], 1),
            }
        report.publish("item_index", headline, details, seeds=[SEED], quick=given.quick, partial=True)
    report.table("Queries per second, the best 20 items", ("catalogue, way", "one by one", "many"), rows)
    report.publish("item_index", headline, details, seeds=[SEED], quick=given.quick)


def generated_log(items: int) -> dict[str, pd.DataFrame]:
    """A log in which each user has some items and each item is there at least once."""
    random = np.random.default_rng(SEED)
    frame = pd.DataFrame(
        {
            USER: np.concatenate([np.repeat(np.arange(USERS), HAS), random.integers(0, USERS, items)]),
            ITEM: np.concatenate([random.integers(0, items, USERS * HAS), np.arange(items)]),
            "chosen": 1,
        }
    )
    return {"train": frame, "validation": frame.head(100), "test": frame.head(100)}


def generated_vectors(graph: Graph, learned: VectorRanker) -> VectorRanker:
    """Around learned ones."""
    random = torch.Generator().manual_seed(SEED)

    def drawn(count: int, vectors: torch.Tensor, degrees: torch.Tensor) -> torch.Tensor:
        known = vectors[degrees > 0]
        near = known[torch.randint(len(known), (count,), generator=random)]
        noise = torch.randn(count, WIDTH, generator=random) / WIDTH**0.5
        return near + NOISE * near.norm(dim=1, keepdim=True) * noise

    degrees = [torch.from_numpy(one) for one in (graph.user_degrees(), graph.item_degrees())]
    return VectorRanker(
        drawn(graph.users, learned.user_vectors, learned.user_degrees),
        drawn(graph.items, learned.item_vectors, learned.item_degrees),
        *degrees,
    )


def learned_vectors(graph: Graph) -> VectorRanker:
    """Those of iALS after a few passes."""
    spec = graph_spec("ials", embedding_dim=WIDTH)
    passes = Ials.rankers(spec, graph, seed=SEED, device=torch.device("cpu"))  # pyright: ignore[reportArgumentType]
    ranker = [next(passes) for _ in range(PASSES)][-1]
    assert isinstance(ranker, VectorRanker)
    return ranker


def asked(
    files: dict[str, str], folder: Path, seconds: float, learned: VectorRanker | None
) -> tuple[dict[str, Any], VectorRanker]:
    """Queries per second in each way, of a model that is registered and loaded as a server loads it, and its vectors.

    Args:
        files: The log, as its parts.
        folder: Room for a home.
        seconds: Of each way.
        learned: Vectors that others are generated around; None where they are to be learned.
    """
    os.environ["SHUNTER_HOME"] = str(folder / "home")
    from shunter.errors import RequestError
    from shunter.flows.command.environment import prepare_environment
    from shunter.ingestion.request import ingest_request
    from shunter.requests import IndexChoice, TrainRequest
    from shunter.serving.model_updater import load
    from shunter.serving.table import Table
    from shunter.tracking.registry.models import register_model
    from shunter.tracking.runs import start_run_tree

    prepare_environment(debug=False)
    schema = json.loads(Path(files["schema_file"]).read_text())
    schema["vocabulary"]["max_ids"] = 2_000_000
    Path(files["schema_file"]).write_text(json.dumps(schema))
    request = TrainRequest(**files, model="ials")
    dataset, _ = ingest_request(request)
    graph = read_graph(dataset)
    ranker = generated_vectors(graph, learned) if learned else learned_vectors(graph)
    stored = StoredRanker(ranker=ranker, spec=graph_spec("ials"), features=dataset.features, user=USER, item=ITEM)
    save_ranker(stored, folder / "model")
    register_model(start_run_tree(request, dataset), dataset, folder / "model", "shop", metrics={})
    names = pd.read_parquet(files["data"], columns=[USER])[USER].drop_duplicates()
    names = names.sample(frac=1, random_state=SEED).astype(str).tolist()
    before = torch_seconds()
    speeds: dict[str, dict[str, float]] = {}
    index: dict[str, Any] = {}
    for choice in (IndexChoice.EXACT, IndexChoice.APPROXIMATE):
        try:
            model = load("shop", Path(files["data"]), index=choice)
        except RequestError as error:
            print(error)
            continue
        assert model.items is not None
        speeds[choice.value] = {
            "one": per_second(lambda of, by=model: by.score([Table(1, {USER: of}, top=TOP)]), names, 1, seconds),
            "many": per_second(
                lambda of, by=model: by.score([Table(len(of), {USER: of}, top=TOP)]), names, 256, seconds
            ),
        }
        if model.items.measured is not None:
            index = vars(model.items.measured) | {"told": model.items.search_sentence}
            index["recall"] = {str(length): value for length, value in index["recall"].items()}
        del model
    after = torch_seconds()
    vectors, users = ranker.item_vectors[1:].contiguous(), ranker.user_vectors[1:].contiguous()
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors.numpy())  # pyright: ignore[reportCallIssue]
    rivals: dict[str, Callable[[torch.Tensor], Any]] = {
        "torch_topk": lambda some: (some @ vectors.T).topk(TOP),
        "faiss_flat": lambda some: flat.search(some.numpy(), TOP),  # pyright: ignore[reportCallIssue]
    }
    for name, ask in rivals.items():
        speeds[name] = {
            "one": per_second(ask, users, 1, seconds),
            "many": max(per_second(ask, users, together, seconds) for together in TOGETHER),
        }
    found = {"items": len(vectors), "index": index, "queries_per_second": speeds, "torch_slowdown": after / before}
    return found, ranker


def per_second(ask: Callable[[Any], Any], users: Any, together: int, seconds: float) -> float:
    """Users answered a second, so many of them together."""
    ask(users[:together])
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        first = done % (len(users) - together)
        ask(users[first : first + together])
        done += together
    return done / (time.perf_counter() - begin)


def torch_seconds() -> float:
    """The least time of a product of matrices by torch's threads."""
    matrix = torch.randn(1_500, 1_500)
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        _ = matrix @ matrix
        times.append(time.perf_counter() - begin)
    return min(times)


if __name__ == "__main__":
    main()
