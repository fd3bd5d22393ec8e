"""Generated loads: trainings whose sensitivity to the network was measured, in a batch or coming one by one."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.traces.gavel import RACK_SHARE, gavel_work, read_throughputs

CHECKPOINT_SECONDS = RESTORE_SECONDS = 10.0
LOG_MINUTES = (1.5, 3.5)  # durations side by side are 10 to the power of a uniform draw between these
LARGE_SHARE = 0.1  # of the jobs, where there are any of 16 or 32 accelerators
TEMPLATES = (  # what the simulator draws from, in its order, and whether it runs on several accelerators
    *((f"ResNet-18 (batch size {size})", True) for size in (16, 32, 64, 128, 256)),
    *((f"ResNet-50 (batch size {size})", True) for size in (16, 32, 64, 128)),
    *((f"Transformer (batch size {size})", True) for size in (16, 32, 64, 128, 256)),
    *((f"LM (batch size {size})", True) for size in (5, 10, 20, 40, 80)),
    *((f"Recommendation (batch size {size})", False) for size in (512, 1024, 2048, 4096, 8192)),
    ("A3C", False),
    ("CycleGAN", False),
)


@dataclass(frozen=True)
class MeasuredModel:
    """One model on so many accelerators of one type.

    Attributes:
        name: Model and batch size.
        accelerators: How many.
        steps_per_second: Of all together, side by side.
        spread_steps_per_second: Of all together, each on another machine; never above the former.
    """

    name: str
    accelerators: int
    steps_per_second: float
    spread_steps_per_second: float

    def work(self, seconds: float, accelerator: str = "") -> Iterations:
        """So many seconds of it, were it side by side."""
        compute = 1.0 / self.steps_per_second
        network = 1.0 / self.spread_steps_per_second - compute
        levels = (0.0, RACK_SHARE * network, network)
        return Iterations(seconds / compute, {accelerator: compute}, {accelerator: levels})


def measured_models(path: Path, accelerator: str = "v100") -> list[MeasuredModel]:
    """The models of the table that were measured side by side and apart, sorted.

    Where the table has them faster apart than together, which no network does, apart counts as together.
    """
    together, apart = read_throughputs(path)
    return [
        MeasuredModel(name, count, rate, min(apart.get(accelerator, {}).get((name, count), rate) or rate, rate))
        for (name, count), rate in sorted(together[accelerator].items())
        if rate > 0 and (count == 1 or apart.get(accelerator, {}).get((name, count), 0.0) > 0)
    ]


def generate_load(
    models: Sequence[MeasuredModel],
    jobs: int,
    seed: int,
    *,
    mean_gap_seconds: float = 0.0,
    large: bool = False,
    accelerator: str = "",
) -> list[Job]:
    """Draw jobs: a number of accelerators, then one of the models measured with it, then a duration.

    Args:
        models: What they train.
        jobs: How many.
        seed: Of the draws.
        mean_gap_seconds: Mean time between arrivals, exponential; 0: all come at once.
        large: Whether some ask for 16 or 32 accelerators, as sensitive as the same model with 8.
        accelerator: Type that they run on; empty for any.
    """
    draw = random.Random(seed)
    by_count: dict[int, list[MeasuredModel]] = {}
    for model in models:
        by_count.setdefault(model.accelerators, []).append(model)
    counts = sorted(by_count)
    arrival, found = 0.0, []
    for number in range(jobs):
        count = asked = draw.choice(counts)
        if large and draw.random() < LARGE_SHARE:
            count, asked = counts[-1], draw.choice((16, 32))
        model = draw.choice(by_count[count])
        seconds = 60.0 * 10 ** draw.uniform(*LOG_MINUTES)
        found.append(
            Job(
                name=f"{model.name} {number}",
                arrival_seconds=arrival,
                accelerators=asked,
                work=model.work(seconds, accelerator),
                checkpoint_seconds=CHECKPOINT_SECONDS,
                restore_seconds=RESTORE_SECONDS,
            )
        )
        if mean_gap_seconds:
            arrival += draw.expovariate(1.0 / mean_gap_seconds)
    return found


def with_measured_network(
    jobs: Sequence[Job], models: Sequence[MeasuredModel], cluster: Cluster, seed: int
) -> list[Job]:
    """Jobs of a trace that tells durations alone, as if each trained one of the measured models.

    Its duration becomes that side by side. A job of more accelerators than any was measured with is as sensitive as one
    of the most; one of a number that was not measured, as one of the next larger number.

    Args:
        jobs: The jobs, which run on any type.
        models: What they may train.
        cluster: Where; its first type is what the durations are of.
        seed: Of the draws.
    """
    draw = random.Random(seed)
    by_count: dict[int, list[MeasuredModel]] = {}
    for model in models:
        by_count.setdefault(model.accelerators, []).append(model)
    found = []
    for job in jobs:
        count = min((count for count in by_count if count >= job.accelerators), default=max(by_count))
        seconds = job.work.seconds_left(0.0, job.ideal(cluster))
        work = draw.choice(by_count[count]).work(seconds)
        found.append(replace(job, work=work, checkpoint_seconds=CHECKPOINT_SECONDS, restore_seconds=RESTORE_SECONDS))
    return found


def draw_gavel_jobs(table: Path, jobs: int, seed: int, jobs_per_hour: float, *, multi: bool = False) -> list[Job]:
    """The jobs that Gavel's simulator draws, in its order of random numbers.

    Args:
        table: Its throughputs.
        jobs: How many.
        seed: Its seed.
        jobs_per_hour: Mean rate of arrivals, of a Poisson process that begins with the first job.
        multi: Whether jobs ask for 1, 2, 4 or 8 accelerators; else for one.
    """
    together, apart = read_throughputs(table)
    draw, gaps = random.Random(seed + 2), random.Random(seed + 3)
    arrival, found = 0.0, []
    for number in range(jobs):
        scale = _scale(draw.uniform(0, 1))
        scale = scale if multi else 1
        low, high = (3, 4) if draw.random() >= 0.8 else (1.5, 3)
        duration = 60 * 10 ** draw.uniform(low, high)
        while True:
            model, distributable = draw.choice(TEMPLATES)
            if scale == 1 or distributable:
                break
        work = gavel_work(model, scale, duration * together["v100"][model, scale], together, apart)
        assert work is not None, f"{model} is not in {table}"
        found.append(Job(f"job-{number}", arrival, scale, work))
        arrival += -math.log(1.0 - gaps.random()) * 3600.0 / jobs_per_hour
    return found


def _scale(draw: float) -> int:
    """Accelerators by a uniform draw: 70 % one, 10 % two, 15 % four, 5 % eight."""
    return 1 if draw < 0.7 else 2 if draw < 0.8 else 4 if draw < 0.95 else 8


def uniform_cluster(racks: int, machines_per_rack: int, accelerators_per_machine: int, **rest: object) -> Cluster:
    """Return a cluster of equal machines.

    Args:
        racks: Number of racks.
        machines_per_rack: Number of machines per rack.
        accelerators_per_machine: Number of accelerators per machine.
        rest: Other fields of `Cluster`.
    """
    machines = [
        Machine(name=f"r{r}m{m}", rack=f"r{r}", count=accelerators_per_machine)
        for r in range(racks)
        for m in range(machines_per_rack)
    ]
    return Cluster.model_validate({"machines": machines, **rest})
