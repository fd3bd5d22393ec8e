"""The page of a graph model: its ranking from all sides beside its baselines, on figures that are known."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from shunter.engine.ranking.breakdown import break_down
from shunter.reporting.card.ranking_breakdown import SIDES, RankingSides, summarise_ranking
from shunter.reporting.page.figures import curves_chart, trained_chart
from shunter.reporting.page.ranking import lengths_chart
from shunter.reporting.page.render import render_page
from shunter.tracking.history import TrackedRun
from shunter.tracking.tree import RunTree
from tests.engine.ranking.test_evaluation import ITEMS, USERS, pairs_of, ranker_of


def run(name: str, kind: str, metrics: dict[str, float], **tags: str) -> TrackedRun:
    return TrackedRun(
        run_id=name,
        kind=kind,
        parent_run_id=None if kind == "train" else "parent",
        status="FINISHED",
        started_at=0.0,
        ended_at=1.0,
        params={"request.select_by": "ndcg@20"} if kind == "train" else {},
        metrics=metrics,
        tags={"mlflow.runName": name, **tags},
    )


@pytest.fixture(scope="module")
def sides() -> RankingSides:
    import torch

    chosen = pairs_of({(user, item) for user in range(1, USERS) for item in (3 * user, 7, 29)})
    seen = pairs_of({(user, item) for user in range(1, USERS) for item in range(1, 2 + user)})
    models = []
    for seed, name in enumerate(("lightgcn", "ease", "popularity")):
        scores = torch.randn(USERS, ITEMS, generator=torch.Generator().manual_seed(seed))
        models.append(summarise_ranking(name, break_down(ranker_of(scores), chosen, seen, name="test")))
    return RankingSides(result=models[0], baselines=tuple(models[1:]))


@pytest.fixture
def tree(sides: RankingSides) -> RunTree:
    measured = {"quality.test.users": 5.0, "baseline.ease.gain": 0.25, "baseline.ease.gain_low": 0.125}
    parent = run(
        "parent",
        "train",
        {**sides.metrics(), **measured, "baseline.ease.gain_high": 0.375},
        **{
            "ranking.index": "An index finds .98.",
            "ranking.reason": "<b>Best</b> of all.",
            "baseline.ease.verdict": "The result beats the baseline ease.",
        },
    )
    trial = run("trial-0", "trial", {"quality.ndcg20": 0.5, "quality.recall20": 0.4, "time.train_seconds": 3.0})
    whole = run("ranker-whole", "member", {"time.train_seconds": 4.0})  # learned from validation: judged by nothing
    curve = {"quality.ndcg20": ((1, 0.3), (2, 0.5), (2, 0.5)), "quality.train.bpr_loss": ((1, 0.6), (2, 0.4))}
    curves = {"parent": {}, "trial-0": curve, "ranker-whole": {}}
    return RunTree(parent=parent, children=(trial, whole), curves=curves, artifacts={SIDES: sides.model_dump_json()})


def rows_of(text: str, heading: str) -> list[list[str]]:
    """Cells of the first table after a heading."""
    table = text[text.index(heading) :].partition("</table>")[0]
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table.partition("<tbody>")[2], re.S)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]


def test_the_page_shows_each_model_and_what_the_result_gains_on_it(tree: RunTree, sides: RankingSides) -> None:
    text = render_page(tree)
    models = rows_of(text, '<h2 id="ranking">')
    assert [row[0] for row in models] == ["lightgcn, the result", "ease", "popularity"]
    assert models[1][3:6] == ["0.2500", "0.1250", "0.3750"]
    assert models[0][3:6] == ["", "", ""]
    assert models[0][6] == f"{100 * sides.result.coverage20:.3g} %"
    assert "The result beats the baseline ease." in text
    assert "<p>An index finds .98.</p>" in text
    assert "&lt;b&gt;Best&lt;/b&gt; of all." in text
    assert '<a href="#ranking">' in text
    assert "NDCG@20, test" in text
    assert 'id="baselines"' not in text  # the tables of click models have no line for it


def test_the_page_shows_for_which_items_and_for_whom(tree: RunTree, sides: RankingSides) -> None:
    text = render_page(tree)
    items = rows_of(text, "For which items")
    assert [row[0] for row in items] == ["head", "middle", "tail"]
    assert all(len(row) == 4 + 3 for row in items)  # the recall of each of three models
    users = rows_of(text, "For whom")
    assert sum(int(row[1]) for row in users) == USERS - 1
    assert users[0][2:4] == ["2", "3"]


def test_figures_are_drawn_by_length_and_by_epoch(tree: RunTree) -> None:
    chart = lengths_chart(RankingSides.model_validate_json(tree.artifacts[SIDES]))
    assert chart.groups == ["lightgcn, the result", "ease", "popularity"]
    assert [mark.values["cutoff"] for mark in chart.points[:6]] == [1, 5, 10, 20, 50, 100]
    of_one = [mark.values["recall"] or 0.0 for mark in chart.points[:6]]
    assert np.all(np.diff(of_one) >= 0)
    curves, trained = curves_chart(tree), trained_chart(tree)
    assert curves is not None
    assert trained is not None
    assert [mark.values["quality.ndcg20"] for mark in curves.points] == [0.3, 0.5]
    assert {axis.key for axis in trained.y} == {"quality.ndcg20", "quality.recall20"}
    assert [(mark.star, mark.tip[1]) for mark in trained.points] == [(True, "NDCG@20 0.5000, recall@20 0.4")]
    drawn = re.search(r'id="data-lengths">(.*?)</script>', render_page(tree), re.S)
    assert drawn is not None
    assert len(json.loads(drawn[1])["points"]) == 18


def test_a_run_without_such_figures_shows_the_order_by_popularity(tree: RunTree) -> None:
    metrics = {"quality.test.ndcg20": 0.5, "quality.test.recall20": 0.4, "quality.test.users": 5.0}
    metrics |= {"baseline.popularity.test.ndcg20": 0.25, "baseline.popularity.test.recall20": 0.125}
    older = replace(tree, parent=replace(tree.parent, metrics=metrics), artifacts={})
    text = render_page(older)
    assert rows_of(text, 'id="baselines"') == [["the model", "0.5000", "0.4000"], ["by popularity", "0.2500", "0.1250"]]
    assert 'id="ranking"' not in text
