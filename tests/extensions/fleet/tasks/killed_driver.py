"""A driver of a live fleet in a process of its own, so that it can be killed: `python -m ... ADDRESS JOBS`."""

import sys
from pathlib import Path

from shunter.extensions.fleet.live.asked import read_fleet_jobs
from shunter.extensions.fleet.requests import FleetRunRequest
from shunter.extensions.fleet.tasks.jobs import prepare_jobs
from shunter.extensions.fleet.tasks.run import fleet_state, open_record, run_jobs
from shunter.tracking.runs import start_run


def main(address: str, jobs: str) -> None:
    """Go on with the fleet of a file of jobs to its end; its folder stays, for its weights are compared."""
    request = FleetRunRequest(jobs=jobs, cluster=address, cluster_resource="training", checkpoint_seconds=0.5)
    asked = read_fleet_jobs(Path(jobs))
    with fleet_state(asked, fresh=False) as state:
        prepared = prepare_jobs(asked)
        record = open_record(state, lambda former: start_run("fleet", "fleet", run_id=former))
        schedule = run_jobs(request, prepared, state, record, print)[0].schedule()
        (outcome,) = schedule.outcomes
        print(f"ended after {outcome.run_seconds:.1f} s in {len(schedule.spans)} stretches")


if __name__ == "__main__":
    main(*sys.argv[1:])
