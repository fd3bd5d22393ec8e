"""A queue of small trainings on a live cluster beside its simulation: how far apart their makespans are.

Eight trainings of one core (three with `--quick`) run first come, first served with overtaking, as `shunter fleet run`
runs them, on a Ray cluster of three unequal nodes of this machine with 1, 1 and 2 cores. Each was run alone before, on
a node of the same cluster; the simulation knows what that took, until it was granted its core and until it was trained,
and nothing else. The nodes share the cores of this machine: where it has fewer than four, the trainings of the queue
slow each other down, which those before did not know. Judging and registering the models is left out of both.

    python -m benchmarks.fleet_live
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report import parse_arguments, publish, table
from scheduler.cluster import Cluster, Machine
from scheduler.job import Iterations
from scheduler.live.driver import Driver, Surroundings
from scheduler.metrics import figures
from scheduler.policies import make_policy
from scheduler.schedule import Outcome, Schedule
from scheduler.simulator import simulate
from shunter.requests import TrainRequest
from tasks.fleet.jobs import FleetJob, prepare_jobs
from tasks.fleet.trainings import RayTrainings
from tracking.runs import closing, start_run

NODES = {"one": 1, "other": 1, "two": 2}
POLICY = "fifo-skip"
EPOCHS, QUICK_EPOCHS = (2, 3, 4, 6, 2, 5, 3, 4), (1, 2, 1)
ROWS, QUICK_ROWS = 40_000, 8_000
MEMORY = 80 * 2**20


@contextmanager
def ray_cluster() -> Iterator[str]:
    """The address of a cluster of the nodes, on this machine."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    from ray.cluster_utils import Cluster as RayCluster

    made = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": MEMORY})
    for name, cores in NODES.items():
        made.add_node(num_cpus=cores, object_store_memory=MEMORY, node_name=name, resources={"training": 1})
    made.wait_for_nodes()
    try:
        yield str(made.address)
    finally:
        made.shutdown()


def asked(epochs: Sequence[int], rows: int) -> list[FleetJob]:
    """The trainings, all of other lengths."""
    from scheduler.files import OwnJob

    jobs = []
    for i, count in enumerate(epochs):
        train = TrainRequest(
            data=f"synthetic:{rows}", model="dnn", batch_sizes="64", max_epochs=count, set=["patience=99"], seed=i
        )
        jobs.append((OwnJob(name=f"job{i}", train=train, train_seconds={"cpu": 60.0}), train))
    return prepare_jobs(jobs)


def run(jobs: Sequence[FleetJob], address: str, directory: Path) -> Schedule:
    """What the policy does with them on the live cluster."""
    from engine.executors.ray.cluster import open_cluster

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
            driver = Driver(
                [job.job for job in jobs],
                make_policy(POLICY),
                trainings,
                Surroundings(lambda: time.monotonic() - began),
            )
            driver.run()
        return driver.schedule()


def foreseen(jobs: Sequence[FleetJob], alone: dict[str, Outcome]) -> Schedule:
    """What the simulator makes of them, from what each took alone."""
    cluster = Cluster(machines=tuple(Machine(name=n, accelerator="cpu", count=cores) for n, cores in NODES.items()))
    known = []
    for job in jobs:
        before = alone[job.name]
        work = Iterations(before.run_seconds, {"cpu": 1.0})
        known.append(replace(job.job, work=work, start_seconds=before.first_start_seconds))
    return simulate(known, cluster, make_policy(POLICY))


def main() -> None:
    """Run each alone, then all; compare with the simulation and publish."""
    arguments = parse_arguments(__doc__)
    epochs, rows = (QUICK_EPOCHS, QUICK_ROWS) if arguments.quick else (EPOCHS, ROWS)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHUNTER_HOME"] = folder
        jobs = asked(epochs, rows)
        with ray_cluster() as address:
            alone = {}
            for job in jobs:
                name = job.name
                alone[name] = run([job], address, Path(folder) / "alone").outcomes[0]
            real = run(jobs, address, Path(folder) / "queue")
    simulated = foreseen(jobs, alone)
    ends = {one.job: one.end_seconds for one in simulated.outcomes}
    table(
        "Ends of the trainings (s)",
        ("job", "alone", "simulated", "measured"),
        [
            (one.job, f"{alone[one.job].end_seconds:.1f}", f"{ends[one.job]:.1f}", f"{one.end_seconds:.1f}")
            for one in real.outcomes
        ],
    )
    measured_figures, simulated_figures = figures(real), figures(simulated)
    ratio = measured_figures["makespan_seconds"] / simulated_figures["makespan_seconds"]
    seconds = {name: one.end_seconds for name, one in alone.items()}
    details: dict[str, Any] = {"alone": seconds, "measured": measured_figures, "simulated": simulated_figures}
    publish("fleet_live", {"real_vs_simulated_makespan": ratio}, details, seeds=(0,), quick=arguments.quick)


if __name__ == "__main__":
    main()
