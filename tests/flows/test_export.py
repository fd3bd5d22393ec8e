"""What changed between two versions, laid upon the first, is the second: for us, for MLflow, and for a server."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from mlflow import MlflowClient

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.checkpoint.warm_start import WarmStart, tables_by_name
from shunter.errors import CheckpointError, RequestError, TrackingError
from shunter.extensions.incremental_checkpoints.increments import apply_increment
from shunter.flows.command.model_commands import export, predict
from shunter.flows.command.predict import compare_scores
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.shared_rows import shared_rows
from shunter.ingestion.request import ingest_request
from shunter.models.registry import build_model, model_spec
from shunter.requests import CheckpointBits, TrainRequest
from shunter.retraining.nightly_runs import store_increment
from shunter.tracking.registry.models import register_model
from shunter.tracking.registry.named import bytes_below, export_increment, export_model, open_model
from shunter.tracking.runs import start_run, start_run_tree
from shunter.tracking.store import tracking_uri

ROWS = 1200
SCHEMA = {"label": "click", "numeric": ["price"], "categorical": ["user", "item"]}
SPEC = model_spec(embedding_dim=16, bottom_widths=(8, 16), top_widths=(8,))


def clicks(night: int) -> pd.DataFrame:
    """Every night knows some users that none before it did, and orders the others anew."""
    random = np.random.default_rng(night)
    users = random.permutation(np.r_[np.arange(500), random.integers(0, 500 + 40 * night, ROWS - 500)])
    return pd.DataFrame(
        {
            "click": random.integers(0, 2, ROWS),
            "price": random.gamma(2.0, 10.0, ROWS),
            "user": [f"{number:03}" for number in users],
            "item": random.integers(0, 15, ROWS),
        }
    )


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> tuple[Path, Path]:
    """A home with three versions, each gone on from the one before with a few rows trained, and the logs."""
    folder = tmp_path_factory.mktemp("increments")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "home" / "mlflow").mkdir(parents=True)
    shutil.copy(empty_database, folder / "home" / "mlflow" / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(folder / "home"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        former: Encoder | None = None
        for night in (1, 2, 3):
            clicks(night).to_parquet(folder / f"{night}.parquet")
            request = TrainRequest(data=str(folder / f"{night}.parquet"), schema_file=str(folder / "schema.json"))
            dataset, _ = ingest_request(request)
            encoder = Encoder.load(dataset.directory / "encoder")
            model = build_model(SPEC, dataset.features, seed=night).eval()
            if former is not None:
                WarmStart(folder / f"model-{night - 1}", shared_rows(encoder, former)).apply(model)
            with torch.no_grad():
                tables_by_name(model)["user"][:20] += 0.1 * night
            save_model(model, folder / f"model-{night}")
            register_model(start_run_tree(request, dataset), dataset, folder / f"model-{night}", "shop", metrics={})
            former = encoder
    return folder / "home", folder


@pytest.fixture
def folder(furnished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHUNTER_HOME", str(furnished[0]))
    return tmp_path


@pytest.fixture
def rows(furnished: tuple[Path, Path]) -> Path:
    return furnished[1] / "3.parquet"


def scores(named: str, rows: Path, increments: tuple[Path, ...] = ()) -> bytes:
    with open_model(named, increments) as model:
        return np.asarray(model.scorer().predict(pd.read_parquet(rows))).tobytes()


def test_a_chain_upon_an_exported_model_is_the_newest_bit_by_bit(folder: Path, rows: Path) -> None:
    export_model("shop/1", folder / "one")
    second = export_increment("shop/2", folder / "second", since="1")
    third = export_increment("shop/3", folder / "third", since="shop/2")
    chain = folder / "second", folder / "third"
    assert scores(str(folder / "one"), rows, chain) == scores("shop/3", rows) != scores("shop/1", rows)
    for done, made in ((second, folder / "second"), (third, folder / "third")):
        assert done.size == pytest.approx(bytes_below(made), rel=0.05)
        assert 20 <= done.described.changed_rows < 0.6 * done.described.rows
    assert export_model(str(folder / "one"), folder / "whole", chain).title == "shop/3"
    export_model("shop/3", folder / "three")
    for name in ("model/model.safetensors", "encoder/vocabulary.npz", "signed.json"):
        path = Path("data/recommender", name)
        assert (folder / "whole" / path).read_bytes() == (folder / "three" / path).read_bytes()


def test_an_increment_is_never_laid_upon_another_model(folder: Path, rows: Path) -> None:
    export_increment("shop/3", folder / "third", since="shop/2")
    for named, increments in (("shop/1", [folder / "third"]), ("shop/2", [folder / "third", folder / "third"])):
        with pytest.raises(RequestError, match="shop/2"):
            scores(named, rows, tuple(increments))
    with pytest.raises(RequestError, match="holds no increment: name a folder written by"):
        scores("shop/2", rows, (folder,))


@pytest.mark.parametrize("name", ["increment.safetensors", "model/data/recommender/model/model.json", "increment.json"])
def test_a_damaged_increment_is_refused(folder: Path, rows: Path, name: str) -> None:
    export_increment("shop/2", folder / "second", since="shop/1")
    whole = (folder / "second" / name).read_bytes()
    for damaged in (whole[: len(whole) // 2], whole.replace(b"16", b"17", 1) if b"16" in whole else whole[::-1]):
        (folder / "second" / name).write_bytes(damaged)
        with pytest.raises((CheckpointError, TrackingError)) as caught:
            scores("shop/1", rows, (folder / "second",))
        assert "\n" not in str(caught.value)


def test_few_bits_make_a_signed_model_of_their_own_that_the_next_goes_on_from(folder: Path, rows: Path) -> None:
    export_model("shop/1", folder / "one")
    done = export_increment("shop/2", folder / "second", since=str(folder / "one"), bits=8)
    exact = export_increment("shop/2", folder / "exact", since="1")
    assert done.size < exact.size
    assert 0 < done.described.row_error < 0.01
    told = compare_scores("shop/2", str(folder / "one"), [folder / "second"], rows)
    assert told.startswith("Measured on 1,200 scores")
    assert "rises by 0.0" in told
    export_increment("shop/3", folder / "third", since="shop/2")
    with pytest.raises(RequestError, match="needs the base model"):
        scores(str(folder / "one"), rows, (folder / "second", folder / "third"))
    export_increment("shop/3", folder / "next", since=str(folder / "one"), increments=[folder / "second"])
    assert scores(str(folder / "one"), rows, (folder / "second", folder / "next")) == scores("shop/3", rows)


def test_a_server_takes_an_increment_while_the_former_model_goes_on_scoring(folder: Path, rows: Path) -> None:
    frame = pd.read_parquet(rows)
    export_increment("shop/3", folder / "third", since="2")
    with open_model("shop/2") as model:
        serving = model.loaded()
        before = serving.scorer.predict(frame)
        new = apply_increment(serving, folder / "third", folder / "served")
        assert np.array_equal(serving.scorer.predict(frame), before)
    assert np.asarray(new.scorer.predict(frame)).tobytes() == scores("shop/3", rows)


def test_the_commands(folder: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export("shop/2", str(folder / "second"), since="1", bits=CheckpointBits.FOUR, rows=rows)
    said = " ".join(capsys.readouterr().out.split())
    assert "shop/2 in 4 bits since shop/1 is in" in said
    assert "of the whole model; " in said
    assert "the log loss rises by" in said
    predict("shop/1", [str(rows)], out=str(folder / "scores.csv"), increment=[str(folder / "second")])
    assert len((folder / "scores.csv").read_text().splitlines()) == ROWS + 1
    with pytest.raises(SystemExit):
        export("shop/2", str(folder / "again"), bits=CheckpointBits.FOUR)
    assert "--since" in " ".join(capsys.readouterr().err.split())


def test_a_night_keeps_what_changed_beside_the_whole_version(folder: Path, rows: Path) -> None:
    run_id = start_run("night", "nightly")
    store_increment(run_id, "shop", 2, since=1)
    client = MlflowClient(tracking_uri())
    run = client.get_run(run_id)
    assert run.data.tags["increment.since"] == "shop/1"
    assert 0 < run.data.metrics["increment.ratio"] < 1
    assert 0 < run.data.metrics["increment.changed_rows"] < 0.6
    kept = Path(client.download_artifacts(run_id, "increment", str(folder)))
    assert bytes_below(kept) == run.data.metrics["increment.bytes"]
    assert scores("shop/1", rows, (kept,)) == scores("shop/2", rows)


def test_a_night_does_not_fail_by_its_increment(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store_increment(start_run("night", "nightly"), "shop", 2, since=9)
    assert "'shop'" in caplog.text
