"""One training step against plain PyTorch and TorchRec, and against what the machine can do.

A DLRM in the shape of Criteo Kaggle: 13 dense columns, 26 tables of up to a million rows, width 16, layers
13-512-256-64-16 and 367-512-256-1. All contestants get the same batches, already in memory, and take blocks of steps in
turn, in an order that rotates; so a busy machine slows all of them. A contestant's time is the median of its blocks.
Each race is run with all cores and with one, and with waiting threads that spin or sleep; the speed-ups set our fastest
against the fastest rival of each kind, each in the race that suits it best.

Rivals: plain PyTorch with SGD and with Adagrad (sparse gradients), TorchRec as in its training examples (fused row-wise
Adagrad) - both, like ours, in fp32 and bf16, compiled and not, with fused optimisers - and with bare modules and
`torch.optim.Adagrad`; the loop of DLRM's own script, which is plain PyTorch with a batch that comes from the host and a
loss that is read at each step; and DeepCTR-Torch's DeepFM. TorchRec and DeepCTR-Torch are left out where they are
missing, as the latter is in this project's environment.

On a GPU everyone's fp32 products are computed in TF32, ours add up in one order as in a training, the steps of plain
PyTorch and of TorchRec are recorded as CUDA graphs too where they can be, and the joules of each contestant are
counted for some seconds, the host's among them.

The figures hold for a quiet machine only: where others took part of it meanwhile, nothing is written.

Figures of a processor with AMX are published beside the others, in `results/train_step_amx.json`. `--races-only` keeps
the published quality of bf16, with its date, as measuring it takes an hour, and races batches of 128 and 2,048 alone.

    python -m benchmarks.train_step [--quick] [--races-only]
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks import report
from benchmarks.load import Others, refuse_if_loaded
from benchmarks.train_step.race import FEATURES, QUICK, SEED, SPEC, Plan, Setting
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.hardware.devices.topology import instruction_sets
from shunter.models.counting import count_model
from shunter.models.registry import model_spec


def shares_of_limits(name: str, size: int, seconds: float, limit: dict[str, float]) -> tuple[float, float]:
    """Achieved share of the matrix rate in the contestant's precision, and of the gather rate.

    A looked-up row is read forward, and read and written backward.
    """
    counts = count_model(SPEC, FEATURES)
    precision = "bf16" if "bf16" in name else "fp32"
    matrix = counts.matmul_flops_per_sample * size / limit[f"{precision}_flops_per_second"]
    gather = 3 * counts.lookup_bytes_per_sample * size / limit["gather_bytes_per_second"]
    return matrix / seconds, gather / seconds


def show(setting: Setting, measured: dict[str, Any]) -> None:
    """Print one race: the steps by size, and who could not be recorded."""
    for size, field in measured["times"].items():
        rows = []
        for name, taken in field.items():
            seconds = median(taken["wall_seconds"])
            matrix, gather = shares_of_limits(name, int(size), seconds, measured["limits"])
            rows.append(
                (
                    name,
                    f"{int(size) / seconds:,.0f}",
                    f"{1e3 * seconds:.2f}",
                    f"{1e3 * min(taken['wall_seconds']):.2f}",
                    f"{1e3 * median(taken['processor_seconds']):.2f}",
                    f"{matrix:.0%}",
                    f"{gather:.1%}",
                )
            )
        columns = ("contestant", "samples/s", "ms", "least", "CPU ms", "GEMM", "gather")
        report.table(f"Batch {size} ({setting.label})", columns, rows)
    for name, reason in measured["unrecorded"].items():
        print(f"{name} takes no part, for its steps cannot be recorded: {reason}")


def _shown(value: float | None, scale: float = 1.0) -> str:
    return "-" if value is None else f"{scale * value:,.1f}"


def best_seconds(races: Sequence[dict[str, Any]], size: int, clock: str = "wall_seconds") -> dict[str, float]:
    """Median step of each contestant on the processor, in the race that suited it best."""
    fields = [race["times"][str(size)] for race in races if race["setting"]["device"] == "cpu"]
    return {name: min(median(field[name][clock]) for field in fields) for name in fields[0]}


def fastest(seconds: dict[str, float], kind: str, precision: str = "") -> str:
    """The fastest contestant whose name begins with `kind`, of one precision where one is named."""
    return min(
        (name for name in seconds if name.startswith(kind) and precision in name), key=lambda name: seconds[name]
    )


def speedup(seconds: dict[str, float], rival: str, precision: str = "") -> float:
    """How much faster our fastest is than the fastest of a kind of rival."""
    return seconds[fastest(seconds, rival, precision)] / seconds[fastest(seconds, "shunter", precision)]


def quality_gap(plan: Plan) -> dict[str, Any]:
    """Validation NE in bf16 over that in fp32, minus one: on each data set, from each seed."""
    from benchmarks.optimizers import FRAPPE, ingest_frappe, ingest_planted
    from shunter.engine.job import TrainingJob
    from shunter.engine.loop.trainer import train

    found = {}
    with TemporaryDirectory() as folder:
        datasets = {"planted": ingest_planted(plan.quality_rows, Path(folder))}
        if FRAPPE.exists():
            datasets["frappe"] = ingest_frappe(Path(folder))
        for name, dataset in datasets.items():
            gaps = []
            for seed in range(plan.quality_seeds):
                schedule = Schedule(max_epochs=2, patience=2, seed=seed)
                fp32, bf16 = (
                    train(
                        TrainingJob(dataset, model_spec(), Hyperparameters(), Execution(precision=precision), schedule)
                    ).validation.ne
                    for precision in ("fp32", "bf16")
                )
                gaps.append(bf16 / fp32 - 1)
            error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else None
            found[name] = {"rows": dataset.rows, "gaps": gaps, "mean": fmean(gaps), "standard_error": error}
    report.table(
        "Validation NE in bf16 over fp32, minus one",
        ("data", "seeds", "mean", "standard error"),
        [
            (
                name,
                str(len(gap["gaps"])),
                f"{gap['mean']:+.4%}",
                "unknown" if gap["standard_error"] is None else f"{gap['standard_error']:.4%}",
            )
            for name, gap in found.items()
        ],
    )
    return found


def settings() -> list[Setting]:
    """What is raced: the GPU where there is one, all cores in both wait policies, and one core."""
    cores = len(os.sched_getaffinity(0))
    found = [Setting(device="cuda:0", threads=1, wait_policy="PASSIVE")] if torch.cuda.is_available() else []
    found += [Setting(device="cpu", threads=cores, wait_policy=policy) for policy in ("ACTIVE", "PASSIVE")]
    return [*found, Setting(device="cpu", threads=1, wait_policy="PASSIVE")]


def one_of_each_device(all_settings: Sequence[Setting]) -> list[Setting]:
    """The first setting of each device: the published figures are the processor's, whether or not there is a GPU."""
    first: dict[str, Setting] = {}
    for setting in all_settings:
        first.setdefault(setting.device, setting)
    return list(first.values())


def measure(setting: Setting, plan: Plan) -> dict[str, Any]:
    """Race in a fresh process: the wait policy is read when OpenMP starts."""
    os.environ["OMP_WAIT_POLICY"] = setting.wait_policy
    return report.measure("benchmarks.train_step", "race", json.dumps([asdict(setting), asdict(plan)]))


def main() -> None:
    """Measure and publish."""
    arguments, others = report.parse_arguments(__doc__, _options), Others()
    quick = arguments.quick
    plan = QUICK if quick else replace(Plan(), sizes=QUICK.sizes) if arguments.races_only else Plan()
    races = []
    raced = one_of_each_device(settings()) if quick else settings()
    for number, setting in enumerate(raced):
        measured = measure(setting, plan if number == 0 else replace(plan, sizes=QUICK.sizes))
        show(setting, measured)
        for size, seconds in measured["compile_seconds"].items():
            print(f"Compiling for batch {size} took {seconds} s, much less where an earlier run has left its cache.")
        for size, energy in measured["energy"].items():
            rows = [
                (name, _shown(one["joules_per_sample"], 1e6), _shown(one["watts"]), one["method"])
                for name, one in energy.items()
            ]
            report.table(f"Energy, batch {size} ({setting.label})", ("contestant", "µJ/sample", "W", "how"), rows)
        races.append({"setting": asdict(setting), **measured})
    if find_spec("deepctr_torch") is None:
        print("DeepCTR-Torch is not installed, so its row stays empty.")
    if not torch.cuda.is_available():
        print("There is no CUDA device here, so the GPU's row stays empty.")
    others_share = others.share()
    refuse_if_loaded(others_share)
    name = "train_step_amx" if "amx_bf16" in instruction_sets() and not quick else "train_step"
    quality = published_quality(name) if arguments.races_only else {"quality": quality_gap(plan)}
    gaps = quality.pop("quality")
    report.publish(
        name,
        {name: value for name, value in headline(races, gaps).items() if gaps or value is not None},
        {"plan": asdict(plan), "races": races, "others_share": others_share, "quality": gaps, **quality},
        seeds=[SEED],
        quick=quick,
    )


def published_quality(name: str) -> dict[str, Any]:
    """Read what a published result says of the quality of bf16, and when that was measured."""
    path = report.RESULTS / f"{name}.json"
    result = json.loads(path.read_text()) if path.exists() else {"date": None, "details": {}}
    details = result["details"]
    return {"quality": details.get("quality", {}), "quality_date": details.get("quality_date", result["date"])}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--races-only", action="store_true", help="no quality of bf16, and batches of 128 and 2,048 alone"
    )


def headline(races: Sequence[dict[str, Any]], gaps: dict[str, Any]) -> dict[str, Any]:
    """The published figures: those of the processor, a GPU's stand beside them."""
    small, large = best_seconds(races, 128), best_seconds(races, 2048)
    limit = next(race["limits"] for race in races if race["setting"]["device"] == "cpu")
    ours = fastest(large, "shunter")

    def over_reference(precision: str) -> float:
        return large[fastest(large, "reference")] / large[fastest(large, "shunter", precision)]

    figures = {
        "speedup_vs_plain_b128": speedup(small, "plain"),
        "speedup_vs_plain_b2048": speedup(large, "plain"),
        "speedup_vs_plain_adagrad_b128": speedup(small, "plain Adagrad"),
        "speedup_vs_plain_adagrad_b2048": speedup(large, "plain Adagrad"),
        "speedup_vs_torchrec_b2048": speedup(large, "torchrec")
        if any(name.startswith("torchrec") for name in large)
        else None,
        "speedup_vs_reference_b128": speedup(small, "reference"),
        "speedup_vs_reference_b2048": speedup(large, "reference"),
        "speedup_vs_reference_b2048_fp32": over_reference("fp32"),
        "speedup_vs_reference_b2048_bf16": over_reference("bf16"),
        "floor_share_b2048_bf16": sum(shares_of_limits("bf16", 2048, large[fastest(large, "shunter", "bf16")], limit)),
        "fp32_speedup_vs_plain_b128": speedup(small, "plain", "fp32"),
        "fp32_speedup_vs_plain_b2048": speedup(large, "plain", "fp32"),
        "processor_time_ratio_b128": speedup(best_seconds(races, 128, "processor_seconds"), "plain"),
        "processor_time_ratio_b2048": speedup(best_seconds(races, 2048, "processor_seconds"), "plain"),
        "gemm_fraction": shares_of_limits(ours, 2048, large[ours], limit)[0],
        "ne_gap_bf16": max((gap["mean"] for gap in gaps.values()), key=abs, default=None),
    }
    return {
        **{name: None if value is None else round(value, 5) for name, value in figures.items()},
        "setting_b128": fastest(small, "shunter"),
        "setting_b2048": ours,
        "rival_b128": fastest(small, "plain"),
        "rival_b2048": fastest(large, "plain"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
