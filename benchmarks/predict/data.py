"""What `benchmarks.predict` measures: steps of seven models at many placements, and the memory of fresh processes.

Nothing is judged here. All that was measured goes into the result, so that the judgement can be repeated on it.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import report
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import SPLITS, Dataset, FieldStatistics, SplitStatistics
from shunter.engine.execution import execution_of
from shunter.engine.loop.step import applied
from shunter.engine.probes.steps import time_model
from shunter.hardware.types import Placement, Precision
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features, ModelSpec
from shunter.planner.describe import describe

SEED = 0
ROWS = 60_000
CURVE_POINTS = 32


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model with the data that it takes.

    Attributes:
        spec: The architecture.
        dense: Dense columns.
        rows: Ids of each single-valued field.
        bag_rows: Ids of each multi-valued field.
        bag_length: Most ids of a sample in a multi-valued field; the mean is half of it.
    """

    spec: ModelSpec
    dense: int
    rows: tuple[int, ...]
    bag_rows: tuple[int, ...] = ()
    bag_length: int = 0

    @property
    def features(self) -> Features:
        """The input: single-valued fields first."""
        fields = [CategoricalFeature(name=f"single{i}", rows=rows) for i, rows in enumerate(self.rows)]
        bags = [
            CategoricalFeature(name=f"bag{i}", rows=rows, multi_valued=True) for i, rows in enumerate(self.bag_rows)
        ]
        return Features(dense=tuple(f"dense{i}" for i in range(self.dense)), categorical=(*fields, *bags))


# Small to large, few to many tables, shallow to deep: what users of DLRM train.
SHAPES = {
    "movielens": Shape(spec=model_spec(), dense=2, rows=(944, 1683, 22, 8)),
    "criteo small": Shape(spec=model_spec(), dense=13, rows=(10_000,) * 6 + (1_000,) * 20),
    "criteo large": Shape(
        spec=model_spec(bottom_widths=(512, 256, 64), top_widths=(512, 256)),
        dense=13,
        rows=(200_000,) * 8 + (5_000,) * 18,
    ),
    "wide rows": Shape(
        spec=model_spec(embedding_dim=64, bottom_widths=(128,), top_widths=(256, 128)), dense=4, rows=(100_000,) * 10
    ),
    "long bags": Shape(
        spec=model_spec(embedding_dim=32, bottom_widths=(64,), top_widths=(128, 64)),
        dense=3,
        rows=(50_000,) * 3,
        bag_rows=(50_000,) * 5,
        bag_length=20,
    ),
    "deep layers": Shape(
        spec=model_spec(bottom_widths=(1024, 512), top_widths=(1024, 512, 256)), dense=40, rows=(20_000,) * 8
    ),
    "no dense input": Shape(spec=model_spec(embedding_dim=8, top_widths=(64,)), dense=0, rows=(30_000,) * 20),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured.

    Attributes:
        batch_sizes: Samples a step.
        threads: Intra-operator threads.
        rounds: Measurements of each setting, in turn with all others.
        seconds: Length of one measurement, at least `fewest_steps`.
        fewest_steps: Fewest steps of a measurement.
        memory: Whether memory is measured too.
    """

    batch_sizes: tuple[int, ...] = (64, 256, 1024, 4096)
    threads: tuple[int, ...] = (1, 2)
    rounds: int = 4
    seconds: float = 0.35
    fewest_steps: int = 5
    memory: bool = True


QUICK = Plan(batch_sizes=(256, 2048), rounds=2, seconds=0.1)


@dataclass(frozen=True, kw_only=True)
class MemorySetting:
    """One training whose peak memory is measured in a process of its own."""

    shape: str
    batch_size: int
    precision: Precision
    dense_optimizer: str


_MEMORY: tuple[tuple[str, int, Precision, str], ...] = (
    ("movielens", 256, "fp32", "adam"),
    ("movielens", 8192, "bf16", "sgd"),
    ("criteo small", 1024, "fp32", "adagrad"),
    ("criteo small", 8192, "fp32", "adam"),
    ("criteo small", 8192, "bf16", "adam"),
    ("criteo large", 512, "fp32", "adam"),
    ("criteo large", 4096, "bf16", "adagrad"),
    ("criteo large", 8192, "fp32", "sgd"),
    ("wide rows", 256, "bf16", "adam"),
    ("wide rows", 4096, "fp32", "sgd"),
    ("long bags", 1024, "bf16", "adam"),
    ("long bags", 8192, "fp32", "adagrad"),
    ("deep layers", 512, "fp32", "adam"),
    ("deep layers", 8192, "bf16", "adam"),
    ("no dense input", 4096, "fp32", "adam"),
)
MEMORY_SETTINGS = tuple(
    MemorySetting(shape=shape, batch_size=batch_size, precision=precision, dense_optimizer=optimizer)
    for shape, batch_size, precision, optimizer in _MEMORY
)


def measure_steps(plan: Plan) -> dict[str, Any]:
    """Measure every model at every placement; rounds of all in turn, so that a busy machine slows all alike.

    Returns:
        `workloads` by model, and `settings`, each with the median step seconds of every round.
    """
    with TemporaryDirectory() as folder:
        datasets = {name: write_dataset(Path(folder) / name, shape) for name, shape in SHAPES.items()}
        models = {name: build_model(shape.spec, shape.features, seed=SEED).train() for name, shape in SHAPES.items()}
        settings = [(name, placement) for name in SHAPES for placement in placements(plan)]
        rounds: dict[tuple[str, Placement], list[dict[str, float]]] = {setting: [] for setting in settings}
        generator = np.random.default_rng(SEED)
        for _ in range(plan.rounds):
            for index in generator.permutation(len(settings)):
                name, placement = settings[index]
                earlier = rounds[settings[index]]
                steps = int(earlier[0]["steps"]) if earlier else None
                earlier.append(_measure(models[name], datasets[name], placement, plan, steps))
        return {
            "workloads": {name: describe(datasets[name], SHAPES[name].spec).model_dump(mode="json") for name in SHAPES},
            "settings": [
                {"model": name, "placement": placement.model_dump(), "rounds": found}
                for (name, placement), found in rounds.items()
            ],
        }


def placements(plan: Plan) -> Iterator[Placement]:
    """Every placement of the plan."""
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    for threads in plan.threads:
        for precision in precisions:
            for batch_size in plan.batch_sizes:
                yield Placement(accelerator="cpu", threads=threads, precision=precision, batch_size=batch_size)


def _measure(model: Model, dataset: Dataset, placement: Placement, plan: Plan, steps: int | None) -> dict[str, float]:
    """One measurement; the number of steps is found by a pilot where it is not known from an earlier round."""
    execution = execution_of(placement)
    with applied(execution):
        if steps is None:
            pilot = time_model(model, dataset, Hyperparameters(), execution, steps=2, warmup_steps=2)
            steps = int(np.clip(plan.seconds / pilot.step_seconds, plan.fewest_steps, 200))
        load = Load()
        timing = time_model(model, dataset, Hyperparameters(), execution, steps=steps, warmup_steps=2)
        own_seconds, others_share = load.read()
    return {
        "step_seconds": timing.step_seconds,
        "step_seconds_p10": timing.step_seconds_p10,
        "step_seconds_p90": timing.step_seconds_p90,
        "wait_seconds": timing.wait_seconds,
        "load_seconds": timing.load_seconds,
        "processor_seconds": own_seconds / (steps + 2),
        "others_share": others_share,
        "steps": timing.steps,
    }


class Load:
    """What this process and all others take of the processor, from when it was made."""

    def __init__(self) -> None:
        """Begin."""
        self._begin = time.perf_counter(), time.process_time(), _busy_seconds()

    def read(self) -> tuple[float, float]:
        """Processor seconds of this process, and the share of all processors that others have taken."""
        wall, own, busy = time.perf_counter(), time.process_time(), _busy_seconds()
        own_seconds, seconds = own - self._begin[1], wall - self._begin[0]
        others = max(0.0, busy - self._begin[2] - own_seconds)
        return own_seconds, others / (seconds * (os.cpu_count() or 1))


def _busy_seconds() -> float:
    """Seconds that all processors together were not idle since the machine was started, other guests included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def measure_memory(settings: Sequence[MemorySetting] = MEMORY_SETTINGS) -> list[dict[str, Any]]:
    """Peak memory of real trainings, each in a fresh process."""
    return [
        {**asdict(setting), **report.measure("benchmarks.predict.data", json.dumps(asdict(setting)))}
        for setting in settings
    ]


def train_once(setting: MemorySetting, folder: Path) -> dict[str, Any]:
    """Train two short epochs and tell the peak of the memory, beside what the process held before."""
    from shunter.engine.job import Checkpointing, TrainingJob
    from shunter.engine.loop.trainer import train
    from shunter.engine.memory import process_bytes

    shape = SHAPES[setting.shape]
    dataset = write_dataset(folder / "data", shape, rows=8 * setting.batch_size)
    hyperparameters = Hyperparameters(dense_optimizer=setting.dense_optimizer)
    workload = describe(dataset, shape.spec, hyperparameters)
    execution = Execution(threads=1, precision=setting.precision, batch_size=setting.batch_size)
    before = process_bytes()
    schedule = Schedule(max_epochs=2)
    result = train(
        TrainingJob(dataset, shape.spec, hyperparameters, execution, schedule),
        checkpointing=Checkpointing(folder / "kept"),
    )
    return {
        "process_bytes": before,
        "peak_bytes": int(report.peak_memory_mib() * 2**20),
        "restored": result.best_epoch < len(result.history),
        "workload": workload.model_dump(mode="json"),
    }


def write_dataset(directory: Path, shape: Shape, rows: int = ROWS) -> Dataset:
    """Write random data in the engine's layout: ids follow a Zipf law, labels a coin."""
    directory.mkdir(parents=True)
    random = np.random.default_rng(SEED)
    statistics = {}
    for split, share in zip(SPLITS, (0.8, 0.1, 0.1), strict=True):
        count = max(2, int(rows * share))
        labels = (np.arange(count) % 3 == 0).astype(np.float32)
        np.save(directory / f"{split}.label.npy", labels)
        if shape.dense:
            np.save(directory / f"{split}.dense.npy", random.normal(size=(count, shape.dense)).astype(np.float32))
        single = np.stack([_zipf(random, ids, count) for ids in shape.rows], axis=1)
        np.save(directory / f"{split}.categorical.npy", single)
        for index, ids in enumerate(shape.bag_rows, start=len(shape.rows)):
            lengths = random.integers(0, shape.bag_length + 1, count)
            np.save(directory / f"{split}.bag{index}.values.npy", _zipf(random, ids, int(lengths.sum())))
            np.save(directory / f"{split}.bag{index}.offsets.npy", np.concatenate([[0], lengths.cumsum()]))
        statistics[split] = SplitStatistics(rows=count, positives=int(labels.sum()))
    dataset = Dataset(
        name="random",
        directory=directory,
        fingerprint=f"random-{rows}",
        features=shape.features,
        splits=statistics,
        split_by="hash",
        fields=tuple(
            FieldStatistics(
                name=field.name,
                kind="categorical",
                cardinality=field.rows,
                missing_share=0.0,
                access_curve=_curve(field.rows),
            )
            for field in shape.features.categorical
        ),
        quarantined_rows=0,
    )
    dataset.save()
    return dataset


def _zipf(random: np.random.Generator, ids: int, count: int) -> np.ndarray:
    """Ids whose frequency falls with their rank, scattered over the table."""
    ranks = np.exp(random.random(count) * np.log(ids)).astype(np.int64) - 1
    return ((ranks * 2_654_435_761) % ids).astype(np.int32)


def _curve(ids: int) -> tuple[tuple[float, float], ...]:
    """(Share of ids, share of lookups) of `_zipf`: the share grows with the logarithm of the rank."""
    ranks = np.unique(np.geomspace(1, ids, num=min(CURVE_POINTS, ids)).round())
    return tuple((float(rank / ids), float(np.log(rank + 1) / np.log(ids + 1))) for rank in ranks)


def main() -> None:
    """Train one setting, given as JSON, and print its memory as JSON."""
    with TemporaryDirectory() as folder:
        print(json.dumps(train_once(MemorySetting(**json.loads(sys.argv[1])), Path(folder))))


if __name__ == "__main__":
    main()
