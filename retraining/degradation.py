"""Quality of the champion on the evaluation day: degradation, and the check of a promised quality.

A degraded champion is no better than the base rate, or worse than on past nights.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from math import inf, isfinite
from statistics import mean, stdev

from shunter.engine.ensemble.guarantee import Bounds, bounds
from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.ingestion.sources.days import DayLog
from shunter.retraining.comparison import scores_of
from shunter.retraining.findings import Finding
from shunter.retraining.nightly_request import WhenBroken
from shunter.retraining.nightly_runs import NightlyResult, nightly_runs_of
from shunter.tasks.run_log import announce
from shunter.tracking.promise import PREFIX, promised
from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.registry.ranker_comparison import RankingComparison
from shunter.tracking.registry.versions import ModelFiles, Version, roll_back
from shunter.tracking.runs import open_run

CHAMPION_NE = "nightly.champion_ne"  # metric of a nightly run
CHAMPION_RELATIVE_LOSS = "nightly.champion_relative_loss"  # the same metric for numeric labels
CHAMPION_NDCG = "nightly.champion_ndcg20"
LEAST_NIGHTS = 5  # smallest number of past nightly runs from which the usual NE is known
DEVIATIONS = 3.0  # number of standard deviations above the mean of past nights from which a day is unusual


class Degradation(Frozen):
    """Degraded quality of the champion on the evaluation day, beyond chance.

    Attributes:
        version: Evaluated model version.
        day: Evaluation day.
        ne: NE on the day, or the relative loss for numeric labels; 1 is the best constant prediction.
        ne_low: Lower confidence bound of the NE, with the confidence required for a promotion.
        usual: Upper limit of the NE by past nightly runs; None if the champion is no better than the base rate.
        is_number: Whether the label is numeric.
    """

    version: int
    day: date
    ne: float
    ne_low: float
    usual: float | None = None
    is_number: bool = False

    @property
    def finding(self) -> Finding:
        """Finding of the nightly run that the champion's quality has degraded."""
        figure, constant = ("relative loss", "best constant") if self.is_number else ("NE", "base rate")
        limit = f"always predicting the {constant} has {figure} 1"
        if self.usual is not None:
            limit = f"usual is up to {self.usual:.4f}"
        sentence = (
            f"Version {self.version} is degraded on {self.day}: {figure} {self.ne:.4f} (at least {self.ne_low:.4f}), "
            f"and {limit}. Compare the day's columns and labels with those before, or put another version back with "
            "`shunter rollback`."
        )
        return Finding(day=self.day, kind="degraded", words=sentence)


class RankingDegradation(Frozen):
    """Degraded quality of a ranking champion on the evaluation day, compared with past nightly runs."""

    version: int
    day: date
    ndcg20: float
    usual: float

    @property
    def finding(self) -> Finding:
        """Finding of the nightly run that the ranking champion's quality has degraded."""
        sentence = (
            f"Version {self.version} is degraded on {self.day}: NDCG@20 {self.ndcg20:.4f}, and usual is at least "
            f"{self.usual:.4f}. Compare the day's columns with those before, or put another version back with "
            "`shunter rollback`."
        )
        return Finding(day=self.day, kind="degraded", words=sentence)


def find_degradation(
    comparison: ChampionComparison, version: int, day: date, base_rate: float, past: Sequence[float]
) -> Degradation | None:
    """Return the degradation of the champion; None if it is as good as usual, and better than the base rate.

    `past` has the NE of the champion of each past nightly run, on the evaluation day of that run.
    """
    constant, is_number = comparison.loss_of_constant(base_rate), comparison.constant_loss is not None
    if not constant:
        return None
    ne, low = comparison.champion_logloss / constant, comparison.champion_low / constant
    if low >= 1:
        return Degradation(version=version, day=day, ne=ne, ne_low=low, is_number=is_number)
    usual = mean(past) + DEVIATIONS * stdev(past) if len(past) >= LEAST_NIGHTS else inf
    if low <= usual:
        return None
    return Degradation(version=version, day=day, ne=ne, ne_low=low, usual=usual, is_number=is_number)


def degradation_of(
    comparison: ChampionComparison, champion: Version, run_id: str, day: date, *, base_rate: float
) -> Degradation | None:
    """Log the NE of the champion on the evaluation day, and return its degradation compared with past nightly runs.

    Raises:
        TrackingError: The store fails.
    """
    metric = CHAMPION_NE if comparison.constant_loss is None else CHAMPION_RELATIVE_LOSS
    past = [run.metrics[metric] for run in nightly_runs_of(champion.name) if metric in run.metrics]
    if isfinite(ne := comparison.champion_ne(base_rate)):
        open_run(run_id).log_figures("degradation", {metric: ne})
    return find_degradation(comparison, champion.version, day, base_rate, past)


def find_ranking_degradation(
    comparison: RankingComparison, version: int, day: date, past: Sequence[float]
) -> RankingDegradation | None:
    """Return the degradation of a ranking champion; None if it is as good as usual, or with too few past nights."""
    if len(past) < LEAST_NIGHTS:
        return None
    usual = mean(past) - DEVIATIONS * stdev(past)
    found = comparison.champion_ndcg20
    return RankingDegradation(version=version, day=day, ndcg20=found, usual=usual) if found < usual else None


def ranking_degradation_of(comparison: RankingComparison, champion: Version, day: date) -> RankingDegradation | None:
    """Return the degradation of a ranking champion compared with past nightly runs.

    Raises:
        TrackingError: The store fails.
    """
    past = [run.metrics[CHAMPION_NDCG] for run in nightly_runs_of(champion.name) if CHAMPION_NDCG in run.metrics]
    return find_ranking_degradation(comparison, champion.version, day, past)


def respond(
    night: NightlyResult, degradation: Degradation | RankingDegradation | None, name: str, when_broken: WhenBroken
) -> NightlyResult:
    """Add the finding of a degraded champion to the result, report it and, if requested, roll the champion back.

    Raises:
        CheckpointError: The version to roll back to is damaged.
        TrackingError: The store fails.
    """
    if degradation is None:
        return night
    words = degradation.finding.words
    announce("degraded", name, degradation.version, words)
    night = night.model_copy(update={"findings": (*night.findings, degradation.finding)})
    if not night.keeps_champion or degradation.usual is not None or when_broken != WhenBroken.ROLLBACK:
        return night
    try:
        _, back = roll_back(name)
    except RequestError as error:
        return night.model_copy(update={"reason": f"{night.reason} {error}"})
    announce("rolled-back", name, back.version, words)
    reason = f"{night.reason} Version {back.version} was put back, for --when-broken is rollback."
    return night.model_copy(update={"outcome": "rolled back", "champion": back.version, "reason": reason})


CARRIED = ("min_auc", "max_ne", "confidence", "unit")


class DayCheck(Frozen):
    """Check of a version's promised quality on one day.

    Attributes:
        version: Version in use.
        day: Day of the check.
        is_broken: Whether the whole confidence interval of the day's quality is beyond the promised limit.
        is_sure: Whether the whole confidence interval of the day's quality is within the promised limit.
        words: Result of the check, one sentence.
        bounds: Confidence bounds of the quality on the day.
    """

    version: int
    day: date
    is_broken: bool
    is_sure: bool
    words: str
    bounds: Bounds

    @property
    def finding(self) -> Finding:
        """Finding of the nightly run that the champion has missed its guaranteed quality."""
        return Finding(day=self.day, kind="promise", words=self.words)

    @property
    def metrics(self) -> dict[str, float]:
        """MLflow metrics `nightly.*`: quality on the day with bounds, and whether the promise is broken."""
        names = ("auc", "auc_low", "auc_high", "ne", "ne_low", "ne_high", "rows", "units")
        figures = {f"nightly.{PREFIX}{name}": float(getattr(self.bounds, name)) for name in names}
        return {**figures, f"nightly.{PREFIX}is_broken": float(self.is_broken)}


def promise_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a replaced champion's promise, which its successor takes over; empty without a promise."""
    names = [f"{PREFIX}{name}" for name in CARRIED]
    return {name: tags[name] for name in names if name in tags} if promised(tags) else {}


def check_day(version: Version, files: ModelFiles, log: DayLog, day: date, *, seed: int = 0) -> DayCheck | None:
    """Check the promise of a version on a day it was not trained on; return None without a promise or without rows.

    Raises:
        CheckpointError: The model is damaged.
        DataError: The encoder or the day cannot be read.
    """
    asked = promised(version.tags)
    if asked is None:
        return None
    labels, logits, groups = scores_of(files, log, unit=version.tags.get(f"{PREFIX}unit"))
    if not len(labels):
        return None
    min_auc, max_ne, confidence = asked
    found = bounds(labels, logits, confidence=confidence, groups=groups, seed=seed)
    is_broken = (min_auc is not None and found.auc_high < min_auc) or (max_ne is not None and found.ne_low > max_ne)
    is_sure = (min_auc is None or found.auc_low >= min_auc) and (max_ne is None or found.ne_high <= max_ne)
    asks = []
    if min_auc is not None:
        asks.append(f"AUC {found.auc:.4f} ({found.auc_low:.4f} to {found.auc_high:.4f}), promised {min_auc:g}")
    if max_ne is not None:
        asks.append(f"NE {found.ne:.4f} ({found.ne_low:.4f} to {found.ne_high:.4f}), promised {max_ne:g}")
    how = "breaks its promise" if is_broken else "keeps its promise" if is_sure else "may keep its promise"
    advice = "; put the version before it back with `shunter rollback`" if is_broken else ""
    return DayCheck(
        version=version.version,
        day=day,
        is_broken=is_broken,
        is_sure=is_sure,
        words=f"Version {version.version} {how} on {day}: {'; '.join(asks)}, each bound with confidence "
        f"{confidence:g}{advice}.",
        bounds=found,
    )
