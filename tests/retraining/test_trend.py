"""Page of all nights, and the section of one."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import UnknownNameError
from shunter.flows.command.run_commands import report, write_trend
from shunter.reporting.page.render import render_view
from shunter.retraining import nightly_flow
from shunter.retraining.findings import Finding
from shunter.retraining.night_section import NIGHT, night
from shunter.retraining.nightly_request import NightlyRequest
from shunter.retraining.nightly_runs import NightlyResult, log_nightly_result, log_plan, with_former_name
from shunter.retraining.nightly_steps import publish_pages
from shunter.retraining.plan import NightlyPlan
from shunter.retraining.trend import trend_chart, trend_view
from shunter.tracking.history import TrackedRun
from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.runs import finish, open_run, start_run
from shunter.tracking.store import open_store
from shunter.tracking.tree import RunTree

DAY = date(2026, 5, 3)
JUDGEMENT = ChampionComparison(
    rows=100,
    champion_logloss=0.6,
    challenger_logloss=0.5,
    saving=0.1,
    saving_low=0.05,
    saving_high=0.2,
    needed=0.01,
    confidence=0.95,
    is_better=True,
    champion_auc=0.7,
    challenger_auc=0.8,
    base_rate=0.3,
)


def tracked(day: int, outcome: str, **metrics: float) -> TrackedRun:
    tags = {"nightly.day": f"2026-05-0{day}", "nightly.outcome": outcome, "nightly.model": "clicks"}
    return TrackedRun(f"run{day}", "nightly", None, "FINISHED", 1e9, 1e9, {}, metrics, tags)


NIGHTS = [
    tracked(1, "first champion", **{"nightly/challenger_ne": 0.9, "nightly/challenger_auc": 0.7}),
    tracked(3, "kept", **{"nightly.champion_ne": 0.95, "nightly/challenger_ne": 0.97}),
]


def test_the_trend_has_a_point_for_each_side_of_each_night_that_is_known() -> None:
    chart = trend_chart(NIGHTS)
    assert chart is not None
    points = [(chart.groups[one.group], one.values["day"], one.values["ne"], one.star) for one in chart.points]
    assert points == [("challenger", 0.0, 0.9, True), ("champion", 2.0, 0.95, False), ("challenger", 2.0, 0.97, False)]
    assert trend_chart([tracked(1, "nothing new")]) is None


def test_the_page_lists_the_nights_newest_first() -> None:
    without = replace(NIGHTS[0], tags={**NIGHTS[0].tags, "nightly.champion": "None"})
    view = trend_view("clicks", [without, *NIGHTS[1:]])
    assert view["trend"]["nights"][1]["champion"] == ""
    assert [one["day"] for one in view["trend"]["nights"]] == ["2026-05-03", "2026-05-01"]
    from shunter.retraining import trend

    page = render_view(view, [Path(trend.__file__).with_name("trend.html.j2")])
    assert page.index("2026-05-03") < page.index("2026-05-01</td>")


def test_the_section_of_a_night_sets_champion_beside_challenger() -> None:
    finding = Finding(day=DAY, kind="late", words="It is late.")
    done = NightlyResult(
        outcome="promoted",
        day=DAY,
        reason="It is better.",
        findings=(finding,),
        judgement=JUDGEMENT,
        champion=2,
        run_id="r",
    )
    tree = RunTree(NIGHTS[0], (), {}, {NIGHT: done.model_dump_json()})
    found = night(tree)
    assert (found["outcome"], found["champion"], found["findings"][0]["kind"]) == ("promoted", 2, "late")
    assert [(one["name"], one["AUC"]) for one in found["sides"]] == [("champion", 0.7), ("challenger", 0.8)]
    assert found["sides"][1]["NE"] < found["sides"][0]["NE"]
    assert json.loads(done.model_dump_json())["judgement"]["champion_auc"] == 0.7


def test_headline_figures_need_both_classes() -> None:
    assert JUDGEMENT.headline()["quality/auc"] == 0.8
    assert JUDGEMENT.model_copy(update={"base_rate": None}).headline() == {}


def test_nights_of_a_ranking_model_have_its_figure_beside_popularity() -> None:
    judged = {"nightly.champion_ndcg20": 0.2, "nightly.challenger_ndcg20": 0.3, "nightly.popularity_ndcg20": 0.1}
    nights = [tracked(1, "first champion", **{"nightly/challenger_ndcg20": 0.2}), tracked(2, "promoted", **judged)]
    chart = trend_chart(nights)
    assert chart is not None
    assert [axis.key for axis in chart.y] == ["ndcg20"]
    points = [(chart.groups[one.group], one.values["day"], one.values["ndcg20"], one.star) for one in chart.points]
    assert points == [
        ("challenger", 0.0, 0.2, True),
        ("champion", 1.0, 0.2, False),
        ("challenger", 1.0, 0.3, True),
        ("popularity", 1.0, 0.1, False),
    ]
    columns = [key for key, _ in trend_view("clicks", nights)["trend"]["columns"]]
    assert columns == ["champion_ndcg20", "challenger_ndcg20", "popularity_ndcg20"]


@pytest.fixture
def finished(tracking_root: Path) -> str:
    """Run of a night of `clicks`, in a real store."""
    run_id = start_run("clicks 2026-05-03", "nightly")
    log_plan(run_id, "clicks", NightlyPlan(held_out=DAY, training=(), missing=(), findings=()), ())
    open_run(run_id).log_metrics({"nightly/champion_ne": 0.95, "nightly/challenger_ne": 0.9})
    open_run(run_id).log_params({"request.data": "/srv/clicks/{date}.csv"})
    log_nightly_result(
        NightlyResult(outcome="kept", day=DAY, reason="So it is.", judgement=JUDGEMENT, champion=1, run_id=run_id)
    )
    finish(run_id, "FINISHED")
    return run_id


def test_pages_of_a_night_are_logged_and_the_newest_nights_are_a_table(finished: str) -> None:
    text = publish_pages.fn(finished, "clicks")
    store = open_store()
    logged = {one.path for one in store.mlflow.list_artifacts(store.real_id(finished))}
    assert {"report.html", "trend.html"} <= logged
    assert {"2026-05-03", "kept", "0.9500", "0.9000"} <= set(text.replace("|", " ").split())


def test_a_night_shows_findings_figures_of_both_models_and_the_trend_in_prefect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts: list[str] = []
    files: dict[str, str] = {}

    def show(_key: str, _sentence: str, text: str, **shown: Any) -> None:
        texts.append(text)
        files.update(shown["files"])

    monkeypatch.setattr(nightly_flow, "show_result", show)
    finding = Finding(day=DAY, kind="late", words="It is late.")
    done = NightlyResult(
        outcome="kept", day=DAY, reason="So.", findings=(finding,), judgement=JUDGEMENT, champion=2, run_id="r"
    )
    nightly_flow._publish(done, "| the | trend |")
    [text] = texts
    assert "trend.html" in files.values()
    for part in (finding.words, "| champion | ", "| challenger | ", "0.8000", "| the | trend |"):
        assert part in text


def test_the_command_writes_the_page_of_all_nights(finished: str, tmp_path: Path) -> None:
    assert write_trend("clicks", tmp_path) == tmp_path / "shunter-nights-clicks.html"
    assert "2026-05-03" in (tmp_path / "shunter-nights-clicks.html").read_text()
    report(nightly="clicks", out=tmp_path / "page.html")
    assert "2026-05-03" in (tmp_path / "page.html").read_text()
    with pytest.raises(UnknownNameError) as refused:
        write_trend("cliks", tmp_path)
    assert refused.value.known == ("clicks",)


def test_a_name_follows_the_data_and_nights_named_shunter_before_stay(finished: str) -> None:
    request = NightlyRequest(data="/srv/clicks/{date}.csv")
    assert with_former_name(request).register_as == request.registered_name == "srv-clicks"
    open_run(finished).set_tags({"nightly.model": "shunter"})
    assert with_former_name(request).register_as == "shunter"
    assert with_former_name(NightlyRequest(data="/srv/shop/{date}.csv")).register_as == "srv-shop"
    assert with_former_name(NightlyRequest(data=request.data, register_as="mine")).register_as == "mine"
