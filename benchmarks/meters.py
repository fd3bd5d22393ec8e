"""What metering costs: training steps with and without a meter around them, in turn.

The steps are those of `benchmarks.train_step`: a DLRM in the shape of Criteo Kaggle, in bfloat16. Blocks of steps are
run without a meter, with one as every training has it, with one that also integrates a power sensor ten times a
second, with a budget that is asked after every step, and with a meter that looks at its sources some forty times as
often. A round runs each block once, in an order that rotates; the overhead of a meter is the median over the rounds
of the time of its step over that of the bare one of the same round. So a busy machine slows both, and the bootstrap
interval tells what noise is left. What one look costs is far below it: `overhead` is therefore that of the many
looks, divided by how many times as many they were, and `overhead_direct` what the plain comparison shows.
`sampling_share` counts the processor time of the looks alone.

The steps run on one thread: with several, a busy machine holds them all up wherever they wait for each other.
An idle child process runs beside the steps, as one does in most flows: to count the time of children is what is dear.
No power sensor is asked here: its place takes a file, read as the kernel's files are.

    nice -n 5 python -m benchmarks.meters [--quick]
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks import report
from benchmarks.train_step.benchmark import SEED, Shunter, batches
from hardware.budget import Budget
from hardware.meters.component import Component
from hardware.meters.meter import MOST_SAMPLING_SHARE, EnergyMeter, measure_energy
from hardware.meters.source import PowerIntegral

AMPLIFIED = 50  # times as many looks, but for the time that they take
BLOCK_SECONDS = 2.5  # of steps: a meter looks at least once in it, and a busy machine changes little
Asked = Callable[[], object]


@contextmanager
def bare() -> Iterator[Asked]:
    """No meter."""
    yield _nothing


@contextmanager
def metered() -> Iterator[Asked]:
    """The meter that every training has."""
    with measure_energy("cpu"):
        yield _nothing


@contextmanager
def sensed() -> Iterator[Asked]:
    """The meter of a training on a device whose power is sampled."""
    with tempfile.TemporaryDirectory() as folder:
        sensor = Path(folder) / "power1_average"
        sensor.write_text("250000000\n")
        source = PowerIntegral(lambda: float(sensor.read_text()) / 1e6, "file")
        with measure_energy("cpu"), EnergyMeter([Component("device", [source])]):
            yield _nothing


@contextmanager
def budgeted() -> Iterator[Asked]:
    """A meter, and an energy limit that is looked at after every step."""
    with measure_energy("cpu") as meter:
        yield Budget(meter=meter, max_joules=1e12).exhausted


class Often:
    """The meter that every training has, with many times as many looks and without the bound on their share.

    Attributes:
        looks: Taken so far.
        seconds: Time in which they were taken.
        interval_seconds: Time that a meter leaves between two readings.
    """

    def __init__(self) -> None:
        """No looks yet."""
        self.looks = 0
        self.seconds = self.interval_seconds = 0.0

    @property
    def times_as_many(self) -> float:
        """Looks a second over those of a meter that is left to itself."""
        return self.looks / self.seconds * self.interval_seconds

    @contextmanager
    def __call__(self) -> Iterator[Asked]:
        """Look all the time in the block."""
        with measure_energy("cpu") as meter:
            stop, component = threading.Event(), meter._components[0]
            self.interval_seconds = component.interval_seconds
            began = time.monotonic()

            def look_often() -> None:
                while not stop.wait(self.interval_seconds / AMPLIFIED):
                    with meter._lock:
                        component.sample(time.monotonic() - began)
                    self.looks += 1

            thread = threading.Thread(target=look_often)
            thread.start()
            try:
                yield _nothing
            finally:
                stop.set()
                thread.join()
                self.seconds += time.monotonic() - began


OFTEN = "metered, many times as many looks"
often = Often()
VARIANTS = {
    "bare": bare,
    "metered": metered,
    "metered, and a power sensor": sensed,
    "metered, and a budget asked every step": budgeted,
    OFTEN: often,
}


def race(size: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds a step of every block, by variant and clock."""
    contestant = Shunter(torch.device("cpu"), "bf16")
    steps = [contestant(batch) for batch in batches(size, torch.device("cpu"))]
    for step in steps[:4]:
        step()
    watch = report.Stopwatch()
    for step in steps:
        step()
    count = max(8, round(BLOCK_SECONDS / (watch.read()["wall_seconds"] / len(steps))))
    taken: dict[str, dict[str, list[float]]] = {
        name: {"wall_seconds": [], "processor_seconds": []} for name in VARIANTS
    }
    names = list(VARIANTS)
    for turn in range(rounds):
        order = names[turn % len(names) :] + names[: turn % len(names)]
        for name in order:
            with VARIANTS[name]() as ask:
                watch = report.Stopwatch()
                for number in range(count):
                    steps[number % len(steps)]()
                    ask()
                read = watch.read()
            for clock, seconds in read.items():
                taken[name][clock].append(seconds / count)
    return taken


def overhead(taken: dict[str, dict[str, list[float]]], name: str, clock: str) -> dict[str, float]:
    """Median over the rounds of a variant's time over the bare one, less one, with its bootstrap interval."""
    ratios = np.array(taken[name][clock]) / np.array(taken["bare"][clock]) - 1
    random = np.random.default_rng(SEED)
    medians = np.median(random.choice(ratios, size=(2000, len(ratios))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return {"median": float(np.median(ratios)), "low": float(low), "high": float(high)}


def main() -> None:
    """Run and publish."""
    quick = report.parse_arguments(__doc__).quick
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rounds = 3 if quick else 12
    with idle_child():
        found = {str(size): compare(size, rounds) for size in ((2048,) if quick else (128, 2048))}
        sample_seconds, interval_seconds, source = look()
    headline = {
        "overhead": worst(found, OFTEN, "median") / often.times_as_many,
        "overhead_high": worst(found, OFTEN, "high") / often.times_as_many,
        "overhead_direct": worst(found, "metered", "median"),
        "overhead_direct_low": worst(found, "metered", "low"),
        "overhead_direct_high": worst(found, "metered", "high"),
        "sampling_share": sample_seconds / interval_seconds,
        "rounds": rounds,
    }
    details = {
        "overhead_by_batch_size": found,
        "sample_seconds": sample_seconds,
        "interval_seconds": interval_seconds,
        "times_as_many_looks": often.times_as_many,
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


def compare(size: int, rounds: int) -> dict[str, Any]:
    """Race at one batch size: overhead of every variant by clock, and the time of the bare step."""
    taken = race(size, rounds)
    show(size, taken)
    figures: dict[str, Any] = {
        name: {clock: overhead(taken, name, clock) for clock in taken[name]} for name in VARIANTS if name != "bare"
    }
    return {**figures, "bare_step_seconds": median(taken["bare"]["wall_seconds"])}


def worst(found: dict[str, Any], name: str, figure: str) -> float:
    """The largest of a variant's figures over the batch sizes, by the clock on the wall."""
    return max(one[name]["wall_seconds"][figure] for one in found.values())


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


def show(size: int, taken: dict[str, dict[str, list[float]]]) -> None:
    """Print one race."""
    rows = []
    for name in VARIANTS:
        cells = [f"{1e3 * median(taken[name]['wall_seconds']):.2f}"]
        for clock in ("wall_seconds", "processor_seconds"):
            one = overhead(taken, name, clock)
            cells.append("" if name == "bare" else f"{one['median']:+.2%} ({one['low']:+.1%} to {one['high']:+.1%})")
        rows.append((name, *cells))
    report.table(f"batch {size}", ("", "ms a step", "overhead on the wall (95 %)", "overhead in processor time"), rows)


def _nothing() -> None:
    """What is asked after a step where nothing is."""


if __name__ == "__main__":
    main()
