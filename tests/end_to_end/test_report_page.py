"""The report in a real browser: figures are drawn and answer, nothing comes from outside, nothing else runs."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.reporting.page.render import render_page
from shunter.tracking.history import TrackedRun
from shunter.tracking.tree import RunTree

pytestmark = pytest.mark.slow
MOST_PRINTED_PAGES = 6
COLUMNS = ["rank", "placement", "accelerator", "is_here", "step_source", "hours", "kwh", "energy_source", "excluded_by"]
ROWS = [
    [1, "cpu x2 b512", "cpu", True, "measured", 0.5, 0.01, "estimated", None],
    [2, "cpu x1 b512", "cpu", True, "estimated", 1.0, 0.02, "estimated", None],
    [3, "gpu b512", "H100", False, "estimated", 0.05, 0.2, "estimated", "energy 0.2 kWh over the limit"],
]


def run(kind: str, name: str, **metrics: float) -> TrackedRun:
    tags = {"mlflow.runName": name, "energy.source": "estimated"}
    params = {"placement.label": "cpu x2 b512", "request.model": "dlrm"}
    return TrackedRun(name, kind, None if kind == "train" else "p", "FINISHED", 1e9, 1e9, params, metrics, tags)


def tree() -> RunTree:
    """Two members, and a name that is an attack."""
    figures = {"quality.ne": 0.9, "quality.auc": 0.7, "time.train_seconds": 3.0, "energy.joules": 20.0}
    members = [run("member", f"member-{number}", **{**figures, "training.best_epoch": 2.0}) for number in range(2)]
    curve = {"quality.ne": ((1, 0.95), (2, 0.9)), "quality.train.logloss": ((1, 0.6), (2, 0.5))}
    return RunTree(
        run("train", "<script>document.title='attacked'</script>", **{"request.max_hours": 2.0}),
        tuple(members),
        {"<script>document.title='attacked'</script>": {}, **{one.run_id: curve for one in members}},
        {"decision.json": json.dumps({"columns": COLUMNS, "data": ROWS}), "decision.md": "It **wins**."},
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (380, "dark")])
def test_figures_are_drawn_and_answer(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    path = tmp_path / "report.html"
    injected = "<script>document.title = 'attacked'</script></main>"
    path.write_text(render_page(tree()).replace("</main>", injected))
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
    page = context.new_page()
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("figure[data-chart='data-curves'] svg")
    placements = page.locator("figure[data-chart='data-placements']")
    assert placements.locator("[tabindex]").count() == 3
    assert placements.locator("path.star").count() == 1
    placements.locator("path.star").hover()
    assert "cpu x2 b512" in placements.locator(".tip").inner_text()
    placements.get_by_role("button", name="H100").click()
    assert placements.locator("[tabindex]").count() == 2
    trained = page.locator("figure[data-chart='data-trained']")
    trained.locator("select").first.select_option(label="energy of the training (J, estimated)")
    assert "energy of the training" in trained.locator("svg").get_attribute("aria-label")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title() != "attacked"  # neither the name of the run nor a script that got into the page ran
    assert asked == [path.as_uri()]
    assert failed == []
    page.screenshot(path=tmp_path / f"report-{width}.png", full_page=True)
    context.close()


def test_print_is_light_and_leaves_out_what_is_folded(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_page(tree()))
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("figure[data-chart='data-curves'] svg")
    assert page.locator("details").first.is_visible()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    assert not page.locator("details").first.is_visible()
    assert page.pdf(path=tmp_path / "report.pdf").count(b"/Type /Page\n") <= MOST_PRINTED_PAGES
    context.close()
