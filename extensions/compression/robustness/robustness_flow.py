"""Flow that measures a registered model under memory faults, with and without a detector, and its card."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from prefect import flow
from prefect.runtime import flow_run

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.metrics import Metrics
from shunter.errors import RequestError
from shunter.extensions.compression.bench import EvaluationSample
from shunter.extensions.compression.compressed_versions import data_of_version, version_of_title
from shunter.extensions.compression.compression_requests import RobustnessRequest
from shunter.extensions.compression.robustness.memory import WORDS, ErrorKind, Memory, MemoryErrors
from shunter.extensions.compression.robustness.trial import (
    ALONE,
    ANSWERS,
    CANARY_ROWS,
    FaultResult,
    measure_under_faults,
    members_logits,
    quality_on,
)
from shunter.hardware.devices.discovery import usable_cores
from shunter.reporting.card.document import Paragraph, Section, Table, to_html, to_markdown
from shunter.settings import Settings
from shunter.tasks.flow_runs import named_by
from shunter.tracking.convention import data_params
from shunter.tracking.registry.named import open_model
from shunter.tracking.registry.serving import RankingScorer
from shunter.tracking.registry.versions import Version, add_to_description, only_model, tag_version
from shunter.tracking.reports import artifact_link, log_texts
from shunter.tracking.runs import closing, open_run, start_run

TITLE = "Under errors of the memory"
CARD_PAGE, CARD_MARKDOWN = "model_card/robustness.html", "model_card/robustness.md"
TOLERATED_AUC_LOSS = 0.005
COLUMNS = ("rate", "errors", "AUC", "in range", "corrected", "excluded", "members", "best alone")


@dataclass(frozen=True, kw_only=True)
class RobustnessCard:
    """Results under memory faults.

    Attributes:
        title: Title of the model.
        kind: Fault type.
        members: Number of members.
        stored_bytes: Number of stored bytes.
        undamaged: Quality of the undamaged model, on the same rows.
        found: Results at each rate, the lowest first.
        alone: Results of the best single member, without the exclusion of members; empty for a single model.
        floor: AUC that counts as sufficient.
        has_check_bits: True if check bits are stored.
        repeats: Number of random draws at each rate.
    """

    title: str
    kind: ErrorKind
    members: int
    stored_bytes: int
    undamaged: Metrics
    found: tuple[FaultResult, ...]
    alone: tuple[FaultResult, ...]
    floor: float
    has_check_bits: bool
    repeats: int

    @property
    def sentence(self) -> str:
        """Return the tolerated fault rates in one sentence."""
        with_it, without = (self._withstood(answer) for answer in (ANSWERS[-1], ANSWERS[0]))
        kept = "none of these rates" if with_it is None else f"{with_it:g} of {WORDS[self.kind]}"
        bare = "none" if without is None else f"{without:g}"
        return (
            f"{self.title} keeps an AUC of {self.floor:.4f} (undamaged {self.undamaged.auc:.4f}) up to {kept} with a "
            f"detector of damage, and up to {bare} without, in the mean of {self.repeats} draws."
        )

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics for the MLflow run."""
        figures: dict[str, float] = {"robustness.auc.undamaged": self.undamaged.auc}
        for one in self.found:
            for answer in ANSWERS:
                figures[f"robustness.auc.{answer}.{one.errors.rate:g}"] = one.mean_auc(answer)
                figures[f"robustness.ne.{answer}.{one.errors.rate:g}"] = one.mean_ne(answer)
        for one in self.alone:
            figures[f"robustness.auc.best_member.{one.errors.rate:g}"] = one.mean_auc(ALONE)
        return figures

    def _withstood(self, answer: str) -> float | None:
        """Return the last fault rate before the AUC under a protection falls below the floor; None if there is none."""
        highest = None
        for one in self.found:
            if one.mean_auc(answer) < self.floor:
                break
            highest = one.errors.rate
        return highest


def rows_of(card: RobustnessCard) -> list[tuple[str, ...]]:
    """Return one row of the card's table per fault rate: rate, faults, AUC by protection, kept members."""
    alone = {one.errors.rate: f"{one.mean_auc(ALONE):.4f}" for one in card.alone}
    return [
        (
            f"{one.errors.rate:g}",
            f"{one.hit:,.0f}",
            *(f"{one.mean_auc(answer):.4f}" for answer in ANSWERS),
            f"{one.left:.1f}/{card.members}",
            alone.get(one.errors.rate, "-"),
        )
        for one in card.found
    ]


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

    alone: Iterator[FaultResult] = iter(())
    if memory.members > 1:  # the member with the highest AUC on the test rows, which flatters the best single model
        scores = [quality_on(test, one).auc for one in members_logits(memory, test)]
        alone = at_each_rate(memory.member(int(np.argmax(scores))))
    return RobustnessCard(
        title=title,
        kind=request.error_kind.value,
        members=memory.members,
        stored_bytes=memory.stored_bytes,
        undamaged=undamaged,
        found=tuple(at_each_rate(memory)),
        alone=tuple(alone),
        floor=floor,
        has_check_bits=memory.has_check_bits,
        repeats=request.repeats,
    )


def log_robustness(run_id: str, version: Version, dataset: Dataset, card: RobustnessCard) -> None:
    """Log the quality under memory faults to the run, and to the model version with its description.

    Raises:
        TrackingError: The tracking store fails.
    """
    detected = "as far as the stored check bits detect them"
    if not card.has_check_bits:
        detected = "which changes nothing, because no check bits are stored with the model"
    how = (
        f"AUC on rows of the test part: mean of {card.repeats} samples of {WORDS[card.kind]} with the rate, in all "
        f"{card.stored_bytes:,} stored bytes. Without a detector; with numbers outside of a tensor's range set to zero "
        f"(in range); also with flipped bits corrected before, {detected}; also without damaged members, which are "
        "detected by predictions on training rows, without labels. The last is not measured for the single best "
        "member. Errors are *simulated*."
    )
    sections = [Section(TITLE, [Paragraph(card.sentence), Paragraph(how), Table(COLUMNS, rows_of(card))])]
    title = f"{card.title} {TITLE.lower()}"
    log_texts(run_id, {CARD_PAGE: to_html(title, sections), CARD_MARKDOWN: to_markdown(title, sections)})
    run = open_run(run_id)
    run.log_params({**data_params(dataset), "robustness.kind": card.kind, "robustness.repeats": card.repeats})
    run.log_metrics(card.metrics)
    run.set_tags({"robustness.of": card.title, "robustness.words": card.sentence})
    tag_version(version, {"robustness.words": card.sentence})
    add_to_description(version, TITLE, f"{card.sentence} [The table]({artifact_link(run_id, CARD_PAGE)})")


@flow(name="robustness", flow_run_name=named_by("model"))
def robustness(request: RobustnessRequest = RobustnessRequest()) -> RobustnessCard:  # noqa: B008
    """Inject memory faults into a registered model, and measure its quality with and without a detector.

    Args:
        request: Model and faults.
    """
    with open_model(request.model or only_model()) as named:
        version = version_of_title(named.title)
        dataset = data_of_version(version, Settings().cache_directory)
        if isinstance(named.scorer(), RankingScorer):
            raise RequestError(f"{named.title} is a ranking model, but faults can be injected only into click models.")
        run_id = start_run(f"{named.title} robustness", "robustness", flow_run_id=flow_run.get_id())
        with closing(run_id):
            card = measure_robustness(named.title, Memory.read(named.weights), dataset, request)
            log_robustness(run_id, version, dataset, card)
    return card
