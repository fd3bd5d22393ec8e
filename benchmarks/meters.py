"""What metering costs: a training of the product with and without a meter around it, in blocks that take turns.

One training goes on through the executor that `shunter train` uses in this process, and its own hook, asked after each
step, opens and closes what is compared: nothing, the meter that every training has, the same with an energy limit that
is asked after every step, a meter that also integrates a power sensor, and a meter that looks at its sources a hundred
times as often. A block without a meter lies on either side of each of the others and is what it is compared with: the
ratio of their times a step, by processor time and by the clock on the wall. The median of the ratios counts, with its
bootstrap interval. Opening and closing a meter, once a training, is counted apart.

A block is too short for a look of a meter that is left to itself, and one look costs far less than noise. So the meter
looks `TIMES_AS_MANY` times as often here, and so does the limit, which is asked as many times after each step: all that
either does while a training goes on is done so many times, and `meters_price` and `budget_price` are the ratios divided
by as many. `overhead_direct` is the ratio on the wall, undivided. `overhead` is that of a hundred times as many looks,
divided by a hundred. By the clock on the wall a busy machine blurs the comparison; the intervals say how much.

The steps run on one thread, and an idle child process runs beside them, as one does in most flows: to count the time
of children is what is dear. No power sensor is asked here: its place takes a file, read as the kernel's files are.

    nice -n 5 python -m benchmarks.meters [--quick]
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.optimizers import ingest_planted
from shunter.engine import stopping
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.job import Hooks, TrainingJob
from shunter.engine.stopping import Budget, RunClock, StopKind, StopReason
from shunter.hardware.meters.component import Component
from shunter.hardware.meters.cpu import CpuTimeEstimate
from shunter.hardware.meters.meter import MOST_SAMPLING_SHARE, EnergyMeter, measure_energy
from shunter.hardware.meters.source import PowerIntegral
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec

SEED = 0
SPEC = model_spec(embedding_dim=16, bottom_widths=(512, 256, 64), top_widths=(512, 256))
TIMES_AS_MANY = 10  # looks of the meter and of the limit, and asking for it
AMPLIFIED = 100  # times as many looks, where one look is to be told from noise
BLOCK_SECONDS = 0.3
WARM_UP_BLOCKS = 4
ALLOWED = 0.01
LEAST_PAIRS = 20  # below, an interval says nothing
Asked = Callable[[], object]
Variant = Callable[[], AbstractContextManager[Asked]]


@dataclass(frozen=True)
class Plan:
    """How much is run.

    Attributes:
        rows: Rows of the generated data.
        seconds: Length of the training by batch size.
    """

    rows: int
    seconds: dict[int, float]


FULL = Plan(rows=250_000, seconds={128: 140.0})
QUICK = Plan(rows=60_000, seconds={128: 12.0})


@contextmanager
def looking(times_as_many: float) -> Iterator[None]:
    """Every meter that is opened in the block looks so many times as often, and so does an energy limit."""
    meter_seconds, limit_seconds = CpuTimeEstimate.interval_seconds, stopping.ENERGY_INTERVAL_SECONDS
    CpuTimeEstimate.interval_seconds = meter_seconds / times_as_many
    stopping.ENERGY_INTERVAL_SECONDS = limit_seconds / times_as_many
    try:
        yield
    finally:
        CpuTimeEstimate.interval_seconds, stopping.ENERGY_INTERVAL_SECONDS = meter_seconds, limit_seconds


@contextmanager
def bare() -> Iterator[Asked]:
    """No meter."""
    yield _nothing


@contextmanager
def metered() -> Iterator[Asked]:
    """The meter that every training has."""
    with looking(TIMES_AS_MANY), measure_energy("cpu"):
        yield _nothing


@contextmanager
def budgeted() -> Iterator[Asked]:
    """A meter, and an energy limit that is asked after every step."""
    with looking(TIMES_AS_MANY), measure_energy("cpu") as meter:
        budget = Budget(clock=RunClock(), meter=meter, max_joules=1e12, max_seconds=1e9)

        def ask() -> None:
            for _ in range(TIMES_AS_MANY):
                budget.exhausted()

        yield ask


@contextmanager
def sensed() -> Iterator[Asked]:
    """The meter of a training on a device whose power is sampled, at its own interval."""
    with tempfile.TemporaryDirectory() as folder:
        sensor = Path(folder) / "power1_average"
        sensor.write_text("250000000\n")
        source = PowerIntegral(lambda: float(sensor.read_text()) / 1e6, "file")
        with measure_energy("cpu"), EnergyMeter([Component("device", [source])]):
            yield _nothing


@contextmanager
def often() -> Iterator[Asked]:
    """The meter that every training has, with many times as many looks."""
    with looking(AMPLIFIED), measure_energy("cpu"):
        yield _nothing


METERED, BUDGETED, SENSED, OFTEN = "metered", "budget asked every step", "power sensor", "looking often"
VARIANTS: dict[str, Variant] = {METERED: metered, BUDGETED: budgeted, SENSED: sensed, OFTEN: often}
TURNS = (METERED, BUDGETED, METERED, BUDGETED, SENSED, METERED, BUDGETED, OFTEN)
CLOCKS = ("processor_seconds", "wall_seconds")


class Alternation:
    """The hooks of one training, which take turns between bare blocks and those of the variants.

    Args:
        seconds: Length of the training.
    """

    def __init__(self, seconds: float) -> None:
        """Begin with a bare block."""
        self._ends_at = time.monotonic() + seconds
        self._open = ExitStack()
        self._ask: Asked = _nothing
        self._name: str | None = None
        self._steps = self._number = 0
        self._spoilt = True  # the first block begins with the training
        self._watch = report.Stopwatch()
        self.blocks: list[tuple[str | None, dict[str, float]]] = []
        self.opening_seconds: list[float] = []

    def hooks(self) -> Hooks:
        """Hooks of the training."""
        return Hooks(should_stop=self._after_step, on_epoch=self._after_epoch)

    def _after_epoch(self, epoch: Any) -> None:
        """Validation is no step: the block that it falls into does not count."""
        self._spoilt = True

    def _after_step(self) -> StopReason | None:
        self._ask()
        self._steps += 1
        read = self._watch.read()
        if read["wall_seconds"] < BLOCK_SECONDS:
            return None
        if not self._spoilt:
            self.blocks.append((self._name, {clock: read[clock] / self._steps for clock in CLOCKS}))
            self._number += 1
        self._begin()
        return StopReason(StopKind.INTERRUPTED) if time.monotonic() >= self._ends_at else None

    def _begin(self) -> None:
        """Close the block's variant and open the next one; a block that was spoilt is run again."""
        began = time.perf_counter()
        self._open.close()
        turn, is_variant = divmod(self._number, 2)
        self._name = TURNS[turn % len(TURNS)] if is_variant else None
        variant = bare if self._name is None else VARIANTS[self._name]
        self._ask = self._open.enter_context(variant())
        if self._name == METERED:
            self.opening_seconds.append(time.perf_counter() - began)
        self._steps, self._spoilt = 0, False
        self._watch = report.Stopwatch()

    def end(self) -> None:
        """Close what is open."""
        self._open.close()

    def ratios(self) -> dict[str, dict[str, list[float]]]:
        """By variant and clock: time a step of each of its blocks over the mean of the bare ones around it, less 1."""
        found: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in CLOCKS} for name in VARIANTS}
        blocks = self.blocks[WARM_UP_BLOCKS:]
        for before, block, after in zip(blocks, blocks[1:], blocks[2:], strict=False):
            if block[0] is None:
                continue
            for clock in CLOCKS:
                bare_seconds = (before[1][clock] + after[1][clock]) / 2
                found[block[0]][clock].append(block[1][clock] / bare_seconds - 1)
        return found


def compare(dataset: Dataset, batch_size: int, seconds: float) -> dict[str, Any]:
    """Train with the variants in turn: price of each by clock, and the time of the bare step."""
    placement = Placement(accelerator="cpu", threads=1, precision="bf16", batch_size=batch_size)
    schedule = Schedule(max_epochs=10_000, patience=10_000, seed=SEED)
    job = TrainingJob(dataset, SPEC, Hyperparameters(), execution_of(placement), schedule)
    alternation = Alternation(seconds)
    try:
        InProcessExecutor(placement).run(job, alternation.hooks())
    finally:
        alternation.end()
    prices = {
        name: {clock: interval(values) for clock, values in by_clock.items()}
        for name, by_clock in alternation.ratios().items()
    }
    steps = [figures["wall_seconds"] for name, figures in alternation.blocks if name is None]
    show(batch_size, prices)
    return {
        **prices,
        "bare_step_seconds": median(steps),
        "opening_seconds": median(alternation.opening_seconds),
        "pairs": min(len(alternation.ratios()[name][CLOCKS[0]]) for name in (METERED, BUDGETED)),
    }


def interval(ratios: list[float]) -> dict[str, float]:
    """Median with its bootstrap interval of 95 %."""
    random = np.random.default_rng(SEED)
    medians = np.median(random.choice(np.array(ratios), size=(2000, len(ratios))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return {"median": float(np.median(ratios)), "low": float(low), "high": float(high)}


def main() -> None:
    """Run and publish."""
    quick = report.parse_arguments(__doc__).quick
    plan = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as folder, idle_child():
        dataset = ingest_planted(plan.rows, Path(folder))
        found = {str(size): compare(dataset, size, seconds) for size, seconds in plan.seconds.items()}
        sample_seconds, interval_seconds, source = look()
    prices = {
        f"{key}_price{suffix}": worst(found, name, clock, figure) / TIMES_AS_MANY
        for key, name in (("meters", METERED), ("budget", BUDGETED))
        for suffix, clock, figure in (
            ("", "processor_seconds", "median"),
            ("_low", "processor_seconds", "low"),
            ("_high", "processor_seconds", "high"),
            ("_wall", "wall_seconds", "median"),
            ("_wall_low", "wall_seconds", "low"),
            ("_wall_high", "wall_seconds", "high"),
        )
    }
    pairs = min(one["pairs"] for one in found.values())
    headline = {
        **prices,
        "is_below_1_percent": pairs >= LEAST_PAIRS
        and max(figure for name, figure in prices.items() if name.endswith("_high")) < ALLOWED,
        "overhead": worst(found, OFTEN, "processor_seconds", "median") / AMPLIFIED,
        "overhead_high": worst(found, OFTEN, "processor_seconds", "high") / AMPLIFIED,
        "overhead_direct": worst(found, METERED, "wall_seconds", "median"),
        "overhead_direct_low": worst(found, METERED, "wall_seconds", "low"),
        "overhead_direct_high": worst(found, METERED, "wall_seconds", "high"),
        "sampling_share": sample_seconds / interval_seconds,
        "rounds": pairs,
    }
    details = {
        "price_by_batch_size": found,
        "sample_seconds": sample_seconds,
        "interval_seconds": interval_seconds,
        "times_as_many_looks": TIMES_AS_MANY,
        "amplified": AMPLIFIED,
        "energy_source": source,
        "load_average": os.getloadavg(),
    }
    report.publish("meters", headline, details, seeds=[SEED], quick=quick)


@contextmanager
def idle_child() -> Iterator[None]:
    """A process that does nothing, until the block ends."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"]) as child:
        try:
            yield
        finally:
            child.kill()


def worst(found: dict[str, Any], name: str, clock: str, figure: str) -> float:
    """A variant's figure at the batch size where its median is largest."""
    return max((one[name][clock] for one in found.values()), key=lambda price: price["median"])[figure]


def look(times: int = 50) -> tuple[float, float, str]:
    """Processor seconds of one look at the sources of this machine, seconds between two looks, and the sources."""
    with measure_energy("cpu") as meter:
        component = meter._components[0]
        taken = []
        for number in range(times):
            began = time.thread_time()
            component.sample(float(number + 1))
            taken.append(time.thread_time() - began)
    seconds = median(taken)
    return seconds, max(component.interval_seconds, seconds / MOST_SAMPLING_SHARE), meter.reading.source


def show(batch_size: int, prices: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print the prices at one batch size."""
    rows = [
        (name, *(f"{one['median']:+.2%} ({one['low']:+.1%} to {one['high']:+.1%})" for one in by_clock.values()))
        for name, by_clock in prices.items()
    ]
    report.table(f"batch {batch_size}", ("", "price in processor time (95 %)", "price on the wall (95 %)"), rows)


def _nothing() -> None:
    """What is asked after a step where nothing is."""


if __name__ == "__main__":
    main()
