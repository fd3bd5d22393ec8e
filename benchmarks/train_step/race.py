"""Who takes part in the race of training steps, and how it is run on one device."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch

from benchmarks import report
from benchmarks.train_step import rivals
from benchmarks.train_step.rivals import Prepare, Step, Variant
from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch, make_batch
from shunter.engine.loop.compiled_step import compile_step
from shunter.engine.loop.cuda_graph_step import record_steps
from shunter.engine.loop.step import build_dense_optimizer, repeatable, train_step
from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.probes.tf32 import products_in_tf32
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

# Rows of the 26 fields in the Criteo Kaggle data, those above a million cut to it.
TABLE_ROWS = (
    *(1460, 583, 1_000_000, 1_000_000, 305, 24, 12517, 633, 3, 93145, 5683, 1_000_000, 3194),
    *(27, 14992, 1_000_000, 10, 5652, 2173, 4, 1_000_000, 18, 15, 286181, 105, 142572),
)
SPEC = model_spec(embedding_dim=16, bottom_widths=(512, 256, 64), top_widths=(512, 256))
FEATURES = Features(
    dense=tuple(f"I{number}" for number in range(1, 14)),
    categorical=tuple(CategoricalFeature(name=f"C{i}", rows=rows) for i, rows in enumerate(TABLE_ROWS, start=1)),
)
SEED = 0
PRECISIONS: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
DENSE_GRADIENTS = ("torchrec bare", "deepctr-torch DeepFM")  # of all rows: a hundred times as slow, so run less often
BATCHES = 8  # distinct ones, so that no contestant finds the rows of its last step in the cache


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is run.

    Attributes:
        sizes: Samples a batch.
        rounds: Blocks of each contestant and size.
        block_samples: Samples of a block, at least one batch.
        quality_seeds: Trainings in each precision and on each data set.
        quality_rows: Rows of the generated data set.
        compiled: Whether compiled steps take part; each size takes a compilation.
        dense_gradients: Whether those take part that compute gradients of all rows.
        energy_seconds: How long the joules of each contestant on a GPU are counted at each size.
    """

    sizes: tuple[int, ...] = (128, 512, 2048, 8192)
    rounds: int = 15
    block_samples: int = 4096
    quality_seeds: int = 20
    quality_rows: int = 200_000
    compiled: bool = True
    dense_gradients: bool = True
    energy_seconds: float = 5.0


QUICK = Plan(
    sizes=(128, 2048),
    rounds=3,
    quality_seeds=1,
    quality_rows=20_000,
    compiled=False,
    dense_gradients=False,
    energy_seconds=1.0,
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a race is run with: threads, and whether OpenMP's threads sleep or spin while they wait."""

    device: str
    threads: int
    wait_policy: Literal["PASSIVE", "ACTIVE"]

    @property
    def label(self) -> str:
        """Short text for titles."""
        return f"{self.device}, {self.threads} threads, waiting threads {self.wait_policy.lower()}"


class Shunter:
    """The engine's own step; compiling, where asked for, is done before the clock runs.

    Attributes:
        compile_seconds: Seconds of the compilation, by batch size; None where no compiler worked, and the steps are not
            compiled.
    """

    def __init__(
        self,
        device: torch.device,
        precision: Literal["fp32", "bf16"],
        *,
        compiled: bool = False,
        dense: str = "adam",
    ) -> None:
        """Build the model."""
        self._execution = Execution(device=str(device), precision=precision, compiled=compiled)
        self._model = build_model(SPEC, FEATURES, seed=SEED, device=device).train()
        self._optimizer = build_dense_optimizer(self._model, Hyperparameters(dense_optimizer=dense))
        self.compile_seconds: dict[int, float | None] = {}

    def __call__(self, batch: Batch) -> Step:
        """Prepare a step; compiled ones are for the size of the batch that came last."""
        size = len(batch)
        if self._execution.compiled and size not in self.compile_seconds:
            with repeatable() if batch.labels.is_cuda else nullcontext():
                self.compile_seconds[size] = compile_step(
                    self._model, self._optimizer, replace(self._execution, batch_size=size), batch
                )
        elif not self._execution.compiled and self._model.compiled_step is None:
            record_steps(self._model, self._optimizer, self._execution)
        return partial(train_step, self._model, self._optimizer, batch, self._execution.precision)


def contestants(device: torch.device, plan: Plan) -> dict[str, Callable[[], Prepare]]:
    """Everyone who can take part here, by name; ours begin with `shunter`."""
    kinds = [Variant(precision=precision, compiled=compiled) for precision in PRECISIONS for compiled in (False, True)]
    variants = [kind for kind in kinds if plan.compiled or not kind.compiled]
    named: dict[str, Callable[[], Prepare]] = {}
    for kind in variants:
        suffixes: dict[str, str] = {"adam": "", "sgd": ", SGD"}
        for dense, suffix in suffixes.items():
            named[f"shunter {kind.label}{suffix}"] = partial(
                Shunter, device, kind.precision, compiled=kind.compiled, dense=dense
            )
    recorded = [replace(kind, recorded=True) for kind in variants] if device.type == "cuda" else []
    for kind in (*variants, *recorded):
        named[f"plain SGD {kind.label}"] = partial(rivals.plain, SPEC, FEATURES, device, kind)
    for kind in variants:
        named[f"plain Adagrad {kind.label}"] = partial(
            rivals.plain, SPEC, FEATURES, device, replace(kind, optimizer="adagrad")
        )
    named["reference loop SGD"] = partial(rivals.reference, SPEC, FEATURES, device)
    if find_spec("torchrec") is not None:
        torchrec = partial(rivals.torchrec, SPEC, FEATURES, device)
        for kind in variants:
            with_adagrad = replace(kind, optimizer="adagrad")
            named[f"torchrec fused {kind.label}"] = partial(torchrec, tables="distributed", variant=with_adagrad)
        for kind in recorded:
            named[f"torchrec fused SGD {kind.label}"] = partial(torchrec, tables="fused", variant=kind)
        if plan.dense_gradients:
            named["torchrec bare"] = partial(torchrec, tables="bare")
    if find_spec("deepctr_torch") is not None and plan.dense_gradients:
        named["deepctr-torch DeepFM"] = partial(rivals.deepctr, SPEC, FEATURES, device)
    return named


def batches(size: int, device: torch.device) -> list[Batch]:
    """Random samples with Zipf-like ids."""
    random = np.random.default_rng(SEED)
    return [
        make_batch(
            FEATURES,
            dense=random.normal(size=(size, len(FEATURES.dense))).astype(np.float32),
            categorical=np.stack([_zipf(random, size, rows) for rows in TABLE_ROWS], axis=1),
            labels=(random.random(size) < 0.25).astype(np.float32),
        ).to(device)
        for _ in range(BATCHES)
    ]


def _zipf(random: np.random.Generator, size: int, rows: int) -> np.ndarray:
    """Ids whose frequency falls with their rank to the power of 1.2; the tail is spread over the table."""
    return ((random.zipf(1.2, size) - 1) % rows).astype(np.int32)


def race(setting: Setting, plan: Plan) -> dict[str, Any]:
    """Race at every size.

    Returns:
        `times`, seconds a step of each block by batch size, contestant and clock (`wall_seconds`, `processor_seconds`);
        `compile_seconds` by batch size; and on a GPU `energy`, joules a sample by batch size and contestant, and
        `unrecorded`, why the steps of a rival could not be recorded.
    """
    torch.set_num_threads(setting.threads)
    torch.manual_seed(SEED)
    device = torch.device(setting.device)
    field = {name: build() for name, build in contestants(device, plan).items()}
    times, energy = {}, {}
    unrecorded: dict[str, str] = {}
    for size in plan.sizes:
        given = batches(size, device)
        steps = {}
        for name, prepare in field.items():
            try:
                steps[name] = [prepare(batch) for batch in given]
            except RuntimeError as error:
                if "recorded" not in name:
                    raise
                unrecorded[name] = str(error).split("\n", 1)[0]
        times[size] = _race_at(steps, given, plan)
        if device.type == "cuda":
            energy[size] = joules(steps, given, plan.energy_seconds)
    compiling = [one.compile_seconds for one in field.values() if isinstance(one, Shunter) and one.compile_seconds]
    return {
        "times": times,
        "compile_seconds": compiling[0] if compiling else {},
        "energy": energy,
        "unrecorded": unrecorded,
    }


def _race_at(steps: dict[str, list[Step]], given: Sequence[Batch], plan: Plan) -> dict[str, dict[str, list[float]]]:
    for name, own in steps.items():
        _run(name, own, 2, given[0].labels.device)
    taken = {name: {"wall_seconds": [], "processor_seconds": []} for name in steps}
    names = list(steps)
    for turn in range(plan.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            count = max(1, plan.block_samples // len(given[0]))
            if name in DENSE_GRADIENTS:
                if turn % 3:
                    continue
                count = 1
            watch = report.Stopwatch()
            _run(name, steps[name], count, given[0].labels.device)
            for clock, seconds in watch.read().items():
                taken[name][clock].append(seconds / count)
    return taken


def joules(steps: dict[str, list[Step]], given: Sequence[Batch], seconds: float) -> dict[str, dict[str, Any]]:
    """Joules a sample of each contestant while it steps for some seconds, the host's among them, and who says so."""
    device, size = given[0].labels.device, len(given[0])
    found = {}
    for name, own in steps.items():
        done = 0
        with measure_energy(str(device), scope="machine") as meter:
            ends = time.perf_counter() + seconds
            while time.perf_counter() < ends:
                _run(name, own, BATCHES, device)
                done += BATCHES * size
        reading = meter.reading
        found[name] = {
            "joules_per_sample": None if reading.joules is None else reading.joules / done,
            "watts": reading.mean_watts,
            "method": reading.method,
            "source": reading.source,
        }
    return found


def _run(name: str, steps: Sequence[Step], count: int, device: torch.device) -> None:
    """Take steps, ours as they are taken in a training: on a GPU with sums in one order."""
    is_ours = device.type == "cuda" and name.startswith("shunter")
    with repeatable() if is_ours else nullcontext():
        for number in range(count):
            steps[number % len(steps)]()
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def limits(setting: Setting) -> dict[str, float]:
    """What the machine does at best: matrix products of 2048 rows by precision, and reading random embedding rows."""
    torch.set_num_threads(setting.threads)
    device = torch.device(setting.device)
    found = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        left, right = (torch.randn(2048, 2048, dtype=dtype, device=device) for _ in range(2))
        found[f"{name}_flops_per_second"] = 2 * 2048**3 / _shortest(partial(torch.mm, left, right), device)
    table = torch.randn(sum(TABLE_ROWS), SPEC.embedding_dim, device=device)
    rows = torch.randint(len(table), (1 << 19,), device=device)
    bytes_read = len(rows) * SPEC.embedding_dim * 4
    found["gather_bytes_per_second"] = bytes_read / _shortest(partial(torch.index_select, table, 0, rows), device)
    return found


def _shortest(work: Callable[[], Any], device: torch.device, repeats: int = 15) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds[2:])


def run_race(arguments: str) -> None:
    """Race in this process and print what was measured."""
    values, sizes = json.loads(arguments)
    setting, plan = Setting(**values), Plan(**{**sizes, "sizes": tuple(sizes["sizes"])})
    with products_in_tf32(torch.device(setting.device)):  # for everyone, as in our trainings
        print(json.dumps({"limits": limits(setting), **race(setting, plan)}))
