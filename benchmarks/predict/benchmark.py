"""How well steps and memory are predicted before they are run, and whether the predictions choose rightly.

Seven DLRMs from MovieLens' size to wide and deep ones run with one thread and with all, in fp32 and bf16, at four batch
sizes: 112 settings in several rounds, all in turn. A round in which other processes took more than 6 % of the machine
does not count where the setting has a calmer one.

`median_error` is that of the cost model corrected by other settings (`shunter.hardware.cost.residual`): each setting is
left out in turn, and with it six others drawn at random, so that 16 fits serve all; `new_model_error` leaves out all
settings of a model. `cold_error` is the cost model's own, from nothing but the profile of the machine. `right_choices`
is the share of choices whose placement is within 10 % of the best one measured, in samples a second: of threads and
precision at each batch size of each model, and of everything for each model; every candidate's prediction is made
without its own measurement. `memory_error` is the worst of 15 real trainings in fresh processes; `added_memory_error`
the median error of what the training added to the process.

Naive rivals: the nearest other setting, scaled by its samples; and FLOPs by the peak of the matrix product.

    python -m benchmarks.predict [--quick] [--from benchmarks/results/predict.json [--memory]]
"""

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.predict.data import QUICK, SEED, Plan, measure_memory, measure_steps
from shunter.hardware.cost.cost_model import CostModel
from shunter.hardware.cost.memory_model import predict_memory_bytes
from shunter.hardware.cost.residual import Residual, StepObservation
from shunter.hardware.types import HardwareProfile, Placement, Prediction, Workload

CALM_SHARE = 0.06  # of the machine that other processes may take
FOLDS = 16
NEAR = 1.1  # A choice is right when it takes at most this much of the best.


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One measured setting.

    Attributes:
        model: Name of the shape.
        workload: Its demand.
        placement: Placement of the measured steps.
        seconds: Median step over the calm rounds.
        spread: Largest over smallest round, less one.
        prediction: Prediction of the cost model alone.
    """

    model: str
    workload: Workload
    placement: Placement
    seconds: float
    spread: float
    prediction: Prediction

    @property
    def seconds_per_sample(self) -> float:
        """Measured."""
        return self.seconds / self.placement.batch_size


def read_settings(raw: Mapping[str, Any], profile: HardwareProfile) -> list[Setting]:
    """The measured settings beside what the cost model says of them."""
    cost_model = CostModel(profile)
    workloads = {name: Workload.model_validate(values) for name, values in raw["workloads"].items()}
    settings = []
    for one in raw["settings"]:
        workload, placement = workloads[one["model"]], Placement.model_validate(one["placement"])
        calm = [found["step_seconds"] for found in one["rounds"] if found["others_share"] <= CALM_SHARE]
        calmest = min(one["rounds"], key=lambda found: found["others_share"])
        seconds = calm or [calmest["step_seconds"]]
        settings.append(
            Setting(
                model=one["model"],
                workload=workload,
                placement=placement,
                seconds=median(seconds),
                spread=max(seconds) / min(seconds) - 1,
                prediction=cost_model.predict(workload, placement),
            )
        )
    return settings


def observe(setting: Setting, profile: HardwareProfile) -> StepObservation:
    """A setting as the selector remembers it."""
    return StepObservation(
        workload=setting.workload,
        placement=setting.placement,
        accelerator_model=profile.accelerator.model,
        host=profile.host,
        predicted_seconds=setting.prediction.step_seconds,
        measured_seconds=setting.seconds,
        measured_at=profile.measured_at,
        parts=setting.prediction.parts,
    )


def predict_without(
    settings: Sequence[Setting], profile: HardwareProfile, fold: Callable[[Setting], object]
) -> dict[int, Prediction]:
    """Predictions by what all settings of other folds teach, by position."""
    predictions = {}
    for left_out in dict.fromkeys(map(fold, settings)):
        known = [observe(one, profile) for one in settings if fold(one) != left_out]
        residual = Residual.fit(known)
        for position, one in enumerate(settings):
            if fold(one) == left_out:
                predictions[position] = residual.correct(
                    one.workload, one.placement, one.prediction, profile.accelerator.model
                )
    return predictions


def nearest_seconds(settings: Sequence[Setting], position: int) -> float:
    """Step seconds of the most similar other setting, scaled by samples: a table of past runs without a model."""
    here = settings[position]

    def distance(other: Setting) -> float:
        place, its = here.placement, other.placement
        work = abs(math.log(here.workload.matmul_flops_per_sample / other.workload.matmul_flops_per_sample))
        work += abs(math.log(here.workload.lookup_bytes_per_sample / other.workload.lookup_bytes_per_sample))
        threads = abs(math.log2(place.threads / its.threads))
        return (
            work + (place.precision != its.precision) + threads + abs(math.log2(place.batch_size / its.batch_size)) / 2
        )

    others = [one for index, one in enumerate(settings) if index != position]
    return min(others, key=distance).seconds_per_sample * here.placement.batch_size


def peak_seconds(setting: Setting, profile: HardwareProfile) -> float:
    """FLOPs by the rate of a large matrix product on the threads in use."""
    rate = profile.matmul_flops_per_second[setting.placement.precision].value
    share = setting.placement.threads / profile.accelerator.cores
    return setting.workload.matmul_flops_per_sample * setting.placement.batch_size / (rate * share)


def errors(settings: Sequence[Setting], predicted: Sequence[float]) -> np.ndarray:
    """Share by which each prediction misses what was measured."""
    return np.array([abs(found / one.seconds - 1) for one, found in zip(settings, predicted, strict=True)])


def right_choices(settings: Sequence[Setting], predicted: Sequence[float]) -> tuple[float, int]:
    """Share of choices that are near the best, and their number; see the head of this file."""
    indexed = list(enumerate(settings))
    groups: list[list[int]] = []
    for key in (lambda one: (one[1].model, one[1].placement.batch_size), lambda one: (one[1].model,)):
        groups += [[position for position, _ in group] for _, group in groupby(sorted(indexed, key=key), key=key)]
    right = 0
    for group in groups:
        chosen = min(group, key=lambda position: predicted[position] / settings[position].placement.batch_size)
        best = min(settings[position].seconds_per_sample for position in group)
        right += settings[chosen].seconds_per_sample <= NEAR * best
    return right / len(groups), len(groups)


def errors_by_model(
    settings: Sequence[Setting], predicted: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, float]]:
    """Median error of each predictor on each model."""
    return {
        model: {
            predictor: float(
                np.median(
                    [error for error, one in zip(errors(settings, found), settings, strict=True) if one.model == model]
                )
            )
            for predictor, found in predicted.items()
        }
        for model in dict.fromkeys(one.model for one in settings)
    }


def judge_steps(raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Headline and details of the predictions of step time."""
    profile = HardwareProfile.model_validate(raw["profile"])
    settings = read_settings(raw, profile)
    folds = dict(zip(map(_key, settings), np.random.default_rng(SEED).permutation(len(settings)) % FOLDS, strict=True))
    one_out = predict_without(settings, profile, lambda one: int(folds[_key(one)]))
    model_out = predict_without(settings, profile, lambda one: one.model)
    order = range(len(settings))
    predicted = {
        "corrected": [one_out[position].step_seconds for position in order],
        "new model": [model_out[position].step_seconds for position in order],
        "cost model alone": [one.prediction.step_seconds for one in settings],
        "nearest setting": [nearest_seconds(settings, position) for position in order],
        "peak FLOPS": [peak_seconds(one, profile) for one in settings],
    }
    covered = {
        name: float(np.mean([_inside(found[position], settings[position].seconds) for position in order]))
        for name, found in {"corrected": one_out, "new model": model_out}.items()
    }
    by_name = {
        name: {
            "median_error": float(np.median(errors(settings, found))),
            "p90_error": float(np.quantile(errors(settings, found), 0.9)),
            "right_choices": right_choices(settings, found)[0],
        }
        for name, found in predicted.items()
    }
    headline = {
        "median_error": by_name["corrected"]["median_error"],
        "p90_error": by_name["corrected"]["p90_error"],
        "right_choices": by_name["corrected"]["right_choices"],
        "choices": right_choices(settings, predicted["corrected"])[1],
        "new_model_error": by_name["new model"]["median_error"],
        "cold_error": by_name["cost model alone"]["median_error"],
        "cold_right_choices": by_name["cost model alone"]["right_choices"],
        "nearest_error": by_name["nearest setting"]["median_error"],
        "peak_flops_error": by_name["peak FLOPS"]["median_error"],
        "coverage_90_known": covered["corrected"],
        "coverage_90_new": covered["new model"],
        "settings": len(settings),
        "median_spread": float(np.median([one.spread for one in settings])),
    }
    details = {
        "by_predictor": by_name,
        "interval_coverage": covered,
        "by_model": errors_by_model(settings, predicted),
        "predicted": [
            {
                "model": one.model,
                "placement": one.placement.label,
                "measured_seconds": one.seconds,
                "spread": one.spread,
                **{name: found[position] for name, found in predicted.items()},
                "parts": one.prediction.parts,
            }
            for position, one in enumerate(settings)
        ],
    }
    return headline, details


def judge_memory(raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Headline and details of the predictions of peak memory."""
    profile = HardwareProfile.model_validate(raw["profile"])
    rows = []
    for one in raw["memory"]:
        placement = Placement(accelerator="cpu", threads=1, precision=one["precision"], batch_size=one["batch_size"])
        workload = Workload.model_validate(one["workload"])
        predicted = predict_memory_bytes(workload, placement, profile, one["process_bytes"], restores=one["restored"])
        added, predicted_added = one["peak_bytes"] - one["process_bytes"], predicted - one["process_bytes"]
        rows.append(
            {
                "model": one["shape"],
                "batch_size": one["batch_size"],
                "precision": one["precision"],
                "dense_optimizer": one["dense_optimizer"],
                "measured_bytes": one["peak_bytes"],
                "predicted_bytes": predicted,
                "error": predicted / one["peak_bytes"] - 1,
                "added_error": predicted_added / added - 1,
            }
        )
    found = np.array([abs(one["error"]) for one in rows])
    headline = {
        "memory_error": float(found.max()),
        "memory_median_error": float(np.median(found)),
        "added_memory_error": float(np.median([abs(one["added_error"]) for one in rows])),
        "added_memory_p90_error": float(np.quantile([abs(one["added_error"]) for one in rows], 0.9)),
        "memory_settings": len(rows),
    }
    return headline, {"memory": rows}


def _key(setting: Setting) -> tuple[str, Placement]:
    return setting.model, setting.placement


def _inside(prediction: Prediction, seconds: float) -> bool:
    assert prediction.step_seconds_interval is not None
    low, high = prediction.step_seconds_interval
    return low <= seconds <= high


def measure_all(plan: Plan) -> dict[str, Any]:
    """Measure the machine, the steps and the memory."""
    from shunter.engine.profiling.profiles import measure
    from shunter.hardware.devices.discovery import host_fingerprint, local_accelerators

    accelerators = local_accelerators()
    profile = measure(accelerators[0], host_fingerprint(accelerators))
    return {
        "plan": asdict(plan),
        "profile": profile.model_dump(mode="json"),
        **measure_steps(plan),
        "memory": measure_memory() if plan.memory else [],
    }


def show(headline: Mapping[str, Any], details: Mapping[str, Any]) -> None:
    """Print what was found."""
    report.table(
        f"Step time of {headline['settings']} settings, each predicted without its own measurement",
        ["predictor", "median error", "90 % below", "right choices"],
        [
            [name, f"{one['median_error']:.1%}", f"{one['p90_error']:.1%}", f"{one['right_choices']:.0%}"]
            for name, one in details["by_predictor"].items()
        ],
    )
    report.table(
        "Peak memory",
        [
            "model",
            "batch",
            "precision",
            "optimizer",
            "measured MiB",
            "predicted MiB",
            "error",
            "error of what is added",
        ],
        [
            [
                one["model"],
                str(one["batch_size"]),
                one["precision"],
                one["dense_optimizer"],
                f"{one['measured_bytes'] / 2**20:.0f}",
                f"{one['predicted_bytes'] / 2**20:.0f}",
                f"{one['error']:+.1%}",
                f"{one['added_error']:+.1%}",
            ]
            for one in details.get("memory", ())
        ],
    )


def main() -> None:
    """Measure, or read what was measured, and judge it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer settings, less than two minutes")
    parser.add_argument("--from", dest="source", type=Path, help="judge the measurements of this result again")
    parser.add_argument("--memory", action="store_true", help="with --from: measure the memory anew")
    arguments = parser.parse_args()
    if arguments.source is None:
        raw = measure_all(QUICK if arguments.quick else Plan())
    else:
        raw = json.loads(arguments.source.read_text())["details"]["measured"]
        if arguments.memory:
            raw = {**raw, "memory": measure_memory()}
    headline, details = judge_steps(raw)
    if raw["memory"]:
        memory_headline, memory_details = judge_memory(raw)
        headline, details = {**headline, **memory_headline}, {**details, **memory_details}
    show(headline, details)
    report.publish("predict", headline, {**details, "measured": raw}, seeds=[SEED], quick=arguments.quick)
