"""The learned policy of a fleet: beside the optimum, beside the other policies, and how fast it is learned.

All is simulated and counted, nothing is timed. `rl_oracle_share` is the least possible mean completion time of 3 jobs
on 2 unequal servers, found by trying everything, over the learned one: the mean of random cases not trained on.
`rl_vs_best_classical` is the learned mean completion time over that of the best other policy, on unseen traces drawn as
Gavel draws them, on three types of accelerators. `rl_steps_vs_single_agent` and `rl_steps_warm_vs_cold` are decisions
that were simulated until the level that both reach: three agents over one that chooses all at once (elastic jobs, caps,
a limit on power), and a start from the best teacher, whose decisions are counted, over a start from nothing. Means of
three seeds.

    python -m benchmarks.fleet_learning
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.fleet_loads import draw_gavel_jobs
from benchmarks.fleet_oracle import least_mean_completion
from benchmarks.fleet_single_agent import SingleAgent
from benchmarks.report import parse_arguments, publish, table
from shunter.extensions.fleet.cluster import AcceleratorType, Cluster, Machine, PowerCap
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.learned.networks import Voters
from shunter.extensions.fleet.learned.policy import Learned
from shunter.extensions.fleet.learning.learn import Traces, choose_ensemble, compare, mean_figure, warm_up
from shunter.extensions.fleet.learning.rollouts import exploit
from shunter.extensions.fleet.learning.trainer import Plan, Progress, Source, Trainer
from shunter.settings import PROJECT_ROOT

TABLE = PROJECT_ROOT.parent / "shared" / "data" / "clusters" / "gavel" / "simulation_throughputs.json"
SEEDS = (0, 1, 2)
CLOSE = 1.05  # the level that both reach: this times the worse of the two best
RIVALS = ("fifo", "fifo-skip", "srtf", "las", "tiresias", "gandiva", "gavel-max-min", "gavel-max-min-perf",
          "gavel-fifo-perf", "min-makespan", "sia", "pollux", "dally", "dally-consolidated")  # fmt: skip
SHRUNK = 0.05  # Gavel's jobs last days; so much of each, with arrivals as much closer

TWO_SERVERS = Cluster(machines=(Machine(name="a", accelerator="new"), Machine(name="b", accelerator="old")))
GAVEL = Cluster(
    machines=tuple(Machine(name=f"{n}{i}", accelerator=n) for n in ("v100", "p100", "k80") for i in range(2))
)
CAPS = (PowerCap(power_share=0.7, speed=0.9), PowerCap(power_share=0.5, speed=0.65))
LIMITED = Cluster(
    machines=(Machine(name="a", accelerator="new", count=4), Machine(name="b", accelerator="old", count=4)),
    accelerators={
        "new": AcceleratorType(idle_watts=30, busy_watts=300, power_caps=CAPS),
        "old": AcceleratorType(idle_watts=20, busy_watts=150, power_caps=CAPS),
    },
    power_limit_watts=1100,
)


class ThreeJobs:
    """Three jobs at once, each of its own length on each of two servers, and dear to move."""

    def draw(self, draw: np.random.Generator) -> list[Job]:
        """One case."""
        return [
            Job(f"j{i}", 0.0, 1, Iterations(float(np.exp(draw.uniform(4, 7))), {"new": 1.0, "old": ratio}),
                restore_seconds=30.0)
            for i, ratio in enumerate(np.exp(draw.uniform(-0.5, 1.5, 3)))
        ]  # fmt: skip


class ElasticJobs:
    """Eight jobs that run on 1 to 4 accelerators, some of them well and some badly."""

    def draw(self, draw: np.random.Generator) -> list[Job]:
        """One trace."""
        arrivals = np.cumsum(draw.exponential(60.0, 8))
        found = []
        for i, arrival in enumerate(arrivals):
            good = draw.uniform(0.2, 0.95)
            work = Iterations(
                float(np.exp(draw.uniform(4, 6.5))),
                {"new": 1.0, "old": float(draw.uniform(1.2, 4))},
                speedups={1: 2**-good, 2: 1.0, 4: 2**good},
            )
            found.append(Job(f"j{i}", float(arrival), 2, work, restore_seconds=10.0))
        return found


class GavelJobs:
    """Stretches of the jobs that Gavel's simulator draws, in another order and at another pace each time."""

    def __init__(self, seed: int) -> None:
        jobs = draw_gavel_jobs(TABLE, 300, seed, 1.5)
        self._traces = Traces([shrunk(job) for job in jobs], 15)

    def draw(self, draw: np.random.Generator) -> list[Job]:
        """One trace."""
        return self._traces.draw(draw)


def shrunk(job: Job) -> Job:
    """A job of Gavel's that takes and comes in a part of the time."""
    assert isinstance(job.work, Iterations)
    work = replace(job.work, count=job.work.count * SHRUNK)
    return replace(job, work=work, arrival_seconds=job.arrival_seconds * SHRUNK, restore_seconds=10.0)


def oracle_share(seed: int, plan: Plan, cases: int) -> float:
    """Mean of the optimum over what is learned, on cases that were not trained on."""
    trainer = Trainer(ThreeJobs(), TWO_SERVERS, "jct", plan, seed)
    trainer.run()
    draw = np.random.default_rng(10**6 + seed)
    found = choose_ensemble(trainer, [ThreeJobs().draw(draw) for _ in range(40)], TWO_SERVERS, "jct")
    voters = Voters(found.members, found.strategy)
    shares = []
    for _ in range(cases):
        jobs = ThreeJobs().draw(draw)
        reached = exploit(jobs, TWO_SERVERS, "jct", voters) / len(jobs)
        shares.append(least_mean_completion(jobs, TWO_SERVERS) / reached)
    return fmean(shares)


def learning_curve(
    trainer: Trainer, traces: Sequence[Sequence[Job]], cluster: Cluster, policy: type[Learned] = Learned, shown: int = 0
) -> list[tuple[int, float]]:
    """Decisions that had been simulated, and what the objective came to with the best choices, while it learns."""
    curve: list[tuple[int, float]] = []

    def look(number: int, progress: Progress) -> None:
        voters = Voters([trainer.networks.snapshot()], "majority")
        cost = fmean(exploit(jobs, cluster, "jct", voters, policy) for jobs in traces)
        curve.append((progress.decisions[-1] + shown, cost))

    trainer.run(look)
    return curve


def steps_ratio(one: list[tuple[int, float]], other: list[tuple[int, float]]) -> float:
    """Decisions until the level that both reach, of one over the other."""
    level = CLOSE * max(min(cost for _, cost in one), min(cost for _, cost in other))
    first, second = (next(steps for steps, cost in curve if cost <= level) for curve in (one, other))
    return first / second


def single_agent(seed: int, plan: Plan, traces: int) -> dict[str, Any]:
    """Three agents and one that chooses all at once, on the same traces."""
    draw = np.random.default_rng(2 * 10**6)
    looked_at = [ElasticJobs().draw(draw) for _ in range(traces)]
    curves = {}
    for name, policy in (("three agents", Learned), ("one agent", SingleAgent)):
        trainer = Trainer(ElasticJobs(), LIMITED, "jct", plan, seed, policy=policy)
        curves[name] = learning_curve(trainer, looked_at, LIMITED, policy)
    ratio = steps_ratio(curves["three agents"], curves["one agent"])
    return {"ratio": ratio, "best": {name: min(cost for _, cost in curve) for name, curve in curves.items()}}


def gavel(
    seed: int, plan: Plan, rivals: dict[str, float], unseen: list[list[Job]], looked_at: list[list[Job]]
) -> dict[str, Any]:
    """The learned policy beside the others on unseen traces, and a warm start beside a cold one."""
    source: Source = GavelJobs(7)
    cold = Trainer(source, GAVEL, "jct", plan, seed)
    cold_curve = learning_curve(cold, looked_at, GAVEL)
    warm = Trainer(source, GAVEL, "jct", replace(plan, exploring_rounds=0), seed)
    shown = warm_up(warm, source, GAVEL, "jct", seed)
    began = fmean(exploit(jobs, GAVEL, "jct", Voters([warm.networks.snapshot()], "majority")) for jobs in looked_at)
    warm_curve = [(shown, began), *learning_curve(warm, looked_at, GAVEL, shown=shown)]
    draw = np.random.default_rng(seed + 3 * 10**6)
    found = choose_ensemble(warm, [source.draw(draw) for _ in range(8)], GAVEL, "jct")
    learned = compare(unseen, GAVEL, "jct", found, rivals=())["learned"]
    alone = [
        fmean(exploit(jobs, GAVEL, "jct", Voters([one], "majority")) / len(jobs) for jobs in unseen)
        for one in warm.snapshots
    ]
    return {
        "learned": learned,
        "ratio": learned / min(rivals.values()),
        "snapshots over the ensemble": [one / learned for one in alone],
        "strategy": found.strategy,
        "warm over cold": steps_ratio(warm_curve, cold_curve),
        "decisions": warm.progress.decisions[-1] + shown,
    }


def main() -> None:
    """Train, compare and publish."""
    arguments = parse_arguments(__doc__)
    quick = arguments.quick
    seeds = SEEDS[:1] if quick else SEEDS
    small = Plan(rounds=8 if quick else 40, traces=8, rollouts=6, cycles=4 if quick else 6, hidden=24)
    elastic = Plan(rounds=4 if quick else 20, traces=2, rollouts=8, cycles=2 if quick else 5, hidden=24)
    large = Plan(rounds=4 if quick else 24, traces=2, rollouts=8, cycles=2 if quick else 6)
    shares = [oracle_share(seed, small, 20 if quick else 300) for seed in seeds]
    print(f"share of the optimum: {shares}", flush=True)
    unseen = [[shrunk(job) for job in draw_gavel_jobs(TABLE, 30, 100 + i, 1.5)] for i in range(2 if quick else 6)]
    looked_at = [[shrunk(job) for job in draw_gavel_jobs(TABLE, 20, 200 + i, 1.5)] for i in range(2 if quick else 4)]
    compared = ("fifo-skip", "srtf", "gavel-fifo-perf") if quick else RIVALS
    rivals = {name: mean_figure(name, unseen, GAVEL, "jct") for name in compared}
    print(f"other policies: {rivals}", flush=True)
    found = []
    for seed in seeds:
        found.append(gavel(seed, large, rivals, unseen, looked_at))
        print(found[-1], flush=True)
    agents = []
    for seed in seeds:
        agents.append(single_agent(seed, elastic, 2 if quick else 6))
        print(agents[-1], flush=True)
    by_seed = {
        "rl_oracle_share": shares,
        "rl_vs_best_classical": [one["ratio"] for one in found],
        "rl_steps_vs_single_agent": [one["ratio"] for one in agents],
        "rl_steps_warm_vs_cold": [one["warm over cold"] for one in found],
    }
    table(
        "Mean completion time on unseen traces (simulated)",
        ("policy", "seconds"),
        [(name, f"{value:,.0f}") for name, value in sorted(rivals.items(), key=lambda one: one[1])]
        + [("learned, mean of the seeds", f"{fmean(one['learned'] for one in found):,.0f}")],
    )
    headline = {name: fmean(values) for name, values in by_seed.items()}
    spread = {name: stdev(values) if len(values) > 1 else None for name, values in by_seed.items()}
    details = {"by_seed": by_seed, "standard_deviation": spread, "rivals": rivals, "gavel": found, "agents": agents}
    publish("fleet_learning", headline, details, seeds=seeds, quick=quick)


if __name__ == "__main__":
    main()
