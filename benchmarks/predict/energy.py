"""Error of the learned power on GPUs that others have measured: Zeus' tables, each figure left out in turn.

Data: You, Chung and Chowdhury, "Zeus", NSDI 2023, their tables of mean power and time of an epoch by GPU, network,
batch size, optimizer and power limit; optimizers are averaged. Each row becomes an observation as a training of the
product leaves it, and `shunter.planner.predict.watts.learned_power`, which every choice goes through, predicts those
that were
left out: one setting, a batch size with all its limits, a whole network. The time is taken as it was measured, so that
the error of the energy is that of the power. None of the constants was set on these tables.

Their networks are known by name alone: a number stands for the name, and arithmetic and traffic are left at nothing.

    python -m benchmarks.predict.energy [--quick] [--zeus DIR] [--gpus V100,P100]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import report
from shunter.hardware.catalogue.offers import catalogue_profile
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.cost.learned_power import LearnedPower, load_of
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import HardwareProfile, Placement, Workload
from shunter.planner.predict.watts import learned_power
from shunter.settings import PROJECT_ROOT

ZEUS = PROJECT_ROOT.parent / "shared" / "data" / "clusters" / "zeus_nsdi23"
GPUS = ("V100", "P100")
SETTING = ["network", "batch_size", "power_limit"]
# What is left out together: a batch size with all its limits, all that is known of a network.
LEFT_OUT: dict[str, list[str]] = {
    "energy_error_new_batch_size": ["network", "batch_size"],
    "energy_error_new_workload": ["network"],
}


def read_table(folder: Path, gpu: str) -> pd.DataFrame:
    """Mean power and time of an epoch by network, batch size and power limit.

    Args:
        folder: Folder of the tables.
        gpu: Name of the GPU, as in the file's.
    """
    table = pd.read_csv(folder / f"summary_power_{gpu.lower()}.csv")
    return pd.DataFrame(table.groupby(SETTING, as_index=False)[["time_per_epoch", "average_power"]].mean())


def observations_of(table: pd.DataFrame, profile: HardwareProfile) -> list[StepObservation]:
    """The rows as the product keeps what it has measured.

    Args:
        table: Rows of `read_table`.
        profile: Profile of the GPU.
    """
    numbers = {name: number for number, name in enumerate(sorted(set(table["network"])), start=1)}
    return [
        StepObservation(
            workload=_workload(numbers[str(row["network"])]),
            placement=Placement(
                accelerator=profile.accelerator.name,
                threads=1,
                precision="fp32",
                batch_size=int(row["batch_size"]),
                power_limit_watts=float(row["power_limit"]),
            ),
            accelerator_model=profile.accelerator.model,
            host="zeus",
            predicted_seconds=1.0,
            measured_seconds=float(row["batch_size"] * row["time_per_epoch"]),  # the epoch's size is one sample here
            measured_at="2023-04-17T00:00:00+00:00",
            mean_watts=float(row["average_power"]),
        )
        for row in table.to_dict("records")
    ]


def judge_energy(folder: Path = ZEUS, gpus: Sequence[str] = GPUS) -> tuple[dict[str, float], dict[str, Any]]:
    """Headline and details of the learned power's errors.

    Args:
        folder: Folder of the tables `summary_power_GPU.csv`.
        gpus: Names of the GPUs.
    """
    errors: dict[str, list[float]] = {}
    by_gpu: dict[str, dict[str, float]] = {}
    for gpu in gpus:
        table = read_table(folder, gpu)
        profile = catalogue_profile(load_catalogue().find_accelerator(gpu))
        observations = observations_of(table, profile)
        found = {
            "energy_error": learned_power(profile, observations).leave_one_out_errors().tolist(),
            **{
                name: _errors(observations, table.groupby(columns).ngroup().to_numpy(), profile)
                for name, columns in LEFT_OUT.items()
            },
            "energy_error_two_points": [_error(learned_power(profile, []), one, profile) for one in observations],
        }
        by_gpu[gpu] = {name: float(np.median(values)) for name, values in found.items()}
        for name, values in found.items():
            errors.setdefault(name, []).extend(values)
    headline = {name: float(np.median(values)) for name, values in errors.items()}
    headline["energy_error_p90"] = float(np.percentile(errors["energy_error"], 90))
    headline["energy_settings"] = len(errors["energy_error"])
    return headline, {"by_gpu": by_gpu}


def _errors(observations: Sequence[StepObservation], groups: NDArray[np.intp], profile: HardwareProfile) -> list[float]:
    """Relative error of every observation, predicted from those of the other groups."""
    found = []
    for group in np.unique(groups):
        others = [one for one, its in zip(observations, groups, strict=True) if its != group]
        power = learned_power(profile, others)
        found += [_error(power, one, profile) for one, its in zip(observations, groups, strict=True) if its == group]
    return found


def _error(power: LearnedPower, observation: StepObservation, profile: HardwareProfile) -> float:
    """Relative error of the predicted power of one observation."""
    load = load_of(observation.workload, observation.placement, profile, observation.measured_seconds)
    watts = power.watts(load)
    assert watts is not None, "the catalogue knows the GPU's design power"
    assert observation.mean_watts is not None, "each row was measured"
    return abs(watts / observation.mean_watts - 1)


def _workload(number: int) -> Workload:
    return Workload(
        matmul_flops_per_sample=0,
        lookups_per_sample=0,
        lookup_bytes_per_sample=0,
        input_bytes_per_sample=0,
        parameter_bytes=number,
        optimizer_bytes=0,
        activation_bytes_per_sample=0,
        operators_per_step=1,
        train_samples=1,
    )


def main() -> None:
    """Judge and publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one GPU")
    parser.add_argument("--zeus", type=Path, default=ZEUS, help="folder of the tables")
    parser.add_argument("--gpus", default=",".join(GPUS), help="names of the GPUs, with commas")
    arguments = parser.parse_args()
    gpus = arguments.gpus.split(",")[: 1 if arguments.quick else None]
    headline, details = judge_energy(arguments.zeus, gpus)
    rows = [(name, *(f"{one[name]:.1%}" for one in details["by_gpu"].values())) for name in details["by_gpu"][gpus[0]]]
    report.table("Median error of the energy", ("", *details["by_gpu"]), rows)
    report.publish("energy", headline, details, seeds=[], quick=arguments.quick)


if __name__ == "__main__":
    main()
