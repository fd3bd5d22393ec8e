"""A graph model through the whole flow, and the requests that it refuses before anything is measured."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from shunter.errors import RequestError
from shunter.requests import TrainRequest
from tests.golden.homes import reproducible
from tests.golden.whole_runs import assert_run_as_recorded


def request_for(folder: Path, **others) -> TrainRequest:
    """Users who like the items of their own group; the schema says which columns they are."""
    random = np.random.default_rng(0)
    user, item = random.integers(0, 40, 3_000), random.integers(0, 30, 3_000)
    likes = random.random(3_000) < np.where(user % 3 == item % 3, 0.8, 0.05)
    frame = pd.DataFrame({"like": likes.astype(int), "who": user, "what": item, "genre": item % 3})
    frame.to_parquet(folder / "clicks.parquet")
    schema = {"label": "like", "categorical": ["who", "what", "genre"], "user": "who", "item": "what"}
    (folder / "schema.json").write_text(json.dumps({**schema, **others.pop("schema", {})}))
    files = {"data": str(folder / "clicks.parquet"), "schema_file": str(folder / "schema.json")}
    return TrainRequest(**{"model": "hetero", "max_epochs": 3, **files, **others})


@pytest.mark.slow
def test_a_graph_model_goes_from_click_log_to_champion(
    tmp_path: Path, furnished_home: Path, prefect_server: str
) -> None:
    from mlflow import MlflowClient

    from shunter.engine.ranking.result import TrainedRanker
    from shunter.flows.command.summary import detail_rows, figures_table
    from shunter.flows.train import train
    from shunter.tracking.registry.models import load_champion
    from shunter.tracking.tree import read_artifact, read_tree

    with reproducible():
        summary = train(request_for(tmp_path, trials=2, batch_sizes="64"))
    assert_run_as_recorded("ranking", MlflowClient(summary.tracking_uri), summary.run_id)
    assert summary.tuned is None
    assert [one.spec.family for one in summary.tried] == ["hetero", "hetero"]
    assert [one.name for one in summary.baselines] == ["popularity", "itemknn", "ease", "ials"]
    assert summary.decision.placement.precision == "fp32"
    assert isinstance(summary.result, TrainedRanker)
    assert summary.result.test.ndcg20 > 0.5
    parent = MlflowClient(summary.tracking_uri).get_run(summary.run_id)
    assert parent.data.metrics["quality/ndcg20"] == pytest.approx(summary.result.test.ndcg20)
    figures_in_details = read_tree(summary.run_id).parent.metrics
    assert figures_in_details["workload.train_samples"] > 0
    assert parent.data.tags["model.registered"] == "clicks/1"
    figures = {row[0]: row[1] for row in figures_table(summary).rows}
    assert figures["Test NDCG@20"] == f"{summary.result.test.ndcg20:.3f}"
    assert dict(detail_rows(summary))["Result"] == summary.reason
    assert figures_in_details["baseline.ease.test.ndcg20"] > 0.4
    assert "baseline.ials.verdict" in parent.data.tags
    assert figures_in_details["baseline.ease.test.coverage20"] > 0
    page = read_artifact(summary.run_id, "report.html")
    assert page is not None
    assert 'id="ranking"' in page
    rows = pd.DataFrame({"who": [1, 1, 999], "what": [1, 2, 1], "genre": [1, 2, 1]})
    liked, other, of_stranger = load_champion().predict(rows)
    assert liked > other
    assert np.isfinite(of_stranger)


def test_a_log_without_users_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    from shunter.ingestion.request import ingest_request
    from shunter.tasks.recipes import recipe_of

    request = request_for(tmp_path, schema={"user": None})
    with pytest.raises(RequestError, match="name the user in the schema"):
        recipe_of(request.model).check(request, ingest_request(request)[0])
