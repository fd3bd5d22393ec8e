"""Every architecture of a small space trained on two real click logs: a table that searches can be replayed on.

The space has 324 points, 252 of them different architectures: the interaction of a DLRM, the widths of two hidden
layers of its main MLP (0 leaves a layer out), the width of the largest table and the share of its ids that keep a row
of their own. Each architecture is trained twice, with two seeds, for two passes over a sample of 80,000 rows; its NE is
the lowest after a pass, on 20,000 rows of the validation part. Its parameter bytes are counted. Its seconds are
measured, on a machine that may have had other work: they say little about small differences.

    python -m benchmarks.search.table [--data frappe ml1m] [--seeds 0 1]

Each training is written down as it is done, and an interrupted run goes on where it stopped.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.search.cache import Cache
from benchmarks.search.data import load
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.search.protocol import Outcome, Parameters

DATA = ("frappe", "ml1m")
LARGEST = {"frappe": "item", "ml1m": "zip"}
ROWS = {"train": 80_000, "validation": 20_000, "test": 0}
SEEDS = (0, 1)
BATCH_SIZE, EPOCHS = 2_048, 2
RATES = Hyperparameters(dense_learning_rate=2e-3, embedding_learning_rate=0.1)
WIDTHS = (0, 32, 128)
DIMS = (4, 8, 16)
SHARES = (1.0, 0.1, 0.01)


def space_of(data: str, dataset: Dataset) -> ArchitectureSpace:
    """The small space over a data set."""
    field = LARGEST[data]
    return ArchitectureSpace(
        features=dataset.features,
        embedding_dim=max(DIMS),
        interactions=("dot", "linear", "fm", "cross"),
        top=(WIDTHS, WIDTHS),
        dims={field: DIMS},
        shares={field: SHARES},
        dense_learning_rate=RATES.dense_learning_rate,
        embedding_learning_rate=RATES.embedding_learning_rate,
    )


def points_of(space: ArchitectureSpace) -> list[Parameters]:
    """Every point, in the order of the factors' product; the same architecture may come twice."""
    factors = space.factors()
    return [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]


def train_point(dataset: Dataset, space: ArchitectureSpace, parameters: Parameters, seed: int) -> dict[str, float]:
    """Train the architecture at a point once."""
    spec, rates = space.build(parameters)
    execution = Execution(threads=1, batch_size=BATCH_SIZE)
    result = train(
        TrainingJob(dataset, spec, rates, execution, Schedule(max_epochs=EPOCHS, patience=EPOCHS, seed=seed))
    )
    return {
        "ne": result.validation.ne,
        "train_seconds": result.train_seconds,
        "step_seconds": result.compute_seconds / result.history[-1].step,
    }


def train_all(data: str, seed: int) -> None:
    """Train what is not written down yet."""
    cache = Cache.of("search-table")
    with TemporaryDirectory() as folder:
        dataset = load(data, Path(folder), ROWS)
        space = space_of(data, dataset)
        points = points_of(space)
        for done, parameters in enumerate(points, start=1):
            key = key_of(data, dataset, space, parameters, seed)
            cache.get_or_make(key, lambda parameters=parameters: train_point(dataset, space, parameters, seed))
            if done % 50 == 0 or done == len(points):
                print(f"{data}, seed {seed}: {done} of {len(points)} points", flush=True)


def key_of(data: str, dataset: Dataset, space: ArchitectureSpace, parameters: Parameters, seed: int) -> dict[str, Any]:
    """All that decides about a training."""
    spec, rates = space.build(parameters)
    return {
        "data": data,
        "rows": {part: one.rows for part, one in dataset.splits.items()},
        "spec": spec.to_dict(),
        "rates": rates.to_dict(),
        "batch_size": BATCH_SIZE,
        "epochs": EPOCHS,
        "seed": seed,
    }


@dataclass(frozen=True, kw_only=True)
class TrainedTable:
    """The trainings of all points of the small space on one data set.

    Attributes:
        data: Name of the data set.
        dataset: Data set of the trainings; its arrays may be gone.
        space: Space of the points.
        ne: Lowest validation NE, float64 `[points, seeds]`.
        step_seconds: Measured, likewise.
        train_seconds: Measured, likewise.
        parameter_bytes: Counted, `[points]`.
    """

    data: str
    dataset: Dataset
    space: ArchitectureSpace
    ne: np.ndarray
    step_seconds: np.ndarray
    train_seconds: np.ndarray
    parameter_bytes: np.ndarray

    @cached_property
    def points(self) -> list[Parameters]:
        """In the order of the arrays."""
        return points_of(self.space)

    @cached_property
    def _places(self) -> Mapping[tuple[Any, ...], int]:
        return {tuple(point.values()): place for place, point in enumerate(self.points)}

    @cached_property
    def ranks(self) -> np.ndarray:
        """Share of the points that are better by their mean NE, `[points]`; 0 is the best."""
        means = self.ne.mean(axis=1)
        return np.searchsorted(np.sort(means), means, side="left") / len(means)

    def place(self, parameters: Parameters) -> int:
        """Which point it is."""
        return self._places[tuple(parameters[name] for name in self.space.factors())]

    def look_up(self, parameters: Parameters, random: np.random.Generator) -> Outcome:
        """One of the trainings of a point, drawn at random."""
        place = self.place(parameters)
        seed = int(random.integers(self.ne.shape[1]))
        return Outcome(
            state="complete",
            validation_ne=float(self.ne[place, seed]),
            costs={
                "step_seconds": float(self.step_seconds[place, seed]),
                "parameter_bytes": float(self.parameter_bytes[place]),
            },
            seconds=float(self.train_seconds[place, seed]),
        )


def load_trained(data: str, folder: Path, seeds: tuple[int, ...] | None = None) -> TrainedTable:
    """Read the trainings of a data set.

    Args:
        data: Name of the data in `DATA`.
        folder: Folder where the data set is written, or found.
        seeds: Seeds that were trained; None is all with which every point was.

    Raises:
        FileNotFoundError: Trainings are missing.
    """
    cache, dataset = Cache.of("search-table"), load(data, folder, ROWS)
    space = space_of(data, dataset)
    points = points_of(space)
    by_seed = {
        seed: [cache.get(key_of(data, dataset, space, point, seed)) for point in points] for seed in seeds or SEEDS
    }
    if seeds is None:
        by_seed = {seed: column for seed, column in by_seed.items() if None not in column} or {
            SEEDS[0]: by_seed[SEEDS[0]]
        }
    known = list(zip(*by_seed.values(), strict=True))
    missing = sum(one is None for row in known for one in row)
    if missing:
        raise FileNotFoundError(
            f"The table of {data} lacks {missing} trainings: run python -m benchmarks.search.table."
        )
    columns = {
        name: np.array([[one[name] for one in row if one] for row in known], dtype=np.float64)
        for name in ("ne", "step_seconds", "train_seconds")
    }
    counted = np.array([space.parameter_bytes(point) for point in points], dtype=np.float64)
    return TrainedTable(data=data, dataset=dataset, space=space, parameter_bytes=counted, **columns)


def main() -> None:
    """Train what is missing of the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for data in arguments.data:
            train_all(data, seed)


if __name__ == "__main__":
    main()
