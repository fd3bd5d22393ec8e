"""What `import shunter` offers: one small training, whose figures and model the examples of the docstrings read."""

import asyncio
import doctest
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from prefect import flow, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from scipy.special import logit
from sklearn.metrics import roc_auc_score

import shunter
from shunter.errors import RequestError, ShunterError, UnsupportedError
from shunter.flows import api
from shunter.flows.python import estimator, functions, recommender, training
from shunter.settings import PROJECT_ROOT
from shunter.tracking.registry.models import load_champion
from tests.flows.python.shop import SCHEMA, shop_log

pytestmark = pytest.mark.slow
START_SECONDS = 0.3  # of processor time


@pytest.fixture(scope="module")
def names(
    tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path], prefect_server: str
) -> Iterator[dict[str, Any]]:
    """Names of the examples, after the one that trains."""
    with pytest.MonkeyPatch.context() as patch:
        home = furnish(tmp_path_factory.mktemp("home"))
        patch.setenv("SHUNTER_HOME", str(home))
        found = {"shunter": shunter, "log": shop_log(), "SCHEMA": SCHEMA, "home": home}
        run_example(functions.train, found)
        yield found


@pytest.fixture(autouse=True)
def in_that_home(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_HOME", str(names["home"]))


def run_example(what: Any, names: dict[str, Any]) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(what, what.__name__, globs=names)
    example.globs = names  # what it defines is there for the next one
    told: list[str] = []
    assert doctest.DocTestRunner().run(example, out=told.append, clear_globs=False).failed == 0, "".join(told)


@pytest.mark.parametrize(
    "what",
    [
        training.Training,
        recommender.Recommender,
        estimator.Estimator,
        functions.check,
        functions.history,
        functions.select,
    ],
    ids=lambda what: what.__name__,
)
def test_examples_of_docstrings_run(names: dict[str, Any], what: Any) -> None:
    run_example(what, names)


def test_every_public_name_is_there_and_imports_nothing_before_it_is_used() -> None:
    script = (
        "import time; began = time.process_time(); import shunter; print(time.process_time() - began)\n"
        "import sys; print('shunter.flows' in sys.modules)\n"
        "[getattr(shunter, name) for name in shunter.__all__ if name != 'Estimator']\n"
        "print({'torch', 'prefect', 'mlflow', 'pandas', 'polars', 'pyarrow'} & sys.modules.keys())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    seconds, is_loaded, heavy = done.stdout.splitlines()
    assert float(seconds) < START_SECONDS
    assert (is_loaded, heavy) == ("False", "set()")
    assert sorted(shunter.__all__) == sorted(api.__all__)
    assert {*shunter.__all__} <= {*dir(shunter)}


def test_scores_are_those_of_the_champion_for_every_kind_of_frame(names: dict[str, Any]) -> None:
    model, log = names["training"].model, names["log"]
    wanted = np.asarray(load_champion("shop").predict(log))
    structured = log.to_records(index=False, column_dtypes={"user": "U4"})
    for frame in (log, pl.from_pandas(log), pa.Table.from_pandas(log), structured):
        np.testing.assert_array_equal(model.predict(frame), wanted)


def test_figures_of_a_training_are_those_of_its_summary(names: dict[str, Any]) -> None:
    found = names["training"]
    assert found.metrics.loc["test", "ne"] == found.summary.result.test.ne
    assert found.metrics.loc["validation", "auc"] == found.summary.result.validation.auc
    assert len(found.decision) == found.summary.decision.considered
    assert found.trials["trial"].tolist() == [0]
    assert found.baselines.empty
    assert "<table>" in found._repr_html_()


def test_the_report_is_a_page(names: dict[str, Any], tmp_path: Path) -> None:
    assert names["training"].report(tmp_path).read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "options", [{"max_hour": 1}, {"max_hours": -1}, {"model": "drlm"}, {"max_hours": 1, "search_minutes": 90}]
)
def test_wrong_options_are_refused_as_by_the_command(names: dict[str, Any], options: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        shunter.train(names["log"], SCHEMA, **options)
    assert refused.value.exit_code == 2


def test_a_schema_is_given_once(names: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        shunter.train(names["log"], SCHEMA, schema_file="schema.yaml")


def test_within_a_flow_of_ones_own_it_is_a_subflow(names: dict[str, Any]) -> None:
    @flow
    def mine() -> str:
        return shunter.select(names["log"], SCHEMA, offers="local", probe_seconds=0).decision.placement.device

    state = mine(return_state=True)

    own = state.state_details.flow_run_id
    assert own is not None

    async def below() -> list[str]:
        parent = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[own]))
        async with get_client() as client:
            flows = [await client.read_flow(run.flow_id) for run in await client.read_flow_runs(flow_run_filter=parent)]
        return [one.name for one in flows]

    assert state.result() == "cpu"
    assert asyncio.run(below()) == ["select"]


def test_history_can_be_filtered(names: dict[str, Any]) -> None:
    assert isinstance(shunter.history()["started"].dtype, pd.DatetimeTZDtype)
    assert shunter.history(where="auc > 2").empty
    assert "test_auc" in shunter.history(where="auc > 2").columns
    with pytest.raises(ShunterError):
        shunter.history(sort="beauty")


def test_a_click_model_ranks_every_pair_of_two_frames(names: dict[str, Any]) -> None:
    model, log = names["training"].model, names["log"]
    users, items = log[["user"]].drop_duplicates().head(3), log[["item", "price"]].drop_duplicates("item")
    found = model.rank(users, 4, items=items)
    pairs = users.merge(items, how="cross").assign(score=model.predict)
    wanted = pairs.groupby("user", sort=False)["score"].nlargest(4)
    assert found["rank"].tolist() == [1, 2, 3, 4] * 3
    np.testing.assert_allclose(found["score"], wanted, rtol=1e-6)
    with pytest.raises(UnsupportedError):
        model.rank(["u1"], 4)
    with pytest.raises(RequestError):
        model.rank(users.assign(price=1.0), 4, items=items)


def test_a_click_model_has_vectors_of_its_columns(names: dict[str, Any]) -> None:
    model = names["training"].model
    vectors = model.embed([1, 2, 2, 999], "item")
    np.testing.assert_array_equal(vectors[1], vectors[2])
    assert not np.array_equal(vectors[0], vectors[1])
    found = model.similar([1, 2], 3, among=range(20), column="item")
    assert found["item"].tolist() == [1, 1, 1, 2, 2, 2]
    assert (found["item"] != found["similar"]).all()
    with pytest.raises(UnsupportedError):
        model.embed([1])


def test_quality_and_explanations_are_those_of_the_scores(names: dict[str, Any]) -> None:
    model, log = names["training"].model, names["log"]
    for schema in (None, SCHEMA):
        assert model.evaluate(log, schema=schema).loc[0, "auc"] == pytest.approx(
            roc_auc_score(log["click"], model.predict(log)), abs=1e-6
        )
    rows = log.head(3).set_index(pd.Index([7, 8, 9]))
    found = model.explain(rows)
    without = model.predict(rows.assign(user=None))
    np.testing.assert_allclose(found["user"], logit(model.predict(rows)) - logit(without), atol=1e-5)
    assert found.index.tolist() == [7, 8, 9]


def test_a_saved_model_is_loaded_from_its_folder(names: dict[str, Any], tmp_path: Path) -> None:
    model, log = names["training"].model, names["log"]
    saved = shunter.Recommender.load(model.save(tmp_path / "saved"))
    np.testing.assert_array_equal(saved.predict(log), model.predict(log))
    with pytest.raises(UnsupportedError):  # it has no run that names its schema
        saved.evaluate(log)
    with pytest.raises(UnsupportedError):
        saved.update(log)
