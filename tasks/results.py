"""Result of a deployment in Prefect: a line in the log, a page with table and links, and links to MLflow."""

import contextlib
from collections.abc import Mapping

from shunter.errors import TrackingError
from shunter.markdown import narrow_tables, plain
from shunter.tasks.run_log import log_sentence
from shunter.tracking.links import VIEW, pages_address, run_link
from shunter.tracking.reports import artifact_link

RUN = "Run in MLflow"
REPORT = {"Report": "report.html"}


def show_result(
    key: str, sentence: str, markdown: str = "", *, run_id: str | None = None, files: Mapping[str, str] | None = None
) -> None:
    """Show a result as artifacts of the running flow, and write it to its log; do nothing outside of a flow.

    Pictures are linked: Prefect would print the bytes of an embedded picture over its page.

    Args:
        key: Key of the artifact: small letters, digits and dashes.
        sentence: Result in one sentence.
        markdown: Tables and further text.
        run_id: Run in MLflow; None if there is none.
        files: Paths of pictures and pages within the MLflow run, by their names.
    """
    from prefect.artifacts import create_markdown_artifact
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return
    links = {} if run_id is None else link_run(run_id, files or {})
    lines = "".join(f"\n- [{name}]({address})" for name, address in links.items())
    text = f"{plain(sentence)}\n\n{narrow_tables(markdown)}\n{lines}\n"
    create_markdown_artifact(text, key=key, description=plain(sentence))
    log_sentence(f"Result: {sentence}")


def link_run(run_id: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return links, by name, to an MLflow run and its files; show the links to run and report in the Prefect UI."""
    from prefect.artifacts import create_link_artifact
    from prefect.runtime import flow_run

    links: dict[str, str] = {}
    with contextlib.suppress(TrackingError):  # a store that cannot be reached yet knows no address
        links[RUN] = run_link(run_id)
        links |= {name: f"{pages_address()}/{artifact_link(run_id, path)}?{VIEW}" for name, path in files.items()}
    for name in links.keys() & {RUN, *REPORT} if flow_run.id is not None else ():
        create_link_artifact(links[name], link_text=name, key=name.lower().replace(" ", "-"), description=links[name])
    return links


def markdown_table(rows: list[dict[str, str]]) -> str:
    """Return rows of equal columns as a table in Markdown; empty without rows."""
    if not rows:
        return ""
    head = f"| {' | '.join(plain(name) for name in rows[0])} |\n|{'---|' * len(rows[0])}"
    return "\n".join([head, *(f"| {' | '.join(plain(value) for value in row.values())} |" for row in rows)])
