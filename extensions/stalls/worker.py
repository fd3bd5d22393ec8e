"""Program of each process of the stall profiler: `python -m shunter.extensions.stalls.worker FOLDER`."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from shunter.engine.loop.step import applied
from shunter.extensions.distributed.links.processes import Report, join_group, run_member
from shunter.extensions.distributed.private_files import read_private, write_private
from shunter.extensions.distributed.training.processes import broadcast_number
from shunter.extensions.stalls.linked import BACKEND, Wire, register_backend
from shunter.extensions.stalls.plan import RUNS, CommunicationMeasurement, StallMeasurements, StallPlan
from shunter.extensions.stalls.runs import StallRuns
from shunter.models.spec import ModelSpec

PLAN, RESULT = "plan.pickle", "result.pickle"
COMMUNICATION_ROUNDS = 3
COMMUNICATION_SHARE = 1.5  # multiple of the time for the runs, after which only one round is made


def main(folder: Path, report: Report) -> None:
    """Take part in all measurement runs; the first process writes the result into the folder."""
    plan: StallPlan = read_private(folder / PLAN)
    rank = int(os.environ["RANK"])
    on_cpu = plan.execution.device == "cpu"
    wire = Wire() if on_cpu else None
    if wire is not None:
        register_backend(wire)
    join_group(folder, BACKEND if on_cpu else "cpu:gloo,cuda:nccl")
    device = "cpu" if on_cpu else f"cuda:{rank}"
    if not on_cpu:
        torch.cuda.set_device(rank)
    result = measure(replace(plan, execution=replace(plan.execution, device=device)), wire, report)
    if rank == 0:
        write_private(result, folder / RESULT)


def measure(
    plan: StallPlan, wire: Wire | None, report: Report, now: Callable[[], float] = time.perf_counter
) -> StallMeasurements:
    """Make all measurement runs, round after round, so that changes of the machine's load affect all runs equally.

    Args:
        plan: Plan of the measurements.
        wire: Wire of the processes' group.
        report: Called with the progress.
        now: Clock that times the steps.
    """
    with applied(plan.execution):
        runs = StallRuns(plan, plan.execution, wire, now)
        seconds: dict[str, list[list[float]]] = {name: [] for name in RUNS}
        begun, rounds = time.perf_counter(), 0
        while rounds < plan.rounds[0] or _has_time_for_round(begun, rounds, plan):
            for name in RUNS:
                report("progress", f"round {rounds + 1}, {name}")
                durations = runs.run(name)
                if durations:
                    seconds[name].append(durations)
            rounds += 1
        return StallMeasurements(
            seconds={name: some for name, some in seconds.items() if some},
            not_measurable=runs.not_measurable,
            traffic=runs.traffic(),
            sharding=runs.sharding,
            slow_tier_rows=runs.slow_tier_rows,
            communication=_communication(plan, runs, report, begun),
        )


def _has_time_for_round(begun: float, rounds: int, plan: StallPlan) -> bool:
    """Return True if there is time for one more round; the first process decides for all processes."""
    spent = time.perf_counter() - begun
    wanted = rounds < plan.rounds[1] and spent * (rounds + 1) / rounds <= plan.seconds
    return bool(broadcast_number(int(wanted)))


def _communication(plan: StallPlan, runs: StallRuns, report: Report, begun: float) -> list[CommunicationMeasurement]:
    """Measure the models that calibrate the communication model, with fewer rounds if the machine is slow."""
    if runs.traffic() is None:
        return []
    measured: list[CommunicationMeasurement] = []
    for spec in plan.communication_specs:
        report("progress", f"communication of {label(spec)}")
        in_time = time.perf_counter() - begun < COMMUNICATION_SHARE * plan.seconds
        rounds = COMMUNICATION_ROUNDS if broadcast_number(int(in_time)) else 1
        measured.append(runs.communication(spec, plan.communication_steps, rounds, label(spec)))
    return measured


def label(spec: ModelSpec) -> str:
    """Return a short label of a model, such as `dlrm d16 64 128-64`."""
    bottom, top = ("-".join(map(str, widths)) for widths in (spec.bottom_widths, spec.top_widths))
    return f"{spec.family} d{spec.embedding_dim} {bottom} {top}"


if __name__ == "__main__":
    run_member(main)
