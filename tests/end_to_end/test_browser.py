"""What a user does in the web interfaces, by a real browser: a training triggered from a form, two runs compared.

Runs where there is a Chromium (`make test-e2e`); screenshots are kept in `test-output/`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Locator, Page, TimeoutError, sync_playwright

from shunter.flows.command.services import free_port
from shunter.ingestion.sources.synthetic import SyntheticSource
from shunter.operation.servers import training_pages
from shunter.settings import PROJECT_ROOT
from tests.ingestion.criteo_files import write_criteo
from tests.retraining.conftest import SCHEMA, clicks

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PICTURES = PROJECT_ROOT / "test-output"
MILLISECONDS = 60_000  # for anything to appear
RUN_SECONDS = 600
TRIES = 3
BUSY = 503
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: `apt-get install chromium`"),
]


def answered(request: urllib.request.Request, tries: int = TRIES) -> Any:
    """Prefect's answer, asked for again while its database is busy."""
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != BUSY or tries == 1:
            raise
    time.sleep(1)
    return answered(request, tries - 1)


@dataclass(frozen=True)
class Servers:
    """What `shunter up` has started."""

    prefect: str
    mlflow: str
    login: str
    data: Path

    def get(self, path: str) -> Any:
        """Prefect's answer to a request that changes nothing."""
        return answered(urllib.request.Request(f"{self.prefect}/api/{path}", headers=self._known))

    @property
    def _known(self) -> dict[str, str]:
        return {"Authorization": f"Basic {b64encode(self.login.encode()).decode()}"}

    def ask(self, path: str, **body: Any) -> Any:
        """Prefect's answer to a question."""
        token = self.get("csrf-token?client=test")["token"]
        guard = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "test", "Content-Type": "application/json"}
        return answered(
            urllib.request.Request(f"{self.prefect}/api/{path}", json.dumps(body).encode(), {**guard, **self._known})
        )

    def artifacts(self, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Artifacts of a flow run by their keys, without bars of progress."""
        found = self.ask("artifacts/filter", artifacts={"flow_run_id": {"any_": [run["id"]]}})
        return {one["key"]: one for one in found if one["type"] != "progress"}

    def champion(self, name: str) -> int:
        """Version of a registered model that is in use."""
        query = urllib.parse.urlencode({"name": name, "alias": "champion"})
        with urllib.request.urlopen(f"{self.mlflow}/api/2.0/mlflow/registered-models/alias?{query}") as answer:
            return int(json.load(answer)["model_version"]["version"])

    def deployment(self, name: str) -> str:
        """Id of a deployment."""
        return next(one["id"] for one in self.ask("deployments/filter") if one["name"] == name)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path]) -> Iterator[Servers]:
    """Everything that `shunter up` starts, with a home of its own."""
    folder = tmp_path_factory.mktemp("operated")
    ports = free_port(), free_port()
    environment = {**os.environ, "SHUNTER_HOME": str(furnish(folder / "home"))}

    def shunter(*arguments: str) -> None:
        command = [str(Path(sys.executable).with_name("shunter")), *arguments]
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=300)

    try:
        shunter("up", "--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1]))
        login = (folder / "home" / "services" / "prefect-login").read_text()
        yield Servers(f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}", login, folder / "home" / "data")
    finally:
        shunter("down")


@pytest.fixture(scope="module")
def page(servers: Servers) -> Iterator[Page]:
    """A page of a browser that has logged in, once."""
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1400, "height": 1000})
        opened.set_default_timeout(MILLISECONDS)
        opened.goto(servers.prefect)
        opened.get_by_placeholder("admin:pass").fill(servers.login)
        opened.get_by_role("button", name="Login").click()
        opened.get_by_text("Logout").wait_for()
        yield opened
        browser.close()


def field(page: Page, title: str) -> Locator:
    """The input of a title of Prefect's form."""
    return page.get_by_label(re.compile(rf"^{re.escape(title)}( \(Optional\))?$")).first


def unfold(page: Page, title: str) -> None:
    """Show the options of a folded group."""
    group = f"//label[normalize-space()='{title}']/ancestor::div[contains(concat(' ', @class, ' '), ' group ')][1]"
    page.locator(f"xpath={group}//button[@role='tab'][normalize-space()='Change']").first.click()


def form_of(servers: Servers, deployment: str) -> str:
    """Address of the form of a deployment, in the interface that Prefect shows by default."""
    return f"{servers.prefect}/v2/deployments/deployment/{servers.deployment(deployment)}/run"


def ended(servers: Servers, run: str) -> dict[str, Any]:
    """The run, once it has ended."""
    deadline = time.monotonic() + RUN_SECONDS
    while (found := servers.get(f"flow_runs/{run}"))["state_type"] not in ENDED:
        if time.monotonic() > deadline:
            pytest.fail(f"The run has not ended after {RUN_SECONDS} s: it is {found['state']}.")
        time.sleep(1)
    return found


def submitted(page: Page, form: str, changes: dict[str, str], folded: Sequence[str] = ()) -> str:
    """Id of the run that the form has ordered.

    On a busy machine a click may come before the form listens, and Prefect's server answers 503 where another write
    to SQLite came between its reading and its writing: its clients then ask again, its pages do not.
    """
    for _ in range(TRIES):
        page.goto(form)
        for group in folded:
            unfold(page, group)
        for title, value in changes.items():
            field(page, title).fill(value)
        page.screenshot(path=PICTURES / "prefect-form.png")
        try:
            with page.expect_response(lambda answer: answer.url.endswith("/create_flow_run")) as ordered:
                page.get_by_role("button", name="Submit").click()
        except TimeoutError:
            continue
        if ordered.value.status == BUSY:
            continue
        assert ordered.value.ok, ordered.value.text()
        return ordered.value.json()["id"]
    pytest.fail(f"{TRIES} clicks have ordered nothing: {page.inner_text('body')}")


GAIN_AND_TIME = ("quality/auc_gain_per_kilojoule", "time/total_seconds")
SMALL = {"--trials": "1", "--max-epochs": "1", "--ensemble-size": "1"}
OF_TRAINING, FURTHER = ("Advanced: training", "Ensemble"), ("Further options",)
MODEL = {"--model": "synthetic/1"}
FORMS: dict[str, tuple[dict[str, str], Sequence[str]]] = {  # what is typed, and the groups that are unfolded for it
    "predict": ({**MODEL, "--data": "rows.tsv"}, ()),
    "export": (MODEL, ()),
    "compress": (
        {
            **MODEL,
            "--min-auc": "0.5",
            **dict.fromkeys(("--calibration-rows", "--fine-tune-rows", "--batch-rows"), "256"),
        },
        FURTHER,
    ),
    "profile": ({}, ()),
    "plan": ({"--data": "synthetic:2000"}, ()),
    "select": ({"--data": "synthetic:2000"}, ()),
    "fleet": ({"--policies": "fifo,srtf"}, ()),
    "tune": ({"--data": "synthetic:4000", **SMALL, "--trials": "2"}, OF_TRAINING),
    "nightly": ({"--data": "day_{date}.parquet", "--schema": "schema.yaml", "--trials": "1"}, ()),
    "train": ({"--data": "synthetic:5000", **SMALL}, OF_TRAINING),
}


@pytest.fixture(scope="module")
def triggered(page: Page, servers: Servers) -> dict[str, Any]:
    """One training, triggered with changed parameters from the form."""
    changes = {"--data": "synthetic:4000", **SMALL}
    return ended(servers, submitted(page, form_of(servers, "train"), changes, OF_TRAINING))


@pytest.fixture(scope="module")
def walked(page: Page, servers: Servers, triggered: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A run of each deployment from its form, on the model of the first training; most run at the same time."""
    write_criteo(servers.data / "rows.tsv", SyntheticSource(rows=5))
    (servers.data / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    for age_days in range(1, 4):
        day = datetime.now(UTC).date() - timedelta(days=age_days)
        clicks(age_days).write_parquet(servers.data / f"day_{day}.parquet")
    ordered = {name: submitted(page, form_of(servers, name), *form) for name, form in FORMS.items()}
    runs = {name: ended(servers, run) for name, run in ordered.items()}
    to = 2 if servers.champion("synthetic") == 1 else 1
    run = submitted(page, form_of(servers, "rollback"), {"--model": "synthetic", "--to": str(to)})
    return {**runs, "rollback": ended(servers, run)}


def test_the_form_shows_common_options_first_and_the_others_on_demand(page: Page, servers: Servers) -> None:
    page.goto(form_of(servers, "train"))
    assert field(page, "--data").input_value() == "ml-100k"
    assert field(page, "--trials").input_value() == "", "an input, though it may be left out"
    titles = page.locator("label").all_inner_texts()
    assert {"--data", "--preset", "Limits", "Advanced: training"} <= {*titles}, "none of them is called optional"
    assert {"--schema (Optional)", "--max-kwh (Optional)"} <= {*titles}
    first = [titles.index(one) for one in ("--data", "--model", "--objective", "Limits", "--preset", "Ensemble")]
    assert first == sorted(first), "what is rarely set, last"
    assert field(page, "--max-epochs").count() == 0, "folded"
    unfold(page, "Advanced: training")
    assert field(page, "--max-epochs").input_value() == ""  # the model decides
    page.screenshot(path=PICTURES / "prefect-unfolded.png", full_page=True)


def test_a_training_triggered_from_the_form_completes_with_what_was_typed(
    page: Page, servers: Servers, triggered: dict[str, Any]
) -> None:
    assert triggered["state_type"] == "COMPLETED", triggered["state"]["message"]
    request = triggered["parameters"]["request"]
    asked = request["source"]["data"], request["search"]["trials"], request["training"]["max_epochs"]
    assert asked == ("synthetic:4000", 1, 1)
    page.goto(f"{servers.prefect}/v2/runs/flow-run/{triggered['id']}")
    page.get_by_text("Completed").first.wait_for()
    page.screenshot(path=PICTURES / "prefect-run.png")


def test_its_decision_is_an_artifact_in_prefect(page: Page, servers: Servers, triggered: dict[str, Any]) -> None:
    by_key = servers.artifacts(triggered)
    page.goto(f"{servers.prefect}/v2/artifacts/artifact/{by_key['decision-reason']['id']}")
    page.get_by_text("needs the least time of").first.wait_for()
    table = json.loads(by_key["decision"]["data"])
    assert len(table) > 1, "the candidates, of which one was chosen"
    page.screenshot(path=PICTURES / "prefect-decision-reason.png")


TABLE_BESIDE_NOTES = """() => {
    const cell = document.querySelector("table td"), elements = [...document.querySelectorAll("*")]
    const notes = elements.find(element => element.textContent === "Key")
    if (!cell || !notes) return false
    const table = cell.closest("table").getBoundingClientRect()
    return table.width > 0 && table.right <= notes.getBoundingClientRect().left
}"""


@pytest.mark.parametrize("name", [*(name for name in FORMS if name != "train"), "rollback"])
def test_a_deployment_shows_its_result_with_table_and_link(
    page: Page, servers: Servers, walked: dict[str, dict[str, Any]], name: str
) -> None:
    run = walked[name]
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    results = servers.artifacts(run)
    assert {name, "run-in-mlflow"} <= results.keys()
    page.goto(f"{servers.prefect}/v2/artifacts/artifact/{results[name]['id']}")
    page.get_by_role("link", name="Run in MLflow").wait_for()
    page.wait_for_function(TABLE_BESIDE_NOTES)
    page.screenshot(path=PICTURES / f"prefect-{name}.png")


def test_runs_are_named_after_data_and_model(walked: dict[str, dict[str, Any]]) -> None:
    named = {"plan": "plan synthetic:2000 dlrm", "predict": "predict synthetic/1 rows.tsv"}
    assert {name: walked[name]["name"] for name in named} == named


def scroll_to(page: Page, name: str) -> None:
    """Scroll MLflow's comparison down until a row is drawn: metrics have a list of their own, drawn as it scrolls."""
    page.locator(".ReactVirtualized__Grid").last.hover()  # the values; the names beside them follow
    row = page.get_by_text(name, exact=True).first
    for _ in range(100):
        if row.count():
            return
        page.mouse.wheel(0, 150)
        page.wait_for_timeout(50)
    pytest.fail(f"{name} is nowhere in the comparison.")


def test_two_runs_are_compared_in_mlflow(page: Page, servers: Servers, walked: dict[str, dict[str, Any]]) -> None:
    second = walked["train"]
    assert second["state_type"] == "COMPLETED", second["state"]["message"]
    trainings = urllib.parse.quote("tags.`run.kind` = 'train' and params.request.data LIKE 'synthetic%'")
    page.goto(f"{servers.mlflow}/#/experiments/1/runs?workflowType=machine_learning&searchFilter={trainings}")
    rows = page.get_by_role("checkbox", name="toggle row selection (unchecked)")
    for _ in range(2):
        rows.first.check()
    page.screenshot(path=PICTURES / "mlflow-runs.png")
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("Comparing 2 Runs").first.wait_for()
    for name in (*("request.data", "placement.label", "energy/kilojoules"), *GAIN_AND_TIME):
        scroll_to(page, name)
    shown = page.inner_text("body")
    assert "synthetic:4000" in shown, "the first run's parameters"
    assert "synthetic:5000" in shown, "beside the second's"
    page.screenshot(path=PICTURES / "mlflow-compare.png", full_page=True)


def test_the_first_page_of_mlflow_leads_to_the_table_of_runs(
    page: Page, servers: Servers, triggered: dict[str, Any]
) -> None:
    if not training_pages():
        pytest.skip("The entry point of MLflow's pages is not installed: `make setup`.")
    page.goto(servers.mlflow)
    page.get_by_role("link", name="shunter/train").first.click()
    page.wait_for_url(re.compile("/experiments/1/runs"))
    runs = page.get_by_role("link", name=re.compile("^0[.0-9]+ AUC"))
    runs.first.wait_for()
    assert runs.count() >= 1
    page.screenshot(path=PICTURES / "mlflow-first-page.png")


def test_a_run_in_mlflow_shows_its_figures(page: Page, servers: Servers, triggered: dict[str, Any]) -> None:
    page.goto(f"{servers.mlflow}/#/experiments/1/runs?workflowType=machine_learning")
    page.get_by_role("link", name=re.compile("^0[.0-9]+ AUC [a-z+]+ on synthetic")).first.click()
    page.get_by_role("tab", name="Artifacts").or_(page.get_by_text("Artifacts", exact=True)).first.click()
    page.get_by_text("report.html", exact=True).wait_for()
    shown = page.inner_text("body").split()
    assert {"config", "model_card", "decision.json", "features.json", "report.html"} <= {*shown}
    page.screenshot(path=PICTURES / "mlflow-artifacts.png")
