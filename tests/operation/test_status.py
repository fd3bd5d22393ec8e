"""What `shunter status` says, and the ports of the last start."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import typer

from shunter.flows.command.daemons import Daemon
from shunter.operation.background_services import Ports, missing_services
from shunter.operation.service_commands import services_table, status
from shunter.settings import Settings


def test_ports_are_those_named_else_of_the_last_start_else_the_usual_ones() -> None:
    assert Ports.chosen(None, None) == Ports(prefect=4200, mlflow=5000)
    directory = Settings().services_directory
    directory.mkdir(parents=True)
    (directory / "ports").write_text(Ports(prefect=4210, mlflow=5010).model_dump_json())
    assert Ports.chosen(None, 5099) == Ports(prefect=4210, mlflow=5099)
    (directory / "ports").write_text("{")
    assert Ports.chosen(4300, None) == Ports(prefect=4300, mlflow=5000)


def test_a_service_that_has_ended_is_missed_only_where_others_run(tmp_path: Path) -> None:
    def running(name: str) -> Daemon:
        return Daemon(name=name, pid=1, mark="", url="http://127.0.0.1:1", log=tmp_path)

    assert missing_services([]) == []
    assert missing_services([running("Prefect"), running("MLflow")]) == ["Worker"]
    assert missing_services([running("Prefect"), running("MLflow"), running("Worker")]) == []


@pytest.mark.parametrize("there", [("Prefect", "MLflow"), ("Prefect", "MLflow", "Worker")])
def test_status_names_a_dead_worker_and_ends_with_one(
    there: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    services = [Daemon(name=name, pid=1, mark="", url="http://127.0.0.1:1", log=tmp_path) for name in there]
    monkeypatch.setattr("shunter.operation.background_services.running_services", lambda: services)
    monkeypatch.setattr(
        "shunter.operation.background_services.next_night", lambda _: "Next nightly run: 2026-05-03 03:00 UTC"
    )
    is_dead = "Worker" not in there
    with pytest.raises(typer.Exit, match="1") if is_dead else nullcontext():
        status()
    said = capsys.readouterr().out
    rows = services_table(services, missing_services(services)).rows
    assert [row[0] for row in rows if row[1] != "running"] == ["Worker"] * is_dead
    assert "Next nightly run: 2026-05-03 03:00 UTC" in said
