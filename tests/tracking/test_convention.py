"""The names, held to what is written down for people: a name that changes breaks what later runs learn from."""

import re
from dataclasses import replace
from pathlib import Path

from shunter.engine.config import Hyperparameters
from shunter.engine.metrics import Metrics
from shunter.engine.results import EpochReport, TrainingFigures
from shunter.engine.stopping import StopKind, StopReason
from shunter.hardware.types import EnergyReading, Placement, Workload
from shunter.models.registry import model_spec
from shunter.requests import Limits, TrainRequest
from shunter.settings import PROJECT_ROOT
from shunter.tracking.convention import (
    HEADLINES,
    LEARNED,
    WATTS,
    data_params,
    energy_metrics,
    energy_tags,
    epoch_metrics,
    figures_of,
    gain_metrics,
    headline_metrics,
    model_params,
    placement_params,
    quality_metrics,
    request_params,
    training_metrics,
    workload_params,
)
from tests.engine.synthetic import write_dataset

NAMES = PROJECT_ROOT / "docs" / "reference" / "metrics.md"
METRICS = Metrics(auc=0.8, logloss=0.5, ne=0.9, calibration=1.02, rows=100, base_rate=0.3)
REPORT = EpochReport(
    epoch=2,
    step=20,
    samples_seen=200,
    train_logloss=0.4,
    validation=METRICS,
    train_seconds=3.0,
    wait_seconds=0.5,
    compute_seconds=2.0,
)
PLACEMENT = Placement(accelerator="cpu", threads=2, precision="bf16", batch_size=512)
WORKLOAD = Workload(
    matmul_flops_per_sample=1e6,
    lookups_per_sample=26,
    lookup_bytes_per_sample=1664,
    input_bytes_per_sample=160,
    parameter_bytes=10_000,
    optimizer_bytes=5_000,
    activation_bytes_per_sample=4_000,
    operators_per_step=100,
    train_samples=1_000,
)


def test_quality_of_the_parts_has_different_names() -> None:
    assert quality_metrics(METRICS) == {
        "quality.auc": 0.8,
        "quality.ne": 0.9,
        "quality.logloss": 0.5,
        "quality.calibration": 1.02,
    }
    assert quality_metrics(METRICS, "test")["quality.test.auc"] == 0.8
    assert not quality_metrics(METRICS).keys() & quality_metrics(METRICS, "test").keys()


def test_model_params_hold_architecture_and_learning() -> None:
    params = model_params(model_spec(top_widths=(128, 64)), Hyperparameters(dense_learning_rate=0.01))
    assert params["model.top_widths"] == "128-64"
    assert params["model.dense_learning_rate"] == 0.01


def test_the_first_steps_of_a_gpu_are_shown_where_there_are_any() -> None:
    figures: TrainingFigures = TrainingFigures(
        history=(REPORT,),
        best_epoch=1,
        validation=METRICS,
        samples_seen=100,
        train_seconds=3.0,
        wait_seconds=1.0,
        compute_seconds=2.0,
        stop_reason=StopReason(StopKind.MAX_EPOCHS),
        peak_memory_bytes=1,
    )
    assert "time.warm_up_seconds" not in training_metrics(figures)
    warmed_up = replace(figures, warm_up_steps=4, warm_up_seconds=0.4)
    assert training_metrics(warmed_up)["time.warm_up_seconds"] == 0.4
    assert "`time.warm_up_seconds`" in NAMES.read_text()


def test_limits_that_are_not_set_are_left_out() -> None:
    params = request_params(TrainRequest(limits=Limits(min_auc=0.7)))
    assert params["request.min_auc"] == 0.7
    assert "request.max_hours" not in params


def test_every_name_is_in_the_table_for_people(tmp_path: Path) -> None:
    """The pages on metrics list each name, or its family as `prefix.*`."""
    table = NAMES.read_text() + NAMES.with_name("parent_metrics.md").read_text()
    written = set(re.findall(r"`([a-z_\d]+(?:[./][a-z_\d]+)*(?:\.\*)?)`", table))
    reading = EnergyReading.of(1.0, 1.0, "measured", "counter", uncertainty_joules=0.1, uncertainty="5 %")
    names = {
        *request_params(TrainRequest()),
        *data_params(write_dataset(tmp_path, rows=100)),
        *model_params(model_spec(), Hyperparameters()),
        *placement_params(PLACEMENT),
        *workload_params(WORKLOAD),
        *quality_metrics(METRICS),
        *quality_metrics(METRICS, "test"),
        *epoch_metrics(REPORT),
        *energy_metrics(reading),
        *energy_tags(reading),
        *headline_metrics(dict.fromkeys(HEADLINES, 1.0)),
        *gain_metrics(0.8, reading),
        *("energy.watts", WATTS),
    }
    missing = {name for name in names if name not in written and f"{name.rpartition('.')[0]}.*" not in written}
    assert not missing


def test_a_parent_has_metrics_of_its_headlines_alone() -> None:
    figures = {"quality.test.auc": 0.8, "energy.joules": 2000.0, "time.total_seconds": 10.0, "baseline.lr.ne": 0.9}
    metrics = headline_metrics(figures)
    assert metrics == {"quality/auc": 0.8, "energy/kilojoules": 2.0, "time/total_seconds": 10.0}
    assert len({metric for metric, _ in HEADLINES.values()}) == len(HEADLINES)
    assert len([name for name in HEADLINES if not name.startswith("nightly.")]) <= 34
    reading = EnergyReading.of(2000.0, 10.0, "estimated", "model")
    assert gain_metrics(0.8, reading) == {"quality/auc_gain_per_kilojoule": (0.8 - 0.5) / 2}
    assert gain_metrics(float("nan"), reading) == {}


def test_figures_of_a_run_are_the_same_wherever_the_run_has_them() -> None:
    old = {"quality.test.auc": 0.8, "energy.joules": 2000.0, "data.rows": 90.0, "meta.rows": 90.0}
    tags = {f"{LEARNED}meta": '{"meta.rows": 90.0}', f"{LEARNED}time": '{"cut'}
    new = figures_of({"data.rows": "90", "data.name": "nan"}, {"quality/auc": 0.8, "energy/kilojoules": 2.0}, tags)
    assert {name: new[name] for name in old} == old
    assert figures_of({"data.rows": "90"}, old, {}) == old
    assert "data.name" not in new
