"""Files and folders that are written to object stores, and read from there again."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from shunter.errors import RequestError
from shunter.extensions.incremental_checkpoints.remote_copy import check_address
from shunter.extensions.lake.store_errors import NoAccessError, NoObjectError
from shunter.flows.command.cli import app
from shunter.flows.command.options import requested
from shunter.flows.command.predict import check_out, writer
from shunter.ingestion.sources.addresses import local_folders, output_path, whole_path
from shunter.requests import TrainRequest
from tests.extensions.incremental_checkpoints.test_changing_tables import tables_of
from tests.extensions.incremental_checkpoints.test_remote_copy import begun, steps


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_scores_appear_at_an_address_when_they_are_complete(s3: Any, tmp_path: Path, suffix: str) -> None:
    out, frame = f"s3://logs/scores/day{suffix}", pl.DataFrame({"probability": [0.25, 0.5]})
    check_out(out)
    with writer(out) as write:
        write(frame)
        assert s3.find("logs") == []
    assert s3.find("logs") == [f"logs/scores/day{suffix}"]
    s3.get_file(f"logs/scores/day{suffix}", str(tmp_path / "day"))
    read = pl.read_csv if suffix == ".csv" else pl.read_parquet
    assert read(tmp_path / "day").equals(frame)
    with pytest.raises(RequestError), writer(out):
        raise AssertionError("an object is replaced")


def test_nothing_is_left_of_a_failed_output(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError), output_path("s3://logs/model", "FOLDER") as folder:
        (folder / "no folder" / "weights").write_bytes(b"half")
    assert s3.find("logs") == []

    monkeypatch.setattr("shunter.extensions.lake.objects._ATTEMPTS", 1)
    monkeypatch.setattr(type(s3), "mv", lambda *_, **__: (_ for _ in ()).throw(PermissionError("denied")))
    with pytest.raises(NoAccessError) as error, output_path("s3://logs/model.bin", "--out") as file:
        file.write_bytes(b"whole")
    assert "something-secret" not in str(error.value)
    assert s3.find("logs") == []


def test_a_folder_is_written_and_read_at_an_address(s3: Any) -> None:
    with output_path("s3://logs/models/increment/", "FOLDER") as folder:
        (folder / "data").mkdir(parents=True)
        (folder / "increment.json").write_text("{}")
        (folder / "data" / "rows.bin").write_bytes(b"rows")
    names = ["logs/models/increment/data/rows.bin", "logs/models/increment/increment.json"]
    assert s3.find("logs") == names
    with local_folders(["s3://logs/models/increment", "here"]) as (copy, other):
        assert other == Path("here")
        found = {path.relative_to(copy).as_posix(): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        assert found == {"increment.json": b"{}", "data/rows.bin": b"rows"}
    assert not copy.exists()
    with pytest.raises(NoObjectError), local_folders(["s3://logs/models/other"]):
        pass


@pytest.mark.parametrize("target", ["https://host.example/a.csv", "delta:s3://logs/t", "s3://user:word@logs/a.csv"])
def test_stores_without_writing_and_secrets_are_refused(target: str) -> None:
    with pytest.raises(RequestError) as error, output_path(target, "--out"):
        pass
    assert "word" not in str(error.value)


def test_a_training_elsewhere_goes_on_from_checkpoints_in_a_bucket(s3: Any, tmp_path: Path) -> None:
    address = "s3://logs/checkpoints"
    check_address(address)
    assert s3.find("logs") == []
    model, optimizer, kept = begun(tmp_path / "here", copied_to=address)
    tables = steps(model, optimizer, kept, range(4))
    kept.finish()
    assert (kept.figures.copied > 0, kept.figures.copies_failed) == (True, 0)
    again, its_optimizer, reading = begun(tmp_path / "there", 1, copied_to=address)
    assert reading.read(again, its_optimizer)["step"] == 3
    assert all(map(torch.equal, tables_of(again), tables[-1]))
    reading.finish()


def test_job_file_and_schema_are_read_and_written_at_addresses(s3: Any, tmp_path: Path) -> None:
    s3.pipe("s3://logs/recipes/job.yaml", b"data: s3://logs/day.csv\nseed: 7\n")
    asked = requested(TrainRequest, {"context": None, "config": "s3://logs/recipes/job.yaml"})
    assert (asked.source.data, asked.seed) == ("s3://logs/day.csv", 7)

    log = tmp_path / "log.csv"
    log.write_text("click,user\n" + "1,2\n0,3\n" * 100)
    schema = "s3://logs/schemas/new.yaml"
    assert CliRunner().invoke(app, ["check", str(log), "--out", schema]).exit_code == 0
    assert CliRunner().invoke(app, ["check", str(log), "--schema", schema]).exit_code == 0
    assert CliRunner().invoke(app, ["check", str(log), "--out", schema]).exit_code == RequestError.exit_code


def test_addresses_stay_as_they_are_when_paths_are_made_whole(tmp_path: Path) -> None:
    assert whole_path("s3://logs/{date}.csv", tmp_path) == "s3://logs/{date}.csv"
    assert whole_path("days/{date}.csv", tmp_path) == f"{tmp_path}/days/{{date}}.csv"
