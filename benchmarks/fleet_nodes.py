"""Trainings in two processes over two nodes of a live Ray cluster: what their steps were foreseen to take, and took.

`shunter train --cluster ... --processes 2`, and the same by plans that `shunter plan` wrote, on a cluster of two nodes
of one core each on this machine, so that the network between them is its loopback. Each command foresees the step twice
before it trains: the simulator of plans by the tasks of the plan, and the cost model as the selector and the fleet use
it. Both know the nodes' profiles and the collectives that were measured between them; the first case knows of no
training before it, the later ones of what `shunter train` keeps of the earlier. What a step took is the median of the
epochs after the first.

    python -m benchmarks.fleet_nodes
"""

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.report import parse_arguments, publish, table
from shunter.tracking.evidence import read_evidence
from shunter.tracking.registry.versions import champion_of
from shunter.tracking.store import open_store

MEMORY = 80 * 2**20
PROGRAM = Path(sys.executable).with_name("shunter")


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        rows: Rows of its log, of Criteo's shape.
        model: Its family.
        width: Numbers of an embedding row.
        batch_size: Samples of a step of both processes.
        planned: Whether it follows a plan that was written before.
    """

    rows: int
    model: str
    width: int
    batch_size: int
    planned: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.model}, width {self.width}, batch {self.batch_size}{', by a plan' if self.planned else ''}"

    @property
    def of_model(self) -> tuple[str, ...]:
        """Options that say what is trained."""
        return ("--data", f"synthetic:{self.rows}", "--model", self.model, "--set", f"embedding_dim={self.width}")


CASES = (
    Case(60_000, "dlrm", 16, 512),
    Case(60_000, "dlrm", 64, 2048),
    Case(60_000, "dcnv2", 16, 1024),
    Case(60_000, "dlrm", 64, 2048, planned=True),
    Case(60_000, "dnn", 32, 4096, planned=True),
)
QUICK_CASES = (Case(20_000, "dlrm", 16, 512, planned=True),)


@contextmanager
def two_nodes() -> Iterator[str]:
    """The address of a cluster of two nodes of a core on this machine."""
    from ray.cluster_utils import Cluster as RayCluster

    made = RayCluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    )
    for name in ("one", "two"):
        made.add_node(num_cpus=1, object_store_memory=MEMORY, node_name=name, resources={"training": 1})
    made.wait_for_nodes()
    try:
        yield str(made.address)
    finally:
        made.shutdown()


def command(*arguments: str) -> None:
    """Run `shunter` as a user does.

    Raises:
        RuntimeError: It failed; what it said is in the message.
    """
    done = subprocess.run([str(PROGRAM), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"shunter {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def trained(case: Case, address: str, folder: Path) -> dict[str, Any]:
    """Train one case by the command; what its run says of the step."""
    how: tuple[str, ...] = ("--processes", "2")
    if case.planned:
        plan = str(folder / "plan.yaml")
        command("plan", *case.of_model, "--devices", "2", "--batch-size", str(case.batch_size), "--out", plan)
        how = ("--plan", plan)
    name = f"nodes-{case.model}-{case.width}-{case.batch_size}-{case.planned}"
    fixed = ("--set", "patience=99", "--batch-sizes", str(case.batch_size), "--trials", "1", "--ensemble-size", "1")
    there = ("--cluster", address, "--cluster-resource", "training", "--register-as", name)
    command("train", *case.of_model, *fixed, *how, *there, "--max-epochs", "4", "--baselines", "none")
    version = champion_of(name)
    assert version is not None, "it was registered"
    return _steps(version.run_id) | {"case": case.name, "planned": case.planned}


def _steps(run_id: str) -> dict[str, Any]:
    """Seconds of a step that the member of a run was foreseen to take, and took; and where it was."""
    client = open_store().mlflow
    run = client.get_run(run_id)
    children = client.search_runs([run.info.experiment_id], f"tags.mlflow.parentRunId = '{run_id}'")
    (member,) = [one for one in children if "plan.measured_step_seconds" in one.data.metrics]
    evidence = read_evidence(member.data.tags)
    assert evidence is not None, "it came to its end"
    return {
        "simulator_seconds": member.data.metrics["plan.predicted_step_seconds"],
        "cost_model_seconds": evidence.predicted.step_seconds,
        "measured_seconds": member.data.metrics["plan.measured_step_seconds"],
        "nodes": run.data.tags["cluster.nodes"],
    }


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How far the predictions are from what was measured, as factors of at least one."""

    def wrong(name: str) -> float:
        return geometric_mean(math.exp(abs(math.log(one[name] / one["measured_seconds"]))) for one in rows)

    return {
        "simulator_step_factor": wrong("simulator_seconds"),
        "cost_model_step_factor": wrong("cost_model_seconds"),
    }


def main() -> None:
    """Train all cases on one cluster, and compare."""
    arguments = parse_arguments(__doc__)
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHUNTER_HOME"] = folder
        with two_nodes() as address:
            cases = QUICK_CASES if arguments.quick else CASES
            rows = [trained(case, address, Path(folder)) for case in cases]
    assert all(set(one["nodes"].split(", ")) == {"one", "two"} for one in rows), "both nodes trained"
    seconds = ("simulator_seconds", "cost_model_seconds", "measured_seconds")
    table(
        "A step over two nodes (ms)",
        ("training", "simulated by its plan", "foreseen by the cost model", "measured"),
        [(one["case"], *(f"{1e3 * one[name]:.1f}" for name in seconds)) for one in rows],
    )
    publish("fleet_nodes", figures(rows), {"trainings": rows}, seeds=(0,), quick=arguments.quick)


if __name__ == "__main__":
    main()
