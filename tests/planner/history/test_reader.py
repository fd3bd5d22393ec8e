"""A history from a real store: what is admitted, what is left out by which rule, and what it teaches."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shunter.engine.data.dataset import Dataset
from shunter.errors import TrackingError
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import EnergyReading, Placement, Prediction, Workload
from shunter.planner.history import History, data_key, read_history
from shunter.requests import TrainRequest
from shunter.tracking.convention import TRAINING_METRICS, data_params, placement_params
from shunter.tracking.evidence import Evidence, Figures, evidence_tags
from shunter.tracking.history import TrackedRun, read_runs
from shunter.tracking.learning import log_steps, read_steps, step_tags
from shunter.tracking.runs import child_run, finish, open_run, start_run_tree
from tests.engine.synthetic import write_dataset

DATA = "abc 13 26"
NOW = 1_700_000_000.0
WORKLOAD = Workload(
    matmul_flops_per_sample=1e6,
    lookups_per_sample=26,
    lookup_bytes_per_sample=1664,
    input_bytes_per_sample=160,
    parameter_bytes=10**7,
    optimizer_bytes=10**6,
    activation_bytes_per_sample=1e4,
    operators_per_step=200,
    train_samples=80_000,
)
PLACEMENT = Placement(accelerator="cpu", threads=2, precision="fp32", batch_size=512)

DAY = 86_400.0


def step(measured: float, at: float = 0.0, batch_size: int = 512, predicted: float = 0.01) -> StepObservation:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(NOW + at))
    return StepObservation(
        workload=WORKLOAD,
        placement=PLACEMENT.model_copy(update={"batch_size": batch_size}),
        accelerator_model="EPYC",
        host="host-1",
        predicted_seconds=predicted,
        measured_seconds=measured,
        measured_at=stamp,
    )


def tracked(run_id: str = "good", kind: str = "train", **changes: Any) -> TrackedRun:
    """A run as the store would hold it, all in order but for the changes."""
    run = TrackedRun(
        run_id=run_id,
        kind=kind,
        parent_run_id=None if kind == "train" else "parent",
        status="FINISHED",
        started_at=NOW - 100,
        ended_at=NOW - 10,
        params={
            "data.name": "abc",
            "data.dense_features": "13",
            "data.categorical_features": "26",
            "request.model": "dlrm",
        },
        metrics={"time.total_seconds": 90.0, "time.train_seconds": 80.0, "quality.auc": 0.75},
        tags={"schema.version": "1", "run.kind": kind},
    )
    for name in ("params", "metrics", "tags"):
        changes[name] = {**getattr(run, name), **changes.get(name, {})}
    return replace(run, **changes)


def reasons(*runs: TrackedRun) -> list[str]:
    return [exclusion.reason for exclusion in History.of(runs, NOW).excluded]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tags": {"schema.version": "0"}}, "schema version 0, and version 1 is read"),
        ({"status": "RUNNING", "ended_at": None, "started_at": NOW - 10**6}, "never ended"),
        ({"status": "FAILED", "tags": {"run.reason": "TrainingError: nan"}}, r"FAILED \(TrainingError: nan\)"),
        ({"status": "KILLED"}, "KILLED"),
        ({"ended_at": NOW - 200}, "clock ran backwards"),
        ({"ended_at": NOW + 4000}, "clock ran ahead"),
        ({"metrics": {"time.total_seconds": 0.0}}, r"time\.total_seconds is 0"),
        ({"metrics": {"time.total_seconds": -3.0}}, r"time\.total_seconds is -3"),
        ({"metrics": {"time.total_seconds": float("nan")}}, r"time\.total_seconds is nan"),
        ({"metrics": {"time.tune_step_seconds": -1.0}}, r"time\.tune_step_seconds is -1"),
        ({"metrics": {"energy.joules": 0.0}}, r"energy\.joules is 0"),
        ({"metrics": {"throughput.samples_per_second": 0.0}}, r"throughput\.samples_per_second is 0"),
        ({"metrics": {"quality.auc": 1.7}}, r"quality\.auc is 1\.7"),
        ({"tags": {"learning.steps": "{"}}, r"cannot be read .*learning\.steps"),
        ({"params": {"placement.threads": "many"}}, "cannot be read"),
    ],
)
def test_bad_run_is_left_out_by_a_rule_that_is_said(changes: dict[str, Any], expected: str) -> None:
    history = History.of([tracked("bad-run-id", **changes), tracked()], NOW)
    assert [run.run_id for run in history.runs] == ["good"]
    (excluded,) = history.excluded
    assert excluded.run_id == "bad-run-id"
    assert re.search(expected, excluded.reason)
    (sentence,) = history.notes()
    assert sentence.startswith("1 past run is left out (bad-run-)")
    assert sentence.endswith(".")


def test_run_that_is_under_way_is_no_past_run() -> None:
    assert History.of([tracked(status="RUNNING", ended_at=None)], NOW) == History()


def test_many_reasons_are_not_all_told() -> None:
    runs = [tracked(f"run-{index}", status="FAILED", tags={"run.reason": str(index)}) for index in range(9)]
    runs += [tracked(f"killed-{index}", status="KILLED") for index in range(4)]
    sentences = History.of(runs, NOW).notes()
    assert len(sentences) == 6
    assert sentences[0].startswith("4 past runs are left out (killed-0, killed-1, killed-2, ...): it ended as KILLED")
    assert sentences[-1] == "5 more are excluded for other reasons."


def test_run_without_its_duration_is_left_out() -> None:
    run = tracked("member", "member")
    run = replace(run, metrics={name: value for name, value in run.metrics.items() if name != "time.train_seconds"})
    assert reasons(run) == ["it has no time.train_seconds"]


def test_steps_of_a_mere_selection_are_learned_too() -> None:
    run = tracked("select", "select", metrics={}, tags=step_tags([step(0.012)]))
    run = replace(run, metrics={}, parent_run_id=None)
    history = History.of([run], NOW)
    assert not history.excluded
    assert len(history.steps) == 1
    assert history.quality(0.7, data=DATA, family="dlrm") is None


def test_energy_of_a_run_is_known_only_where_it_was_measured() -> None:
    energy = {"energy.joules": 5.0}
    estimated, measured = (
        History.of([tracked(metrics=energy, tags={"energy.source": source})], NOW).runs[0]
        for source in ("estimated", "measured")
    )
    assert (estimated.joules, measured.joules) == (None, 5.0)


def test_absurd_step_and_lone_outlier_are_left_out_and_the_rest_is_learned() -> None:
    ordinary = [step(0.012 * (1 + 0.01 * (index % 3)), at=index) for index in range(9)]
    history = History.of([tracked(tags=step_tags([*ordinary, step(9.0, at=20), step(0.05, at=4.5)]))], NOW)
    assert len(history.steps) == 9
    assert [exclusion.reason.partition(" ")[0] for exclusion in history.excluded] == ["at", "its"]
    assert history.residual().observations == 9
    assert not history.drifts


@pytest.mark.parametrize("stamp", ["yesterday", "2026-01-01T00:00:00", ""])
def test_step_of_no_known_time_is_left_out(stamp: str) -> None:
    odd = step(0.012).model_copy(update={"measured_at": stamp})
    history = History.of([tracked(tags=step_tags([step(0.012), odd]))], NOW)
    assert len(history.steps) == 1
    assert "no valid UTC time" in history.excluded[0].reason


def test_slow_node_does_not_touch_what_its_equals_have_taught() -> None:
    """Machines of one kind share a fingerprint; a change is of one of them."""
    random = np.random.default_rng(0)

    def measured(machine: str, day: int, seconds: float) -> StepObservation:
        noisy = seconds * float(np.exp(0.03 * random.standard_normal()))
        return step(noisy, at=DAY * day).model_copy(update={"machine": machine})

    nodes = [measured(name, day, 0.010) for day in range(12) for name in ("node-1", "node-2")]
    nodes += [measured("node-1", day, 0.010) for day in range(12, 18)]
    nodes += [measured("node-2", day, 0.020) for day in range(12, 18)]
    history = History.of([tracked(f"run-{place}", tags=step_tags([one])) for place, one in enumerate(nodes)], NOW)
    assert len(history.drifts) == 1
    steady = [one for one in history.steps if one.machine == "node-1"]
    assert len(steady) == 18
    assert not any(one.log_deviation for one in steady)


def test_machine_that_became_slower_is_relearned() -> None:
    random = np.random.default_rng(0)
    before = [step(0.010 * float(np.exp(0.03 * random.standard_normal())), at=DAY * index) for index in range(12)]
    after = [step(0.020 * float(np.exp(0.03 * random.standard_normal())), at=DAY * (20 + index)) for index in range(6)]
    runs = [tracked(f"run-{index}", tags=step_tags([step])) for index, step in enumerate([*before, *after])]
    history = History.of(runs, NOW)
    (drift,) = history.drifts
    assert drift.since == after[0].measured_at
    assert drift.step_ratio == pytest.approx(2.0, rel=0.1)
    assert len(history.steps) == 18
    assert np.mean([step.measured_seconds for step in history.steps[:12]]) == pytest.approx(0.020, rel=0.1)
    assert all(step.log_deviation > 0 for step in history.steps[:12])
    assert not any(step.log_deviation for step in history.steps[12:])
    assert "longer" in history.notes()[0]
    prediction = Prediction(
        step_seconds=0.01,
        epoch_seconds=1.6,
        epoch_joules=None,
        memory_bytes=1,
        samples_per_second=50_000,
        step_seconds_source="estimated",
        energy_source="unavailable",
    )
    corrected = history.residual().correct(WORKLOAD, PLACEMENT, prediction, "EPYC")
    assert corrected.step_seconds == pytest.approx(0.02, rel=0.1)


def test_hourly_runs_of_one_day_notice_a_machine_that_became_slower() -> None:
    """Trainings alone, as probes are not repeated; trial and member of a command are one session with it."""
    random = np.random.default_rng(0)
    runs = []
    for hour in range(8):
        seconds = 0.010 if hour < 4 else 0.020
        steps = [step(seconds * float(np.exp(0.03 * random.standard_normal())), at=3600 * hour) for _ in range(3)]
        runs.append(tracked(f"run-{hour}", tags=step_tags(steps[:1])))
        runs += [
            tracked(f"member-{hour}-{place}", "member", parent_run_id=f"run-{hour}", tags=step_tags([one]))
            for place, one in enumerate(steps[1:])
        ]
    (drift,) = History.of(runs, NOW + 8 * 3600).drifts
    assert drift.step_ratio == pytest.approx(2.0, rel=0.1)
    assert drift.adjusted == 12


def test_quality_of_the_next_run_is_judged_by_past_ones_of_the_same_data_and_family() -> None:
    aucs = (0.78, 0.782, 0.779, 0.781)
    runs = [tracked(f"run-{index}", metrics={"quality.auc": auc}) for index, auc in enumerate(aucs)]
    history = History.of(runs, NOW)

    def probability(min_auc: float) -> float:
        outlook = history.quality(min_auc, data=DATA, family="dlrm")
        assert outlook is not None
        assert outlook.runs == 4
        return outlook.probability

    assert probability(0.70) > 0.95
    assert probability(0.7805) == pytest.approx(0.5, abs=0.1)
    assert probability(0.85) < 0.05
    assert history.quality(0.7, data="another 13 26", family="dlrm") is None
    assert history.quality(0.7, data=DATA, family="wide") is None
    assert history.quality(0.7, data="", family="dlrm") is None
    (alone,) = History.of(runs[:1], NOW).runs
    one_run = History(runs=(alone,)).quality(0.70, data=DATA, family="dlrm")
    assert one_run is not None
    assert 0.5 < one_run.probability < probability(0.70)  # one run makes less sure than four


def test_share_of_the_plan_that_was_needed_is_learned_and_an_interrupted_run_says_nothing() -> None:
    steps = {"time.select_step_seconds": 10.0, "time.tune_step_seconds": 50.0, "time.train_step_seconds": 30.0}

    def night(name: str, *, total: float = 91.0, planned: float = 160.0, **more: float) -> TrackedRun:
        return tracked(
            name,
            params=placement_params(PLACEMENT),
            metrics={**steps, "time.total_seconds": total, "prediction.job_seconds": planned, **more},
        )

    whole, resumed, cut = night("whole"), night("resumed", total=200.0), night("cut", **{"request.max_hours": 0.026})
    shares = {run.run_id: (run.work_share, run.was_cut) for run in History.of([whole, resumed, cut], NOW).runs}
    assert shares == {"whole": (0.5, False), "resumed": (None, False), "cut": (0.5, True)}
    belief = History.of([whole], NOW).work_shares([512], data=DATA, family="dlrm")
    assert belief is not None
    assert np.exp(belief.mean) == pytest.approx([0.5], rel=1e-3)
    assert History.of([resumed], NOW).work_shares([512], data=DATA, family="dlrm") is None
    bounded = History.of([cut], NOW).work_shares([512], data=DATA, family="dlrm")
    assert bounded is not None
    assert np.exp(bounded.mean[0]) > 0.5


def evident(run_id: str, evidence: Evidence, **changes: Any) -> TrackedRun:
    """A run whose record is all that is known of it."""
    run = tracked(run_id, evidence.kind, **changes)
    tags = {"schema.version": "1", "run.kind": evidence.kind, **evidence_tags(evidence), **changes.get("tags", {})}
    return replace(run, params={}, metrics={}, tags=tags)


def evidence(outcome: str = "reached", seconds: float = 50.0, **changes: Any) -> Evidence:
    fields: dict[str, Any] = {
        "kind": "train",
        "outcome": outcome,
        "data": DATA,
        "family": "dlrm",
        "placement": PLACEMENT,
        "predicted": Figures(seconds=100.0),
        "measured": Figures(seconds=seconds, joules=seconds * 20, joules_source="measured"),
        "total_seconds": seconds + 10,
        "total_joules": seconds * 20 + 100,
    }
    return Evidence.model_validate({**fields, **changes})


def test_run_that_missed_its_quality_is_a_lower_bound_and_no_exclusion() -> None:
    missed = evident("missed", evidence("missed", 80.0, auc=0.7, asked_auc=0.78), status="FAILED")
    history = History.of([missed], NOW)
    assert not history.excluded
    (run,) = history.runs
    assert (run.outcome, run.is_censored, run.asked_auc, run.auc) == ("missed", True, 0.78, 0.7)
    assert (run.work_share, run.seconds, run.joules) == (0.8, 90.0, 1700.0)
    outlook = history.quality(0.78, data=DATA, family="dlrm")
    assert outlook is not None
    assert outlook.probability < 0.5
    reached = evident("reached", evidence("reached", 50.0))
    belief = History.of([reached, missed], NOW).work_shares([512], data=DATA, family="dlrm")
    alone = History.of([reached], NOW).work_shares([512], data=DATA, family="dlrm")
    assert belief is not None
    assert alone is not None
    assert belief.mean[0] > alone.mean[0], "the miss at 0.8 says that half of the plan does not suffice"


@pytest.mark.parametrize("kind", ["train", "nightly", "tune", "select", "member", "trial"])
@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_every_kind_of_run_teaches_its_steps_however_it_ended(kind: str, status: str) -> None:
    run = evident(
        "any", evidence("stopped", kind=kind, limit="interrupted"), status=status, tags=step_tags([step(0.01)])
    )
    history = History.of([run], NOW)
    assert not history.excluded
    assert [past.limit for past in history.runs] == ["interrupted"]
    assert len(history.steps) == 1


def test_steps_of_a_night_and_of_a_search_without_a_record_are_learned() -> None:
    runs = [tracked(kind, kind, parent_run_id=None, tags=step_tags([step(0.01)])) for kind in ("nightly", "tune")]
    history = History.of([replace(run, metrics={}) for run in runs], NOW)
    assert not history.excluded
    assert len(history.steps) == 2


def test_trial_without_a_record_says_nothing_to_a_choice() -> None:
    assert History.of([tracked("trial", "trial", status="FAILED")], NOW) == History()


def test_energy_that_a_record_estimates_is_no_measured_energy() -> None:
    figures = Figures(seconds=50.0, joules=1000.0, joules_source="estimated")
    (run,) = History.of([evident("one", evidence(measured=figures))], NOW).runs
    assert run.joules is None
    assert run.measured.joules == 1000.0


def test_record_that_cannot_be_read_leaves_the_run_out() -> None:
    (exclusion,) = History.of([evident("bad", evidence(), tags={"learning.evidence": "{}"})], NOW).excluded
    assert "cannot be read" in exclusion.reason
    ahead = evident("ahead", evidence(), ended_at=NOW + 4000)
    assert "clock ran ahead" in History.of([ahead], NOW).excluded[0].reason


def test_compiled_steps_are_kept_apart() -> None:
    eager = [step(0.010, at=index) for index in range(3)]
    compiled = [step(0.004, at=index + 10).model_copy(update={"compiled": True}) for index in range(3)]
    history = History.of([evident("one", evidence(), tags=step_tags([*eager, *compiled]))], NOW)
    assert [one.measured_seconds for one in history.steps] == [0.010] * 3
    assert [one.measured_seconds for one in history.compiled_steps] == [0.004] * 3
    assert history.residual().observations == history.residual(compiled=True).observations == 3
    assert not history.drifts
    assert not history.excluded


def test_history_comes_from_the_store_that_is_given() -> None:
    asked: list[tuple[str, ...]] = []

    def read(kinds: Any, *, limit: int) -> list[TrackedRun]:
        asked.append(tuple(kinds))
        return [evident("one", evidence())] if "train" in kinds else []

    history = read_history(read=read)
    assert [run.run_id for run in history.runs] == ["one"]
    assert {kind for kinds in asked for kind in kinds} == {"train", "nightly", "tune", "select", "member", "trial"}


def test_history_is_what_a_real_store_holds(tracking_root: Path, dataset: Dataset) -> None:
    parent = start_run_tree(TrainRequest(price_per_hour=3.6), dataset)
    with child_run(parent, "member-0", "member") as member:
        member.log_params(placement_params(PLACEMENT))
        member.log_metrics({"time.train_seconds": 5.0, "quality.auc": 0.71, "training.best_epoch": 2})
        member.log_energy(EnergyReading.of(100.0, 5.0, "measured", "a counter"))
    observed = [step(0.0123456, at=-time.time()), step(0.02, at=1, batch_size=1024)]
    log_steps(parent, observed)
    run = open_run(parent)
    run.log_params(placement_params(PLACEMENT))
    run.log_metrics({"time.total_seconds": 10.0, "quality.auc": 0.72})
    finish(parent)
    killed = start_run_tree(TrainRequest(), dataset)
    finish(killed, "KILLED", reason="Ctrl-C")

    history = read_history()
    kinds = {run.kind: run for run in history.runs}
    assert kinds["member"].joules == 100.0
    assert kinds["member"].data == data_key(data_params(dataset))
    assert kinds["member"].placement == PLACEMENT
    assert kinds["train"].cost == pytest.approx(0.01)
    assert [(exclusion.run_id, exclusion.reason) for exclusion in history.excluded] == [
        (killed, "it ended as KILLED (Ctrl-C)")
    ]
    assert [step.placement.batch_size for step in history.steps] == [512, 1024]
    assert history.steps[0].measured_seconds == pytest.approx(0.0123456, rel=1e-4)
    assert history.quality(0.7, data=kinds["train"].data, family="dlrm") is not None
    assert {run.kind for run in read_runs()} == {"train", "member"}
    assert len(read_runs(("train",), limit=1)) == 1


def test_history_without_a_store_is_empty_and_makes_none(shunter_home: Path) -> None:
    history = read_history()
    assert history == History()
    assert history.residual().observations == 0
    assert history.notes() == []
    assert not shunter_home.exists()


def test_steps_that_have_no_room_leave_the_oldest_out() -> None:
    many = [step(0.01 + 0.0001 * index, at=index, batch_size=2**index) for index in range(1, 60)]
    kept = read_steps(step_tags(many))
    assert 5 < len(kept) < 60
    assert kept[-1].placement == many[-1].placement
    with pytest.raises(TrackingError, match="changed by hand"):
        read_steps({"learning.steps": '{"of": {}, "steps": [{"host": 1}]}'})


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=200)


def test_epochs_of_a_training_are_learned_from_past_ones_of_its_family() -> None:
    assert History().training_epochs("dlrm", 2) == pytest.approx(3.5)

    def trained(name: str, family: str, epochs: float, **changes: Any) -> TrackedRun:
        record = evidence(kind="member", family=family, epochs=epochs, planned_epochs=20, **changes)
        return evident(name, record)

    runs = [trained(f"deepfm-{place}", "deepfm", 8.0) for place in range(9)]
    runs += [trained("pruned", "deepfm", 1.0, outcome="stopped", limit="early_stop"), trained("other", "dlrm", 2.0)]
    history = History.of(runs, NOW)
    assert 6.0 < history.training_epochs("deepfm", 2) < 8.0
    assert 2.0 < history.training_epochs("dlrm", 2) < 3.5


def test_what_trainings_take_beside_their_steps_is_a_mean_without_the_longest_tenth() -> None:
    metric = TRAINING_METRICS["train_seconds"]
    runs = [tracked(str(seconds), "member", metrics={metric: seconds}) for seconds in (60.0, 80.0, 89.0)]
    assert History.of(runs, NOW).training_overhead_seconds == pytest.approx(41 / 3)  # each took 90 s
    runs = [tracked(str(number), "member", metrics={metric: 1.0 if number == 3 else 80.0}) for number in range(10)]
    assert History.of(runs, NOW).training_overhead_seconds == pytest.approx(10.0)
    assert History.of([], NOW).training_overhead_seconds == 0.0
