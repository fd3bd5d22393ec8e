"""Gavel's jobs: its traces of a physical cluster, and the ones that its simulator draws."""

import math
import random
import re
from pathlib import Path

from ingestion.sources.guard import check_words
from scheduler.job import Iterations, Job
from scheduler.sensitivity import RACK_SHARE, Throughputs, read_throughputs
from scheduler.traces.table import count, name, open_text, positive, read, seconds
from shunter.errors import DataError

TABLE = "simulation_throughputs.json"
FIELDS = ("job_type", "command", "directory", "steps_option", "needs_data", "steps", "scale_factor", "weight", "slo",
          "arrival")  # fmt: skip
TEMPLATES = (  # what the simulator draws from, in its order, and whether it runs on several accelerators
    *((f"ResNet-18 (batch size {size})", True) for size in (16, 32, 64, 128, 256)),
    *((f"ResNet-50 (batch size {size})", True) for size in (16, 32, 64, 128)),
    *((f"Transformer (batch size {size})", True) for size in (16, 32, 64, 128, 256)),
    *((f"LM (batch size {size})", True) for size in (5, 10, 20, 40, 80)),
    *((f"Recommendation (batch size {size})", False) for size in (512, 1024, 2048, 4096, 8192)),
    ("A3C", False),
    ("CycleGAN", False),
)


def read_gavel(path: Path) -> list[Job]:
    """A trace: tab-separated, without a header; the table of throughputs lies beside it or one folder up.

    Raises:
        DataError: A line is broken, a model is not in the table, or there is no table.
        RequestError: The table lies outside the folders that a request may read.
    """
    table = next((folder / TABLE for folder in (path.parent, path.parent.parent) if (folder / TABLE).exists()), None)
    if table is None:
        raise DataError(f"{path} needs {TABLE} beside it or one folder up, for how fast its jobs run")
    check_words(str(table))
    together, apart = read_throughputs(table)
    jobs = []
    with open_text(path) as file:
        lines = file.read().splitlines()
    for line, text in enumerate(lines, start=1):
        fields = text.split("\t")
        if len(fields) not in (len(FIELDS), len(FIELDS) - 1):  # older traces name no directory
            raise DataError(f"line {line} of {path}: {len(fields)} fields, and should have {len(FIELDS)} between tabs")
        steps, scale, weight, _, arrival = fields[-5:]
        work = gavel_work(
            read(path, line, "job_type", fields[0], name),
            read(path, line, "scale_factor", scale, count),
            read(path, line, "steps", steps, positive),
            together,
            apart,
        )
        if work is None:
            raise DataError(f"line {line} of {path}: job_type is {fields[0]!r}, which {table.name} does not know")
        jobs.append(
            Job(
                name=f"job-{line}",
                arrival_seconds=read(path, line, "arrival", arrival, seconds),
                accelerators=int(scale),
                work=work,
                weight=read(path, line, "weight", weight, positive),
            )
        )
    return jobs


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


def gavel_work(model: str, scale: int, steps: float, together: Throughputs, apart: Throughputs) -> Iterations | None:
    """So many steps of a model; None where the table does not know it on so many accelerators of any type."""
    model = re.sub(r" \(scale factor \d+\)$", "", model)
    compute, communication = {}, {}
    for accelerator, rates in together.items():
        rate = rates.get((model, scale), 0.0)
        if rate <= 0:  # it does not fit
            continue
        spread = min(apart.get(accelerator, {}).get((model, scale), rate) or rate, rate)
        compute[accelerator] = 1.0 / rate
        network = 1.0 / spread - 1.0 / rate
        communication[accelerator] = (0.0, RACK_SHARE * network, network)
    return Iterations(steps, compute, communication) if compute else None


def _scale(draw: float) -> int:
    """Accelerators by a uniform draw: 70 % one, 10 % two, 15 % four, 5 % eight."""
    return 1 if draw < 0.7 else 2 if draw < 0.8 else 4 if draw < 0.95 else 8
