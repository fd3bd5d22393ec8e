"""A queue of small trainings on a live cluster beside its simulation: how far apart their makespans are.

Eight trainings of one thread (three with `--quick`) run on a Ray cluster of three unequal nodes of this machine. A node
is held to a share of a core by the kernel (`benchmarks/core_shares.py`), start-up included: 0.65, 0.45 and 0.3 cores,
so that all offer less than the two cores that the machine must have, and the rest is left to Ray and the driver. Each
kind of node is an accelerator type of its own (`cpu-NAME`).

First the queue runs three times, with every job bound to one kind of node, another one each time. These are the past
runs, stored in MLflow as by `shunter fleet run`. The times of all jobs and of their start-up are predicted from these
runs alone. Then the queue runs once more, first come, first served with overtaking; each job takes the node where it is
predicted to end first. The figure is the makespan of this last run relative to the makespan that the simulator gives
for the predicted times; the simulation knows nothing of the last run. No job is preempted. Evaluating and registering
the models is left out of both.

    python -m benchmarks.fleet_live
"""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.core_shares import held_to
from benchmarks.report import parse_arguments, publish, table
from shunter.errors import HardwareError
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.duration_model import DurationModel, PredictedTime, Source
from shunter.extensions.fleet.files import OwnJob
from shunter.extensions.fleet.live.driver import Driver, DriverContext
from shunter.extensions.fleet.past import read_past_jobs
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.schedule import Schedule, figures
from shunter.extensions.fleet.simulator import simulate
from shunter.extensions.fleet.tasks.jobs import FleetJob, prepare_jobs, with_times
from shunter.extensions.fleet.tasks.run import log_measurements
from shunter.extensions.fleet.tasks.trainings import RayTrainings
from shunter.requests import TrainRequest
from shunter.tracking.runs import closing, start_run

NODES = {"cpu-large": 0.65, "cpu-middle": 0.45, "cpu-small": 0.3}  # cores of this machine
POLICY = "fifo-skip"
EPOCHS, QUICK_EPOCHS = (2, 3, 4, 6, 2, 5, 3, 4), (1, 2, 1)
ROWS, QUICK_ROWS = 40_000, 6_000
MEMORY = 80 * 2**20
SETTLE_SECONDS, QUICK_SETTLE_SECONDS = (
    20.0,
    5.0,
)  # for Ray's own processes of each node, which are held to its share too


@contextmanager
def ray_cluster(settle_seconds: float, nodes: Mapping[str, float] = NODES) -> Iterator[str]:
    """The address of a cluster of nodes on this machine, each held to its share of the cores."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    if (psutil.cpu_count() or 1) < sum(nodes.values()) + 0.5:
        raise HardwareError("The nodes of this benchmark need two cores: run it on a larger machine.")
    from ray.cluster_utils import Cluster as RayCluster

    made = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": MEMORY})
    with ExitStack() as shares:
        for name, cores in nodes.items():
            kind = {"training": 1, f"accelerator_type:{name}": 1}
            node = made.add_node(num_cpus=1, object_store_memory=MEMORY, node_name=name, resources=kind)
            raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
            started = [raylet, *raylet.children(recursive=True)]
            shares.enter_context(held_to(name, cores, [process.pid for process in started]))
        made.wait_for_nodes()
        time.sleep(settle_seconds)
        try:
            yield str(made.address)
        finally:
            made.shutdown()


def asked(epochs: Sequence[int], rows: int) -> list[FleetJob]:
    """The trainings, all of other lengths."""
    jobs = []
    for i, count in enumerate(epochs):
        train = TrainRequest(
            data=f"synthetic:{rows}", model="dnn", batch_sizes="64", max_epochs=count, set=["patience=99"], seed=i
        )
        jobs.append((OwnJob(name=f"job{i}", train=train), train))
    return prepare_jobs(jobs)


def bound(jobs: Sequence[FleetJob], turn: int, names: Sequence[str] = tuple(NODES)) -> list[FleetJob]:
    """Each job on one kind of node alone, in each turn on another; how long it takes there is not known yet."""
    return [
        replace(job, own=job.own.model_copy(update={"train_seconds": {names[(i + turn) % len(names)]: 60.0}}))
        for i, job in enumerate(jobs)
    ]


def run(jobs: Sequence[FleetJob], address: str, directory: Path, policy: str = POLICY) -> Schedule:
    """What a policy does with them on the live cluster; what was measured is kept in MLflow."""
    from shunter.extensions.distributed.executors.ray.cluster import open_cluster

    run_id = start_run("benchmark", "fleet")
    with closing(run_id), open_cluster(address, "training") as cluster:
        trainings = RayTrainings(
            cluster,
            address=address,
            resource="training",
            jobs={job.name: job for job in jobs},
            directory=directory,
            run_id=run_id,
            checkpoint_seconds=60.0,
            finish=lambda job, trained, folder: {},
        )
        began = time.monotonic()
        with trainings:
            around = DriverContext(lambda: time.monotonic() - began)
            driver = Driver([job.job for job in jobs], make_policy(policy), trainings, around)
            driver.run()
        log_measurements(run_id, {job.name: job for job in jobs}, driver)
        return driver.schedule()


def with_predicted_times(
    jobs: Sequence[FleetJob], names: Sequence[str] = tuple(NODES)
) -> tuple[list[FleetJob], list[PredictedTime]]:
    """Return the jobs with times and costs that past runs alone predict, and these times."""
    training = {job.name: job.training for job in jobs}
    model = DurationModel(lambda own: training[own.name], past=read_past_jobs())
    return with_times(jobs, list(names), model), model.times


def main() -> None:
    """Record past runs, predict, run, and compare."""
    arguments = parse_arguments(__doc__)
    epochs, rows = (QUICK_EPOCHS, QUICK_ROWS) if arguments.quick else (EPOCHS, ROWS)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHUNTER_HOME"] = folder
        jobs = asked(epochs, rows)
        with ray_cluster(QUICK_SETTLE_SECONDS if arguments.quick else SETTLE_SECONDS) as address:
            for turn in range(len(NODES)):
                run(bound(jobs, turn), address, Path(folder) / f"past{turn}")
            known, times = with_predicted_times(jobs)
            cluster = Cluster(machines=tuple(Machine(name=name, accelerator=name, count=1) for name in NODES))
            simulated = simulate([job.job for job in known], cluster, make_policy(POLICY))
            real = run(known, address, Path(folder) / "queue")
    assert all(one.source is Source.MEASURED for one in times), "a time was not measured before"
    ends = {one.job: one.end_seconds for one in simulated.outcomes}
    places = {one.job: cluster.machines[one.placement[0][0]].name for one in simulated.spans}
    there = {one.job: real.cluster.machines[one.placement[0][0]].name for one in real.spans}
    table(
        "Ends of the trainings (s)",
        ("job", "simulated on", "until", "measured on", "until"),
        [
            (one.job, places[one.job], f"{ends[one.job]:.1f}", there[one.job], f"{one.end_seconds:.1f}")
            for one in real.outcomes
        ],
    )
    measured_figures, simulated_figures = figures(real), figures(simulated)
    ratio = measured_figures["makespan_seconds"] / simulated_figures["makespan_seconds"]
    details: dict[str, Any] = {
        "times": [one.model_dump(mode="json") for one in times],
        "measured": measured_figures,
        "simulated": simulated_figures,
        "same_place": sum(places[name] == there[name] for name in places),
    }
    publish("fleet_live", {"real_vs_simulated_makespan": ratio}, details, seeds=(0,), quick=arguments.quick)


if __name__ == "__main__":
    main()
