"""Intended uses and limits of a model, as far as they follow from the data, one sentence each."""

from shunter.engine.data.dataset import Dataset
from shunter.reporting.card.figures import DataFacts, TaskQuality

FEW_POSITIVES = 500
MOST_UNKNOWN = 0.2
MOST_MISSING = 0.5
BASE_RATE_CHANGE = 0.1
MISCALIBRATION = 0.1
OVERSAMPLED_RATE = 0.25


def uses(dataset: Dataset, data: DataFacts) -> tuple[str, ...]:
    """Return what the model predicts, and for which rows."""
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
    """Return warnings about the model."""
    found = [_split(data), _intervals(user)]
    is_number = any(one.is_number for one in quality)
    found += [
        "It learned from what was shown and logged: what was never shown, or shown to few, it judges by little.",
        *_fields(data),
        *(_mean_label(data) if is_number else _base_rate(data)),
        *(sentence for task_quality in quality for sentence in _quality(task_quality)),
    ]
    return tuple(found)


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


def _intervals(user: str | None) -> str:
    if user is None:
        return (
            "The intervals take rows as independent, for no field names a user: where rows of one user are alike, they "
            "are too narrow."
        )
    return f"The intervals resample whole users, by the field {user}; they do not hold another seed of the training."


def _fields(data: DataFacts) -> list[str]:
    unknown = [
        f"{field.name} ({field.unknown_share:.0%})"
        for field in data.fields
        if field.unknown_share is not None and field.unknown_share > MOST_UNKNOWN
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


def _mean_label(data: DataFacts) -> list[str]:
    train, test = data.base_rates["train"], data.base_rates["test"]
    if not train or abs(test / train - 1) <= BASE_RATE_CHANGE:
        return []
    return [f"The mean label is {test:.4g} in the test part and was {train:.4g} in training, which predictions follow."]


def _base_rate(data: DataFacts) -> list[str]:
    train, test = data.base_rates["train"], data.base_rates["test"]
    sentences = []
    if train and abs(test / train - 1) > BASE_RATE_CHANGE:
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
