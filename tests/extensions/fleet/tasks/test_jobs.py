"""The jobs of a live fleet: what they may ask, what they train, what becomes of the model, what outlives a driver."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from shunter.engine.execution import execution_of
from shunter.errors import RequestError
from shunter.extensions.distributed.executors.ray import cluster
from shunter.extensions.distributed.links.nodes import ClusterNode
from shunter.extensions.fleet.live.asked import read_fleet_jobs
from shunter.extensions.fleet.live.record import FleetRecord, JobRecord, Status
from shunter.extensions.fleet.requests import FleetRunRequest
from shunter.extensions.fleet.tasks import run, trainings
from shunter.extensions.fleet.tasks.jobs import prepare_jobs
from shunter.extensions.fleet.tasks.run import fleet_state, open_record, run_jobs
from shunter.extensions.fleet.tasks.trainings import evaluate_and_register
from shunter.hardware.types import CollectiveCost, Placement
from shunter.tasks.train import train_model
from shunter.tracking.registry.models import load_champion
from shunter.tracking.runs import closing, start_run

JOB = "jobs: [{name: a, train_seconds: {cpu: 60}, train: {%s}}]\n"


def write(folder: Path, train: str) -> Path:
    path = folder / "jobs.yaml"
    path.write_text(JOB % train)
    return path


@pytest.mark.parametrize(
    ("train", "named"),
    [
        ("data: 'synthetic:2000', trials: 3", "search"),
        ("data: 'synthetic:2000', plan: p.yaml", "plan"),
        ("data: 'synthetic:2000', processes: 2", "2 processes"),
        ("data: 'synthetic:2000', embedding_memory: 1GiB", "embedding_memory"),
        ("data: 'synthetic:2000', batch_sizes: '64,128'", "batch sizes"),
        ("data: 'synthetic:2000', model: lightgcn", "lightgcn"),
        ("data: 'synthetic:2000', model: dlmr", "dlmr"),
        ("data: 'synthetic:2000', set: [nothing=1]", "nothing"),
    ],
)
def test_what_one_training_cannot_do_is_refused_by_the_name_of_the_job(tmp_path: Path, train: str, named: str) -> None:
    with pytest.raises(RequestError, match=f"(?s){named}"):
        read_fleet_jobs(write(tmp_path, train))


def test_a_job_without_a_training_and_one_that_is_there_twice_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("jobs: [{name: a, train_seconds: {cpu: 60}}]\n")
    with pytest.raises(RequestError, match="does not state what to train"):
        read_fleet_jobs(path)
    one = "{name: a, train_seconds: {cpu: 60}, train: {data: 'synthetic:2000'}}"
    path.write_text(f"jobs: [{one}, {one}]\n")
    with pytest.raises(RequestError, match="'a'"):
        read_fleet_jobs(path)


def test_a_job_trains_what_its_request_fixes_and_its_model_is_registered(tmp_path: Path, tracking_root: Path) -> None:
    asked = read_fleet_jobs(
        write(
            tmp_path,
            "data: 'synthetic:4000', model: dnn, set: [embedding_dim=8, dense_learning_rate=0.005], batch_sizes: '256'"
            ", max_epochs: 2, seed: 3, register_as: shop, promote: always",
        )
    )
    (job,) = prepare_jobs(asked)
    training = job.training
    assert (training.spec.family, training.spec.embedding_dim) == ("dnn", 8)
    assert training.hyperparameters.dense_learning_rate == 0.005
    assert (training.schedule.max_epochs, training.schedule.seed, training.execution.batch_size) == (2, 3, 256)
    placement = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=256)
    assert execution_of(placement) == training.execution
    run_id = start_run("fleet", "fleet")
    with closing(run_id):
        trained = train_model(training, placement, tmp_path / "a", name="a", parent_run_id=run_id)
        figures = evaluate_and_register(job, trained, tmp_path / "result")
    assert figures["quality.test.ne"] > 0
    assert load_champion("shop") is not None


def test_a_fleet_is_found_again_by_its_jobs_and_its_failed_ones_are_tried_again(
    tmp_path: Path, tracking_root: Path
) -> None:
    asked = read_fleet_jobs(write(tmp_path, "data: 'synthetic:2000'"))
    with fleet_state(asked, fresh=False) as state:
        begun = open_record(state, lambda former: former or "run")
        left = [JobRecord(name="a", status=Status.FAILED, because="no"), JobRecord(name="b", status=Status.FINISHED)]
        state.remember("fleet", FleetRecord(begun_at=begun.begun_at, run_id="run", jobs=tuple(left)))
        with (
            pytest.raises(RequestError, match="Another process already runs the same fleet"),
            fleet_state(asked, fresh=False),
        ):
            pass
    with fleet_state(asked, fresh=False) as state:
        assert state.resumed
        again = open_record(state, lambda former: former or "new")
    assert (again.begun_at, again.run_id) == (begun.begun_at, "run")
    assert [(job.status, job.because) for job in again.jobs] == [(Status.COMING, ""), (Status.FINISHED, "")]


def test_the_command_refuses_jobs_without_prefect_whose_server_is_not_protected_yet(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from shunter.extensions.fleet.commands import _check_run\n"
        "from shunter.extensions.fleet.requests import FleetRunRequest\n"
        "_check_run(FleetRunRequest(jobs=sys.argv[1]))\n"
        "assert 'prefect' not in sys.modules\n"
    )
    jobs = write(tmp_path, "data: 'synthetic:2000'")
    subprocess.run([sys.executable, "-c", code, str(jobs)], check=True)


def test_times_are_predicted_with_the_network_between_the_nodes(
    monkeypatch: pytest.MonkeyPatch, shunter_home: Path
) -> None:
    nodes = [ClusterNode(node_id=name, name=name, address=name, host=name, accelerators=()) for name in ("a", "b")]
    made = cluster.Cluster.__new__(cluster.Cluster)  # not connected
    made.nodes = {node.name: node for node in nodes}
    asked: list[Sequence[ClusterNode]] = []

    def measured(between: Sequence[ClusterNode]) -> tuple[CollectiveCost, ...]:
        asked.append(between)
        return ()

    class AskedError(Exception):
        pass

    def predicted(*_: object, network: Callable[[], Sequence[CollectiveCost]], **__: object) -> None:
        assert network() == ()
        raise AskedError

    monkeypatch.setattr(cluster, "network_between", measured)
    monkeypatch.setattr(run, "open_cluster", lambda *_: nullcontext(made))
    monkeypatch.setattr(trainings, "machines_of", lambda _: [])
    monkeypatch.setattr(run, "DurationModel", predicted)
    record = FleetRecord(begun_at=0.0, run_id="r")
    with pytest.raises(AskedError):
        run_jobs(FleetRunRequest(), [], fleet_state([], fresh=False), record, print)
    assert asked == [nodes]
