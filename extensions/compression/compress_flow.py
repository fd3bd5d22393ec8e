"""Flow that compresses a registered model: try compressions, measure them, and register the best one."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from prefect import flow
from prefect.runtime import flow_run

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.config import Execution
from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import Metrics
from shunter.engine.passes.record import PassRecord
from shunter.engine.passes.role import Tried, passes_of, try_pass
from shunter.errors import DataError, InfeasibleError, RequestError
from shunter.extensions.compression.bench import Bench, weight_bytes
from shunter.extensions.compression.compressed_versions import (
    COMPRESSION_BY,
    COMPRESSION_OF,
    data_of_version,
    version_of_title,
)
from shunter.extensions.compression.compression_card import COLUMNS, MILLISECONDS, CompressionCard, card_of, comparison
from shunter.extensions.compression.compression_requests import (
    TOLERATED_AUC_LOSS,
    TOLERATED_RMSE_RATIO,
    CompressRequest,
)
from shunter.extensions.compression.fine_tune import FineTuning
from shunter.extensions.compression.subject import (
    CompressionLimits,
    CompressionSubject,
    QualityLimit,
    members_of,
    search_choices,
)
from shunter.flows.scoring import chosen_model
from shunter.ingestion.encoding.encoded import EncodedBag, EncodedRows
from shunter.models.altered_layers import is_altered
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.reporting.card.document import to_html, to_markdown
from shunter.requests import shown
from shunter.settings import Settings
from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.run_log import announce, markdown_table, show_result
from shunter.tracking.convention import data_params, quality_metrics
from shunter.tracking.registry.client import open_registry
from shunter.tracking.registry.model_keys import check_model_key
from shunter.tracking.registry.models import RegisteredModel, describe_model, register_model
from shunter.tracking.registry.named import open_model
from shunter.tracking.registry.serving import RankingScorer, Scorer
from shunter.tracking.reports import artifact_link, log_passes, log_texts
from shunter.tracking.runs import closing, open_run, start_run
from shunter.tracking.store import tracking_errors

LEAST_CALIBRATION_ROWS = 256
CARD_PAGE, CARD_MARKDOWN = "model_card/model_card.html", "model_card/model_card.md"  # as for training runs


@dataclass(frozen=True)
class Opened:
    """Registered model that is to be compressed, with its scorer and data set.

    Attributes:
        title: Name and version of the model.
        scorer: Object that scores with the model.
        dataset: Data set on which the model was trained.
    """

    title: str
    scorer: Scorer
    dataset: Dataset


def check_scorer(title: str, scorer: Scorer | RankingScorer, dataset: Dataset) -> Opened:
    """Check that a model can be compressed, and return it with its scorer and data set.

    Raises:
        RequestError: The model ranks items, is already compressed, or reads other features than
            the data set has.
    """
    if isinstance(scorer, RankingScorer):
        raise RequestError(
            f"{title} is a ranking model without hidden layers and cannot be compressed: name a model of "
            "clicks or numbers."
        )
    if is_altered(scorer.model):
        raise RequestError(
            f"{title} is compressed already: compress the original version, which its tag {COMPRESSION_OF} names."
        )
    if scorer.model.features != dataset.features:
        raise RequestError(f"{title} uses features that its data set does not have: compress another version.")
    return Opened(title, scorer, dataset)


def quality_limit(opened: Opened, request: CompressRequest, own: Metrics) -> QualityLimit:
    """Return the limit on the quality of a compressed model, from the request or the quality of the original.

    Raises:
        RequestError: The limit does not suit the labels (an AUC for numbers, an RMSE for clicks), or the original
            itself does not keep it.
    """
    if opened.dataset.features.number is None:
        other, option, bound = request.max_rmse, "--min-auc", request.min_auc
        limit = QualityLimit("auc", own.auc - TOLERATED_AUC_LOSS if bound is None else bound)
    else:
        other, option, bound = request.min_auc, "--max-rmse", request.max_rmse
        limit = QualityLimit("rmse", TOLERATED_RMSE_RATIO * (own.rmse or 0.0) if bound is None else bound)
    if other is not None:
        raise RequestError(
            f"The quality of {opened.title} is measured by {limit.label}: limit it with {option} instead."
        )
    if not math.isnan(value := limit.of(own)) and not limit.is_kept(value):
        raise RequestError(
            f"The uncompressed model {opened.title} has a validation {limit.label} of {value:.4f}, beyond "
            f"the limit: change {option} {limit.bound:g}."
        )
    return limit


def try_compressions(opened: Opened, request: CompressRequest) -> "Compressed":
    """Try every compression method on the model, and measure the results on this machine.

    Raises:
        DataError: There are too few rows to calibrate a smaller model.
        InfeasibleError: No compression keeps the limits.
    """
    rows = min(request.calibration_rows, opened.dataset.splits["train"].rows)
    if rows < LEAST_CALIBRATION_ROWS:
        raise DataError(
            f"{rows:,} rows are too few to calibrate a compressed model: --calibration-rows and the "
            f"training data must have at least {LEAST_CALIBRATION_ROWS}."
        )
    execution = Execution(threads=torch.get_num_threads())
    encoder = opened.scorer.encoder

    def score(model: Model | Ensemble, given: EncodedRows) -> np.ndarray:
        return Scorer(encoder, model).scores_of(given)

    rows_of_bench = encoded_rows(opened.dataset, "validation", request.batch_rows)
    bench = Bench(opened.dataset, execution, score, rows_of_bench, batch_rows=request.batch_rows)
    limit = quality_limit(opened, request, bench.quality(opened.scorer.model))
    shuffled = BatchLoader(opened.dataset, "train", rows, shuffle=True)
    subject = CompressionSubject(
        model=opened.scorer.model,
        bench=bench,
        calibration=next(iter(shuffled.batches())),
        limits=CompressionLimits(limit, max_bytes=request.max_bytes),
        fine_tuning=FineTuning(rows=request.fine_tune_rows),
        search=search_choices,
    )
    rivals = try_rivals(subject, opened.title)
    model = rivals.subject.model
    before, after = (evaluate(one, opened.dataset, "test", execution).metrics for one in (opened.scorer.model, model))
    card = CompressionCard(
        title=opened.title,
        winner=rivals.winner,
        records=rivals.records,
        batch_rows=request.batch_rows,
        limit=limit,
        test=(before, after),
    )
    return Compressed(opened, card, model, bench.quality(model))


@dataclass(frozen=True)
class Compressed:
    """Result of compressing a model: the best model, its quality and the card.

    Attributes:
        opened: Model that was compressed.
        card: Card with the results.
        model: Best model, possibly the original one.
        validation: Quality of the best model on the validation part.
    """

    opened: Opened
    card: CompressionCard
    model: Model | Ensemble
    validation: Metrics


def encoded_rows(dataset: Dataset, split: SplitName, rows: int) -> EncodedRows:
    """Return the first rows of a part in the encoder's output format.

    Raises:
        DataError: An array is missing.
    """

    def read(name: str) -> np.ndarray:
        return read_array(dataset.directory / f"{split}.{name}.npy")

    count = min(rows, dataset.splits[split].rows)
    fields = dataset.features.categorical
    is_single = any(not field.multi_valued for field in fields)
    bags = []
    for position, field in enumerate(fields):
        if field.multi_valued:
            offsets = np.array(read(f"bag{position}.offsets")[: count + 1])
            weights = np.array(read(f"bag{position}.weights")[: offsets[-1]]) if field.is_weighted else None
            bags.append(EncodedBag(np.array(read(f"bag{position}.values")[: offsets[-1]]), offsets, weights))
    return EncodedRows(
        dense=np.array(read("dense")[:count]) if dataset.features.dense else np.empty((count, 0), np.float32),
        categorical=np.array(read("categorical")[:count]) if is_single else np.empty((count, 0), np.int32),
        bags=bags,
    )


def log_compressions(run_id: str, found: Compressed) -> None:
    """Log the results of all compressions to the MLflow run.

    Raises:
        TrackingError: The tracking store fails.
    """
    card = found.card
    title, sections = card_of(card)
    log_texts(run_id, {CARD_PAGE: to_html(title, sections), CARD_MARKDOWN: to_markdown(title, sections)})
    log_passes(run_id, card.records)
    run = open_run(run_id)
    family = " and ".join(dict.fromkeys(member.spec.family for member in members_of(found.model)))
    run.log_params({**data_params(found.opened.dataset), "request.model": f"{family}, {card.winner or 'as it was'}"})
    run.log_metrics(_figures(found))
    run.set_tags({COMPRESSION_OF: card.title, COMPRESSION_BY: card.winner or "none"})


def register_compressed(run_id: str, found: Compressed, winner: str, *, promote: bool) -> RegisteredModel:
    """Register the best compressed model as a new version under the name of the original.

    Args:
        run_id: MLflow run of the compression.
        found: Result of the compressions.
        winner: Name of the best compression.
        promote: If True, the version becomes the champion; otherwise it gets the alias `challenger`.

    Raises:
        TrackingError: The tracking store fails.
    """
    card, name = found.card, found.card.title.rpartition("/")[0]
    waits = None if promote else f"It is {card.title} compressed by {winner}, whose promotion was not requested."
    with tempfile.TemporaryDirectory(prefix="shunter-compressed-") as folder:
        save_model(found.model, Path(folder))
        registered = register_model(
            run_id,
            found.opened.dataset,
            Path(folder),
            name,
            metrics=_figures(found),
            tags={COMPRESSION_OF: card.title, COMPRESSION_BY: winner},
            not_promoted=waits,
        )
    if waits is not None:
        with tracking_errors():
            open_registry().set_alias(name, "challenger", registered.version)
    title, sections = card_of(card)
    describe_model(registered, f"[The card]({artifact_link(run_id, CARD_PAGE)})\n\n{to_markdown(title, sections)}")
    announce("promoted" if waits is None else "not-promoted", name, registered.version, waits or card.sentence)
    return registered


def _figures(found: Compressed) -> dict[str, float]:
    metrics = {**quality_metrics(found.validation), **quality_metrics(found.card.test[1], "test")}
    return {name: float(value) for name, value in metrics.items()}


@dataclass(frozen=True)
class Rivals:
    """Results of all compression methods on one model.

    Attributes:
        subject: Model of the fastest compression within the limits; the original model if no compression is faster.
        winner: Name of the fastest compression; None if the model is not compressed.
        records: Records of all compressions.
    """

    subject: CompressionSubject
    winner: str | None
    records: tuple[PassRecord, ...]


def try_rivals(subject: CompressionSubject, title: str) -> Rivals:
    """Try every compression method separately on the same model, and return the fastest within the limits.

    Args:
        subject: Model to compress, with the limits.
        title: Display name of the model.

    Raises:
        InfeasibleError: No compression keeps the quality within the size limit; the message names the nearest one.
    """
    best, winner, least = subject, None, 1.0
    records: list[PassRecord] = []
    for one in passes_of("compression"):
        made, record = try_pass(one, Tried(subject, title))
        records.append(record)
        times = (one for one in record.figures if one.name == MILLISECONDS and one.before)
        share = next((one.after / one.before for one in times), 1.0)
        if record.is_kept and (winner is None or share < least):
            best, winner, least = made, one.name, share
    if winner is None:
        _check_possible(subject, records)
    return Rivals(best, winner, tuple(records))


def _check_possible(subject: CompressionSubject, records: Sequence[PassRecord]) -> None:
    """Raise if neither the original model nor any compressed one keeps the limits."""
    limits, limit = subject.limits, subject.limits.quality
    found = {record.name: {one.name: one.after for one in record.figures} for record in records if record.figures}
    keeping = {name: figures for name, figures in found.items() if limit.is_kept(figures[limit.metric])}
    if found and not keeping:
        nearest = min(found, key=lambda name: limit.loss(found[name][limit.metric]))
        raise InfeasibleError(_told(nearest, found, limit, f"No compression keeps {limit.label} {limit.bound:.4f}"))
    if limits.max_bytes is not None and (size := weight_bytes(subject.model)) > limits.max_bytes:
        what = f"No compression that keeps the {limit.label} fits {limits.max_bytes:,} bytes"
        if keeping:
            nearest = min(keeping, key=lambda name: keeping[name]["weight_bytes"])
            raise InfeasibleError(_told(nearest, keeping, limit, what))
        raise InfeasibleError(
            f"{what}: the model has {size:,} and cannot be compressed ({records[0].reason}); raise --max-bytes."
        )


def _told(nearest: str, found: dict[str, dict[str, float]], limit: QualityLimit, what: str) -> str:
    figures, option = found[nearest], "lower --min-auc" if limit.metric == "auc" else "raise --max-rmse"
    return (
        f"{what}: the nearest is {nearest} with {limit.label} {figures[limit.metric]:.4f} and "
        f"{figures['weight_bytes']:,.0f} bytes, so nothing was registered; {option} or raise --max-bytes."
    )


@flow(name="compress", flow_run_name=named_by("model"), on_failure=[notify], on_crashed=[notify])
def compress(
    request: Annotated[CompressRequest, shown(CompressRequest())] = CompressRequest(),  # noqa: B008 - frozen
) -> tuple[Compressed, RegisteredModel | None]:
    """Try every compression on a registered model, and register the fastest result within the limits.

    Args:
        request: Model, and the limits on its compressed version.

    Returns:
        Results of the compressions, and the new version; None if the model is not compressed.
    """
    check_model_key()
    with open_model(chosen_model(request.model)) as named:
        version = version_of_title(named.title)
        dataset = data_of_version(version, Settings().cache_directory)
        opened = check_scorer(named.title, named.scorer(), dataset)
        run_id = start_run(f"{named.title} compress", "compress", flow_run_id=flow_run.get_id())
        with closing(run_id):
            found = try_compressions(opened, request)
            log_compressions(run_id, found)
            winner = found.card.winner
            made = None if winner is None else register_compressed(run_id, found, winner, promote=request.promote)
    rows: list[dict[str, str]] = [dict(zip(COLUMNS, row, strict=True)) for row in comparison(found.card.records)]
    show_result("compress", found.card.sentence, markdown_table(rows), run_id=run_id)
    return found, made
