"""What a search over samples, operators and parameters gains: FlexFlow's claims, as ratios of steps.

Simulated: the DLRM of FlexFlow's own example (8 tables of a million rows, layers 64-512-512-64 and
576-1024-1024-1024-1), whose search ends 3.8 times faster than data parallel on 4 GPUs, by its own simulator
(`examples/cpp/DLRM`, README), and our table sets of Criteo's fields with the layers of MLPerf's DLRM. Every plan is
searched as `shunter plan --space all` does, and set beside a copy of everything on each device, and beside FlexFlow's
strategy by hand (each table whole, on the devices in turn, layers data parallel).

Measured: the same ratios of the plans that were trained over gloo, and a layer divided by its outputs over two
processes beside one whose gradients are added up, both simulated and executed. No training divides a layer, so it is
executed alone here.
"""

import itertools
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from shunter.engine.profiling.profiles import machine_profiles
from shunter.extensions.distributed.plan_request import DevicesRequest, PlanRequest
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.demand import LayerDemand, ModelDemand
from shunter.extensions.distributed.planning.dense_split import SplitLayer
from shunter.extensions.distributed.planning.machine import machine_of
from shunter.extensions.distributed.planning.report import search_plan
from shunter.extensions.distributed.planning.step import StepModel
from shunter.hardware.types import Workload
from tests.extensions.distributed.planning.zipf import zipf_table

BATCH_OF_A_DEVICE = 256  # FlexFlow's
SEARCH_SECONDS = 4.0
FLEXFLOW = "flexflow's example"
RIVALS = {"data parallel": "data_parallel", "by hand": "hand"}
LAYER, LAYER_BATCH = LayerDemand("executed", 1024, 8192), 64
STEPS, WARM_UP, OPERATORS = 30, 5, 4


def layers_of(prefix: str, widths: Sequence[int]) -> tuple[LayerDemand, ...]:
    """Layers of an MLP that may be divided: those with more than one output."""
    return tuple(
        LayerDemand(f"{prefix}.{place}", inputs, outputs)
        for place, (inputs, outputs) in enumerate(itertools.pairwise(widths))
        if outputs > 1
    )


def workload_of(layers: Sequence[LayerDemand], tables: int, width: int, operators: int = 120) -> Workload:
    """What the layers ask: a product forward and two backward."""
    weights = sum(one.parameter_bytes for one in layers)
    return Workload(
        matmul_flops_per_sample=6 * sum(one.inputs * one.outputs for one in layers),
        lookups_per_sample=tables,
        lookup_bytes_per_sample=tables * width * 4,
        input_bytes_per_sample=200,
        parameter_bytes=weights,
        optimizer_bytes=0,
        activation_bytes_per_sample=4 * sum(one.inputs + one.outputs for one in layers),
        operators_per_step=operators,
        train_samples=10**8,
        dense_parameter_bytes=weights,
    )


def flexflow_dlrm() -> ModelDemand:
    """The DLRM of FlexFlow's example."""
    layers = layers_of("bottom", (64, 512, 512, 64)) + layers_of("top", (576, 1024, 1024, 1024, 1))
    tables = tuple(zipf_table(f"e{place}", 10**6, 64, skew=0.0) for place in range(8))  # its ids are uniform
    return ModelDemand("dlrm", "flexflow", tables, workload_of(layers, 8, 64), layers)


def criteo(rows: Sequence[int], top: Sequence[int]) -> ModelDemand:
    """Criteo's fields below layers whose upper ones are given."""
    layers = layers_of("bottom", (13, 512, 256, 32)) + layers_of("top", (383, *top, 1))
    tables = tuple(zipf_table(f"c{place}", size, 32, skew=1.05) for place, size in enumerate(rows))
    return ModelDemand("dlrm", "criteo", tables, workload_of(layers, len(tables), 32), layers)


def simulated(kaggle: Sequence[int], accelerator: str, *, quick: bool) -> list[dict[str, Any]]:
    """Plans beside data parallel and the strategy by hand.

    Args:
        kaggle: Rows of the tables of Criteo's Kaggle log.
        accelerator: What the devices are.
        quick: FlexFlow's example alone.
    """
    usual, wide = (1024, 1024, 512, 256), (8192, 8192, 4096)
    sets = [
        (FLEXFLOW, flexflow_dlrm(), 4, 4, 4 * BATCH_OF_A_DEVICE),
        (FLEXFLOW, flexflow_dlrm(), 16, 4, 16 * BATCH_OF_A_DEVICE),
        ("criteo-kaggle", criteo(kaggle, usual), 8, 8, 65_536),
        ("criteo-kaggle", criteo(kaggle, usual), 16, 8, 65_536),
        ("criteo-kaggle, wide layers", criteo(kaggle, wide), 8, 8, 8 * BATCH_OF_A_DEVICE),
        ("criteo-kaggle, wide layers", criteo(kaggle, wide), 16, 8, 16 * BATCH_OF_A_DEVICE),
    ]
    lines = []
    for name, demand, devices, per_host, batch in sets[: 1 if quick else None]:
        place = DevicesRequest(devices=devices, devices_per_host=per_host, accelerator=accelerator)
        steps = {}
        for space in ("executable", "all"):
            request = PlanRequest(place=place, batch_size=batch, space=space, search_seconds=SEARCH_SECONDS)
            found = search_plan(demand, machine_of(place, ()), request)
            steps[space] = found.step_seconds
            rivals = {key: found.rivals.get(rival) for rival, key in RIVALS.items()}
            layers = len(found.plan.layers)
        lines.append({"name": name, "devices": devices, "steps": steps, "rivals": rivals, "divided_layers": layers})
    return lines


def executed_layer() -> dict[str, float]:
    """A layer of two processes: copied, and divided by its outputs; milliseconds as simulated and as measured."""
    profiles = machine_profiles()
    machine = machine_of(DevicesRequest(devices=2), profiles)
    demand = ModelDemand("layer", "made", (), workload_of([LAYER], 0, 0, OPERATORS), (LAYER,))
    model = StepModel(TableCosts(machine, demand, LAYER_BATCH))
    by_layout = {}
    for name, one in (("copied", model), ("divided", model.with_layers([SplitLayer(LAYER, "output_split")]))):
        amounts = one.amounts([0.0] * one.layout.size)
        of_device = [each for each, resource in zip(amounts, one.graph.resource, strict=True) if resource == 0]
        wanted = ("layers", "sums", "whole_vectors")
        by_layout[name] = sum(amount for each in of_device for term, amount in each.items() if term in wanted)
    with TemporaryDirectory() as folder:
        context = get_context("spawn")
        processes = [context.Process(target=_run_layer, args=(rank, folder)) for rank in range(2)]
        for one in processes:
            one.start()
        for one in processes:
            one.join()
        copied, divided = (float(one) for one in (Path(folder) / "seconds").read_text().split())
    return {
        "simulated_copied": by_layout["copied"],
        "simulated_divided": by_layout["divided"],
        "measured_copied": copied,
        "measured_divided": divided,
    }


def _run_layer(rank: int, folder: str) -> None:
    """Both ways on one process of two; rank 0 writes the medians."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    own, half = LAYER_BATCH // 2, LAYER.outputs // 2
    x, gradient = torch.randn(own, LAYER.inputs), torch.randn(own, LAYER.outputs)
    whole, block = torch.randn(LAYER.outputs, LAYER.inputs), torch.randn(half, LAYER.inputs)

    def copied() -> None:
        _ = x @ whole.T
        _ = gradient @ whole
        weights = gradient.T @ x
        dist.all_reduce(weights)
        whole.add_(weights, alpha=-1e-6)

    def divided() -> None:
        everyone = torch.empty(LAYER_BATCH, LAYER.inputs)
        dist.all_gather_into_tensor(everyone, x)
        outputs = everyone @ block.T  # of all samples, to their owners
        back = torch.empty(2, own, half)
        dist.all_to_all_single(back, outputs.view(2, own, half))
        blocks = torch.empty(2, own, half)
        dist.all_to_all_single(blocks, gradient.view(own, 2, half).transpose(0, 1).contiguous())
        gradients = blocks.flatten(0, 1)
        inputs = torch.empty(own, LAYER.inputs)
        dist.reduce_scatter_tensor(inputs, gradients @ block)
        block.add_(gradients.T @ everyone, alpha=-1e-6)

    seconds = {}
    for name, step in (("copied", copied), ("divided", divided)):
        taken = []
        for turn in range(WARM_UP + STEPS):
            dist.barrier()
            begun = time.perf_counter()
            step()
            dist.barrier()
            if turn >= WARM_UP:
                taken.append(time.perf_counter() - begun)
        seconds[name] = median(taken)
    if rank == 0:
        (Path(folder) / "seconds").write_text(f"{seconds['copied']} {seconds['divided']}")
    dist.destroy_process_group()


def figures(
    lines: Sequence[dict[str, Any]], layer: dict[str, float] | None, executed: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """The ratios."""
    made: dict[str, float] = {}
    if lines:
        report.table(
            "simulated steps, milliseconds",
            ("model", "devices", "data parallel", "by hand", "tables placed", "layers divided too"),
            [
                (
                    one["name"],
                    str(one["devices"]),
                    *(
                        "no room" if one["rivals"][key] is None else f"{1e3 * one['rivals'][key]:.2f}"
                        for key in RIVALS.values()
                    ),
                    f"{1e3 * one['steps']['executable']:.2f}",
                    f"{1e3 * one['steps']['all']:.2f}, {one['divided_layers']} layers",
                )
                for one in lines
            ],
        )
        for key in RIVALS.values():
            ratios = [one["rivals"][key] / one["steps"]["all"] for one in lines if one["rivals"][key] is not None]
            made[f"speedup_over_{key}_simulated"] = geometric_mean(ratios)
            made[f"most_speedup_over_{key}_simulated"] = max(ratios)
        made["divided_layers_speedup_simulated"] = geometric_mean(
            one["steps"]["executable"] / one["steps"]["all"] for one in lines
        )
        example = next((one for one in lines if one["name"] == FLEXFLOW), None)
        if example is not None:
            made["flexflow_dlrm_speedup_simulated"] = example["rivals"]["data_parallel"] / example["steps"]["all"]
    if layer is not None:
        made["divided_layer_ratio_simulated"] = layer["simulated_divided"] / layer["simulated_copied"]
        made["divided_layer_ratio_measured"] = layer["measured_divided"] / layer["measured_copied"]
    return made | measured(executed)


def measured(executed: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The same ratios of what was trained over gloo, and as they were predicted; geometric means of the sets."""
    of: dict[str, dict[str, dict[str, Any]]] = {}
    for one in executed:
        of.setdefault(one["set"], {})[one["name"]] = one
    made = {}
    for rival, key in RIVALS.items():
        both = [(plans[rival], plans["found"]) for plans in of.values() if rival in plans and "found" in plans]
        if both:
            for name in ("measured", "predicted"):
                ratio = geometric_mean(theirs[name] / ours[name] for theirs, ours in both)
                made[f"gloo_speedup_over_{key}_{name}"] = ratio
    return made
