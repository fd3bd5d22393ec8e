"""What the public pages name exists: links, headings, paths and what they import. They speak to their readers alone."""

import importlib
import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest
from typer._click.core import Command, Context
from typer._click.exceptions import UsageError
from typer.core import TyperGroup
from typer.main import get_command

from shunter.errors import RequestError
from shunter.flows.command.cli import app
from shunter.flows.command.options import JOB_REQUESTS, requested
from shunter.requests import Request
from shunter.settings import PROJECT_ROOT
from shunter.tracking.store import EXPERIMENTS
from tests.docs.test_pages import write_files

PAGES = [
    *(
        PROJECT_ROOT / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "SECURITY.md",
            "mlflow/README.md",
            "examples/README.md",
        )
    ),
    *sorted((PROJECT_ROOT / "docs").rglob("*.md")),
]
CODE_FOLDERS = (
    *(
        "operation",
        "retraining",
        "serving",
        "extensions",
        "flows",
        "tasks",
        "reporting",
        "planner",
        "search",
        "tracking",
        "ingestion",
    ),
    *("engine", "models", "hardware", "shunter"),
)
OTHER_FOLDERS = ("mlflow", "benchmarks", "docs", "tests", "requirements")
# Artifacts, metrics and experiments in MLflow, which look like paths of the project.
IN_MLFLOW = {
    *("search/study.db", "search/front.json", "search/trials.csv"),
    *("search/complete_trials", "search/best_ne", "search/best_relative_loss", *EXPERIMENTS),
}
# Sentences to whoever ordered the work instead of to a reader.
NOT_TO_READERS = (
    *("was asked", "were asked", "been asked", "is asked for", "are asked for", "asked for"),
    *("was demanded", "were demanded", "was required of", "as requested", "as instructed", "the order says"),
)
MOST_LINES, MOST_WORDS = 200, 25  # of a page, of a cell of a table
PROSE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
TOKEN = re.compile(r"`((?:" + "|".join((*CODE_FOLDERS, *OTHER_FOLDERS)) + r")/[\w./*-]*)`")

COMMAND = re.compile(r"^ *shunter(?![.])((?:.*\\\n)*.*)$", re.MULTILINE)
SHELL = {"|", "||", "&", "&&", ";", ">", "<"}

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT_ROOT)))
OUTSIDE_OF_THE_SITE = [page for page in PAGES if not page.is_relative_to(PROJECT_ROOT / "docs")]


def prose_of(page: Path) -> str:
    """A page without its blocks of code."""
    return PROSE.sub("", page.read_text())


def anchors_of(page: Path) -> set[str]:
    """The headings as a link names them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", OUTSIDE_OF_THE_SITE, ids=lambda page: str(page.relative_to(PROJECT_ROOT)))
def test_every_relative_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if link.startswith(("https://", "http://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert not anchor or anchor in anchors_of(path), link


@pages
def test_every_path_named_exists(page: Path) -> None:
    missing = [name for name in TOKEN.findall(prose_of(page)) if name not in IN_MLFLOW and not exists(name)]
    assert missing == []


def exists(name: str) -> bool:
    """Whether a path is in the project; NAME stands for any name, and a folder ends in a slash."""
    if "*" in name or "NAME" in name:
        return any(PROJECT_ROOT.glob(name.replace("NAME", "*")))
    path = PROJECT_ROOT / name
    return path.is_dir() if name.endswith("/") else path.exists()


@pages
def test_what_an_example_imports_exists(page: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for module, names in re.findall(r"^from ((?:" + "|".join(CODE_FOLDERS) + r")[\w.]*) import (.+)$", block, re.M):
            imported = importlib.import_module(module)
            assert all(hasattr(imported, name.strip()) for name in names.split(",")), (module, names)


@pages
def test_no_sentence_is_a_message_to_whoever_ordered_the_work(page: Path) -> None:
    text = " ".join(page.read_text().lower().split())
    assert [phrase for phrase in NOT_TO_READERS if phrase in text] == []


@pages
def test_pages_and_cells_are_short(page: Path) -> None:
    text = prose_of(page)
    assert page.read_text().count("\n") <= MOST_LINES
    cells = [cell for line in re.findall(r"^\|.*", text, re.MULTILINE) for cell in re.split(r"(?<!\\)\|", line)]
    assert [cell for cell in cells if len(cell.split()) > MOST_WORDS] == []


def test_contributing_has_a_row_for_every_folder_in_the_order_of_imports() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|", (PROJECT_ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    code = tuple(row for row in rows if row in CODE_FOLDERS)
    assert code == CODE_FOLDERS
    others = {"benchmarks", "docs", "examples", "requirements", "tests"}
    assert {path.parent.name for path in PROJECT_ROOT.glob("*/*.py")} - others == set(CODE_FOLDERS)


def test_the_page_on_architecture_names_every_folder_of_code() -> None:
    text = (PROJECT_ROOT / "docs/explanation/architecture.md").read_text()
    assert [folder for folder in CODE_FOLDERS if f"`{folder}/`" not in text] == []


@pages
def test_every_command_that_is_shown_is_understood(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options exist, values and job files make a request; that they do what is said, `test_pages` shows."""
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in COMMAND.findall(page.read_text()):
        words = shlex.split(block.replace("\\\n", " "), comments=True)
        context = understood(get_command(app), list(takewhile(lambda word: word not in SHELL, words)))
        assert context.args == []
        is_elsewhere = "://" in str(context.params.get("config"))  # a job file that this machine does not have
        if context.command.name in JOB_REQUESTS.names and not is_elsewhere:
            request_of(context)


def request_of(context: Context) -> Request:
    """Return the request that a command makes of its options and its job file."""
    model = JOB_REQUESTS.load(str(context.command.name))
    options = {name: value for name, value in context.params.items() if name in {*model.options(), "config"}}
    return requested(model, {**options, "context": context})


def understood(command: Command, words: list[str], parent: Context | None = None) -> Context:
    """What a command, or that below it which the words name, makes of them, as when it is called.

    Raises:
        UsageError, RequestError: It would be refused.
    """
    context = command.make_context("shunter", list(words), parent=parent)
    left = [*context._protected_args, *context.args]
    if not isinstance(command, TyperGroup) or not left:
        return context
    _, below, rest = command.resolve_command(context, left)
    assert below is not None
    return understood(below, rest, context)


def test_a_command_that_would_be_refused_is_found() -> None:
    for words in (["trian"], ["train", "--modle", "dnn"], ["train", "--trials", "few"], ["report", "a", "b"]):
        with pytest.raises((UsageError, RequestError)):
            understood(get_command(app), words)


def test_a_job_file_that_would_be_refused_is_found(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("search: {trails: 2}\n")
    with pytest.raises(RequestError):
        request_of(understood(get_command(app), ["train", "--config", str(job)]))
