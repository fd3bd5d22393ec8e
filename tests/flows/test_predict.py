"""A file is scored as MLflow scores a frame, bit by bit; models are found by their names, and exported models score."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import polars as pl
import pytest

from shunter.engine.checkpoint.storage import save_model
from shunter.errors import DataError, Distrust, RequestError, ShunterError, TrackingError, UntrustedModelError
from shunter.flows import scoring
from shunter.flows.command import predict as predict_module
from shunter.flows.command.predict import predict_file
from shunter.flows.command.top import best_items_of_file
from shunter.ingestion.request import ingest_request
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.tracking.registry.models import register_model
from shunter.tracking.registry.named import export_model, open_model
from shunter.tracking.registry.versions import version_by_alias
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri

ROWS = 700
SCHEMA = {
    "label": "click",
    "numeric": ["price"],
    "categorical": ["user", "item"],
    "multi_valued": [{"column": "genres", "separator": "|"}],
}

COMMAND = """
import sys
from shunter.flows.cli import main
sys.argv[0] = "shunter"
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
STARTS_A_SERVER_OR_A_SEARCH = {"prefect", "optuna", "ray", "sklearn", "matplotlib", "scipy", "torch._dynamo", "sympy"}
TAKES_ROWS = {"pandas", "polars", "pyarrow", "torch"}
NOT_LOADED = {
    "predict shop {rows} --keep id": {*STARTS_A_SERVER_OR_A_SEARCH, "mlflow", "sqlalchemy"},
    "rollback --to 1": {*STARTS_A_SERVER_OR_A_SEARCH, *TAKES_ROWS} - {"pyarrow"},
    "report {run} --out {page}": {*STARTS_A_SERVER_OR_A_SEARCH, *TAKES_ROWS, "mlflow", "sqlalchemy"},
    "clean": {*STARTS_A_SERVER_OR_A_SEARCH, *TAKES_ROWS, "mlflow", "sqlalchemy"},
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": np.arange(ROWS),
            "click": random.integers(0, 2, ROWS),
            "price": np.where(random.random(ROWS) < 0.1, np.nan, random.gamma(2.0, 10.0, ROWS)),
            "user": [f"{number:03}" for number in random.integers(0, 20, ROWS)],  # "007" and "7" are two users
            "item": random.integers(0, 15, ROWS) + 2**60,
            "genres": [
                "|".join(random.choice(["war", "love", "crime"], random.integers(0, 3), False)) for _ in "r" * ROWS
            ],
        }
    )


@pytest.fixture(scope="module")
def furnished(log: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> tuple[Path, Path]:
    """A home with two versions of a model, the first of them the champion no longer, and the folder of the log."""
    folder = tmp_path_factory.mktemp("models")
    log.to_parquet(folder / "log.parquet")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    with pytest.MonkeyPatch.context() as patch:
        (folder / "home" / "mlflow").mkdir(parents=True)
        shutil.copy(empty_database, folder / "home" / "mlflow" / "mlflow.db")
        patch.setenv("SHUNTER_HOME", str(folder / "home"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        request = TrainRequest(data=str(folder / "log.parquet"), schema_file=str(folder / "schema.json"))
        dataset, _ = ingest_request(request)
        for seed in (1, 2):
            model = build_model(
                model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,)), dataset.features, seed=seed
            )
            save_model(model.eval(), folder / f"model-{seed}")
            register_model(start_run_tree(request, dataset), dataset, folder / f"model-{seed}", "shop", metrics={})
    return folder / "home", folder


@pytest.fixture
def folder(furnished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files may be written, with the home of the models."""
    monkeypatch.setenv("SHUNTER_HOME", str(furnished[0]))
    monkeypatch.setattr(predict_module, "BLOCK_ROWS", 256)
    monkeypatch.setattr("shunter.tracking.registry.row_scorer.ROWS_AT_ONCE", 128)
    return tmp_path


def scores_of_mlflow(frame: pd.DataFrame, uri: str = "models:/shop/2") -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", tracking_uri())
        return np.asarray(mlflow.pyfunc.load_model(uri).predict(frame))


def test_a_parquet_file_is_scored_as_mlflow_scores_its_frame_bit_by_bit(folder: Path, log: pd.DataFrame) -> None:
    log.to_parquet(folder / "rows.parquet", row_group_size=100)
    done = predict_file("shop", folder / "rows.parquet", str(folder / "scores.parquet"), keep=["id"])
    scores = pd.read_parquet(folder / "scores.parquet")
    assert (done.rows, done.model) == (ROWS, "shop/2")
    assert scores.columns.tolist() == ["id", "probability"]
    assert scores["id"].tolist() == log["id"].tolist()
    assert scores["probability"].to_numpy().tobytes() == scores_of_mlflow(log).tobytes()


def test_a_csv_file_gives_the_same_scores_to_the_last_digit_written(folder: Path, log: pd.DataFrame) -> None:
    """Also with quotes, blank lines, columns in another order and one that no model knows."""
    written = log.assign(genres=[f'{text}\n"' for text in log["genres"]], note="a, b").drop(columns="click")
    text = written[["note", *reversed(log.columns.drop(["click"]))]].to_csv(index=False)
    (folder / "rows.csv").write_text(text.replace('"a, b"', '\n"a, b"', 5))
    predict_file("shop@champion", folder / "rows.csv", str(folder / "scores.csv"))
    scores = pl.read_csv(folder / "scores.csv")["probability"].to_numpy()
    frame = written.assign(price=written["price"].map(lambda price: "" if np.isnan(price) else repr(price)))
    assert scores.tobytes() == scores_of_mlflow(frame.astype({"item": str})).tobytes()


def test_values_never_seen_are_scored_as_mlflow_does(folder: Path, log: pd.DataFrame) -> None:
    strange = log.head(40).assign(user="nobody", price="cheap", item=7)
    strange.to_csv(folder / "rows.csv", index=False)
    predict_file("shop/1", folder / "rows.csv", str(folder / "scores.parquet"))
    scores = pd.read_parquet(folder / "scores.parquet")["probability"].to_numpy()
    assert scores.tobytes() == scores_of_mlflow(strange, "models:/shop/1").tobytes()


def test_what_is_exported_scores_alike_for_us_and_for_mlflow(folder: Path, log: pd.DataFrame) -> None:
    log.to_parquet(folder / "rows.parquet")
    assert export_model("shop/1", folder / "shop").title == "shop/1"
    assert not [path for path in (folder / "shop").rglob("*") if path.is_symlink()]
    predict_file(str(folder / "shop"), folder / "rows.parquet", str(folder / "scores.parquet"))
    scores = pd.read_parquet(folder / "scores.parquet")["probability"].to_numpy()
    assert scores.tobytes() == scores_of_mlflow(log, str(folder / "shop")).tobytes()
    assert scores.tobytes() == scores_of_mlflow(log, "models:/shop/1").tobytes()
    with pytest.raises(RequestError, match="exists: name a new folder"):
        export_model("shop", folder / "shop")


def test_deployments_write_scores_and_a_copy_of_the_model_into_the_home(
    furnished: tuple[Path, Path], folder: Path, log: pd.DataFrame
) -> None:
    log.to_parquet(folder / "rows.parquet")
    scores, copy = scoring.predict.fn("shop/1", str(folder / "rows.parquet"), "id"), scoring.export.fn("shop/1")
    for written in (scores, copy):
        assert written.is_relative_to(furnished[0])
    assert pl.read_csv(scores)["id"].to_list() == log["id"].to_list()
    assert predict_file(str(copy), folder / "rows.parquet", str(folder / "scores.csv")).rows == ROWS


def test_an_exported_model_that_was_changed_is_refused(folder: Path, log: pd.DataFrame) -> None:
    export_model("shop", folder / "shop")
    described = folder / "shop/data/recommender/model/model.json"
    described.write_text(described.read_text().replace(" ", "  ", 1))
    with pytest.raises(UntrustedModelError) as caught, open_model(str(folder / "shop")):
        pass
    assert caught.value.reason is Distrust.CHANGED
    (folder / "shop" / "code.py").write_text("")
    with pytest.raises(TrackingError, match="could run code"), open_model(str(folder / "shop")):
        pass


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("shap", r"There is no registered model 'shap': did you mean shop\?$"),
        ("zzz", r"There is no registered model 'zzz': use one of shop\.$"),
        ("shop/9", r"There is no version 9 of 'shop': use one of 1, 2\.$"),
        ("shop@best", r"The model 'shop' has no version or alias best: use shop/2, or another of 1, 2\.$"),
        ("shop/latest", r"There is no model 'shop/latest': give a registered name such as shunter,"),
        ("", r"There is no model ''"),
        ("o'shop", "There is no registered model"),
    ],
)
def test_a_model_that_is_not_there_is_told(folder: Path, named: str, told: str) -> None:
    with pytest.raises(RequestError, match=told), open_model(named):
        pass


def test_looking_for_a_model_in_an_empty_home_leaves_it_empty(shunter_home: Path) -> None:
    with pytest.raises(RequestError, match="nor any other: train one with `shunter train`"), open_model("shop"):
        pass
    assert not shunter_home.exists()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "rows.csv",
            "user,item,genres\n1,2,war\n",
            "lacks the columns price that the model reads. Columns: user, item",
        ),
        (
            "rows.csv",
            "price,user,item,genres\n1,2,3,war\n1,2\n",
            r"Line 3 of .* is not a row \(2 columns, expected 4\): fix",
        ),
        ("rows.csv", 'price,user,item,genres\n1,"2,3,war\n', "is not a row|cannot be read as CSV"),
        ("rows.csv", "", "is empty: give a file with rows"),
        ("rows.parquet", "no parquet", "cannot be read as Parquet"),
        ("rows.xlsx", "a", "has no recognisable format: add --format"),
    ],
)
def test_rows_that_cannot_be_read_are_told_and_nothing_is_left_behind(
    folder: Path, name: str, text: str, told: str
) -> None:
    (folder / name).write_text(text)
    with pytest.raises(DataError, match=told):
        predict_file("shop", folder / name, str(folder / "scores.csv"))
    assert [path.name for path in folder.iterdir() if path.name != "home"] == [name]


@pytest.mark.parametrize(
    ("file", "out", "keep", "told"),
    [
        ("rows.csv", "scores.json", [], "is neither .csv nor .parquet: name a file of one of these types, or -"),
        ("rows.csv", "rows.csv", [], "exists: name a new file, or remove it first"),
        ("rows.csv", "none/scores.csv", [], r"cannot be written \(No such file or directory\): name another file"),
        ("rows.csv", "scores.csv", ["probability"], "The column probability of --keep has the name of a score"),
        ("rows.csv", "scores.csv", ["age"], "lacks the columns age that the model reads"),
        ("none.csv", "scores.csv", [], "none.csv is no file, folder or named data set: check the path"),
    ],
)
def test_a_wrong_wish_is_told(folder: Path, file: str, out: str, keep: list[str], told: str) -> None:
    (folder / "rows.csv").write_text("price,user,item,genres\n1,2,3,war\n")
    with pytest.raises(ShunterError, match=told):
        predict_file("shop", folder / file, str(folder / out), keep=keep)


def test_many_files_are_scored_in_order_as_each_alone(folder: Path, log: pd.DataFrame) -> None:
    """A folder, a glob, a list and several arguments; compressed or not, with rows of columns of other types."""
    parts = folder / "parts"
    parts.mkdir()
    for number, (start, end) in enumerate([(0, 300), (300, 310), (310, 700)], 8):  # 10 comes after 9
        part = log.iloc[start:end].astype({"item": str} if number == 9 else {})
        part.to_csv(parts / f"day-{number}.csv.gz", index=False)
        part.to_parquet(folder / f"day-{number}.parquet")
    (parts / "schema.yaml").write_text("label: click")
    alone = []
    for number in (8, 9, 10):
        predict_file("shop", parts / f"day-{number}.csv.gz", str(folder / f"{number}.csv"), keep=["id"])
        alone += (folder / f"{number}.csv").read_text().splitlines()[1:]
    several = [str(folder / f"day-{number}.parquet") for number in (8, 9, 10)]
    given = [parts, str(parts / "*.gz"), ",".join(several), several, str(folder / "day-*.parquet")]
    for place, data in enumerate(given):
        done = predict_file("shop", data, str(folder / f"all-{place}.csv"), keep=["id"])
        assert done.rows == ROWS
        assert (folder / f"all-{place}.csv").read_text().splitlines()[1:] == alone
    predict_file("shop", parts, str(folder / "all.parquet"), keep=["id", "item"])
    assert pl.read_parquet(folder / "all.parquet")["id"].cast(pl.Int64).to_list() == log["id"].tolist()


@pytest.mark.parametrize(
    ("data", "keep"),
    [(["a.parquet", "a.parquet"], []), (["a.parquet", "rows.csv"], []), (["a.parquet", "b.parquet"], ["item"])],
)
def test_files_that_do_not_belong_together_leave_nothing_behind(
    folder: Path, log: pd.DataFrame, data: list[str], keep: list[str]
) -> None:
    log.head(3).to_parquet(folder / "a.parquet")
    log.head(3).assign(item="film").to_parquet(folder / "b.parquet")
    log.head(3).to_csv(folder / "rows.csv", index=False)
    with pytest.raises(ShunterError):
        predict_file("shop", [str(folder / name) for name in data], str(folder / "scores.parquet"), keep=keep)
    assert not (folder / "scores.parquet").exists()


def test_a_model_of_clicks_ranks_no_items(folder: Path) -> None:
    with pytest.raises(RequestError, match="--top"):
        best_items_of_file("shop", folder / "rows.csv", str(folder / "best.csv"), 3)


def test_a_file_without_rows_has_no_scores(folder: Path) -> None:
    (folder / "rows.csv").write_text("price,user,item,genres\n")
    assert predict_file("shop", folder / "rows.csv", str(folder / "scores.csv"), keep=["user"]).rows == 0
    assert (folder / "scores.csv").read_text() == "user,probability\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", NOT_LOADED)
def test_a_short_command_loads_no_library_that_it_does_not_need(
    command: str, folder: Path, log: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import of each such library takes as long as the rest of the command."""
    log.head(5).to_csv(folder / "rows.csv", index=False)
    run_id = version_by_alias("shop", "champion").run_id
    home = shutil.copytree(os.environ["SHUNTER_HOME"], folder / "home")
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    arguments = command.format(rows=folder / "rows.csv", run=run_id, page=folder / "report.html").split()
    done = subprocess.run([sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *said, loaded = done.stderr.splitlines()
    assert "shunter.flows.command.cli" in loaded.split()
    assert not NOT_LOADED[command] & {*loaded.split()}
    if arguments[0] == "predict":
        assert [line.partition(",")[0] for line in done.stdout.splitlines()] == ["id", "0", "1", "2", "3", "4"]
        assert said == [f"5 rows of {folder / 'rows.csv'} scored by shop/2."]
    elif arguments[0] == "rollback":
        assert version_by_alias("shop", "champion").version == 1
