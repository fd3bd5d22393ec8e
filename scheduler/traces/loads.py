"""Generated loads: trainings whose sensitivity to the network was measured, in a batch or coming one by one."""

import random
from collections.abc import Sequence
from dataclasses import replace

from scheduler.cluster import Cluster
from scheduler.job import Job
from scheduler.sensitivity import MeasuredModel

CHECKPOINT_SECONDS = RESTORE_SECONDS = 10.0
LOG_MINUTES = (1.5, 3.5)  # durations side by side are 10 to the power of a uniform draw between these
LARGE_SHARE = 0.1  # of the jobs, where there are any of 16 or 32 accelerators


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
