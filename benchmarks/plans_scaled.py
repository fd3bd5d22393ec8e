"""Steps of a DLRM and of a wide DHEN on ever more hosts of eight accelerators, simulated (`planner.parallel.scale`).

The DLRM has the fields of Criteo's Kaggle log, rows of 128 and the layers of MLPerf's; what it computes is counted from
the model, and from the one with as many towers as there are hosts.

Of the DHEN of six layers (arXiv 2203.11014) 4.6 GFLOP a sample are published, and neither its weights nor its batch:
there is a weight for every two of them here, a step has 65,536 samples, as Meta's published lookups have
(`dlrm_datasets`, 2021), and layers train in bf16, as on A100 they are taken to. How much hybrid sharding gains hangs on
how far computing hides what is gathered, so other batches and fp32 stand beside it.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks import report
from shunter.engine.profiling.workload import workload_of
from shunter.extensions.distributed.plan_request import DevicesRequest
from shunter.extensions.distributed.planning.demand import LayerDemand, ModelDemand
from shunter.extensions.distributed.planning.scale import WAYS, scale
from shunter.extensions.distributed.planning.tower_step import tower_spec, with_one_tower
from shunter.hardware.types import Precision, Workload
from shunter.models.counting import count_model
from shunter.models.registry import model_spec
from shunter.models.spec import CategoricalFeature, Features, ModelSpec
from tests.extensions.distributed.planning.zipf import zipf_table

DLRM_BATCH, COMPRESSION, WIDTH, TOWERS, TRAIN_SAMPLES = 2048, 4.0, 128, 8, 10**8
COMPRESSIONS = (COMPRESSION, 16.0)  # up to 16 are published
DHEN_FLOPS, DHEN_PIECES, DHEN_STEP, DHEN_DEVICES = 4.6e9, 6, 65_536, 256
H100, A100 = ("NVIDIA H100 SXM5 80GB", 3200.0), ("NVIDIA A100 SXM4 40GB", 1600.0)
DHEN_CASES: tuple[tuple[int, Precision], ...] = ((1, "bf16"), (2, "bf16"), (4, "bf16"), (8, "bf16"), (1, "fp32"))


def _counted(spec: ModelSpec, features: Features) -> Workload:
    """The work of a sample, counted from the model alone; no data are read."""
    return workload_of(count_model(spec, features), train_samples=TRAIN_SAMPLES)


def _counted_towers(spec: ModelSpec, features: Features, towers: int, compression: float) -> Workload:
    """The same with a tower on each host."""
    fields = len(features.categorical)
    whole, alone = (
        _counted(tower_spec(spec, fields, count, compression), features) for count in (min(towers, fields), 1)
    )
    return with_one_tower(whole, alone)


def scaling(rows: Sequence[int], most_hosts: int) -> list[dict[str, Any]]:
    """A line for each model and number of hosts.

    Args:
        rows: Rows of the tables.
        most_hosts: Most hosts.
    """
    hosts = [2**power for power in range(8) if 2**power <= most_hosts]
    lines = [{"model": "dlrm", **point} for point in _dlrm(rows, hosts)]
    for times, precision in DHEN_CASES:
        batch = times * DHEN_STEP // DHEN_DEVICES
        counts = hosts if (times, precision) == DHEN_CASES[0] else [DHEN_DEVICES // 8]
        lines += [
            {"model": "dhen", "batch": batch, "precision": precision, **point}
            for point in _dhen(rows, [one for one in counts if one <= most_hosts], batch, precision)
        ]
    return lines


def _dlrm(rows: Sequence[int], hosts: Sequence[int]) -> list[dict[str, Any]]:
    features = Features(
        dense=tuple(f"dense{place}" for place in range(13)),
        categorical=tuple(CategoricalFeature(name=f"c{place}", rows=size) for place, size in enumerate(rows)),
    )
    flat = model_spec("dlrm", embedding_dim=WIDTH, bottom_widths=(512, 256), top_widths=(1024, 1024, 512, 256))
    tables = tuple(zipf_table(f"c{place}", size, WIDTH) for place, size in enumerate(rows))
    demand = ModelDemand("dlrm", "criteo-kaggle", tables, _counted(flat, features))
    lines = []
    for compression in COMPRESSIONS:
        counts = hosts if compression == COMPRESSION else [TOWERS]
        towers = {count: _counted_towers(flat, features, count, compression) for count in counts if count > 1}
        found = scale(
            demand,
            _place(*H100),
            (),
            counts,
            batch_per_device=DLRM_BATCH,
            compression=compression,
            with_towers=towers.__getitem__,
            most_searched=16 if compression == COMPRESSION else 0,
        )
        layers = demand.workload.matmul_flops_per_sample
        for point in found.points:
            asked = towers[point.hosts].matmul_flops_per_sample / layers if point.hosts > 1 else 1.0
            lines.append({"compression": compression, "layers_share": asked, **point.model_dump()})
    return lines


def _dhen(rows: Sequence[int], hosts: Sequence[int], batch: int, precision: Precision) -> list[dict[str, Any]]:
    from benchmarks.plans import LAYERS

    weights = int(4 * DHEN_FLOPS / 2)
    layers = LAYERS.model_copy(
        update={
            "matmul_flops_per_sample": 3 * DHEN_FLOPS,
            "dense_parameter_bytes": weights,
            "operators_per_step": 100 * DHEN_PIECES,
        }
    )
    side = int((weights / 4 / DHEN_PIECES) ** 0.5)
    pieces = tuple(LayerDemand(f"dhen.{place}", side, side) for place in range(DHEN_PIECES))
    tables = tuple(zipf_table(f"c{place}", size, WIDTH) for place, size in enumerate(rows))
    demand = ModelDemand("dhen", "criteo-kaggle", tables, layers, pieces)
    found = scale(
        demand,
        _place(*A100),
        (),
        hosts,
        batch_per_device=batch,
        compression=COMPRESSION,
        precision=precision,
        most_searched=0,
    )
    return [point.model_dump() for point in found.points]


def _place(accelerator: str, gbit: float) -> DevicesRequest:
    return DevicesRequest(devices=8, devices_per_host=8, accelerator=accelerator, network_gbit=gbit)


def figures(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Speed of the ways relative to each other."""
    if not lines:
        return {}
    report.table(
        "simulated steps on ever more hosts, milliseconds",
        ("model", "batch", "devices", *WAYS),
        [
            (
                one["model"],
                f"{one.get('batch', DLRM_BATCH)} {one.get('precision', 'fp32')}",
                str(one["devices"]),
                *(f"{1e3 * one['step_seconds'][way]:.2f}" if way in one["step_seconds"] else "-" for way in WAYS),
            )
            for one in lines
        ],
    )
    dlrm = {one["devices"]: one for one in lines if one["model"] == "dlrm" and one["compression"] == COMPRESSION}
    most = next(one["step_seconds"] for one in lines if one.get("compression") == COMPRESSIONS[-1])
    middle, first, last = dlrm[64], dlrm[8]["step_seconds"]["flat"], dlrm[max(dlrm)]
    steps = middle["step_seconds"]
    made = {
        "towers_speedup_64_simulated": steps["flat"] / steps["towers"],
        "compressed_speedup_64_simulated": steps["flat"] / steps["compressed"],
        "towers_16_fold_speedup_64_simulated": most["flat"] / most["towers"],
        "by_host_speedup_64_simulated": steps["flat"] / steps["by host"],
        "tower_layers_share_64": middle["layers_share"],
        "flat_exchange_share_64_simulated": middle["exchange_share"],
        "flat_efficiency_at_most_hosts_simulated": first / last["step_seconds"]["flat"],
        "towers_efficiency_at_most_hosts_simulated": first / last["step_seconds"]["towers"],
    }
    dhen = {
        (one["batch"] * DHEN_DEVICES // DHEN_STEP, one["precision"]): one["step_seconds"]["fsdp"]
        / one["step_seconds"]["hybrid"]
        for one in lines
        if one["model"] == "dhen" and one["devices"] == DHEN_DEVICES
    }
    for (times, precision), ratio in dhen.items():
        name = "" if (times, precision) == DHEN_CASES[0] else f"_{precision}_{times}x"
        made[f"hybrid_speedup_256{name}_simulated"] = ratio
    return made
