"""What a model does not know or cannot read is counted by every way to score, and a limit refuses it."""

import json
import math
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

from shunter.errors import UnusableValuesError, UnusableValuesWarning
from shunter.flows.command.model_commands import predict
from shunter.flows.command.predict import predict_file
from shunter.ingestion.sources.header import unreadable_share
from shunter.ingestion.sources.open import open_source
from shunter.tracking.registry.models import load_champion
from tests.serving.conftest import home, kept_home, rows, running  # noqa: F401 - a registered model and its log

CSV = {"content-type": "text/csv"}
UNUSABLE = {"unknown": {"item": 3 / 8, "user": 1 / 7, "genres": 2 / 8}, "unreadable": {"price": 4 / 6}}


@pytest.fixture
def strange(home: Path, rows: pd.DataFrame) -> pd.DataFrame:  # noqa: F811
    """Eight rows with unknown values and unreadable numbers."""
    user, item = rows["user"].mode()[0], str(rows["item"].mode()[0])
    return pd.DataFrame(
        {
            "price": ["9.5", "abc", "1,61", "inf", None, "1e300", " ", "3"],
            "age": range(8),
            "user": [user, user, f" {user}", user, f"{user}.0", user, "nobody", None],
            "item": [item, item, item, item, item, "7", str(2**64), str(-(2**70))],
            "genres": ["war", "war|opera", "", "love", None, "opera", "crime|crime", "war"],
        },
        dtype=object,
    )


def by_champion(frame: pd.DataFrame) -> tuple[list[float], Any]:
    """Scores of `load_champion`, and the shares of its warning."""
    with pytest.warns(UnusableValuesWarning) as record:
        scores = np.asarray(load_champion("shop").predict(frame)).tolist()
    [warning] = [one.message for one in record if isinstance(one.message, UnusableValuesWarning)]
    return scores, warning.shares


def records(frame: pd.DataFrame) -> dict[str, Any]:
    return {"dataframe_records": json.loads(str(frame.to_json(orient="records")))}


def test_every_way_to_score_counts_the_same_values(tmp_path: Path, strange: pd.DataFrame) -> None:
    strange.to_csv(tmp_path / "rows.csv", index=False)
    done = predict_file("shop", tmp_path / "rows.csv", str(tmp_path / "scores.parquet"))
    assert done.counts.by_kind() == UNUSABLE
    scores, shares = by_champion(strange)
    assert shares == UNUSABLE
    assert not any(map(math.isnan, scores))
    assert pl.read_parquet(tmp_path / "scores.parquet")["probability"].to_list() == scores
    with running("shop", follow_seconds=0) as server:
        url = f"http://127.0.0.1:{server.port}"
        answers = [
            httpx.post(f"{url}/invocations", json=records(strange)).json(),
            httpx.post(f"{url}/invocations", content=(tmp_path / "rows.csv").read_bytes(), headers=CSV).json(),
        ]
        figures = httpx.get(f"{url}/metrics").text
    assert answers == [{"predictions": scores, **UNUSABLE}] * 2
    samples = [one for family in text_string_to_metric_families(figures) for one in family.samples]
    counted = {tuple(one.labels.values()): one.value for one in samples if one.name == "shunter_unusable_values_total"}
    assert (counted["price", "unreadable"], counted["item", "unknown"]) == (8, 6)


def test_known_rows_are_scored_without_notice(tmp_path: Path, strange: pd.DataFrame) -> None:
    known = strange.head(1)
    known.to_csv(tmp_path / "known.csv", index=False)
    assert predict_file("shop", tmp_path / "known.csv", str(tmp_path / "known.parquet")).counts.notice() == ""
    with running("shop", follow_seconds=0) as server:
        answer = httpx.post(f"http://127.0.0.1:{server.port}/invocations", json=records(known)).json()
    assert list(answer) == ["predictions"]


def test_the_open_inference_protocol_has_the_shares_as_parameters(tmp_path: Path, strange: pd.DataFrame) -> None:
    columns = strange.assign(price=[1e300] * 8, age=1.0).to_dict("list")
    inputs = [
        {"name": name, "shape": [8], "datatype": "FP64" if name in {"price", "age"} else "BYTES", "data": values}
        for name, values in columns.items()
    ]
    with running("shop", follow_seconds=0) as server:
        url = f"http://127.0.0.1:{server.port}/v2/models/shop/infer"
        found = httpx.post(url, content=json.dumps({"inputs": inputs})).json()
    unknown = {f"unknown.{name}": share for name, share in UNUSABLE["unknown"].items()}
    assert found["parameters"] == {**unknown, "unreadable.price": 1.0}
    assert None not in found["outputs"][0]["data"]


def test_more_than_the_limit_is_refused(tmp_path: Path, strange: pd.DataFrame) -> None:
    strange.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(UnusableValuesError) as refused:
        predict_file("shop", tmp_path / "rows.csv", str(tmp_path / "refused.csv"), max_unknown=0.25)
    assert dict(refused.value.shares) == {"price": 4 / 6, "item": 3 / 8}
    assert refused.value.exit_code == 3
    assert not (tmp_path / "refused.csv").exists()
    assert predict_file("shop", tmp_path / "rows.csv", str(tmp_path / "allowed.csv"), max_unknown=0.7).rows == 8
    with running("shop", follow_seconds=0, bounds={"max_unknown": 0.25}) as server:
        url = f"http://127.0.0.1:{server.port}/invocations"
        statuses = [httpx.post(url, json=records(frame)).status_code for frame in (strange, strange.head(1))]
    assert statuses == [422, 200]


def test_the_command_prints_one_line_of_notice(
    tmp_path: Path, strange: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[int] = []
    for frame, name in ((strange.head(1), "known"), (strange, "strange")):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        predict("shop", [str(tmp_path / f"{name}.csv")], out=str(tmp_path / f"{name}.parquet"))
        lines.append(len(capsys.readouterr().err.splitlines()))
    assert lines == [1, 2]
    with pytest.raises(SystemExit) as ended:
        predict("shop", [str(tmp_path / "strange.csv")], out=str(tmp_path / "no.csv"), max_unknown=0.25)
    assert ended.value.code == 3


def test_whole_numbers_of_any_size_score_alike(tmp_path: Path, strange: pd.DataFrame) -> None:
    large = strange.head(2).assign(item=[2**64, 2**70], price=[2**64, 10**40], genres=[["war", 2**64], [2**65]])
    scores, shares = by_champion(large)
    with running("shop", follow_seconds=0) as server:
        rows_of = {"dataframe_split": {"columns": list(large), "data": large.to_numpy().tolist()}}
        answer = httpx.post(
            f"http://127.0.0.1:{server.port}/invocations",
            content=json.dumps(rows_of),
            headers={"content-type": "application/json"},
        ).json()
    assert answer == {"predictions": scores, **shares}
    assert shares == {"unknown": {"item": 1.0, "genres": 2 / 3}, "unreadable": {"price": 0.5}}


def test_bytes_that_are_no_text_are_no_missing_value(tmp_path: Path, strange: pd.DataFrame) -> None:
    lines = ["price,age,user,item,genres", *["3,4,u,1,war"] * 3]
    (tmp_path / "bytes.csv").write_bytes("\n".join(lines).encode().replace(b"3,4,u", b"\xff3,4,\xfe", 1))
    found = predict_file("shop", tmp_path / "bytes.csv", str(tmp_path / "bytes.parquet")).counts.by_kind()
    assert found == {"unknown": {"user": 1.0, "item": 1.0}, "unreadable": {"price": 1 / 3}}


def test_nights_call_unreadable_what_ingestion_rejects(tmp_path: Path) -> None:
    lines = [f"{row % 2},{row % 3 == 0},{'1e300' if row < 25 else row}\n" for row in range(100)]
    (tmp_path / "day.csv").write_text("click,flag,price\n" + "".join(lines))
    (tmp_path / "schema.yaml").write_text("label: click\nnumeric: [flag, price]\n")
    source = open_source(str(tmp_path / "day.csv"), None, str(tmp_path / "schema.yaml"), tmp_path)
    assert [unreadable_share(source, name) for name in ("flag", "price")] == [0.0, 0.25]
