"""Collection of the contents of a model card from the results of earlier steps: data, members, and result files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Execution
from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset, date_texts
from shunter.engine.data.loader import BatchLoader, mean_ids_per_sample
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.ensemble.scored import score_test
from shunter.engine.trained_model import TrainedModel
from shunter.ingestion.tables import table_ids
from shunter.models.counting import count_layers, count_model
from shunter.models.ensemble import Ensemble
from shunter.reporting.card.architecture import describe_architecture
from shunter.reporting.card.bootstrap import RESAMPLES
from shunter.reporting.card.figures import (
    BaselineFigures,
    DataFacts,
    FieldFacts,
    MemberFacts,
    ModelCard,
    TableFacts,
    TaskQuality,
)
from shunter.reporting.card.quality import evaluate_quality, user_field, user_groups

COUNTED_BATCH = 512
SAMPLES_SHOWN = 4  # number of samples that run through the model to record its shapes


def gather(
    run_id: str,
    dataset: Dataset,
    members: Sequence[TrainedModel],
    result: EnsembleResult,
    execution: Execution,
    *,
    baselines: tuple[BaselineFigures, ...] = (),
    seed: int = 0,
    notes: Sequence[str] = (),
    promise: str = "",
) -> ModelCard:
    """Return the model card of the result of a training run.

    The quality is that of the files that will be registered, on the test part, which is not used to select a model.

    `notes` are additional sentences for the warnings. `promise` is the guaranteed quality in one sentence, or empty.

    Raises:
        CheckpointError: A file of the result is damaged.
        DataError: An array cannot be read.
    """
    evaluation = score_test(result.directory, dataset, execution)
    weights = {member.name: member.weight for member in result.members}
    if result.kept == "single":
        weights = {name: float(name == result.best_single) for name in weights}
    field = user_field(dataset)
    groups = None if field is None else user_groups(dataset, field)
    quality = evaluate_quality(evaluation, dataset, groups, seed=seed)
    data = data_facts(dataset)
    return ModelCard(
        run_id=run_id,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        kept=result.kept,
        reason=result.reason,
        members=tuple(_member(member, weights[member.name], dataset) for member in members),
        data=data,
        quality=quality,
        resampled=field or "rows",
        resamples=RESAMPLES,
        seed=seed,
        uses=uses(dataset, data),
        limits=(*limits(data, quality, field), *notes),
        baselines=baselines,
        promise=promise,
        serving=result.serving,
        passes=tuple(record for member in members for record in member.passes),
    )


def data_facts(dataset: Dataset) -> DataFacts:
    """Return the facts of the data, with the share of test values that are unknown in training."""
    unknown = unknown_shares(dataset)
    ids = {field.name: field.rows for field in dataset.features.categorical}
    return DataFacts(
        name=dataset.name,
        fingerprint=dataset.fingerprint,
        versions=dataset.versions,
        split_by=dataset.split_by,
        rows={name: split.rows for name, split in dataset.splits.items()},
        base_rates={name: split.base_rate for name, split in dataset.splits.items()},
        quarantined_rows=dataset.quarantined_rows,
        left_out_rows=dataset.left_out_rows,
        sessions=dataset.sessions,
        where=dataset.where,
        negative_rate=dataset.negative_rate,
        time_range=None if dataset.time_range is None else format_time(*dataset.time_range),
        fields=tuple(
            FieldFacts(
                name=field.name,
                kind=field.kind,
                cardinality=field.cardinality,
                ids=ids.get(field.name, 0),
                missing_share=field.missing_share,
                unknown_share=unknown.get(field.name),
            )
            for field in dataset.fields
        ),
        tables=tuple(
            TableFacts(
                field=table.field,
                vocabulary=table.kind,
                rows=table.rows,
                map_bytes=table.map_bytes,
                words=table.words,
            )
            for table in table_ids(dataset)
        ),
    )


def format_time(first: float, last: float) -> str:
    """Return a range of times as text; values that look like Unix times in s, ms or µs are shown as UTC dates."""
    return " to ".join(date_texts(first, last)) or f"{first:g} to {last:g}, in the unit of the log"


def unknown_shares(dataset: Dataset) -> dict[str, float]:
    """Return for each categorical field the share of test values with id 0: unknown, rare, or missing."""
    shares: dict[str, float] = {}
    column = 0
    for position, field in enumerate(dataset.features.categorical):
        if field.multi_valued:
            values = read_array(dataset.directory / f"test.bag{position}.values.npy")
        else:
            values = read_array(dataset.directory / "test.categorical.npy")[:, column]
            column += 1
        shares[field.name] = float((values == 0).mean()) if len(values) else 0.0
    return shares


def _member(member: TrainedModel, weight: float, dataset: Dataset) -> MemberFacts:
    model = load_model(member.directory, is_mapped=True)  # the weights are not changed
    assert not isinstance(model, Ensemble), f"{member.directory} holds an ensemble, expected a single model"
    architecture = None
    if weight > 0:
        rows = min(SAMPLES_SHOWN, dataset.splits["test"].rows)
        batch = BatchLoader(dataset, "test", rows).read(slice(0, rows))
        architecture = describe_architecture(model, batch.inputs)
    features, optimizer = dataset.features, member.hyperparameters.dense_optimizer
    ids: dict[str, Any] = {"ids_per_sample": mean_ids_per_sample(dataset), "dense_optimizer": optimizer}
    counts = count_model(member.spec, features, **ids)
    layers = count_layers(member.spec, features, batch_size=COUNTED_BATCH, **ids)
    energy = member.energy
    return MemberFacts(
        name=member.name,
        family=member.spec.family,
        weight=weight,
        spec=_plain(member.spec.to_dict()),
        hyperparameters=_plain(member.hyperparameters.to_dict()),
        schedule=_plain(asdict(member.schedule)),
        architecture=architecture,
        train_flops_per_sample=counts.matmul_flops_per_sample,
        forward_flops_per_sample=sum(layer.flops for layer in layers if layer.phase == "forward") / COUNTED_BATCH,
        parameter_bytes=(member.directory / "model.safetensors").stat().st_size,  # all parameters for scoring
        optimizer_bytes=int(counts.optimizer_bytes),
        peak_memory_bytes=member.peak_memory_bytes,
        placement=member.placement.label,
        epochs=len(member.history),
        best_epoch=member.best_epoch,
        samples_seen=member.samples_seen,
        train_seconds=member.train_seconds,
        samples_per_second=member.samples_per_second,
        energy_joules=energy.joules,
        energy_method=energy.method,
        energy_source=energy.source,
        validation_auc=member.validation.auc if member.validation.rmse is None else None,
        stopped_because=member.stopped_because,
        validation_relative_loss=None if member.validation.rmse is None else member.validation.relative_loss,
    )


def _plain(values: Mapping[str, Any]) -> dict[str, object]:
    """Return the values in the types that JSON loads, so that a card is equal after writing and reading."""
    return json.loads(json.dumps(values))


FEW_POSITIVES = 500
MOST_UNKNOWN = 0.2
MOST_MISSING = 0.5
BASE_RATE_CHANGE = 0.1
MISCALIBRATION = 0.1
OVERSAMPLED_RATE = 0.25


def uses(dataset: Dataset, data: DataFacts) -> tuple[str, ...]:
    """Return the intended uses of the model as sentences: what it predicts, and for which rows."""
    tasks = dataset.features.tasks
    what = "the positive label" if not tasks else f"each of {', '.join(tasks)}"
    columns = ", ".join(field.name for field in data.fields)
    if dataset.features.number is not None:
        return (
            f"Predicts the label, a number, for rows of the kind of {data.name}, from the columns {columns}; it is "
            f"learned and judged by the loss {dataset.features.number.loss}.",
        )
    return (
        f"Gives the probability of {what} for rows of the kind of {data.name}, from the columns {columns}.",
        "Ranks candidates by that probability, where they come from the same source as the rows that were logged.",
    )


def limits(data: DataFacts, quality: tuple[TaskQuality, ...], user: str | None) -> tuple[str, ...]:
    """Return sentences for the card that warn of limitations of the data and of the measured quality."""
    independent = (
        "The intervals take rows as independent, for no field names a user: where rows of one user are alike, they are "
        "too narrow."
        if user is None
        else f"The intervals resample whole users, by the field {user}; they do not hold another seed of the training."
    )
    is_number = any(one.is_number for one in quality)
    return (
        _split(data),
        independent,
        "It learned from what was shown and logged: what was never shown, or shown to few, it judges by little.",
        *_fields(data),
        *_base_rate(data, is_number=is_number),
        *(sentence for task_quality in quality for sentence in _quality(task_quality)),
    )


def _split(data: DataFacts) -> str:
    if data.split_by == "time":
        return (
            "It was tested on rows later than those it learned from; how fast it ages beyond them is not known, so "
            "train it anew as new rows come."
        )
    return (
        f"Its rows were divided by {data.split_by} and not by time: the figures say nothing about how it does on later "
        "rows, which is as a rule worse."
    )


def _fields(data: DataFacts) -> list[str]:
    unknown = [
        f"{field.name} ({share:.0%})" for field in data.fields if (share := field.unknown_share or 0.0) > MOST_UNKNOWN
    ]
    missing = [
        f"{field.name} ({field.missing_share:.0%})" for field in data.fields if field.missing_share > MOST_MISSING
    ]
    sentences = ["Values that are absent or too rare in the training part share one embedding row."]
    if unknown:
        sentences.append(f"Many values of the test part are unknown to it or missing: {', '.join(unknown)}.")
    if missing:
        sentences.append(f"These fields are missing in most rows: {', '.join(missing)}.")
    return sentences


def _base_rate(data: DataFacts, *, is_number: bool) -> list[str]:
    train, test = data.base_rates["train"], data.base_rates["test"]
    sentences, is_changed = [], train and abs(test / train - 1) > BASE_RATE_CHANGE
    if is_number:
        mean = (
            f"The mean label is {test:.4g} in the test part and was {train:.4g} in training, which predictions follow."
        )
        return [mean] if is_changed else []
    if is_changed:
        sentences.append(
            f"The share of positives is {test:.4f} in the test part and was {train:.4f} in training: probabilities "
            "follow the latter."
        )
    if train > OVERSAMPLED_RATE:
        sentences.append(
            f"With {train:.1%} of positives the log is hardly one of all impressions: where negatives were left out of "
            "it, the probabilities are too high for live traffic by as much."
        )
    return sentences


def _quality(quality: TaskQuality) -> list[str]:
    of = f" of {quality.task}" if quality.task else ""
    figures = {figure.name: figure for figure in quality.figures}
    if quality.is_number:
        relative = figures["relative_loss"]
        is_doubtful = relative.high is not None and relative.high >= 1
        return ["It may predict no better than a constant: its relative loss reaches 1."] if is_doubtful else []
    auc, calibration = figures["auc"], figures["calibration"]
    sentences = []
    fewest = min(quality.positives, quality.rows - quality.positives)
    if fewest < FEW_POSITIVES:
        sentences.append(f"The test part holds only {fewest:,} rows of the rarer class{of}: its figures are rough.")
    if auc.low is not None and auc.low <= 0.5:
        sentences.append(f"The interval of the AUC{of} reaches 0.5: it may rank no better than chance.")
    if calibration.value is not None and abs(calibration.value - 1) > MISCALIBRATION:
        too = "high" if calibration.value > 1 else "low"
        sentences.append(
            f"Its mean prediction{of} is {calibration.value:.2f} times the share of positives in the test part, so too "
            f"{too}: calibrate it before prices or bids depend on it."
        )
    return sentences
