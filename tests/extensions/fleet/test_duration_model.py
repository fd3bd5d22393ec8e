"""Times that a job does not state: measured where this very training ran before, else estimated by the selector."""

from pathlib import Path
from typing import Any

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.engine.profiling.profiles import local_profiles
from shunter.errors import RequestError
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.duration_model import DurationModel, Source
from shunter.extensions.fleet.files import OwnJob, check_fleet, read_fleet, read_own_jobs
from shunter.extensions.fleet.past import PastJob, PastJobs, key_of, log_past_job, read_past_jobs
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.requests import FleetRequest
from shunter.extensions.fleet.simulator import simulate
from shunter.extensions.fleet.tasks.jobs import training_of
from shunter.hardware.cost.cost_model import predict
from shunter.hardware.types import CollectiveCost, Placement
from shunter.ingestion.request import ingest_request
from shunter.planner.describe import describe
from shunter.requests import TrainRequest
from shunter.tracking.runs import finish, start_run

TRAIN = TrainRequest(data="synthetic:3000", model="dnn", batch_sizes="256", max_epochs=3)


@pytest.fixture
def dataset(furnished_home: Path) -> Dataset:
    return ingest_request(TRAIN)[0]


def own(name: str = "a", **options: object) -> OwnJob:
    return OwnJob.model_validate({"name": name, "train": TRAIN, **options})


def test_what_is_stated_stays_what_was_measured_is_taken_and_the_rest_is_estimated(dataset: Dataset) -> None:
    training = training_of(TRAIN, dataset)
    past = [
        PastJob(training=key_of(training), accelerator="cpu", accelerators=1, train_seconds=seconds)
        for seconds in (40.0, 50.0, 90.0)
    ]
    told: list[str] = []
    predict_times = DurationModel(lambda _: training, told.append, PastJobs(past))
    stated, known, wider = predict_times(
        [own("stated", train_seconds={"cpu": 7.0}), own("known"), own("wider", accelerators=2)],
        ["cpu", "A100", "Mystery"],
    )
    assert stated.train_seconds == {"cpu": 7.0}
    assert known.train_seconds["cpu"] == 50.0
    assert wider.train_seconds["cpu"] != 50.0, "on two cores it has not run yet"
    sources = {(one.job, one.accelerator): one.source for one in predict_times.times}
    assert sources == {
        ("stated", "cpu"): Source.STATED,
        ("known", "cpu"): Source.MEASURED,
        ("known", "A100"): Source.ESTIMATED,
        ("wider", "cpu"): Source.ESTIMATED,
        ("wider", "A100"): Source.ESTIMATED,
    }
    assert all(one.seconds > 0 for one in predict_times.times)
    assert told == [
        f"{name} cannot run on Mystery: its duration on this type is unknown." for name in ("known", "wider")
    ]


def test_memory_is_predicted_and_two_jobs_that_a_server_has_no_room_for_do_not_run_together(dataset: Dataset) -> None:
    training = training_of(TRAIN, dataset)
    predict_times = DurationModel(lambda _: training, past=PastJobs(), always_memory=True)
    times: dict[str, Any] = {"train_seconds": {"cpu": 100.0}}
    one, stated = predict_times([own("one", **times), own("two", server_memory_gib=0.25, **times)], ["cpu", "A100"])
    assert 0.1 < one.server_memory_gib < 8, "a process with its libraries, and a small model"
    assert 0.5 < one.memory_gib < one.server_memory_gib + 1, "a CUDA context, and the model"
    assert stated.server_memory_gib == 0.25
    jobs = [one.job(), one.model_copy(update={"name": "twin"}).job()]
    for room, makespan in ((1.5, 200.0), (2.5, 100.0)):
        machine = Machine(name="m", accelerator="cpu", count=2, memory_gib=room * one.server_memory_gib)
        assert simulate(jobs, Cluster(machines=(machine,)), make_policy("fifo-skip")).end_seconds == makespan
    without = DurationModel(lambda _: pytest.fail("its times are stated"), past=PastJobs())
    assert without([own(**times)], ["cpu"])[0].server_memory_gib == 0


def test_epochs_are_estimated_to_take_as_long_as_patience_lets_them(dataset: Dataset) -> None:
    def seconds(epochs: int) -> float:
        request = TRAIN.model_copy(update={"max_epochs": epochs})
        predict_times = DurationModel(lambda _: training_of(request, dataset), past=PastJobs())
        return predict_times([own(train=request)], ["A100"])[0].train_seconds["A100"]

    assert seconds(3) == pytest.approx(3 * seconds(1))
    assert seconds(3) < seconds(9) < 1.5 * seconds(3)


def test_processes_are_estimated_by_what_the_cost_model_says_of_their_steps(dataset: Dataset) -> None:
    """Two of one thread each, beside one with two threads."""
    both = TRAIN.model_copy(update={"training": TRAIN.training.model_copy(update={"processes": 2})})
    training = training_of(TRAIN, dataset)
    predict_times = DurationModel(lambda _: training, past=PastJobs())
    found = predict_times([own("one", accelerators=2), own("both", accelerators=2, train=both)], ["cpu"])
    one, together = (job.train_seconds["cpu"] for job in found)
    (profile,) = (found for found in local_profiles() if found.accelerator.name == "cpu")
    workload = describe(dataset, training.spec, training.hyperparameters)
    at = Placement(accelerator="cpu", threads=min(2, profile.accelerator.cores), precision="fp32", batch_size=256)
    steps = [
        predict(workload, at.model_copy(update={"processes": count, "threads": max(count, at.threads)}), profile)
        for count in (1, 2)
    ]
    assert together / one == pytest.approx(steps[1].step_seconds / steps[0].step_seconds)
    assert steps[1].parts["communication"] > 0
    across = {"operation": "all_reduce", "processes": 2, "link": "a slow network", "r2": 1.0, "points": ()}
    slow = (CollectiveCost(**across, latency_seconds=steps[1].step_seconds, bytes_per_second=1e12),)
    predict_times = DurationModel(lambda _: training, past=PastJobs(), network=lambda: slow)
    told = {"accelerators": 2, "train_seconds": {"cpu": 9.0}}
    alone, wide, stated = predict_times(
        [own(**told), own("b", train=both, **told), own("c", train=both, network_share=0.5, **told)], ["cpu"]
    )
    assert (alone.network_share, stated.network_share) == (0.0, 0.5)
    assert wide.network_share > 0.5, "each sum of gradients takes as long as a whole step takes side by side"


def test_a_job_of_which_nothing_is_known_anywhere_is_refused(dataset: Dataset) -> None:
    predict_times = DurationModel(lambda _: training_of(TRAIN, dataset), past=PastJobs())
    with pytest.raises(RequestError, match="train_sec"):
        predict_times([own()], ["Mystery"])


def test_what_starting_took_before_is_read_back_by_type_and_simulated(tracking_root: Path) -> None:
    run_id = start_run("fleet", "fleet")
    for accelerator, seconds in (("cpu-fast", 2.0), ("cpu-slow", 6.0)):
        past = PastJob(training="other", accelerator=accelerator, accelerators=1, start_seconds=seconds)
        log_past_job(run_id, "before", past.model_copy(update={"restore_seconds": seconds, "checkpoint_seconds": 1.0}))
    finish(run_id)
    predict_times = DurationModel(lambda _: pytest.fail("its times are stated"), past=read_past_jobs())
    (foreseen,) = predict_times([own(train_seconds={"cpu-fast": 10.0, "cpu-slow": 10.0})], ["cpu-fast", "cpu-slow"])
    job = foreseen.job()
    assert (job.starts_in("cpu-slow"), job.moves_in("cpu-fast"), job.start_seconds) == (6.0, 3.0, 4.0)
    for name, seconds in (("cpu-fast", 12.0), ("cpu-slow", 16.0)):
        cluster = Cluster(machines=(Machine(name="m", accelerator=name, count=1),))
        assert simulate([job], cluster, make_policy("fifo")).end_seconds == seconds
    only_started = PastJobs([PastJob(training="x", accelerator="cpu", accelerators=1, start_seconds=2.0)])
    (restored,) = DurationModel(lambda _: pytest.fail("stated"), past=only_started)(
        [own(train_seconds={"cpu": 9})], ["cpu"]
    )
    assert restored.job().moves_in("cpu") == 2.0, "going on begins with a start"
    (stated,) = predict_times([own(train_seconds={"cpu-slow": 10.0}, start_seconds=0.5)], ["cpu-slow"])
    assert stated.start_seconds == 0.5


def test_a_file_is_checked_before_anything_is_foretold(tmp_path: Path) -> None:
    (tmp_path / "j.yaml").write_text("jobs: [{name: a, accelerators: 3, train: {data: 'synthetic:2000', model: dnn}}]")
    (tmp_path / "c.yaml").write_text("machines: [{name: m, accelerator: A100, count: 2}]")
    request = FleetRequest(jobs=str(tmp_path / "j.yaml"), cluster=str(tmp_path / "c.yaml"))
    with pytest.raises(RequestError, match="'a'"):
        check_fleet(request)
    (tmp_path / "c.yaml").write_text("machines: [{name: m, accelerator: A100, count: 4}]")
    check_fleet(request)
    given = {"train_seconds": {"A100": 60.0}}
    (job,), _ = read_fleet(request, lambda jobs, types: [one.model_copy(update=given) for one in jobs])
    assert job.work.types() == ("A100",)
    (tmp_path / "j.yaml").write_text("jobs: [{name: a}]")
    with pytest.raises(RequestError, match="train_seconds"):
        read_own_jobs(tmp_path / "j.yaml")
