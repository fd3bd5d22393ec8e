"""Policies in the simulated fleet against what others computed: Tiresias, Gavel, Sia, and Dally beside its rivals.

`tiresias_jct_error_seconds` is how far the mean completion time of a workload of Pollux' lies from that of its own
simulator, times the jobs, the worst of four workloads: 0 if every job ends at its second. `gavel_case_error` is the
largest relative error of the mean completion time in Gavel's small cases. The three figures of Dally are the worst of
three generated loads (a batch, a stream, a batch with jobs of 16 and 32 accelerators; 300 jobs on 64 accelerators,
measured sensitivity to the network, congestion 1 and 3, means of the seeds): its makespan over that without waiting and
over full consolidation, its communication over that without waiting. All is simulated; only the jobs a second are
measured, in processor time: the whole Philly trace, first come first served.

    python -m benchmarks.fleet
"""

import time
from statistics import fmean
from typing import Any

from benchmarks.report import parse_arguments, publish, table
from scheduler.cluster import Cluster, Machine, uniform_cluster
from scheduler.metrics import figures
from scheduler.policies import make_policy
from scheduler.policies.sia import choose_options
from scheduler.sensitivity import measured_models
from scheduler.simulator import simulate
from scheduler.traces.durations import read_philly
from scheduler.traces.gavel import draw_gavel_jobs
from scheduler.traces.loads import generate_load
from scheduler.traces.pollux import read_pollux
from shunter.settings import PROJECT_ROOT

CLUSTERS = PROJECT_ROOT.parent / "shared" / "data" / "clusters"
TABLE = CLUSTERS / "gavel" / "simulation_throughputs.json"
TIRESIAS = {1: 2473.65, 2: 5144.9625, 3: 3876.25625, 4: 3280.2625}  # mean seconds by workload, Pollux' simulator
GAVEL = {"gavel-fifo-perf": 47544.334, "gavel-max-min": 71244.680, "gavel-max-min-perf": 53184.824}
LOADS: dict[str, dict[str, Any]] = {"batch": {}, "stream": {"mean_gap_seconds": 3200.0}, "large": {"large": True}}
DALLY = ("dally-nowait", "dally-consolidated", "dally-auto", "dally")
SEEDS, QUICK_SEEDS = tuple(range(4)), (0,)


def tiresias_error_seconds(workload: int) -> float:
    """Sum of the deviations of all jobs, seen through their mean."""
    jobs = read_pollux(CLUSTERS / f"pollux_osdi21/workloads/workload-{workload}.csv")
    schedule = simulate(jobs, uniform_cluster(1, 16, 4), make_policy("tiresias"))
    return abs(figures(schedule)["jct.mean_seconds"] - TIRESIAS[workload]) * len(jobs)


def gavel_error(policy: str) -> float:
    """Relative error of the mean completion time of jobs 50 to 150."""
    types = ("v100", "p100", "k80")
    cluster = Cluster(machines=tuple(Machine(name=f"{name}{i}", accelerator=name) for name in types for i in range(4)))
    schedule = simulate(draw_gavel_jobs(TABLE, 220, 0, 0.2), cluster, make_policy(policy))
    return abs(fmean(one.completion_seconds for one in schedule.outcomes[50:150]) / GAVEL[policy] - 1)


def dally(seeds: tuple[int, ...]) -> dict[str, dict[str, dict[str, float]]]:
    """Figures of Dally and its rivals, by load with congestion and by policy."""
    models, found = measured_models(TABLE), {}
    for load, options in LOADS.items():
        for congestion in (1.0, 3.0):
            network = {"congestion": congestion, "shared_uplinks": False}
            cluster = uniform_cluster(2, 4, 8, network=network)
            found[f"{load}, congestion {congestion:g}"] = {
                policy: _means([
                    figures(simulate(generate_load(models, 300, seed, **options), cluster, make_policy(policy)))
                    for seed in seeds
                ])
                for policy in DALLY
            }  # fmt: skip
    return found


def simulated_jobs_per_second() -> float:
    """Jobs of the Philly trace on 2,400 accelerators, by processor time."""
    jobs = read_philly(CLUSTERS / "pollux_osdi21/traces/philly.csv")
    began = time.process_time()
    simulate(jobs, uniform_cluster(10, 30, 8), make_policy("fifo"))
    return len(jobs) / (time.process_time() - began)


def main() -> None:
    """Compare all and publish."""
    arguments = parse_arguments(__doc__)
    seeds = QUICK_SEEDS if arguments.quick else SEEDS
    tiresias = {f"workload {number}": tiresias_error_seconds(number) for number in TIRESIAS}
    gavel = {policy: gavel_error(policy) for policy in list(GAVEL)[: 1 if arguments.quick else None]}
    loads = dally(seeds)
    demands = [[("A", 1), ("A", 2), ("B", 1), ("B", 2), ("B", 4)]] * 2
    gains = [[1, 1.5, 1.5, 2.5, 3.5], [1.2, 2.1, 1, 1.9, 3.6]]

    def worst(key: str, rival: str) -> float:
        return max(found["dally"][key] / found[rival][key] for found in loads.values())

    headline = {
        "tiresias_jct_error_seconds": round(max(tiresias.values()), 3),
        "gavel_case_error": max(gavel.values()),
        "dally_makespan_ratio_nowait": worst("makespan_seconds", "dally-nowait"),
        "dally_makespan_ratio_consolidated": worst("makespan_seconds", "dally-consolidated"),
        "dally_communication_ratio_nowait": worst("communication.overhead", "dally-nowait"),
        "sia_example": float(choose_options(gains, demands, {"A": 2, "B": 4}) == [4, 1]),
        "simulated_jobs_per_second": simulated_jobs_per_second(),
    }
    table(
        "Dally and its rivals (simulated)",
        ("load", "policy", "makespan h", "mean completion h", "communication"),
        [
            (load, policy, f"{one['makespan_seconds'] / 3600:.1f}", f"{one['jct.mean_seconds'] / 3600:.1f}",
             f"{one['communication.overhead']:.1%}")
            for load, found in loads.items() for policy, one in found.items()
        ],
    )  # fmt: skip
    details = {"tiresias": tiresias, "gavel": gavel, "dally": loads}
    publish("fleet", headline, details, seeds=seeds, quick=arguments.quick)


def _means(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: fmean(one[key] for one in found) for key in found[0]}


if __name__ == "__main__":
    main()
