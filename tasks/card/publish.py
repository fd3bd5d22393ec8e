"""Where a card is kept: as artifacts of the run, in Prefect, and as the description of the registered version."""

from shunter.markdown import plain
from shunter.reporting.card.document import to_html, to_markdown
from shunter.reporting.card.figures import ModelCard
from shunter.reporting.card.sections import card_title, pictures, sections, summary_sentence
from shunter.tracking.passes import log_passes
from shunter.tracking.registry.card import artifact_link, describe_model, log_texts
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.reports import log_config

FOLDER = "model_card"
CARD_PAGE = f"{FOLDER}/model_card.html"
CARD_MARKDOWN = f"{FOLDER}/model_card.md"
KEY = "model-card"


def publish_card(card: ModelCard) -> None:
    """Keep the card as a page, as Markdown with its pictures, and as `config/model_card.json`.

    Raises:
        TrackingError: The store fails.
    """
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
    _show_in_prefect(markdown)


def describe_version(card: ModelCard, registered: RegisteredModel) -> None:
    """Let the registry's page of the version say how good it is, and lead to its card.

    Raises:
        TrackingError: The store fails.
    """
    link = artifact_link(card.run_id, CARD_PAGE)
    limits = "\n".join(f"- {plain(sentence)}" for sentence in card.limits)
    promotion = f" {plain(registered.not_promoted)}" if registered.not_promoted else ""
    summary = f"{plain(summary_sentence(card))} {plain(card.reason)}{promotion}"
    describe_model(registered, f"**[{plain(card_title(card))}]({link})**\n\n{summary}\n\nLimits:\n\n{limits}\n")


def _show_in_prefect(markdown: str) -> None:
    """Beside the decision among the artifacts of the running flow; the pictures are in MLflow only."""
    from prefect.artifacts import create_markdown_artifact
    from prefect.runtime import flow_run

    if flow_run.id is not None:
        without_pictures = "\n".join(line for line in markdown.splitlines() if not line.startswith("!["))
        create_markdown_artifact(markdown=without_pictures, key=KEY)
