"""Policies in the simulated fleet against what others computed: Tiresias, Gavel, Sia, and Dally beside its rivals.

`tiresias_jct_error_seconds`: of Pollux' simulator we have the mean completion time of each of its four workloads, and
the completion times of twelve single jobs. The figure is the largest deviation among these twelve, and of each mean
times its 160 jobs; 0 if all of them agree to the second. Published times of every single job are not at hand.
`gavel_case_error` is the largest relative error of the mean completion time in Gavel's small cases.

The figures of Dally are the worst of three generated loads (a batch, a stream, a batch with jobs of 16 and 32
accelerators; 300 jobs on 64 accelerators, measured sensitivity to the network, congestion 1 and 3, means of the seeds):
its makespan over that without waiting and over full consolidation, its communication over that without waiting. Those
that end in `_philly` are the same for nine slices of 300 jobs of the Philly trace on these 64 accelerators, with the
trace's arrivals, durations and numbers of accelerators; which model each job trains is drawn. Only jobs of several
accelerators are taken: 93 % of the trace ask for one, and on slices of all jobs the four do the same within 0.1 %.
None of these slices or loads has set a constant of Dally. It is also shown without the places that it keeps for the job
that would end last.

All is simulated, but what is measured in processor time: the jobs a second (the whole Philly trace, first come first
served), 160 jobs of a workload of Pollux' (Tiresias), and a decision for 1,000 jobs that wait for 1,000 accelerators of
three types, by policy; `sia-elastic` and `pollux-elastic` decide on jobs that can run on many numbers of them.

    python -m benchmarks.fleet [--quick]
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from benchmarks.fleet_loads import (
    draw_gavel_jobs,
    generate_load,
    measured_models,
    uniform_cluster,
    with_measured_network,
)
from benchmarks.report import parse_arguments, publish, table
from shunter.extensions.fleet.board import Board, Policy
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Job, JobState
from shunter.extensions.fleet.policies import POLICIES, make_policy
from shunter.extensions.fleet.policies.dally import AutoTuner, Delayed
from shunter.extensions.fleet.policies.dally_moves import Mover
from shunter.extensions.fleet.policies.elastic import choose_options
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate
from shunter.extensions.fleet.traces.durations import read_philly
from shunter.extensions.fleet.traces.pollux import read_pollux
from shunter.settings import PROJECT_ROOT

CLUSTERS = PROJECT_ROOT.parent / "shared" / "data" / "clusters"
PHILLY = CLUSTERS / "pollux_osdi21" / "traces" / "philly.csv"
TABLE = CLUSTERS / "gavel" / "simulation_throughputs.json"
TIRESIAS = {1: 2473.65, 2: 5144.9625, 3: 3876.25625, 4: 3280.2625}  # mean seconds by workload, Pollux' simulator
SINGLE = {  # completion seconds of jobs, by workload
    2: {"cifar10-0": 982, "imagenet-10": 69234, "yolov3-28": 14262, "bert-87": 6109, "yolov3-144": 20852,
        "deepspeech2-157": 9994, "ncf-159": 126},
    4: {"bert-0": 3163, "imagenet-106": 79517, "ncf-132": 1356, "yolov3-154": 18163, "cifar10-159": 1097},
}  # fmt: skip
GAVEL = {"gavel-fifo-perf": 47544.334, "gavel-max-min": 71244.680, "gavel-max-min-perf": 53184.824}
LOADS: dict[str, dict[str, Any]] = {"batch": {}, "stream": {"mean_gap_seconds": 3200.0}, "large": {"large": True}}
DALLY: dict[str, Callable[[], Policy]] = {
    **{name: POLICIES[name] for name in ("dally-nowait", "dally-consolidated", "dally-auto", "dally")},
    "dally, nothing kept": lambda: Delayed("dally", AutoTuner(), Mover()),
}
PHILLY_SLICES = tuple(i / 10 for i in range(1, 10))  # where in the trace they begin
OPTIMISING = ("gavel-max-min", "gavel-max-min-perf", "min-makespan", "sia", "sia-elastic", "pollux", "pollux-elastic")
SEEDS, QUICK_SEEDS = tuple(range(4)), (0,)


def tiresias_error_seconds(workload: int) -> float:
    """Largest deviation of a job that is known by itself, and of all together, seen through their mean."""
    jobs = read_pollux(CLUSTERS / f"pollux_osdi21/workloads/workload-{workload}.csv")
    schedule = simulate(jobs, uniform_cluster(1, 16, 4), make_policy("tiresias"))
    values = figures(schedule)
    alone_seconds = fmean(outcome.isolated_seconds for outcome in schedule.outcomes)
    assert values["jct.mean_seconds"] >= alone_seconds, "faster than every job alone"
    completion = {outcome.job: outcome.completion_seconds for outcome in schedule.outcomes}
    single = [abs(completion[name] - seconds) for name, seconds in SINGLE.get(workload, {}).items()]
    return max([abs(values["jct.mean_seconds"] - TIRESIAS[workload]) * len(jobs), *single])


def gavel_error(policy: str) -> float:
    """Relative error of the mean completion time of jobs 50 to 150."""
    types = ("v100", "p100", "k80")
    cluster = Cluster(machines=tuple(Machine(name=f"{name}{i}", accelerator=name) for name in types for i in range(4)))
    schedule = simulate(draw_gavel_jobs(TABLE, 220, 0, 0.2), cluster, make_policy(policy))
    return abs(fmean(one.completion_seconds for one in schedule.outcomes[50:150]) / GAVEL[policy] - 1)


def dally(seeds: tuple[int, ...]) -> dict[str, dict[str, dict[str, float]]]:
    """Figures of Dally and its rivals, by load with congestion and by policy."""
    models = measured_models(TABLE)
    return {
        f"{load}, congestion {congestion:g}": _compared(
            [generate_load(models, 300, seed, **options) for seed in seeds], _dally_cluster(congestion)
        )
        for load, options in LOADS.items()
        for congestion in (1.0, 3.0)
    }


def dally_on_philly(slices: tuple[float, ...]) -> dict[str, dict[str, dict[str, float]]]:
    """The same on slices of the Philly trace."""
    models, found = measured_models(TABLE), {}
    trace = sorted(read_philly(PHILLY), key=lambda job: job.arrival_seconds)
    for congestion in (1.0, 3.0):
        cluster = _dally_cluster(congestion)
        fitting = [job for job in trace if 1 < job.accelerators <= cluster.count]
        for share in slices:
            begin = int(share * len(fitting))
            jobs = with_measured_network(fitting[begin : begin + 300], models, cluster, seed=0)
            compared = _compared([jobs], cluster)
            compared["no policy below"] = {"makespan_seconds": least_makespan_seconds(jobs, cluster)}
            found[f"Philly from {share:.0%}, congestion {congestion:g}"] = compared
    return found


def least_makespan_seconds(jobs: Sequence[Job], cluster: Cluster) -> float:
    """What no schedule falls below: all jobs side by side without a gap, and the one that ends last were it alone."""
    begin = min(job.arrival_seconds for job in jobs)
    alone = [job.work.seconds_left(0.0, job.ideal(cluster)) for job in jobs]
    area = sum(seconds * job.accelerators for job, seconds in zip(jobs, alone, strict=True)) / cluster.count
    return max(area, *(job.arrival_seconds - begin + seconds for job, seconds in zip(jobs, alone, strict=True)))


def _dally_cluster(congestion: float) -> Cluster:
    return uniform_cluster(2, 4, 8, network={"congestion": congestion, "shared_uplinks": False})


def _compared(loads: Sequence[Sequence[Job]], cluster: Cluster) -> dict[str, dict[str, float]]:
    return {
        policy: _means([figures(simulate(jobs, cluster, make())) for jobs in loads]) for policy, make in DALLY.items()
    }


def simulated_jobs_per_second() -> float:
    """Jobs of the Philly trace on 2,400 accelerators, by processor time."""
    jobs = read_philly(PHILLY)
    began = time.process_time()
    simulate(jobs, uniform_cluster(10, 30, 8), make_policy("fifo"))
    return len(jobs) / (time.process_time() - began)


def pollux_workload_seconds() -> float:
    """Processor time of the 160 jobs of a workload under Tiresias, read and simulated."""
    began = time.process_time()
    tiresias_error_seconds(1)
    return time.process_time() - began


def decision_seconds() -> dict[str, float]:
    """Processor time of a policy's first decision for 1,000 jobs that wait for 1,000 accelerators."""
    types = ("v100", "p100", "k80")
    machines = [Machine(name=f"m{i}", rack=f"r{i // 25}", accelerator=types[i % 3], count=8) for i in range(125)]
    drawn = draw_gavel_jobs(TABLE, 1000, 0, 1.0, multi=True)
    workload = read_pollux(CLUSTERS / "pollux_osdi21/workloads/workload-1.csv", adaptive=True)
    elastic = [replace(workload[i % len(workload)], name=f"job-{i}") for i in range(1000)]
    cluster = Cluster(machines=tuple(machines))
    found = {name: _decision_seconds(name, drawn, cluster) for name in POLICIES}
    for name in ("sia", "pollux"):
        found[f"{name}-elastic"] = _decision_seconds(name, elastic, uniform_cluster(5, 50, 4))
    return found


def _decision_seconds(policy: str, jobs: Sequence[Job], cluster: Cluster) -> float:
    board = Board(cluster)
    board.waiting = {job.name: JobState(job) for job in jobs}
    decider = make_policy(policy)
    began = time.process_time()
    decider.decide(board)
    return time.process_time() - began


def main() -> None:
    """Compare all and publish."""
    arguments = parse_arguments(__doc__)
    seeds = QUICK_SEEDS if arguments.quick else SEEDS
    tiresias = {f"workload {number}": tiresias_error_seconds(number) for number in TIRESIAS}
    gavel = {policy: gavel_error(policy) for policy in list(GAVEL)[: 1 if arguments.quick else None]}
    loads, slices = dally(seeds), dally_on_philly(PHILLY_SLICES[: 1 if arguments.quick else None])
    decisions = decision_seconds()
    demands = [[("A", 1), ("A", 2), ("B", 1), ("B", 2), ("B", 4)]] * 2
    gains = [[1, 1.5, 1.5, 2.5, 3.5], [1.2, 2.1, 1, 1.9, 3.6]]

    def worst(key: str, rival: str, where: dict[str, dict[str, dict[str, float]]]) -> float:
        return max(found["dally"][key] / found[rival][key] for found in where.values())

    headline = {
        "tiresias_jct_error_seconds": round(max(tiresias.values()), 3),
        "gavel_case_error": max(gavel.values()),
        "dally_makespan_ratio_nowait": worst("makespan_seconds", "dally-nowait", loads),
        "dally_makespan_ratio_consolidated": worst("makespan_seconds", "dally-consolidated", loads),
        "dally_communication_ratio_nowait": worst("communication.overhead", "dally-nowait", loads),
        "dally_makespan_ratio_nowait_philly": worst("makespan_seconds", "dally-nowait", slices),
        "dally_makespan_ratio_consolidated_philly": worst("makespan_seconds", "dally-consolidated", slices),
        "dally_completion_ratio_consolidated_philly": worst("jct.mean_seconds", "dally-consolidated", slices),
        "dally_communication_ratio_nowait_philly": worst("communication.overhead", "dally-nowait", slices),
        "sia_example": float(choose_options(gains, demands, {"A": 2, "B": 4}) == [4, 1]),
        "simulated_jobs_per_second": simulated_jobs_per_second(),
        "pollux_workload_seconds": pollux_workload_seconds(),
        "decision_seconds_1000x1000": max(took for name, took in decisions.items() if name not in OPTIMISING),
        "decision_seconds_1000x1000_optimising": max(took for name, took in decisions.items() if name in OPTIMISING),
    }
    table(
        "Dally and its rivals (simulated)",
        ("load", "policy", "makespan h", "mean completion h", "communication"),
        [
            (load, policy, f"{one['makespan_seconds'] / 3600:.1f}", f"{one['jct.mean_seconds'] / 3600:.1f}",
             f"{one['communication.overhead']:.1%}")
            for load, found in {**loads, **slices}.items() for policy, one in found.items() if policy in DALLY
        ],
    )  # fmt: skip
    details = {
        "tiresias": tiresias,
        "gavel": gavel,
        "dally": {**loads, **slices},
        "decision_seconds": decisions,
    }
    publish("fleet", headline, details, seeds=seeds, quick=arguments.quick)


def _means(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: fmean(one[key] for one in found) for key in found[0]}


if __name__ == "__main__":
    main()
