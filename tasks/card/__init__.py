"""Step `card`: model card, a page for users of the model, kept with the run and linked from the registry."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.execution import execution_of
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.markdown import plain
from shunter.reporting.card.baselines import Rival, TrainedBaseline, baseline_metrics, compare_baselines
from shunter.reporting.card.figures import ModelCard
from shunter.reporting.card.promise import Promise
from shunter.reporting.card.quality import group_metrics, score_unknown_row
from shunter.tasks.accelerators import announce
from shunter.tasks.run_log import show_markdown
from shunter.tracking.registry.models import RegisteredModel, describe_model
from shunter.tracking.reports import artifact_link, log_config, log_passes, log_texts
from shunter.tracking.runs import open_run

__all__ = [
    "CARD_MARKDOWN",
    "CARD_PAGE",
    "describe_version",
    "publish_card",
    "write_card",
]

FOLDER = "model_card"
CARD_PAGE = f"{FOLDER}/model_card.html"
CARD_MARKDOWN = f"{FOLDER}/model_card.md"
KEY = "model-card"
UNKNOWN_ROW = "quality.unknown_row_probability"


@task(name="card", cache_policy=NO_CACHE)
def write_card(
    parent_run_id: str,
    dataset: Dataset,
    members: Sequence[TrainedModel],
    result: EnsembleResult,
    placement: Placement,
    *,
    baselines: Sequence[TrainedBaseline | Rival] = (),
    seed: int = 0,
    notes: Sequence[str] = (),
    promise: Promise | None = None,
) -> ModelCard:
    """Write the model card and log it to the run; `describe_version` links it from the registry.

    `notes` are warnings of the training run, one sentence each; `promise` is the quality that the version guarantees.
    """
    from shunter.reporting.card.facts import gather

    execution = execution_of(placement)
    compared = compare_baselines(dataset, baselines, result, execution, seed=seed)
    run = open_run(parent_run_id)
    run.log_figures("baselines", baseline_metrics(compared, result.test))
    run.set_tags({f"baseline.{one.name}.verdict": one.summary for one in compared})
    run.set_tags({f"baseline.{one.name}.trained_at": one.trained_at.isoformat() for one in compared if one.trained_at})
    unknown = score_unknown_row(result.directory, dataset, execution)
    if not unknown.is_number:
        run.log_figures("unknown_row", {UNKNOWN_ROW: unknown.probability})
    if unknown.is_far_off:
        announce(unknown.sentence)
    if promise is not None:
        run.log_figures("promise", promise.metrics)
    words = "" if promise is None else promise.sentence
    card = gather(
        parent_run_id,
        dataset,
        members,
        result,
        execution,
        baselines=compared,
        seed=seed,
        notes=[*notes, unknown.sentence],
        promise=words,
    )
    run.log_figures("gauc", group_metrics(card.quality))
    publish_card(card)
    return card


def publish_card(card: ModelCard) -> None:
    """Log the card to the run as a page, as Markdown with its pictures, and as `config/model_card.json`.

    A Prefect artifact of the running flow shows the card beside the decision.

    Raises:
        TrackingError: The store fails.
    """
    from shunter.reporting.card.document import to_html, to_markdown
    from shunter.reporting.card.sections import card_title, pictures, sections

    title, parts = card_title(card), sections(card)
    markdown = to_markdown(title, parts)
    files = {
        CARD_PAGE: to_html(title, parts),
        CARD_MARKDOWN: markdown,
        **{f"{FOLDER}/{name}": svg for name, svg in pictures(parts).items()},
    }
    log_texts(card.run_id, files)
    log_config(card.run_id, "model_card", card)
    log_passes(card.run_id, card.passes)
    # The pictures are in MLflow only.
    show_markdown(KEY, "\n".join(line for line in markdown.splitlines() if not line.startswith("![")))


def describe_version(card: ModelCard, registered: RegisteredModel) -> None:
    """Write quality, limits and a link to the card into the description of a registered version.

    Raises:
        TrackingError: The store fails.
    """
    from shunter.reporting.card.sections import card_title, summary_sentence

    link = artifact_link(card.run_id, CARD_PAGE)
    limits = "\n".join(f"- {plain(sentence)}" for sentence in card.limits)
    promotion = f" {plain(registered.not_promoted)}" if registered.not_promoted else ""
    summary = f"{plain(summary_sentence(card))} {plain(card.reason)}{promotion}"
    describe_model(registered, f"**[{plain(card_title(card))}]({link})**\n\n{summary}\n\nLimits:\n\n{limits}\n")
