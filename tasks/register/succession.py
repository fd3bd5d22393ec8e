"""Comparison of a new version with the champion of its name, for data of the same kind, on the same test rows."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.config import Execution, Repeats
from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.storage import is_ranker
from shunter.errors import (
    CheckpointError,
    DamagedDataError,
    DataError,
    MissingExtensionError,
    TrackingError,
    UntrustedModelError,
)
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.shared_rows import known_values, most_columns_differ, shared_rows
from shunter.models.spec import Features
from shunter.reporting.card.figures import TaskQuality
from shunter.requests import Promote
from shunter.tasks.accelerators import announce
from shunter.tracking.patience import PatientCaller, is_passing
from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.registry.click_comparison import compare_models
from shunter.tracking.registry.models import DATA_NAME
from shunter.tracking.registry.signing import MODEL_COPY
from shunter.tracking.registry.versions import ModelFiles, Version, champion_of, download
from shunter.tracking.store import open_store

if TYPE_CHECKING:
    from shunter.tracking.registry.ranker_comparison import RankingComparison

CONFIDENCE = 0.95  # probability with which a challenger must be better


class Difference(StrEnum):
    """Property in which the data of champion and challenger differ."""

    NAME = "the name of the data"
    COLUMNS = "the columns"
    LABELS = "the labels"
    VALUES = "the values: the champion knows none of the present values"
    KIND = "the kind of the model: one ranks items, and one gives probabilities"


@dataclass(frozen=True)
class Refusal:
    """Reason why a version does not replace the champion.

    Attributes:
        champion: Version of the champion, which stays.
        difference: Property in which the data differ; None if they agree.
        judgement: Comparison on the test part; None if the data differ.
        unreadable: Reason why this installation may not or cannot load the champion; None if it was loaded.
    """

    champion: int
    difference: Difference | None = None
    judgement: "ChampionComparison | RankingComparison | None" = None
    unreadable: UntrustedModelError | MissingExtensionError | None = None

    @property
    def sentence(self) -> str:
        """Return why the model is not promoted, and what the user can do."""
        if self.judgement is not None:
            return (
                f"Not promoted: version {self.champion} stays the champion. {self.judgement.explain()} To replace "
                "the champion anyway, add --promote always, or run `shunter rollback --to VERSION`."
            )
        if self.unreadable is not None:
            return (
                f"Not promoted: version {self.champion} stays the champion, because it cannot be "
                "compared on this machine. "
                f"{self.unreadable} To replace the champion anyway, add --promote always, or run "
                "`shunter rollback --to VERSION`."
            )
        return (
            f"Not promoted: the champion, version {self.champion}, was trained on other data. The "
            f"data differ in {self.difference}. "
            "Name another model with --register-as, or replace the champion with --promote always or `shunter rollback "
            "--to VERSION`."
        )


@dataclass(frozen=True)
class Challenger:
    """Model that may replace the champion."""

    name: str
    run_id: str
    dataset: Dataset
    directory: Path
    execution: Execution
    seed: int
    repeats: Repeats = "drop"

    def refusal(self, promote: Promote) -> Refusal | None:
        """Return why the champion stays; None if there is no champion, or if the challenger takes its place.

        Raises:
            TrackingError: The store fails.
        """
        if promote == Promote.ALWAYS:
            return None
        champion = PatientCaller("the lookup of the champion")(lambda: champion_of(self.name))
        if champion is None or champion.run_id == open_store().real_id(self.run_id):
            return None
        with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as folder:
            try:
                return self._compared(champion, download(champion, Path(folder)))
            except DamagedDataError:
                raise
            except (UntrustedModelError, MissingExtensionError) as error:
                return Refusal(champion.version, unreadable=error)
            except (CheckpointError, DataError, TrackingError) as error:
                if isinstance(error.__cause__, Exception) and is_passing(error.__cause__):
                    raise
                announce(
                    f"Champion {champion.version} can no longer be scored, and is replaced without a "
                    f"comparison: {error}"
                )
                return None

    def _compared(self, champion: Version, files: ModelFiles) -> Refusal | None:
        if (difference := self._difference(champion, files)) is not None:
            return Refusal(champion.version, difference)
        asked = {"margin": 0.0, "confidence": CONFIDENCE, "seed": self.seed}
        if is_ranker(files.model):
            from shunter.tracking.registry.ranker_comparison import compare_rankers

            judgement, _ = compare_rankers(self.dataset, files, self.directory, **asked, repeats=self.repeats)
            is_overtaken = judgement.is_overtaken
        else:
            judgement = compare_models(self.dataset, files, self.directory, self.execution, **asked)
            is_overtaken = judgement.is_overtaken(self.dataset.splits["test"].base_rate)
        return None if judgement.is_better or is_overtaken else Refusal(champion.version, judgement=judgement)

    def _difference(self, champion: Version, files: ModelFiles) -> Difference | None:
        if is_ranker(files.model) != is_ranker(self.directory):
            return Difference.KIND
        own, former = Encoder.load(self.dataset.directory / "encoder"), Encoder.load(files.encoder)
        if most_columns_differ(own.columns, former):
            return Difference.COLUMNS
        features = Features.from_dict(read_json(files.model / "model.json")["features"])
        losses = [
            (one.number.loss, one.number.levels) if one.number else None for one in (features, self.dataset.features)
        ]
        if features.tasks != self.dataset.features.tasks or losses[0] != losses[1]:
            return Difference.LABELS
        if champion.tags.get(DATA_NAME, self.dataset.name) != self.dataset.name:
            return Difference.NAME
        return None if known_values(shared_rows(own, former)) or not features.categorical else Difference.VALUES


def why_not_promoted(promote: Promote, doubt: str | None) -> str | None:
    """Return why a model with a doubt (`doubt_of`, `doubt_of_ranker`) does not become the champion; None if it may."""
    if doubt is None or promote == Promote.ALWAYS:
        return None
    return (
        f"Not promoted: {doubt}; train on more data, promote this version with `shunter rollback --to VERSION`, or "
        "always promote with --promote always."
    )


def doubt_of_ranker(gain: tuple[float, float] | None) -> str | None:
    """Return why a graph model is not certain to beat a ranking by popularity; None if it does with 95 % confidence.

    Args:
        gain: 95 % interval of the difference in NDCG@20 on the test part to the popularity ranking; None if not
            compared.
    """
    if gain is None:
        return "it was not compared with a ranking by popularity"
    if gain[0] > 0:
        return None
    return (
        f"its gain in NDCG@20 on the test part over a ranking by popularity is between {gain[0]:.4f} and "
        f"{gain[1]:.4f} with 95 % confidence, so that it may be no better"
    )


def doubt_of(quality: Sequence[TaskQuality]) -> str | None:
    """Return why a model is not certain to beat a constant prediction; None if it does with 95 % confidence.

    The model beats it if the interval of its NE on the test part is below 1.
    """
    name, baseline = "NE", "always predicting the base rate (NE 1)"
    if quality and quality[0].is_number:
        name, baseline = "relative loss", "the best constant prediction (1)"
    names = ("ne", "relative_loss")
    ne = next((figure for one in quality[:1] for figure in one.figures if figure.name in names), None)
    if ne is None:
        return "no row of the test part has a label"
    if ne.value is None or ne.low is None or ne.high is None:
        return f"its {name} on the test part has no interval: {quality[0].no_interval_text}"
    if ne.high >= 1:
        return (
            f"its {name} on the test part, {ne.value:.4f}, is between {ne.low:.4f} and {ne.high:.4f} with 95 % "
            f"confidence, so that it may be no better than {baseline}"
        )
    return None
