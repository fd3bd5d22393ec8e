"""The page, as a browser and as a hostile data set would meet it."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.results import TrainingFigures
from shunter.errors import RequestError
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.registry import model_spec
from shunter.reporting.page.format import duration, figure
from shunter.reporting.page.publish import build_report, log_report
from shunter.reporting.page.render import render_page
from shunter.requests import Limits, TrainRequest
from shunter.tasks.select import log_decision
from shunter.tasks.train import train_model
from shunter.tracking import find
from shunter.tracking.convention import training_metrics
from shunter.tracking.find import find_run
from shunter.tracking.reports import log_config
from shunter.tracking.runs import finish, open_run, start_run, start_run_tree
from shunter.tracking.tree import read_artifact, read_tree
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.tracking.test_convention import PLACEMENT
from tests.tracking.test_reports import decision

NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> tuple[Path, str]:
    """A home, and in its store a run with a decision, two trained members and words that are an attack."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        (home / "mlflow").mkdir()
        shutil.copy(empty_database, home / "mlflow" / "mlflow.db")
        return home, make_run(home)


@pytest.fixture
def run_id(reported: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """That run, in its home."""
    monkeypatch.setenv("SHUNTER_HOME", str(reported[0]))
    return reported[1]


def make_run(folder: Path) -> str:
    dataset = write_dataset(folder / "data", rows=400)
    request = TrainRequest(data=NASTY, limits=Limits(max_hours=2))
    run_id = start_run_tree(request, dataset)
    log_decision(run_id, decision())
    for number in range(2):
        train_model(
            TrainingJob(
                dataset,
                model_spec(embedding_dim=4),
                Hyperparameters(),
                execution_of(PLACEMENT.model_copy(update={"precision": "fp32", "batch_size": 64})),
                Schedule(max_epochs=2, seed=number),
            ),
            PLACEMENT.model_copy(update={"precision": "fp32", "batch_size": 64}),
            folder / str(number),
            name=f"member-{number}",
            parent_run_id=run_id,
        )
    open_run(run_id).set_tags({"ensemble.reason": NASTY, "energy.source": "estimated", "energy.method": NASTY})
    log_report(run_id, dataset, request)
    finish(run_id)
    return run_id


class Page(HTMLParser):
    """Collects tags, and the scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.scripts:
            self.scripts[-1] += data


def test_page_needs_nothing_from_outside_and_runs_only_its_own_script(run_id: str) -> None:
    page = Page(build_report(run_id))
    kinds = [attributes.get("type") for tag, attributes in page.tags if tag == "script"]
    assert kinds.count(None) == 1
    assert set(kinds) == {None, "application/json"}
    assert not [tag for tag, _ in page.tags if tag in {"img", "iframe", "object", "link", "base", "form"}]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    addresses = [attributes[name] for _, attributes in page.tags for name in ("src", "href") if name in attributes]
    assert all(address and address.startswith("#") for address in addresses)
    [policy] = [attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv")]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", policy)


def test_figures_hold_every_candidate_and_every_training(run_id: str) -> None:
    text = build_report(run_id)
    found = {
        name: json.loads(body)
        for name, body in re.findall(r'<script type="application/json" id="data-(\w+)">(.*?)</script>', text, re.S)
    }
    assert len(found["placements"]["points"]) == 2
    assert sum(point["star"] for point in found["placements"]["points"]) == 1
    (time,) = found["placements"]["x"]
    hours = {"(s, ": 3600, "(min, ": 60, "(h, ": 1}
    assert time["limit"] == 2 * next(scale for unit, scale in hours.items() if unit in time["label"])
    assert len(found["trained"]["points"]) == 2
    assert {axis["key"] for axis in found["trained"]["x"]} == {"time.train_seconds", "energy.joules"}
    assert len(found["curves"]["points"]) == 4
    assert sum(point["star"] for point in found["curves"]["points"]) == 2


def test_what_the_data_brings_in_is_text(run_id: str) -> None:
    text = build_report(run_id)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_sections_say_their_sources(run_id: str) -> None:
    text = build_report(run_id)
    for expected in ("Placement, and why", "predicted", "estimated", "measured", "Features", "member-1", "single0"):
        assert expected in text
    assert 'id="card"' not in text  # the run has no model card, and the page says so
    assert "Not in this report" in text


def test_the_plan_of_the_tables_is_shown_with_what_its_steps_took(run_id: str) -> None:
    tree = read_tree(run_id)
    assert 'id="plan"' not in render_page(tree)
    table = {"name": NASTY, "rows": 9, "width": 4, "placement": "row-wise", "why": "data-parallel would take +3.0%"}
    plan = {"is_given": False, "devices": 2, "step_seconds": 0.1, "told": "They are set right.", "tables": [table]}
    steps = {
        "plan.predicted_step_seconds": 0.1,
        "plan.measured_step_seconds": 0.25,
        "row_traffic.rows_per_lookup": 1234.5,
    }
    children = tuple(
        replace(child, metrics={**child.metrics, **steps}) if child.kind == "member" else child
        for child in tree.children
    )
    artifacts = {**tree.artifacts, "plan.json": json.dumps({**plan, "rivals": {"by hand": 0.3}})}
    text = render_page(replace(tree, artifacts=artifacts, children=children))
    section = text[text.index('<h2 id="plan">') :].partition('<h2 id="time">')[0]
    for expected in (
        "2 processes",
        "They are set right.",
        "by hand",
        "+3.0%",
        "row-wise",
        '<td class="number">2.50</td>',
        "rows from other processes",
        "1,234",
    ):
        assert expected in section
    assert "<script>alert" not in section
    assert 'href="#plan"' in text


def test_checkpoints_of_each_training_are_told(run_id: str) -> None:
    text = build_report(run_id)
    told = text[text.index("<summary>Checkpoints") :].partition("</table>")[0]
    rows = re.findall(r"<tr><td>(member-\d)</td><td class=\"number\">(\d+)</td>", told)
    assert rows == [("member-0", "2"), ("member-1", "2")]  # one at the end of each epoch


def test_run_has_the_page_and_the_features_as_artifacts(run_id: str) -> None:
    assert "Training curves" in (read_artifact(run_id, "report.html") or "")
    assert json.loads(read_artifact(run_id, "features.json") or "")["train_rows"] == 280
    assert read_artifact(run_id, "nothing.txt") is None


def test_the_decision_is_told_once_and_its_table_has_words_and_units(run_id: str) -> None:
    text = build_report(run_id)
    assert text.count("needs the least time of") == 1
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", text[text.index("<caption>Predicted") :].partition("</thead>")[0])
    assert heads == ["placement", "outcome", "why", "time", "energy", "cost", "memory", "where"]
    assert "<td>behind</td>" in text
    assert re.search(r'<td class="number">[\d.]+ s \(measured\)</td>', text)


def test_the_promotion_and_the_order_by_popularity_are_shown(run_id: str) -> None:
    tree = read_tree(run_id)
    assert "Registered" not in render_page(tree)
    tags = {**tree.parent.tags, "model.registered": "shop/2", "model.not_promoted": "Not promoted: too few rows."}
    figures = {"quality.test.ndcg20": 0.25, "baseline.popularity.test.ndcg20": 0.125}
    parent = replace(tree.parent, tags=tags, metrics={**tree.parent.metrics, **figures})
    text = render_page(replace(tree, parent=parent))
    assert "<strong>shop/2</strong>, not the champion. Not promoted: too few rows." in text
    assert text.index("by popularity") < text.index("0.1250")
    del tags["model.not_promoted"]
    assert "<strong>shop/2</strong>, which became the champion." in render_page(replace(tree, parent=parent))


def test_what_moved_to_and_from_a_file_of_the_tables_is_set_beside_what_was_expected(run_id: str) -> None:
    tree = read_tree(run_id)
    assert "Embedding tables in a file" not in render_page(tree)
    counts = CacheCounts(rows=400, row_bytes=2**20, hits=30, misses=10, written_back=4, transfer_seconds=2)
    figures = TrainingFigures(
        history=(),
        best_epoch=1,
        validation=None,
        samples_seen=1,
        train_seconds=1,
        wait_seconds=0,
        compute_seconds=1,
        stop_reason=ENOUGH,
        peak_memory_bytes=1,
        tiers=counts,
    )
    moved = {name: float(value) for name, value in training_metrics(figures).items() if name.startswith("tiers.")}
    children = tuple(replace(child, metrics={**child.metrics, **moved}) for child in tree.children)
    parent = replace(tree.parent, metrics={**tree.parent.metrics, "prediction.tier_miss_rate": 0.2})
    text = render_page(replace(tree, parent=parent, children=children))
    told = text[text.index("Embedding tables in a file") :].partition("</table>")[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", told)
    assert cells[:6] == ["member-0", "400", "25.0%", "20.0%", "10.0", "4.0"]


def test_stalls_of_the_same_data_and_model_are_shown(run_id: str) -> None:
    useful_share = pytest.importorskip("shunter.extensions.stalls.useful_share")
    from tests.extensions.stalls.stall_values import make_report

    assert 'title="fetch"' not in build_report(run_id)
    profile = start_run("stalls", "profile")
    open_run(profile).log_params({"data.name": "synthetic", "model.family": "dlrm"})
    log_config(profile, "stalls", make_report())
    text = build_report(run_id)
    assert "Stalls, as they were profiled" in text
    assert "ms a step" in text
    assert "Multiplications that count" not in text  # the report is of before that was counted
    layer = useful_share.LayerShare(
        name="top.0",
        forward=0.5,
        backward=0.25,
        multiplications=10.0,
        dead=0.1,
        cycles={"dense": 8.0, "inputs": 4.0, "outputs": 4.0, "both": 2.0},
    )
    useful = useful_share.UsefulShare(model="dlrm", batch_size=500, steps=60, layers=(layer,))
    log_config(profile, "stalls", make_report(useful=useful))
    text = build_report(run_id)
    assert "Multiplications that count" in text
    assert '<td>top.0</td><td class="number">50.0%</td><td class="number">25.0%</td>' in text


def test_card_is_shown_when_there_is_one(run_id: str) -> None:
    run = open_run(run_id)
    markdown = f"# Card\n\n| a | b |\n|---|---|\n| 1 | {NASTY} |\n\n![Reliability](curve.svg)\n\nThe end.\n"
    run.client.log_text(run_id, markdown, "model_card/model_card.md")
    run.client.log_text(run_id, "<svg xmlns='http://www.w3.org/2000/svg'/>", "model_card/curve.svg")
    text = build_report(run_id)
    assert 'src="data:image/svg+xml;base64,' in text
    assert "<h1>Card</h1>" in text
    assert "<script>alert" not in text


def test_run_is_found_by_id_prefix_name_and_as_the_latest(run_id: str) -> None:
    assert find_run(run_id) == find_run(run_id[:8]) == find_run("synthetic dlrm") == find_run("latest") == run_id
    member = find_run("member-1")
    assert member != run_id
    assert read_tree(member).parent.run_id == run_id


def test_the_latest_is_one_that_has_come_to_its_end(run_id: str) -> None:
    later = start_run("later", "train")
    assert find_run("latest") == run_id, "the later one is running"
    finish(later, "FAILED")
    assert find_run("latest") == run_id


def test_a_whole_id_finds_a_run_older_than_those_that_are_searched(
    run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = start_run("later still", "train")
    search = find._search
    monkeypatch.setattr(find, "_search", lambda condition="": search(condition) if condition else search()[:1])
    assert find_run(run_id) == run_id
    with pytest.raises(RequestError):
        find_run(run_id[:8])
    finish(later, "FAILED")


def test_run_that_is_not_there_is_told_with_the_nearest(run_id: str) -> None:
    wrong = run_id[:10] + ("0" if run_id[10] != "0" else "1")
    with pytest.raises(RequestError, match=f"the most similar is {run_id[:12]}"):
        find_run(wrong)
    with pytest.raises(RequestError, match="member-1"):
        find_run("member_1")


def test_beginning_of_several_runs_is_refused(run_id: str) -> None:
    first = [start_run(f"run {number}", "profile") for number in range(17)]  # two of them begin alike
    letters = [one[0] for one in first]
    twice = next(letter for letter in letters if letters.count(letter) > 1)
    with pytest.raises(RequestError, match=r"beginning of \d+ runs"):
        find_run(twice)


def test_empty_store_says_so(tracking_root: Path) -> None:
    with pytest.raises(RequestError, match="no run yet"):
        find_run("latest")


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "-"), (0.0, "0.000"), (0.00123456, "0.001235"), (12345.6, "12,346"), (2e-7, "2.000e-07")],
)
def test_figures_have_four_digits(value: float | None, words: str) -> None:
    assert figure(value) == words


@pytest.mark.parametrize(("seconds", "words"), [(3.21, "3.21 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations_have_a_suitable_unit(seconds: float, words: str) -> None:
    assert duration(seconds) == words
