"""How long the choice takes: 1,000 offers of 50 configurations each, with every limit set.

Timed is all of `shunter.planner.decide` from predictions to the decision with its reasons, and the same for 10 times
fewer offers, in turn. What predicting and measuring take is not part of it.

`decide_seconds` is the median over the rounds, `decide_seconds_worst` the slowest; `growth` is by how much ten times as
many candidates take longer.
"""

import gc
import statistics
import time

import numpy as np

from benchmarks.report import parse_arguments, publish, table
from shunter.hardware.types import Placement, Prediction
from shunter.planner.assessment import Candidate
from shunter.planner.decide import Decision, decide
from shunter.planner.job_size import JobSize
from shunter.planner.rank.totals import Terms
from shunter.requests import Limits

OFFERS, CONFIGURATIONS = 1_000, 50
ROUNDS, QUICK_ROUNDS = 15, 3
SEED = 0
JOB = JobSize(tuning_epochs=30, final_epochs=27, evaluation_share=0.05)
BATCH_SIZES = tuple(64 << power for power in range(10))
LIMITS = Limits(
    max_hours=20, max_kwh=8, max_cost=20, max_cost_per_hour=10, max_watts=600, max_memory_gib=60, confidence=0.9
)
TASKS = {"least cost": "cost", "time and energy": "time=1,energy=0.5"}


def offers(count: int, random: np.random.Generator) -> list[Candidate]:
    """Candidates of `count` accelerators whose speed, power, price and memory are drawn."""
    found = []
    for number in range(count):
        speed, watts, price = np.exp(random.normal((0.0, 5.5, 0.5), (1.0, 0.5, 0.8))).tolist()
        memory_bytes = int(random.choice([16, 24, 40, 80, 192])) * 2**30
        for configuration in range(CONFIGURATIONS):
            batch_size = BATCH_SIZES[configuration % len(BATCH_SIZES)]
            precision = "bf16" if configuration % 2 else "fp32"
            step_seconds = (1e-3 + 2e-5 * batch_size) / speed * float(np.exp(random.normal(0, 0.2)))
            steps = 50_000_000 / batch_size
            found.append(
                Candidate(
                    placement=Placement(
                        accelerator=f"offer {number}",
                        threads=1 + configuration % 5,
                        precision=precision,
                        batch_size=batch_size,
                    ),
                    prediction=Prediction(
                        step_seconds=step_seconds,
                        epoch_seconds=steps * step_seconds,
                        epoch_joules=steps * step_seconds * watts,
                        memory_bytes=2**30 * (1 + batch_size // 512),
                        samples_per_second=batch_size / step_seconds,
                        step_seconds_source="estimated",
                        energy_source="estimated",
                        step_seconds_interval=(step_seconds / 1.5, step_seconds * 1.5),
                    ),
                    accelerator_memory_bytes=memory_bytes,
                    is_here=number == 0,
                    price_per_hour=price,
                    price_source="catalogue",
                )
            )
    return found


def timed(candidates: list[Candidate], objective: str) -> tuple[float, Decision]:
    """Seconds of one decision, and the decision."""
    gc.collect()
    started = time.perf_counter()
    decision = decide(candidates, Terms.of(LIMITS, objective, JOB))
    return time.perf_counter() - started, decision


def main() -> None:
    """Measure and publish."""
    quick = parse_arguments(__doc__).quick
    random = np.random.default_rng(SEED)
    many = offers(OFFERS, random)
    few = many[: len(many) // 10]
    seconds: dict[str, list[float]] = {f"{size}, {task}": [] for task in TASKS for size in ("all", "tenth")}
    feasible = {}
    for _ in range(QUICK_ROUNDS if quick else ROUNDS):
        for task, objective in TASKS.items():
            for size, candidates in (("all", many), ("tenth", few)):
                taken, decision = timed(candidates, objective)
                seconds[f"{size}, {task}"].append(taken)
                feasible[f"{size}, {task}"] = decision.feasible
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    rows = [
        (name, f"{medians[name]:.3f}", f"{min(times):.3f}", f"{max(times):.3f}", f"{feasible[name]:,}")
        for name, times in seconds.items()
    ]
    table(f"{len(many):,} candidates", ("what", "median s", "fastest s", "slowest s", "within limits"), rows)
    whole = max(medians[f"all, {task}"] for task in TASKS)
    tenth = max(medians[f"tenth, {task}"] for task in TASKS)
    publish(
        "decide",
        {
            "decide_seconds": round(whole, 3),
            "decide_seconds_worst": round(max(max(seconds[f"all, {task}"]) for task in TASKS), 3),
            "candidates": len(many),
            "growth": round(whole / tenth, 2),
        },
        {"seconds": seconds, "within_limits": feasible, "limits": LIMITS.model_dump(), "objectives": TASKS},
        seeds=[SEED],
        quick=quick,
    )


if __name__ == "__main__":
    main()
