"""The files that the form of `fleet` names at first can be simulated, and a user's own files stay."""

from pathlib import Path

from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.requests import EXAMPLES, FleetRequest, write_examples
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate
from shunter.extensions.fleet.tasks import Fleet


def test_the_prefilled_files_are_simulated(tmp_path: Path) -> None:
    write_examples(tmp_path)
    named = FleetRequest()
    assert {named.jobs, named.cluster} == set(EXAMPLES)
    fleet = Fleet(FleetRequest(jobs=str(tmp_path / named.jobs), cluster=str(tmp_path / named.cluster)))
    assert figures(simulate(fleet.jobs, fleet.cluster, make_policy("fifo"), None))["jobs"] == 3


def test_a_file_of_the_user_stays(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("jobs: []\n")
    write_examples(tmp_path)
    assert (tmp_path / "jobs.yaml").read_text() == "jobs: []\n"
    assert (tmp_path / "cluster.yaml").exists()
