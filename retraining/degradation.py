"""Degradation of the champion on the evaluation day: no better than the base rate, or worse than on past nights."""

from collections.abc import Sequence
from datetime import date
from math import inf, isfinite
from statistics import mean, stdev

from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.retraining.findings import Finding
from shunter.retraining.nightly_request import WhenBroken
from shunter.retraining.nightly_runs import NightlyResult, nightly_runs_of
from shunter.tasks.run_log import announce
from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.registry.ranker_comparison import RankingComparison
from shunter.tracking.registry.versions import Version, roll_back
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

    Args:
        comparison: Comparison on the day.
        version: Version of the champion.
        day: Evaluation day.
        base_rate: Share of positives on the day.
        past: NE of the champion of each past nightly run, on the evaluation day of that run.
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
