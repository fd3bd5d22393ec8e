"""The race of `benchmarks.train_step` on a GPU alone: the same contestants, rules and model, beside the joules of each.

Ours takes its steps as a training does by default, recorded as a CUDA graph after the first few; so are those of a
rival, in further variants, where they can be. Joules are those of the GPU's counter and of the host; where the host has
no counter, its part is estimated, and the whole is called so.

    python -m benchmarks.train_step_gpu [--quick]
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import torch

from benchmarks import report
from benchmarks.load import Others, refuse_if_loaded
from benchmarks.train_step.benchmark import fastest, show
from benchmarks.train_step.race import SEED, Plan, Setting

# A block holds several steps at the largest size, for a GPU takes far less than a millisecond for small ones.
PLAN = Plan(sizes=(8_192,), rounds=9, block_samples=131_072, dense_gradients=False, energy_seconds=1.5)
QUICK = Plan(sizes=(2_048,), rounds=3, block_samples=32_768, dense_gradients=False, compiled=False, energy_seconds=1.0)
SETTING = Setting(device="cuda:0", threads=1, wait_policy="PASSIVE")


def main() -> None:
    """Measure and publish."""
    quick, others = report.parse_arguments(__doc__).quick, Others()
    if not torch.cuda.is_available():
        raise FileNotFoundError("There is no CUDA device here: run it on a machine that has one.")
    plan = QUICK if quick else PLAN
    measured = report.measure("benchmarks.train_step", "race", json.dumps([asdict(SETTING), asdict(plan)]))
    show(SETTING, measured)
    others_share = others.share()
    refuse_if_loaded(others_share)
    report.publish(
        "train_step_gpu",
        {"gpu": torch.cuda.get_device_name(), **headline(measured, plan.sizes)},
        {"plan": asdict(plan), "setting": asdict(SETTING), **measured, "others_share": others_share},
        seeds=[SEED],
        quick=quick,
    )


def headline(measured: dict[str, Any], sizes: Sequence[int]) -> dict[str, float | str]:
    """By size: how our fastest compares with the fastest of each rival, in time and in the joules of each's frugalest.

    Args:
        measured: What the race gave, its sizes as text.
        sizes: Samples a batch.
    """
    found: dict[str, float | str] = {}
    for size in sizes:
        seconds = {name: median(taken["wall_seconds"]) for name, taken in measured["times"][str(size)].items()}
        energy = measured["energy"][str(size)]
        joules = {name: one["joules_per_sample"] for name, one in energy.items() if one["joules_per_sample"]}
        ours = fastest(seconds, "shunter")
        found |= {
            f"setting_b{size}": ours,
            f"rival_b{size}": fastest(seconds, "plain"),
            f"milliseconds_b{size}": 1e3 * seconds[ours],
            f"microjoules_per_sample_b{size}": 1e6 * min(_of(joules, "shunter")),
        }
        for rival in ("plain", "reference", "torchrec"):
            if not _of(seconds, rival):
                continue
            found[f"speedup_vs_{rival}_b{size}"] = seconds[fastest(seconds, rival)] / seconds[ours]
            found[f"energy_vs_{rival}_b{size}"] = min(_of(joules, rival)) / min(_of(joules, "shunter"))
    return found


def _of(figures: dict[str, float], kind: str) -> list[float]:
    return [value for name, value in figures.items() if name.startswith(kind)]


if __name__ == "__main__":
    main()
