"""Plans of where tables go: found by simulation, beside TorchRec's planner, and executed.

Four parts, of which each says what it is:

- simulated: the step of the plan that is found over that of the plan TorchRec's planner makes for the same devices,
  links and kinds of placement, over table sets of published shapes (the 26 fields of Criteo's Kaggle and terabyte logs)
  with three skews of Zipf's law, widths and numbers of accelerators of the catalogue; both steps come from our own
  simulator, which the search minimises and TorchRec's planner does not know;
- measured: plans trained by processes of this machine, the time of a step beside what was predicted for it
  (`benchmarks.plans_executed`), tables whose rows travel one by one (`benchmarks.plans_rows`), and models larger than
  the memory that a process may take (`benchmarks.plans_memory`);
- FlexFlow's claims: plans that also divide dense layers, beside data parallel and the strategy by hand
  (`benchmarks.plans_flexflow`);
- counted: the search, without the integer program that belongs to it, against the best of all plans (all simulated, or
  proven by the dynamic or the integer program, on equal and on unequal devices), and simulations a second of processor
  time.
"""

import argparse
import itertools
import json
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, geometric_mean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import plans_flexflow, plans_scaled, report
from benchmarks.plans_executed import against_one_process, executed, figures
from benchmarks.plans_memory import figures as memory_figures
from benchmarks.plans_memory import largest_model
from benchmarks.plans_rows import figures as rows_figures
from benchmarks.plans_rows import rows_one_by_one
from shunter.extensions.distributed.plan_request import DevicesRequest
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.demand import ModelDemand
from shunter.extensions.distributed.planning.device_costs import samples_by_rate
from shunter.extensions.distributed.planning.dynamic_program import best_by_states
from shunter.extensions.distributed.planning.integer_program import solve
from shunter.extensions.distributed.planning.machine import Machine, machine_of
from shunter.extensions.distributed.planning.options import manual_plan
from shunter.extensions.distributed.planning.search import Search
from shunter.extensions.distributed.planning.simulate import DeltaSimulator, simulate
from shunter.extensions.distributed.planning.step import SimulatedPlan, StepModel, step_of
from shunter.extensions.distributed.planning.torchrec_plan import torchrec_choices
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.hardware.types import Workload
from tests.extensions.distributed.planning.zipf import zipf_table

TORCHREC = "TorchRec's"
PARTS = ("simulated", "scaling", "flexflow", "layer", "executed", "one_process", "rows", "memory")
ACCELERATOR = "NVIDIA A100 SXM4 40GB"
KAGGLE = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652),
    *(2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
TERABYTE = (
    *(45833188, 36746, 17245, 7413, 20243, 3, 7114, 1441, 62, 29275261, 1572176, 345138, 10, 2209, 11267, 128, 4, 974),
    *(14, 48937457, 11316796, 40094537, 452104, 12606, 104, 35),
)
SHAPES = {"criteo-kaggle": KAGGLE, "criteo-terabyte": TERABYTE}
SKEWS, WIDTHS, DEVICES = (0.6, 1.05, 1.3), (32, 128), ((8, 8), (16, 8))
BATCH = 65_536
SEARCH_SECONDS = 2.0
TINY = 20
PROOF_SECONDS = 10.0
UNEQUAL = """
hosts: [{name: fast, accelerator: NVIDIA A100 SXM4 40GB}, {name: slow, accelerator: NVIDIA T4}]
links: [{between: [fast, slow], bytes_per_second: 1.25e+10}]
"""
EDITS = 300
LAYERS = Workload(  # those of MLPerf's DLRM, roughly: 2.4 million weights
    matmul_flops_per_sample=14.4e6,
    lookups_per_sample=26,
    lookup_bytes_per_sample=26 * 512,
    input_bytes_per_sample=200,
    parameter_bytes=10**7,
    optimizer_bytes=0,
    activation_bytes_per_sample=2e4,
    operators_per_step=120,
    train_samples=10**8,
    dense_parameter_bytes=9_600_000,
)


def main() -> None:
    """Simulate, search, train and publish; a part that is run alone takes its place among the published figures."""
    arguments = report.parse_arguments(__doc__, _add_parts)
    logging.disable(logging.WARNING)
    details = _published(arguments.parts, quick=arguments.quick)
    if "executed" in arguments.parts:
        details["executed"] = executed(quick=arguments.quick)
    if "one_process" in arguments.parts:
        details["one_process"] = against_one_process(quick=arguments.quick)
    if "memory" in arguments.parts:
        details["memory"] = largest_model(quick=arguments.quick)
    if "rows" in arguments.parts:
        details["rows"] = rows_one_by_one(quick=arguments.quick)
    if "simulated" in arguments.parts:
        details["sets"] = against_torchrec(quick=arguments.quick)
        details["tiny"] = against_the_best(quick=arguments.quick)
        details["speed"] = simulator_speed()
    if "scaling" in arguments.parts:
        details["scaling"] = plans_scaled.scaling(KAGGLE, 64 if arguments.quick else 128)
    if "flexflow" in arguments.parts:
        details["flexflow"] = plans_flexflow.simulated(KAGGLE, ACCELERATOR, quick=arguments.quick)
    if "layer" in arguments.parts:
        details["divided_layer"] = plans_flexflow.executed_layer()
    headline = figures(details.get("executed", ()))
    if "one_process" in details:
        headline["step_ratio_2_processes"] = details["one_process"]["ratio"]
    headline |= memory_figures(details.get("memory", {}))
    headline |= rows_figures(details.get("rows", ()))
    headline |= plans_flexflow.figures(
        details.get("flexflow", ()), details.get("divided_layer"), details.get("executed", ())
    )
    headline |= plans_scaled.figures(details.get("scaling", ()))
    headline |= _simulated_figures(details.get("sets", ()), details.get("tiny", ())) | details.get("speed", {})
    report.publish("plans", headline, details, seeds=[0], quick=arguments.quick)


def _add_parts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="what is run; the rest stays")


def _published(parts: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """What is published of the parts that are not run."""
    path = report.result_path("plans", "quick" if quick else "")
    if set(parts) == set(PARTS) or not path.exists():
        return {}
    return json.loads(path.read_text())["details"]


def _simulated_figures(sets: Sequence[dict[str, Any]], tiny: Sequence[dict[str, Any]]) -> dict[str, float]:
    if not sets:
        return {}
    report.table(
        "simulated steps, milliseconds",
        ("tables", "devices", "found", "TorchRec", "ratio"),
        [
            (
                one["name"],
                str(one["devices"]),
                f"{1e3 * one['found']:.2f}",
                f"{1e3 * one['torchrec']:.2f}",
                f"{one['ratio']:.3f}",
            )
            for one in sets
        ],
    )
    return {
        "table_sets": len(sets),
        "ratio_to_torchrec_planner": geometric_mean(one["ratio"] for one in sets),
        "worst_ratio_to_torchrec_planner": max(one["ratio"] for one in sets),
        "ratio_to_exhaustive": max(one["ratio"] for one in tiny),
        "mean_ratio_to_exhaustive": fmean(one["ratio"] for one in tiny),
        "proven_cases": sum(one["is_proven"] for one in tiny),
        "gap_to_bound_8_devices": fmean(one["gap"] for one in sets if one["devices"] == 8),
    }


def against_torchrec(*, quick: bool) -> list[dict[str, Any]]:
    """The found plan and TorchRec's on each table set; sets for which TorchRec finds no plan are left out."""
    found = []
    cases = list(itertools.product(SHAPES, SKEWS, WIDTHS, DEVICES))
    for name, skew, width, (devices, per_host) in cases[::8] if quick else cases:
        demand = ModelDemand(
            "dlrm",
            name,
            tuple(zipf_table(f"c{place}", rows, width, skew=skew) for place, rows in enumerate(SHAPES[name])),
            LAYERS,
        )
        machine = machine_of(DevicesRequest(devices=devices, accelerator=ACCELERATOR, devices_per_host=per_host), ())
        costs = TableCosts(machine, demand, BATCH)
        model = StepModel(costs)
        rival = torchrec_choices(costs)
        if rival is None:
            continue
        theirs = step_of(model, rival)[0]
        # The search does not begin from TorchRec's plan here, so that it has to find its own.
        best = Search(model, seed=0).run(SEARCH_SECONDS)
        ours = best.step_seconds
        found.append(
            {
                "name": f"{name} x {width}, skew {skew}",
                "devices": devices,
                "found": ours,
                "torchrec": theirs,
                "ratio": ours / theirs,
                "gap": best.step_seconds / best.bound_seconds - 1,
            }
        )
    return found


def against_the_best(*, quick: bool) -> list[dict[str, Any]]:
    """Steps of what the search finds without the integer program, over the best plan there is.

    The best of four tables on two devices is that of all plans; on two devices of unequal speed, with parts of the
    batch in proportion, and on four devices, it is what the dynamic or the integer program proves.
    """
    found = []
    with TemporaryDirectory() as name:
        slow_and_fast = Path(name) / "machine.yaml"
        slow_and_fast.write_text(UNEQUAL)
        two, four = (machine_of(DevicesRequest(devices=count, accelerator=ACCELERATOR), ()) for count in (2, 4))
        unequal = machine_of(DevicesRequest(machine=str(slow_and_fast)), ())
        for kind, machine, tables, count in (
            ("4 tables, 2 devices", two, 4, TINY),
            ("6 tables, 2 unequal devices", unequal, 6, TINY // 2),
            ("8 tables, 4 devices", four, 8, TINY // 4),
        ):
            for seed in range(count // 4 if quick else count):
                found.append({"case": kind, "seed": seed, **_against_the_best(machine, tables, seed)})
    report.table(
        "the search over the best plan",
        ("case", "models", "proven", "worst", "mean"),
        [
            (
                kind,
                str(len(ones)),
                str(sum(one["is_proven"] for one in ones)),
                f"{max(one['ratio'] for one in ones):.4f}",
                f"{fmean(one['ratio'] for one in ones):.4f}",
            )
            for kind, ones in _by(found, "case").items()
        ],
    )
    return found


def _by(lines: Sequence[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        grouped.setdefault(line[key], []).append(line)
    return grouped


def _against_the_best(machine: Machine, count: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    tables = tuple(
        zipf_table(f"t{place}", int(10 ** chance.uniform(1, 7)), 32, ids_per_sample=chance.choice((1.0, 20.0)))
        for place in range(count)
    )
    demand = ModelDemand("dlrm", "made", tables, LAYERS)
    model = StepModel(TableCosts(machine, demand, 8192, samples=samples_by_rate(machine, demand, 8192)))
    search = Search(model, "executable", seed, with_program=False)
    if count == 4:  # all plans would be simulated: what single changes find of themselves
        plan = SimulatedPlan(model, [Choice("table_wise", (0,))] * count)
        search._descend(plan, lambda: 0.0, 1.0)
        best = Search(model, "executable").run(60.0)
        assert best.is_optimal
        return {"ratio": plan.step_seconds / best.step_seconds, "is_proven": True}
    found = search.run(SEARCH_SECONDS)
    programmed, least = solve(model, search.options, PROOF_SECONDS)
    states = best_by_states(model, search.options, found.choices, until=time.monotonic() + PROOF_SECONDS)
    least = least if states is None else max(least, states.bound_seconds)
    upper = min(found.step_seconds, *([] if programmed is None else [step_of(model, programmed)[0]]))
    return {"ratio": found.step_seconds / least, "is_proven": least >= upper * (1 - 1e-3)}


def simulator_speed() -> dict[str, float]:
    """Full simulations a second of processor time, and how much faster an edited task is repaired than simulated anew.

    The graph is that of a step on eight devices; an edit changes the seconds of one task of a device, as a table does
    that grows.
    """
    tables = tuple(zipf_table(f"c{place}", rows, 64) for place, rows in enumerate(KAGGLE))
    machine = machine_of(DevicesRequest(devices=8, accelerator=ACCELERATOR), ())
    costs = TableCosts(machine, ModelDemand("dlrm", "made", tables, LAYERS), BATCH)
    model, chance = StepModel(costs), random.Random(0)
    plan = SimulatedPlan(model, manual_plan(costs.demand, machine))
    seconds = list(plan.simulator.seconds)
    busy = [number for number, taken in enumerate(seconds) if taken and model.graph.resource[number] >= 0]
    begun = time.process_time()
    for _ in range(EDITS):
        simulate(model.graph, seconds)
    full = (time.process_time() - begun) / EDITS
    simulator = DeltaSimulator(model.graph, seconds)
    edits = [{chance.choice(busy): chance.uniform(0.5, 1.5) * 1e-4} for _ in range(EDITS)]
    begun = time.process_time()
    for edit in edits:
        simulator.change(edit)
    repaired = (time.process_time() - begun) / EDITS
    assert simulator.step_seconds == simulate(model.graph, simulator.seconds).end[-1]
    return {
        "simulated_tasks": float(len(model.graph.tasks)),
        "simulations_per_second": 1 / full,
        "delta_speedup": full / repaired,
    }


if __name__ == "__main__":
    main()
