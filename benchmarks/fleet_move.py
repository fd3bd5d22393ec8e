"""A running training that moves to a better node when that becomes free: how much earlier it ends, measured.

Two trainings of one thread on a Ray cluster of two nodes of this machine, which the kernel holds to 0.65 and 0.3 cores:
a short one, which gets the better node, and a long one, which must begin on the other. First each is run on each kind
of node; by what that taught, and by nothing else, the policies then decide on the live cluster: `fifo-skip`, which
leaves a training where it began, and `fifo-move`, which moves the long one through its checkpoint when the short one
has ended and the move is foreseen to pay twice what it takes. Start-up is included, judging and registering the
models is left out.

    python -m benchmarks.fleet_move
"""

import os
import tempfile
from pathlib import Path
from statistics import fmean

from benchmarks.fleet_live import (
    QUICK_ROWS,
    QUICK_SETTLE_SECONDS,
    SETTLE_SECONDS,
    asked,
    bound,
    ray_cluster,
    run,
    with_predicted_times,
)
from benchmarks.report import parse_arguments, publish, table
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate

NODES = {"cpu-large": 0.65, "cpu-small": 0.3}  # cores of this machine
EPOCHS, QUICK_EPOCHS = (2, 24), (1, 4)
ROWS = 24_000
POLICIES = ("fifo-skip", "fifo-move")
TURNS = 1
KEPT = ("makespan_seconds", "jct.mean_seconds", "migrations")


def main() -> None:
    """Make the past, run the two trainings under both policies, and compare."""
    arguments = parse_arguments(__doc__)
    epochs, rows = (QUICK_EPOCHS, QUICK_ROWS) if arguments.quick else (EPOCHS, ROWS)
    names, turns = tuple(NODES), 1 if arguments.quick else TURNS
    measured: dict[str, list[dict[str, float]]] = {policy: [] for policy in POLICIES}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHUNTER_HOME"] = folder
        jobs = asked(epochs, rows)
        with ray_cluster(QUICK_SETTLE_SECONDS if arguments.quick else SETTLE_SECONDS, NODES) as address:
            for turn in range(len(names)):
                run(bound(jobs, turn, names), address, Path(folder) / f"past{turn}")
            known, times = with_predicted_times(jobs, names)
            for turn in range(turns):
                for policy in POLICIES:
                    schedule = run(known, address, Path(folder) / f"{policy}{turn}", policy)
                    measured[policy].append({name: figures(schedule)[name] for name in KEPT})
    cluster = Cluster(machines=tuple(Machine(name=name, accelerator=name, count=1) for name in names))
    simulated = {
        policy: {
            name: figures(simulate([job.job for job in known], cluster, make_policy(policy)))[name] for name in KEPT
        }
        for policy in POLICIES
    }
    means = {policy: {name: fmean(one[name] for one in found) for name in KEPT} for policy, found in measured.items()}
    table(
        "Two trainings on two unequal nodes",
        ("policy", "makespan s", "simulated", "mean completion s", "moves"),
        [
            (policy, f"{one['makespan_seconds']:.1f}", f"{simulated[policy]['makespan_seconds']:.1f}",
             f"{one['jct.mean_seconds']:.1f}", f"{one['migrations']:.1f}")
            for policy, one in means.items()
        ],
    )  # fmt: skip

    def ratio(name: str, of: dict[str, dict[str, float]]) -> float:
        return of["fifo-move"][name] / of["fifo-skip"][name]

    headline = {
        "moved_makespan_ratio": ratio("makespan_seconds", means),
        "moved_makespan_ratio_simulated": ratio("makespan_seconds", simulated),
        "moved_completion_ratio": ratio("jct.mean_seconds", means),
        "moves": means["fifo-move"]["migrations"],
    }
    details = {
        "times": [one.model_dump(mode="json") for one in times],
        "measured": measured,
        "simulated": simulated,
    }
    publish("fleet_move", headline, details, seeds=(0,), quick=arguments.quick)


if __name__ == "__main__":
    main()
