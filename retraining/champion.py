"""Champion of a nightly run: its files, its training days, and the member that a challenger starts from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from math import inf
from pathlib import Path
from typing import Any

from shunter.engine.checkpoint.scoring import read_architectures
from shunter.engine.checkpoint.warm_start import WarmStart
from shunter.engine.config import Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.errors import RequestError
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.shared_rows import most_columns_differ, shared_rows
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.days import DayLog
from shunter.label_losses import LOG_LOSS, parse_loss
from shunter.models.spec import ModelSpec
from shunter.retraining.comparison import losses_of, number_of
from shunter.tracking.convention import model_params
from shunter.tracking.history import TrackedRun, read_runs
from shunter.tracking.registry.versions import ModelFiles, Version, download

LEARNED_DAYS = "nightly.learned_days"  # tag of a version: training days of this version and its predecessors
HYPERPARAMETERS = "nightly.hyperparameters"  # tag of a version: hyperparameters of its member's first training run
MOST_DAYS_KEPT = 120
MOST_NAMES = 6  # largest number of column names in a message


@dataclass(frozen=True)
class Champion:
    """Registered model in use, from which a challenger starts.

    Attributes:
        version: Version in the registry.
        files: Files of the version on this machine.
        learned: Recorded training days of the version; empty if the version was not trained by a nightly run.
    """

    version: Version
    files: ModelFiles
    learned: frozenset[date]


@dataclass(frozen=True)
class Origin:
    """Member of the champion that a challenger starts from.

    Attributes:
        member: Number of the member in the champion.
        members: Number of the champion's members.
        spec: Architecture of the member.
        hyperparameters: Hyperparameters of the member's first training run.
        is_known: Whether these hyperparameters were recorded; otherwise they are the defaults.
    """

    member: int
    members: int
    spec: ModelSpec
    hyperparameters: Hyperparameters
    is_known: bool

    def explain(self, known_rows: int, rows: int) -> str:
        """Return a sentence about the model that a training run starts from."""
        what = f"member {self.member + 1} of {self.members}" if self.members > 1 else "the champion"
        learned = "" if self.is_known else ", with default settings, because its own were not found"
        return f"It continues from {what}, which knows {known_rows:,} of {rows:,} embedding rows{learned}."


def open_champion(version: Version, folder: Path) -> Champion:
    """Download a version to this machine.

    Raises:
        TrackingError: The registry cannot be read, see `shunter.tracking.registry.versions.download`.
    """
    days = version.tags.get(LEARNED_DAYS, "")
    learned = frozenset(date.fromisoformat(text) for text in days.split(",") if text)
    return Champion(version, download(version, folder), learned)


def check_same_log(champion: Champion, schema: Schema, name: str) -> None:
    """Raise if the champion was trained on another log, most of whose columns are not in the schema of the days.

    Raises:
        RequestError: The log differs, and the message names the columns; or the label is of another kind.
        DataError: The encoder of the champion is damaged.
        CheckpointError: The description of the champion is damaged.
    """
    number = number_of(champion.files)
    theirs, ours = number.loss if number else LOG_LOSS, schema.label.loss or LOG_LOSS
    if parse_loss(theirs) != parse_loss(ours):
        raise RequestError(
            f"The champion of {name!r}, version {champion.version.version}, was trained with the loss "
            f"{theirs}, but these days use {ours}: give --loss {theirs}, or name another model with "
            "--register-as."
        )
    encoder = Encoder.load(champion.files.encoder)
    here = schema.feature_columns
    if most_columns_differ(here, encoder):
        raise RequestError(
            f"The champion of {name!r}, version {champion.version.version}, was trained on the columns "
            f"{_few(encoder.columns)}, but these days have {_few(sorted(here))}: name another model with "
            "--register-as."
        )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def choose_origin(champion: Champion, newest: DayLog) -> Origin:
    """Choose the member with the lowest loss on the newest training day, on which no member was trained.

    Raises:
        CheckpointError: The champion's files are damaged.
        DataError: The day cannot be read.
    """
    path = champion.files.model / "model.json"
    _, specs = read_architectures(path)
    best = 0
    if len(specs) > 1:
        means = [losses_of(champion.files, newest, member=member).mean() for member in range(len(specs))]
        best = int(min(range(len(specs)), key=means.__getitem__))
    found = _hyperparameters(champion.version, specs[best])
    return Origin(
        member=best,
        members=len(specs),
        spec=specs[best],
        hyperparameters=found or Hyperparameters(),
        is_known=found is not None,
    )


def warm_start_from(files: ModelFiles, member: int, dataset: Dataset) -> WarmStart:
    """Return the warm start from a model; table rows are matched by the value of their id, since ids may differ.

    Raises:
        DataError: An encoder cannot be read.
    """
    now, former = Encoder.load(dataset.directory / "encoder"), Encoder.load(files.encoder)
    return WarmStart(files.model, shared_rows(now, former), member)


def with_lower_rates(hyperparameters: Hyperparameters, share: float) -> Hyperparameters:
    """Return hyperparameters with learning rates times `share`; full rates need the former optimizer state."""
    return replace(
        hyperparameters,
        dense_learning_rate=hyperparameters.dense_learning_rate * share,
        embedding_learning_rate=hyperparameters.embedding_learning_rate * share,
    )


def version_tags(learned: Sequence[date], hyperparameters: Hyperparameters | None) -> dict[str, str]:
    """Return the tags of a version that a later nightly run needs."""
    days = sorted(learned)[-MOST_DAYS_KEPT:]
    tags = {LEARNED_DAYS: ",".join(day.isoformat() for day in days)}
    if hyperparameters is not None:
        tags[HYPERPARAMETERS] = json.dumps(hyperparameters.to_dict())
    return tags


def _hyperparameters(version: Version, spec: ModelSpec) -> Hyperparameters | None:
    """Return the hyperparameters of the version's tag, or of the best member with `spec` in the version's run."""
    kept = version.tags.get(HYPERPARAMETERS)
    if kept is not None:
        return Hyperparameters(**json.loads(kept))
    wanted = {name: str(value) for name, value in model_params(spec).items()}
    members = [
        run
        for run in read_runs(("member", "baseline"))
        if run.parent_run_id == version.run_id and wanted.items() <= dict(run.params).items()
    ]
    if not members:
        return None
    return parse_hyperparameters(min(members, key=_relative_loss).params)


def _relative_loss(run: TrackedRun) -> float:
    return next((run.metrics[one] for one in ("quality.ne", "quality.relative_loss") if one in run.metrics), inf)


def parse_hyperparameters(params: Mapping[str, str]) -> Hyperparameters:
    """Parse hyperparameters that `shunter.tracking.convention.model_params` wrote; missing fields have defaults."""
    values: dict[str, Any] = {}
    for option in fields(Hyperparameters):
        text = params.get(f"model.{option.name}")
        if text is not None:
            values[option.name] = text if isinstance(option.default, str) else float(text)
    return Hyperparameters(**values)
