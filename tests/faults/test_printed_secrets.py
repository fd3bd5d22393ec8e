"""Secrets of addresses: shown in no table, line, link or JSON of a command."""

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from shunter.errors import RequestError
from shunter.extensions.fleet.requests import FleetRunRequest
from shunter.flows.command import terminal
from shunter.masked_console import Console
from shunter.requests import ClusterRequest
from shunter.secrets import Address
from shunter.settings import PROJECT_ROOT
from shunter.tracking.links import pages_address
from shunter.tracking.store import tracking_address, tracking_uri
from tests.faults.foreign_folder import variables

SCHEMES = ("http", "https", "postgresql", "mysql+pymysql", "ray", "redis")
PASSWORD = st.from_regex(r"[A-Za-z0-9._~@:/-]{6,30}", fullmatch=True)
SHORT = "pw1"  # too short to be hidden wherever it stands
FAILING = f"""
import shunter.flows.command.cli
from shunter.flows.cli import main
def app(prog_name):
    raise ValueError("no answer of http://anna:{SHORT}@host/api")
shunter.flows.command.cli.app = app
main()
"""
FOLDERS = ("flows", "tasks", "reporting", "planner", "search", "retraining", "serving", "tracking")


@given(st.sampled_from(SCHEMES), PASSWORD)
def test_address_shows_its_secret_to_libraries_alone(scheme: str, password: str) -> None:
    whole = f"{scheme}://anna:{password}@host:5000/path"
    address = Address(whole)
    for shown in (str(address), repr(address), f"{address}", address.link, json.dumps([str(address)])):
        assert password not in shown
    assert address.secret == whole
    assert pickle.loads(pickle.dumps(address)) == address
    assert address.link == f"{scheme}://host:5000/path"


@pytest.mark.parametrize("width", [20, 200])
def test_no_cell_of_a_table_shows_a_password(width: int) -> None:
    written = io.StringIO()
    table = Table("Store")
    table.add_row("run 7 in https://anna:hunter2222@host")
    console = Console(file=written, width=width)
    console.print(table)
    console.print("https://anna:hunter2222@host")
    shown = "".join(written.getvalue().split())
    assert "anna" not in shown
    assert "hunter" not in shown
    assert "***@host" in "".join(one for one in shown if one not in "│┃")


def test_store_with_a_password_is_masked_in_links_and_summaries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = "https://anna:hunter2222@mlflow.example.org/"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", whole)
    assert tracking_uri() == whole
    assert pages_address() == "https://mlflow.example.org"
    terminal.print_json({"run": {"tracking_uri": str(tracking_address()), "link": pages_address()}})
    terminal.print_line(f"in {tracking_address()}")
    assert "hunter" not in capsys.readouterr().out


def test_every_console_hides_secrets() -> None:
    sources = [path for folder in FOLDERS for path in Path(PROJECT_ROOT, folder).rglob("*.py")]
    assert sources
    assert [path for path in sources if "from rich.console import Console" in path.read_text()] == []


@pytest.mark.parametrize("kind", [ClusterRequest, FleetRunRequest])
@pytest.mark.parametrize("address", [f"ray://anna:{SHORT}@host:10001", f"anna:{SHORT}@host:6379", f"{SHORT}@host:6379"])
def test_a_cluster_with_a_password_is_refused_without_showing_it(
    kind: type[ClusterRequest | FleetRunRequest], address: str
) -> None:
    assert kind(cluster="ray://host:10001").cluster == "ray://host:10001"
    with pytest.raises(RequestError) as refused:
        kind(cluster=address)
    assert SHORT not in str(refused.value)


def test_a_server_of_prefect_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    """In a process of its own, with a password that is known from Prefect's profile alone."""
    profile = f'active = "own"\n[profiles.own]\nPREFECT_API_URL = "http://anna:{SHORT}@127.0.0.1:9/api"\n'
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "profiles.toml").write_text(profile)
    done = subprocess.run(
        [Path(sys.executable).with_name("shunter"), "--debug", "train", "--data", "synthetic:1000"],
        env={**variables(tmp_path), "HTTP_PROXY": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "127.0.0.1:9" in done.stderr
    assert SHORT not in done.stdout + done.stderr


def test_no_traceback_shows_a_password() -> None:
    done = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, check=False)
    assert (done.returncode, "ValueError" in done.stderr) == (1, True)
    assert SHORT not in done.stderr
