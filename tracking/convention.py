"""Names of the parameters, metrics and tags of runs: one flat, stable schema, explained in `mlflow/README.md`.

Every function converts a value into a flat dictionary, without unknown values. A change in the meaning of a name
requires a new `SCHEMA_VERSION`, because predictions for later runs use the data of earlier runs.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.metrics import Metrics
from shunter.engine.stopping import StopReason
from shunter.engine.stopping_text import stop_text, training_stop_text
from shunter.hardware.types import EnergyReading, Placement, Prediction, Workload
from shunter.models.spec import ModelSpec
from shunter.requests import JobRequest
from shunter.tracking.listing import auc_gain_per_kilojoule

if TYPE_CHECKING:
    from shunter.engine.results import EpochReport, TrainingFigures
    from shunter.engine.trained_model import Trained

SCHEMA_VERSION = "1"

RunKind = Literal[
    "train",
    "profile",
    "select",
    "tune",
    "trial",
    "baseline",
    "member",
    "ensemble",
    "nightly",
    "rollback",
    "compress",
    "robustness",
    "fleet",
    "schedule",
    "job",
    "plan",
]
Values = dict[str, str | int | float]

# Field of `shunter.engine.results.TrainingFigures` -> name of its metric, for writing and reading runs.
TRAINING_METRICS = {
    "train_seconds": "time.train_seconds",
    "compute_seconds": "time.compute_seconds",
    "compile_seconds": "time.compile_seconds",
    "wait_seconds": "stall.wait_seconds",
    "samples_per_second": "throughput.samples_per_second",
    "peak_memory_bytes": "memory.peak_bytes",
}
WAIT_SHARE = "stall.wait_share"
WARM_UP_SECONDS = "time.warm_up_seconds"  # time of the slow first steps on a GPU, excluded from predictions
TABLE_BYTES = "memory.table_bytes"  # counted bytes of the rows of all embedding tables
# Field of `shunter.hardware.types.EnergyReading` -> name of its metric.
ENERGY_METRICS = {
    name: f"energy.{name}" for name in ("joules", "uncertainty_joules", "idle_joules", "seconds", "mean_watts")
}
# Quality on the validation part (field of `shunter.engine.metrics.Metrics`) -> name of its metric.
QUALITY_METRICS = {name: f"quality.{name}" for name in ("auc", "ne", "logloss", "calibration")}
PREDICTED = ("job_seconds", "job_seconds_low", "job_seconds_high")  # predicted time of the whole job, with its interval
# Metrics of a nightly run: number of findings, and the comparison of champion and challenger.
NIGHTLY = (
    *("findings", "saving", "saving_low", "saving_high", "needed", "gain", "gain_low", "gain_high"),
    *("champion_logloss", "challenger_logloss", "champion_ne", "champion_relative_loss"),
    *("champion_ndcg20", "challenger_ndcg20", "popularity_ndcg20"),
)
TRIAL_OF_MEMBER = "training.trial"  # tag of a member whose model is that of a trial: name of the trial
TOTAL_SECONDS = "time.total_seconds"  # wall-clock time of a whole command, including earlier attempts
PART_JOULES = "energy.{}_joules"  # energy of each part of a command; the tag `energy.<part>_source` is its source
WALL_SECONDS = "time.wall_seconds"  # time of the last attempt, from the start of its process to the end of its flow
STEP_SECONDS = "time.{}_step_seconds"  # time of each step, and of the rest as `other`; the sum is the whole time
# Metrics of the test and the validation part by which runs are compared: for clicks, rankings and numeric labels.
TESTED = (*QUALITY_METRICS, "gauc", "ndcg", "mrr", "ndcg20", "recall20", "rmse", "mae", "relative_loss")
VALIDATED = ("auc", "ne", "ndcg20", "recall20")
# Figure of a parent run -> its metric for comparisons of runs, and a factor. A parent run has at most 40 metrics;
# all its figures are in the artifacts `details/*.json`.
HEADLINES = {
    **{f"quality.test.{name}": (f"quality/{name}", 1.0) for name in TESTED},
    **{f"quality.{name}": (f"quality/validation_{name}", 1.0) for name in VALIDATED},
    "quality.unknown_row_probability": ("quality/unknown_row_probability", 1.0),
    TOTAL_SECONDS: ("time/total_seconds", 1.0),
    **{
        STEP_SECONDS.format(step): (f"time/{step}_seconds", 1.0)
        for step in ("ingest", "baselines", "tune", "train", "ensemble")
    },
    ENERGY_METRICS["joules"]: ("energy/kilojoules", 1e-3),
    ENERGY_METRICS["uncertainty_joules"]: ("energy/uncertainty_kilojoules", 1e-3),
    **{PART_JOULES.format(part): (f"energy/{part}_kilojoules", 1e-3) for part in ("start", "work", "report")},
    **{f"prediction.{name}": (f"prediction/{name}", 1.0) for name in PREDICTED},
    "search.complete_trials": ("search/complete_trials", 1.0),
    **{f"search.best_{name}": (f"search/best_{name}", 1.0) for name in ("ne", "relative_loss")},
    **{f"nightly.{name}": (f"nightly/{name}", 1.0) for name in NIGHTLY},
}
WATTS = "energy/watts"  # metric of a parent run over time; `energy.watts` of a child run
LEARNED = "learning.figures."  # prefix of tags of a parent run with figures that later predictions read, as JSON
LEARNED_PARTS = frozenset(("prediction", "search", "noise", "meta", "time", "end"))
BACKWARD_SPEEDUP = (
    "sparsity.simulated_backward_speedup_"  # prefix of the metrics of a profile, by what an accelerator skips
)


def request_params(request: JobRequest) -> Values:
    """Return the parameters of the request, `request.*`; each limit has a separate name."""
    flat: dict[str, Any] = {}
    for name, value in request.flat().items():
        flat |= value if isinstance(value, dict) else {name: value}
    return _flat("request", {**flat, "max_epochs": request.longest_epochs})


def data_params(dataset: Dataset) -> Values:
    """Return the parameters of size and shape of the data, `data.*`."""
    features = dataset.features
    return _flat(
        "data",
        {
            "name": dataset.name,
            "fingerprint": dataset.fingerprint,
            "versions": ", ".join(dataset.versions) or None,
            "where": dataset.where,
            "negative_rate": dataset.negative_rate,
            "left_out_rows": dataset.left_out_rows or None,
            "sessions": dataset.sessions or None,
            "rows": dataset.rows,
            **{f"{name}_rows": split.rows for name, split in dataset.splits.items()},
            "base_rate": dataset.splits["train"].base_rate,
            "split_by": dataset.split_by,
            "dense_features": len(features.dense),
            "categorical_features": len(features.categorical),
            "multi_valued_features": sum(field.multi_valued for field in features.categorical),
            "embedding_rows": sum(features.table_rows),
            "quarantined_rows": dataset.quarantined_rows,
            "test_repeated_share": dataset.splits["test"].repeated_share if "test" in dataset.splits else None,
            "tasks": ",".join(features.tasks) or None,
            "is_weighted": dataset.is_weighted or None,
        },
    )


def account_metrics(step_seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each step of an attempt, of its start and outside all steps, and their sum, as metrics."""
    steps = {STEP_SECONDS.format(name): seconds for name, seconds in step_seconds.items()}
    return {**steps, WALL_SECONDS: sum(step_seconds.values())}


def read_account(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each step that a run has recorded, the longest first."""
    begin, end = STEP_SECONDS.split("{}")
    steps = {name: value for name, value in metrics.items() if name.startswith(begin) and name.endswith(end)}
    named = {name.removeprefix(begin).removesuffix(end): value for name, value in steps.items()}
    return dict(sorted(named.items(), key=lambda item: -item[1]))


def model_params(spec: ModelSpec, hyperparameters: Hyperparameters | None = None) -> Values:
    """Return the parameters `model.*`: architecture, and hyperparameters if given; widths as `128-64`."""
    values = {**spec.to_dict(), **(hyperparameters.to_dict() if hyperparameters else {})}
    for name, value in values.items():
        if isinstance(value, tuple):
            values[name] = "-".join("+".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value)
    return _flat("model", values)


def schedule_params(schedule: Schedule) -> Values:
    """Return the parameters `schedule.*`: longest duration of a training job, and its seed."""
    checks = "-".join(f"{passes:.4g}" for passes in schedule.checks) or None
    return _flat(
        "schedule", {**asdict(schedule), "checks": checks, "repeats": None}
    )  # rankings log `repeats` separately


def placement_params(placement: Placement) -> Values:
    """Return the parameters of a placement, `placement.*`."""
    return _flat("placement", {"label": placement.label, **placement.model_dump()})


def workload_params(workload: Workload) -> Values:
    """Return the parameters of a sample's workload, `workload.*`, without lists of matrix products and accesses."""
    return _flat("workload", workload.model_dump(exclude={"matmuls", "dense", "access_curve"}))


def prediction_metrics(prediction: Prediction) -> Values:
    """Return the predicted figures of one epoch as metrics `prediction.*`, separate from measured figures."""
    values = _flat("prediction", prediction.model_dump())
    return {name: value for name, value in values.items() if is_number(value)}


def prediction_tags(prediction: Prediction) -> dict[str, str]:
    """Return tags with the sources of the predicted step time and energy: measured or estimated."""
    return {
        "prediction.step_seconds_source": prediction.step_seconds_source,
        "prediction.energy_source": prediction.energy_source,
    }


def quality_metrics(metrics: Metrics, split: Literal["validation", "test"] = "validation") -> Values:
    """Return the quality metrics: `quality.*` on the validation part, `quality.test.*` on the test part.

    Trials are not evaluated on the test part, so only the names without `test` exist for all runs. With several tasks
    these names are for the main task; names for another task end in the task, as `quality.auc.conversion`. Metrics of
    other Python packages are for the main task only.
    """
    prefix = "quality" if split == "validation" else "quality.test"
    others = {
        f"{name}.{task}": value
        for task, quality in metrics.others.items()
        for name in QUALITY_METRICS
        if not math.isnan(value := getattr(quality, name))
    }
    return _flat(prefix, {**metrics.figures, **others})


def training_metrics(training: "TrainingFigures[Any, Any] | Trained[Any, Any, Any, Any]") -> Values:
    """Return metrics of time, throughput, stalls, memory and table traffic: `time.*`, `stall.*`, `tiers.*`, ..."""
    busy_seconds = training.wait_seconds + training.compute_seconds
    more: Values = {}
    if (tiers := training.tiers) is not None:  # rows between memory and the file of the embedding tables
        derived = {name: getattr(tiers, name) for name in ("miss_rate", "bytes_read", "bytes_written")}
        more |= _flat("tiers", {**asdict(tiers), **derived})
    if (traffic := training.row_traffic) is not None:  # rows that the first process requested from other processes
        more |= _flat("row_traffic", {**asdict(traffic), "rows_per_lookup": traffic.rows_per_lookup})
    return {
        **{metric: getattr(training, name) for name, metric in TRAINING_METRICS.items()},
        WAIT_SHARE: training.wait_seconds / busy_seconds if busy_seconds else 0.0,
        **({WARM_UP_SECONDS: training.warm_up_seconds} if training.warm_up_steps else {}),
        **(_flat("checkpoint", asdict(training.checkpoints)) if training.checkpoints is not None else {}),
        **more,
    }


def training_stop_tags(reason: StopReason) -> dict[str, str]:
    """Return tags with the reason why a training run ended, as a text and as typed values."""
    return {"training.stopped_because": training_stop_text(reason), **_typed_stop("training", reason)}


def search_stop_tags(reason: StopReason) -> dict[str, str]:
    """Return tags with the reason why a search ended, as a text and as typed values."""
    return {"search.stopped_because": stop_text(reason), **_typed_stop("search", reason)}


def _typed_stop(prefix: str, reason: StopReason) -> dict[str, str]:
    limit = {f"{prefix}.stop_limit": reason.limit.value} if reason.limit else {}
    return {f"{prefix}.stop_kind": reason.kind.value, **limit}


def epoch_metrics(report: "EpochReport") -> Values:
    """Return the metrics of one epoch for the training curves; their step is the epoch."""
    return {
        **quality_metrics(report.validation),
        "quality.train.logloss": report.train_logloss,
        **{
            f"quality.train.logloss.{task}": loss
            for task, loss in report.other_train_loglosses.items()
            if not math.isnan(loss)
        },
        TRAINING_METRICS["train_seconds"]: report.train_seconds,
        **{f"learning_rate.{name}": rate for name, rate in report.learning_rates.items()},
    }


def energy_metrics(reading: EnergyReading) -> Values:
    """Return the energy metrics of the run, `energy.*`; empty if no meter works."""
    if reading.joules is None:
        return {}
    values = {metric: getattr(reading, name) for name, metric in ENERGY_METRICS.items()}
    return {metric: value for metric, value in values.items() if value is not None}


def energy_series(reading: EnergyReading, name: str = "energy.watts") -> list[tuple[str, float, int]]:
    """Return watts over time as points of a metric: name, value, and step (whole seconds since the start)."""
    return [(name, sample.watts, round(sample.seconds)) for sample in reading.power]


def energy_tags(reading: EnergyReading) -> dict[str, str]:
    """Return tags with source and method of the energy, and the origin of its uncertainty."""
    uncertainty = {"energy.uncertainty": reading.uncertainty} if reading.uncertainty else {}
    return {"energy.source": reading.method, "energy.method": reading.source, **uncertainty}


def headline_metrics(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures by which runs are compared, under names such as `energy/kilojoules` that MLflow groups.

    Args:
        figures: Figures of a parent run; a name with a slash stays unchanged.
    """
    named = {name: HEADLINES.get(name, (name, 1.0)) for name in figures}
    return {new: figures[name] * factor for name, (new, factor) in named.items() if "/" in new}


def gain_metrics(auc: float, energy: EnergyReading) -> dict[str, float]:
    """Return the gain in AUC per kilojoule of a whole command; empty if AUC or energy is unknown.

    Args:
        auc: AUC on the test part; NaN if unknown.
        energy: Energy of the command.
    """
    gain = auc_gain_per_kilojoule(auc, energy.joules)
    return {} if gain is None or math.isnan(gain) else {"quality/auc_gain_per_kilojoule": gain}


def figures_of(params: Mapping[str, str], metrics: Mapping[str, float], tags: Mapping[str, str]) -> dict[str, float]:
    """Return the figures of a run by their names of schema version 1, from metrics, tags and parameters.

    A parent run has the metrics of `HEADLINES` and further figures in tags. A parent run of an earlier version has a
    metric for each figure and for each numeric parameter.
    """
    found: dict[str, float] = {}
    for name, text in params.items():
        with suppress(ValueError):
            if math.isfinite(number := float(text)):
                found[name] = number
    found |= {name: metrics[new] / factor for name, (new, factor) in HEADLINES.items() if new in metrics}
    for name, text in tags.items():
        if name.startswith(LEARNED):
            with suppress(ValueError):  # the tag was truncated, or changed by hand
                found |= json.loads(text)
    return {**found, **metrics}


def part_metrics(parts: Mapping[str, EnergyReading]) -> dict[str, float]:
    """Return metrics with the joules of each part of a command, without parts of unknown energy."""
    return {PART_JOULES.format(part): one.joules for part, one in parts.items() if one.joules is not None}


def part_tags(parts: Mapping[str, EnergyReading]) -> dict[str, str]:
    """Return tags with the source of the energy of each part of a command: measured or estimated."""
    return {f"energy.{part}_source": one.method for part, one in parts.items()}


def _flat(prefix: str, values: Mapping[str, Any]) -> Values:
    return {f"{prefix}.{name}": value for name, value in values.items() if value is not None}


def is_number(value: object) -> bool:
    """Return True if MLflow can store the value as a metric; a bool is stored as text."""
    return isinstance(value, int | float) and not isinstance(value, bool)
