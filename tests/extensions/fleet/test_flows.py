"""The step `simulate`: a run for each schedule, with figures that can be compared."""

from pathlib import Path

from shunter.extensions.fleet.requests import FleetRequest
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.tasks import Fleet, publish_fleet, simulate_policy
from shunter.tracking.runs import closing, start_run
from shunter.tracking.tree import read_artifact, read_tree
from tests.extensions.fleet.test_files import CLUSTER, JOBS, write


def test_each_schedule_is_a_run_below_that_of_the_fleet(tmp_path: Path, tracking_root: Path) -> None:
    jobs, cluster = write(tmp_path, "jobs.yaml", JOBS), write(tmp_path, "cluster.yaml", CLUSTER)
    request = FleetRequest(jobs=str(jobs), cluster=str(cluster), first_jobs=1)
    run_id = start_run("jobs on cluster", "fleet")
    with closing(run_id):
        schedule = simulate_policy.fn(Fleet(request), "dally", run_id)
        page = publish_fleet(run_id, "jobs on cluster", [schedule])
    assert len(schedule.outcomes) == 1
    assert "dally" in page
    (child,) = read_tree(run_id).children
    assert child.tags["run.kind"] == "schedule"
    assert child.tags["schedule.source"] == "simulated"
    assert child.metrics.items() >= figures(schedule).items()
    assert read_artifact(run_id, "fleet.html") == page
