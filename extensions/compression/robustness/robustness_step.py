"""Step `robustness`: measure a registered model under memory faults, with and without a detector."""

from collections.abc import Iterator

import numpy as np

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.errors import RequestError
from shunter.extensions.compression.evaluation_sample import EvaluationSample
from shunter.extensions.compression.robustness.injection import MemoryErrors
from shunter.extensions.compression.robustness.memory import Memory
from shunter.extensions.compression.robustness.robustness_card import TITLE, RobustnessCard, sections_of
from shunter.extensions.compression.robustness.robustness_request import RobustnessRequest
from shunter.extensions.compression.robustness.trial import (
    CANARY_ROWS,
    FaultResult,
    measure_under_faults,
    members_logits,
    quality_on,
)
from shunter.hardware.devices.discovery import usable_cores
from shunter.reporting.card.document import to_html, to_markdown
from shunter.tracking.convention import data_params
from shunter.tracking.registry.card import artifact_link, log_texts
from shunter.tracking.registry.versions import Version, add_to_description, tag_version
from shunter.tracking.runs import open_run

CARD_PAGE, CARD_MARKDOWN = "model_card/robustness.html", "model_card/robustness.md"
TOLERATED_AUC_LOSS = 0.005


def measure_robustness(title: str, memory: Memory, dataset: Dataset, request: RobustnessRequest) -> RobustnessCard:
    """Inject faults into the model repeatedly at each rate, and evaluate the damaged model each time.

    Args:
        title: Title of the model.
        memory: Model in memory.
        dataset: Data set on which the model was trained.
        request: Faults to inject.

    Raises:
        RequestError: The model reads other features than the data has, or the undamaged model is below the lowest AUC.
        DataError: An array cannot be read.
    """
    if memory.model.features.number is not None:
        raise RequestError(f"{title} predicts a number, but faults are measured only for click models.")
    if memory.model.features != dataset.features:
        raise RequestError(f"{title} uses features that its data set does not have: try another version.")
    execution = Execution(threads=usable_cores())
    test = EvaluationSample(dataset, execution, "test")
    canaries = EvaluationSample(dataset, execution, "train", batch_rows=CANARY_ROWS, most_batches=1)
    memory.load(is_guarded=False)
    undamaged = quality_on(test, memory.combine(members_logits(memory, test)))
    floor = undamaged.auc - TOLERATED_AUC_LOSS if request.min_auc is None else request.min_auc
    if not undamaged.auc >= floor:
        raise RequestError(f"The AUC of {title} without faults is {undamaged.auc:.4f}: lower --min-auc {floor:g}.")

    def at_each_rate(of: Memory) -> Iterator[FaultResult]:
        for rate in request.rates:
            errors = MemoryErrors(rate=rate, kind=request.error_kind.value)
            yield measure_under_faults(of, errors, test, canaries, repeats=request.repeats, seed=request.seed)

    return RobustnessCard(
        title=title,
        kind=request.error_kind.value,
        members=memory.members,
        stored_bytes=memory.stored_bytes,
        undamaged=undamaged,
        found=tuple(at_each_rate(memory)),
        alone=tuple(at_each_rate(_best_alone(memory, test))) if memory.members > 1 else (),
        floor=floor,
        has_check_bits=memory.has_check_bits,
        repeats=request.repeats,
    )


def log_robustness(run_id: str, version: Version, dataset: Dataset, card: RobustnessCard) -> None:
    """Log the quality under memory faults to the run, and to the model version with its description.

    Raises:
        TrackingError: The tracking store fails.
    """
    sections = sections_of(card)
    title = f"{card.title} {TITLE.lower()}"
    log_texts(run_id, {CARD_PAGE: to_html(title, sections), CARD_MARKDOWN: to_markdown(title, sections)})
    run = open_run(run_id)
    run.log_params({**data_params(dataset), "robustness.kind": card.kind, "robustness.repeats": card.repeats})
    run.log_metrics(card.metrics)
    run.set_tags({"robustness.of": card.title, "robustness.words": card.sentence})
    tag_version(version, {"robustness.words": card.sentence})
    add_to_description(version, TITLE, f"{card.sentence} [The table]({artifact_link(run_id, CARD_PAGE)})")


def _best_alone(memory: Memory, test: EvaluationSample) -> Memory:
    """Return the member with the highest AUC on the test rows, which flatters the best single model."""
    scores = [quality_on(test, one).auc for one in members_logits(memory, test)]
    return memory.member(int(np.argmax(scores)))
