"""Result of a deployment: one line in the log, a page with table and links, and links to MLflow."""

from typing import Any
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run

from shunter.tasks.run_log import RUN, link_run, markdown_table, show_result
from shunter.tracking.runs import closing, start_run


@pytest.mark.slow
@pytest.mark.usefixtures("tracking_root", "prefect_server")
def test_a_result_has_a_table_and_links_to_run_picture_and_report() -> None:
    ids: list[str] = []

    @flow(name="plan")
    def shows() -> None:
        ids.extend([flow_run.get_id() or "", start_run("shows", "plan")])
        with closing(ids[1]):
            table = markdown_table([{"table": "user", "rows": "1,000"}, {"table": "a|b", "rows": "2"}])
            files = {"Report": "report.html", "Picture": "plan.png"}
            show_result("plan", "Found a plan.", table, run_id=ids[1], files=files)

    shows()
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[UUID(ids[0])]))
    with get_client(sync_client=True) as client:
        found: dict[str | None, Any] = {one.key: one.data for one in client.read_artifacts(artifact_filter=wanted)}
    assert found.keys() == {"plan", "report", "run-in-mlflow"}
    assert "| user | 1,000 |" in found["plan"]
    assert "a\\|b" in found["plan"]
    assert "data:" not in found["plan"], "no picture whose bytes are printed"
    for path in ("report.html", "plan.png"):
        assert f"/runs/{ids[1]}/artifacts/{path}?" in found["plan"]
    assert ids[1] in found["run-in-mlflow"]


@pytest.mark.usefixtures("tracking_root")
def test_outside_of_a_flow_there_are_links_alone() -> None:
    run_id = start_run("alone", "plan")
    with closing(run_id):
        show_result("plan", "Found a plan.", run_id=run_id)
        assert link_run(run_id, {"Picture": "plan.png"}).keys() == {RUN, "Picture"}


def test_no_rows_are_no_table() -> None:
    assert markdown_table([]) == ""
