"""Display of a run in Prefect: log lines, result pages with tables and links to MLflow, and events about models."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Literal

from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.ranking.result import TrainedRanker
from shunter.errors import TrackingError
from shunter.markdown import narrow_tables, plain
from shunter.reporting.card.figures import BaselineFigures
from shunter.reporting.card.ranking_baselines import RankingBaseline
from shunter.tracking.links import VIEW, pages_address, run_link
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.registry.rival import rival_of
from shunter.tracking.reports import artifact_link

RUN = "Run in MLflow"
REPORT = {"Report": "report.html"}
Happening = Literal["promoted", "not-promoted", "rolled-back", "promise-broken", "degraded"]


def log_sentence(sentence: str) -> None:
    """Write a sentence to the log of the running flow or task; do nothing outside of one."""
    from prefect import get_run_logger
    from prefect.exceptions import MissingContextError

    try:
        get_run_logger().info("%s", sentence)
    except MissingContextError:
        return


def log_outcome(
    result: EnsembleResult | TrainedRanker,
    registered: RegisteredModel,
    run_id: str,
    baselines: Sequence[BaselineFigures | RankingBaseline] = (),
) -> None:
    """Log the result of a training run compared with baselines and champion, its version, and an MLflow link."""
    for sentence in outcome_sentences(result, registered, run_id, baselines):
        log_sentence(sentence)


def outcome_sentences(
    result: EnsembleResult | TrainedRanker,
    registered: RegisteredModel,
    run_id: str,
    baselines: Sequence[BaselineFigures | RankingBaseline] = (),
) -> list[str]:
    """Return the sentences of `log_outcome`."""
    if isinstance(result, TrainedRanker):
        told = [f"On the test part: NDCG@20 {result.test.ndcg20:.4f}, recall@20 {result.test.recall20:.4f}."]
        if baselines:
            told += [one.summary for one in baselines]
        elif result.popularity:
            told.append(f"The order by popularity has NDCG@20 {result.popularity.ndcg20:.4f} there.")
    else:
        test = result.test
        figures = f"AUC {test.auc:.4f}, NE {test.ne:.4f} (the base rate: 0.5 and 1)"
        if test.rmse is not None:
            figures = f"RMSE {test.rmse:.4f}, MAE {test.mae:.4f}, relative loss {test.ne:.4f} (the best constant: 1)"
        told = [result.reason, f"On the test part: {figures}."]
        told += [one.summary for one in baselines]
    version = f"{registered.name} version {registered.version}"
    champion = "now its champion" if registered.not_promoted is None else f"not its champion. {registered.not_promoted}"
    told.append(f"Registered as {version}, {champion}")
    with contextlib.suppress(TrackingError):  # the log is for people; lasting data is stored in MLflow
        rival, link = rival_of(registered.name, registered.version), run_link(run_id)
        if rival is not None:  # the champion, or the one that this version has replaced
            figures = ", ".join(f"{name} {value:.4f}" for name, value in rival.figures.items()) or "no figures"
            data = "the same data" if rival.fingerprint == result.data_fingerprint else "other data"
            which = "The champion before it" if registered.not_promoted is None else "The champion"
            told.append(f"{which}, version {rival.version}, has {figures} on the test part of {data}.")
        told.append(f"In MLflow: {link}")
    return [f"{sentence.rstrip('.')}." if "://" not in sentence else sentence for sentence in told]


def show_markdown(key: str, markdown: str, description: str | None = None) -> None:
    """Show Markdown, with wide tables divided, as an artifact of the running flow; do nothing outside of a flow."""
    from prefect.artifacts import create_markdown_artifact
    from prefect.runtime import flow_run

    if flow_run.id is not None:
        create_markdown_artifact(narrow_tables(markdown), key=key, description=description)


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
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return
    links = {} if run_id is None else link_run(run_id, files or {})
    lines = "".join(f"\n- [{name}]({address})" for name, address in links.items())
    show_markdown(key, f"{plain(sentence)}\n\n{markdown}\n{lines}\n", plain(sentence))
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


def announce(happening: Happening, model: str, version: int | None, reason: str) -> None:
    """Emit `shunter.model.<happening>` for a registered model; outside of a flow run nothing is emitted."""
    from prefect.events import emit_event
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return
    emit_event(
        event=f"shunter.model.{happening}",
        resource={"prefect.resource.id": f"shunter.model.{model}", "prefect.resource.name": model},
        related=[{"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.role": "flow-run"}],
        payload={"model": model, "version": version, "reason": reason},
    )
