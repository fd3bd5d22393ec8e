"""`shunter profile` as a user meets it: the flow with its run in MLflow, and mistakes in one sentence."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shunter.errors import ShunterError
from shunter.requests import ProfileRequest
from shunter.settings import Settings

pytestmark = pytest.mark.slow
# Two devices are the business of tests/extensions/stalls; here it matters that everything reaches the user.
QUICK = ProfileRequest(model="dlrm", data="synthetic:6000", batch_size=32, seconds=0.1, devices=1)


@pytest.fixture(scope="module")
def profiled(
    tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path], prefect_server: str, warm_processes: None
):
    """One profile of the machine and of a small training."""
    home = furnish(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        from shunter.flows.profiling import profile

        summary = profile(QUICK)
    return home, summary


def test_the_run_in_mlflow_holds_figures_stalls_advice_and_pictures(profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    home, summary = profiled
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    from mlflow import MlflowClient

    from shunter.tracking.store import tracking_uri

    client = MlflowClient(tracking_uri())
    run = client.get_run(summary.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["run.kind"] == "profile"
    assert run.data.params["stall.devices"] == "1"
    report = summary.report
    assert report is not None
    assert run.data.metrics["stall.run.S4_seconds"] == pytest.approx(report.runs["S4"].seconds)
    for stall in report.stalls:
        assert run.data.tags[f"stall.{stall.name}"].startswith(stall.state)
        assert (f"stall.{stall.name}_seconds" in run.data.metrics) == (stall.seconds is not None)
    assert run.data.metrics["hardware.cpu.copy_bytes_per_second"] > 0
    artifacts = {artifact.path for artifact in client.list_artifacts(summary.run_id)}
    assert {"config", "pictures", "advice.txt"} <= artifacts
    pictures = {Path(artifact.path).name for artifact in client.list_artifacts(summary.run_id, "pictures")}
    assert pictures == {picture.name for picture in summary.pictures}
    assert all(picture.is_file() for picture in summary.pictures)


def test_the_machine_is_measured_once_with_disk_and_collectives(profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    home, summary = profiled
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    from shunter.engine.profiling.profiles import local_profiles, machine_profiles

    assert summary.profiles[0].disk is not None
    assert summary.profiles[0].gather_curve
    assert tuple(machine_profiles()) == summary.profiles, "what was kept is read"
    assert tuple(local_profiles()) == summary.profiles, "and a training finds it too"
    assert not list(Settings().cache_directory.glob("disk-probe*"))


def test_without_data_the_machine_alone_is_shown(profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    home, summary = profiled
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    from shunter.flows.profiling import profile

    alone = profile(ProfileRequest())
    assert alone.profiles == summary.profiles, "from the day's file"
    assert alone.report is None
    (picture,) = alone.pictures
    assert picture.name.endswith(".cpu.roofline.png")
    assert picture.is_file()


def test_what_is_printed_says_of_each_stall_what_it_is(profiled) -> None:
    from shunter.flows.command.profile_tables import print_profile, surroundings_table
    from shunter.masked_console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    print_profile(console, profiled[1])
    text = console.export_text()
    assert "disk, 4 KiB at random" in {row[0] for row in surroundings_table(profiled[1].profiles).rows}
    for expected in ("GFLOP/s", "embedding exchange", "Communication model", "stalls.png"):
        assert expected in text
    report = profiled[1].report
    for stall in report.stalls:
        assert stall.state in text


def test_a_misspelt_data_set_is_named(shunter_home: Path, prefect_server: None) -> None:
    from shunter.flows.profiling import profile

    with pytest.raises(ShunterError, match="ml-100l"):
        profile(ProfileRequest(data="ml-100l"))
    assert not (shunter_home / "profiles").exists(), "nothing was measured"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "dlrn", "--data", "ml-100k"], "Unknown model family 'dlrn'"),
        (["--model", "dlrm"], "add --data"),
        (["--data", "ml-100k", "--batch-size", "0"], "--batch-size"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str) -> None:
    shunter = Path(sys.executable).with_name("shunter")
    done = subprocess.run([shunter, "profile", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode > 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")] or [""]
    assert line.endswith(".") or "Invalid value" in done.stderr
