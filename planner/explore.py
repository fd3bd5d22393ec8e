"""Exploration of placements other than the incumbent, if past runs of the same data make it worthwhile.

Probes measure step times within seconds. The work that a batch size needs until training ends is known only after whole
runs. Past runs of the same data and model family give the share of the plan that each batch size needed. An exploration
is worthwhile if its expected gain over some recurrences exceeds its extra cost over the incumbent placement (the
knowledge gradient; Frazier, Powell and Dayanik, 2009).

A search of several trials explores by one extra trial, which repeats the setting and seed of another trial at another
placement (`shunter.search.study.pair`). A run of one trial explores with this trial, and continues at the incumbent
placement if the exploration fails. The trained models of both trials are candidates.

Explorations are bounded. An exploring trial is stopped at a multiple of the incumbent's total (as in
Zeus; You, Chung and Chowdhury, NSDI 2023, section 4.4). All explorations together may waste at most a share of the
total of the job's runs. The constants were set on jobs drawn from the priors of `history.epochs`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.special import ndtr

from shunter.hardware.types import Placement
from shunter.hardware.units import JOULES_PER_KWH
from shunter.planner.assessment import Assessment
from shunter.planner.calibration import FEWEST
from shunter.planner.decide import Decision, Exploration
from shunter.planner.history import QUANTILES, History, PastRun, Posterior, knowledge_gradient
from shunter.requests import Explore, Objective, Weights

MOST_REGRET = 1.0  # no exploration with more than twice the expected total of the incumbent
STOP_MULTIPLE = 2.0  # an exploration is stopped at this multiple of the incumbent's expected total
TRIALS = 8  # assumed trials of a search that time or energy ends
LEAST_CHANCE = 0.05  # that an exploration pays off within the further runs
# Least further runs assumed of a job of one training run. With as many as it has had, the replay of recorded training
# runs (`benchmarks.select --quick`) has a regret of 4.2 % instead of 0.4 % and 44 % cumulative instead of 21 %.
RECURRING_RUNS = 20
UNTOLD = ("hours_interval", "kwh_interval", "cost_interval", "carbon_interval", "time_level", "energy_level")
MOST_WASTED = 0.25  # largest wasted share of the total of a job's runs, over all explorations


@dataclass(frozen=True)
class PastJob:
    """Earlier runs of the same job.

    Attributes:
        history: Past runs of all jobs.
        data: Key of the data, by `data_key`.
        family: Family of the model.
    """

    history: History
    data: str
    family: str

    def work_shares(self, batch_sizes: Sequence[int]) -> Posterior | None:
        """Predict the log of the share of planned epochs that each batch size needs; None without past runs."""
        return self.history.work_shares(batch_sizes, data=self.data, family=self.family)

    def good_batch_sizes(self) -> list[int]:
        """Return the batch sizes of finished runs, and of finished extra trials within runs."""
        placements = [run.placement for run in self.runs() if not run.is_censored]
        placements += [run.pair.placement for run in self.runs() if run.pair and not run.pair.is_stopped]
        return [placement.batch_size for placement in placements if placement is not None]

    def runs(self) -> list[PastRun]:
        """Return the past runs of this job."""
        return self.history.alike(self.data, self.family)


def maybe_explore(decision: Decision, job: PastJob, mode: Explore, *, trials: int | None = 1) -> Decision:
    """Return the decision, or an exploration of another feasible placement if past runs make it worthwhile.

    Args:
        decision: Decision by current knowledge, its best row first.
        job: Past runs of this job.
        mode: Permitted extent of explorations.
        trials: Trials of the run; None if only time or energy ends the search.
    """
    shares = job.work_shares([row.candidate.placement.batch_size for row in decision.table])
    best_known = _best_known(decision, job)
    if mode is Explore.NEVER or shares is None or best_known is None:
        return decision
    options = _Options(decision, shares, best_known, job.runs(), trials)
    if trials != 1 and decision.calibration.seconds.runs < FEWEST:
        return options.taken(best_known)
    index = options.best_exploration()
    if index is None or (mode is Explore.BOUNDED and options.expected_waste(index) > options.allowance):
        return options.taken(best_known)
    return options.with_exploration(index)


def _best_known(decision: Decision, job: PastJob) -> int | None:
    """Return the index of the best candidate whose batch size reached the quality before; None if there is none."""
    good = set(job.good_batch_sizes())
    rows = enumerate(decision.table)
    return next((index for index, row in rows if _is_open(row) and row.candidate.placement.batch_size in good), None)


def _is_open(row: Assessment) -> bool:
    return not row.excluded_by and row.candidate.is_here


class _Options:
    """Candidates of a decision, with a belief about each one's log objective, for choosing an exploration.

    Args:
        decision: Decision without exploration.
        shares: Belief about the logarithm of the work of each row.
        best_known: Index of the row with which other rows are compared.
        runs: Past runs of the job.
        trials: Trials of the run; None if only time or energy ends the search.
    """

    def __init__(
        self, decision: Decision, shares: Posterior, best_known: int, runs: Sequence[PastRun], trials: int | None
    ) -> None:
        self.decision, self.weights = decision, Weights.parse(decision.objective)
        self.best, self._best_index = decision.table[best_known], best_known
        self._runs, self._is_alone = runs, trials == 1
        # An extra trial runs alone, after trials that shared the time of the search.
        self._trial_share = decision.trials_at_once / (trials or TRIALS)
        self._further_runs = max(len(runs), RECURRING_RUNS) if self._is_alone else len(runs)
        scores = np.array([row.score(self.weights) for row in decision.table])
        self._excluded = np.array(
            [not (_is_open(row) and math.isfinite(score)) for row, score in zip(decision.table, scores, strict=True)]
        )
        expected = np.log(np.where(self._excluded, 1.0, scores))
        power = _power(self.weights)
        self._belief = Posterior(expected, power**2 * shares.covariance, power * shares.noise)
        self._deviation = self._belief.deviation_from(best_known)

    @property
    def allowance(self) -> float:
        """Waste still allowed for explorations, as a share of the incumbent's total."""
        return allowance(self._runs, self.best, self.weights)

    def best_exploration(self) -> int | None:
        """Return the index of the exploration with the highest worth; None if none is worthwhile.

        The worth is the expected gain in later runs of the job, less the expected cost of the exploring run.
        """
        mean = self._belief.mean
        is_far = mean - mean[self._best_index] > np.log1p(MOST_REGRET)
        open_to_choice = np.flatnonzero(~(is_far | self._excluded))
        lessons = knowledge_gradient(self._belief.of(open_to_choice))
        worths = {
            index: self._further_runs * lesson - self._expected_cost(index)
            for index, lesson in zip(map(int, open_to_choice), lessons, strict=True)
            if index == self._best_index or (self._is_possible(index) and self.chance(index) >= LEAST_CHANCE)
        }
        index = max(worths, key=lambda one: worths[one])
        return None if index == self._best_index else index

    def chance(self, index: int) -> float:
        """Return the probability that later runs of the job save more than exploring a candidate wastes."""
        paid = self.expected_waste(index) / self._further_runs
        if paid >= 1:
            return 0.0
        away = math.log1p(-paid) - float(self._belief.mean[index] - self._belief.mean[self._best_index])
        deviation = float(self._deviation[index])
        below = float(ndtr(away / deviation)) if deviation > 0 else float(away > 0)
        return below / self.decision.table[index].candidate.expected_runs

    def expected_waste(self, index: int) -> float:
        """Return the expected cost of an exploration beyond the incumbent, as a share of the incumbent's cost.

        The whole cost of an exploration counts if it is stopped, misses the requested quality, or is an extra trial of
        a search.
        """
        cost, chance = self._costs(index)
        if not self._is_alone:
            return self._trial_share * float(np.mean(np.minimum(cost, STOP_MULTIPLE)))
        if_good = np.where(cost > STOP_MULTIPLE, STOP_MULTIPLE, np.maximum(cost - 1, 0.0))
        return float(np.mean(chance * if_good + (1 - chance) * np.minimum(cost, STOP_MULTIPLE)))

    def _is_possible(self, index: int) -> bool:
        """Return True if a run can explore this placement; an extra trial must fit the search's reserved resources."""
        tried, known = self.decision.table[index].candidate.placement, self.best.candidate.placement
        return self._is_alone or _is_beside(tried, known)

    def _expected_cost(self, index: int) -> float:
        """Return the expected cost of exploring, with a run of the incumbent if it fails; the incumbent costs 1."""
        if index == self._best_index:
            return 1.0
        if not self._is_alone:
            return 1.0 + self.expected_waste(index)
        cost, chance = self._costs(index)
        fails = np.where(cost > STOP_MULTIPLE, 1.0, 1 - chance)
        return float(np.mean(np.minimum(cost, STOP_MULTIPLE) + fails))

    def _costs(self, index: int) -> tuple[np.ndarray, float]:
        """Return the cost quantiles of one run relative to the incumbent, and its chance to reach the quality."""
        runs = self.decision.table[index].candidate.expected_runs
        mean = float(self._belief.mean[index] - self._belief.mean[self._best_index])
        return np.exp(mean + self._deviation[index] * QUANTILES) / runs ** _power(self.weights), 1 / runs

    def with_exploration(self, index: int) -> Decision:
        """Return the decision with an exploration: by the run's only trial, or by an additional trial of its search."""
        tried = self.decision.table[index]
        known = _score_of_past(self._runs, self.best, self.weights) or _score_of_one(self.best, self.weights)
        share = (STOP_MULTIPLE * known / _score_of_one(tried, self.weights)) ** (1 / _power(self.weights))
        exploration = Exploration(
            best_known=self.best.candidate.placement,
            paired=None if self._is_alone else tried.candidate.placement,
            stop_multiple=STOP_MULTIPLE,
            stop_hours=share * tried.hours * (1.0 if self._is_alone else self._trial_share),
            chance=self.chance(index),
        )
        decision = self.taken(index if self._is_alone else self._best_index)
        reason = _reason(exploration, tried)
        if not self._is_alone:
            reason = f"{decision.reason} {reason}"
        # Past jobs calibrate the error of tried placements, not of untried ones.
        first = decision.table[0].model_copy(update=dict.fromkeys(UNTOLD)) if self._is_alone else decision.table[0]
        return decision.model_copy(
            update={
                "exploration": exploration,
                "reason": reason,
                "explanation": f"{reason} Expectation: {self.decision.explanation}",
                "table": (first, *decision.table[1:]),
            }
        )

    def taken(self, index: int) -> Decision:
        """Return the decision with the row at `index` of its table as the chosen row."""
        if index == 0:
            return self.decision
        chosen = self.decision.table[index]
        others = [row for row in self.decision.table if row is not chosen]
        reason = (
            f"{_label(chosen)} needs the least among placements that reached the quality in past runs of this data; "
            f"{_label(others[0])} may need less, but is untested."
        )
        return self.decision.model_copy(
            update={
                **_taken(chosen, others),
                "reason": reason,
                "explanation": f"{reason} Expectation: {self.decision.explanation}",
            }
        )


def _taken(chosen: Assessment, others: Sequence[Assessment]) -> dict[str, object]:
    """Return the fields of a decision that describe the chosen row."""
    table = [row.model_copy(update={"rank": rank}) for rank, row in enumerate([chosen, *others], start=1)]
    return {
        "placement": chosen.candidate.placement,
        "prediction": chosen.candidate.prediction,
        "hours": chosen.hours,
        "kwh": chosen.kwh,
        "cost": chosen.cost,
        "memory_gib": chosen.memory_gib,
        "table": tuple(table),
    }


def allowance(runs: Sequence[PastRun], best: Assessment, weights: Weights) -> float:
    """Return the waste still allowed for explorations, as a share of the incumbent's total; negative if exceeded.

    A run that explored counts with its time beyond the incumbent's. An extra trial that was slower than its partner
    counts with its whole time.

    Args:
        runs: Past runs of the job.
        best: Incumbent placement.
        weights: Quantities to minimise.
    """
    least = _score_of_past(runs, best, weights) or best.score(weights)
    spent, wasted = least, 0.0
    for run in runs:
        score = _score(run, weights)
        if score is None:
            continue
        spent += score
        if run.was_exploration:
            wasted += max(0.0, score - least)
        elif run.pair is not None and run.seconds and (run.pair.is_stopped or run.pair.seconds_ratio > 1):
            wasted += score * min(1.0, run.pair.seconds / run.seconds)
    return (MOST_WASTED * spent - wasted) / least


def _score_of_past(runs: Sequence[PastRun], best: Assessment, weights: Weights) -> float | None:
    """Return the median objective of past runs at a placement; None if no run finished there."""
    known = best.candidate.placement
    scores = [
        _score(run, weights)
        for run in runs
        if run.placement is not None
        and (run.placement.accelerator, run.placement.batch_size) == (known.accelerator, known.batch_size)
        and not (run.is_censored or run.was_exploration)
    ]
    measured = [score for score in scores if score is not None]
    return median(measured) if measured else None


def _score(run: PastRun, weights: Weights) -> float | None:
    """Return the objective (weighted totals) of a past run's tuning and training; None if not measured."""
    seconds = run.measured.seconds or run.seconds
    is_metered = run.measured.joules_source == "measured"
    joules = run.measured.joules if is_metered and run.measured.joules else run.joules
    work = seconds / run.seconds if seconds and run.seconds else 1.0
    amounts = {
        Objective.TIME: None if seconds is None else seconds / 3600,
        Objective.ENERGY: None if joules is None else joules / JOULES_PER_KWH,
        Objective.COST: None if run.cost is None else work * run.cost,
    }
    used = [(amounts.get(quantity), weight) for quantity, weight in weights.used.items()]
    if any(amount is None for amount, _ in used):
        return None
    return (used[0][0] or 0.0) if len(used) == 1 else math.prod((amount or 0.0) ** weight for amount, weight in used)


def _score_of_one(row: Assessment, weights: Weights) -> float:
    """Return the objective of a single run, without the factor for repetitions until the quality is reached."""
    return row.score(weights) / row.candidate.expected_runs ** _power(weights)


def _power(weights: Weights) -> float:
    """Return the exponent of time in the objective at one placement."""
    return 1.0 if len(weights.used) == 1 else sum(weights.used.values())


def _is_beside(tried: Placement, known: Placement) -> bool:
    """Return True if an extra trial fits into the resources that a search at the known placement has reserved."""
    same = ("accelerator", "processes", "embedding_memory_bytes", "power_limit_watts")
    return tried.threads <= known.threads and all(getattr(tried, name) == getattr(known, name) for name in same)


def _reason(exploration: Exploration, tried: Assessment) -> str:
    chance = f"with a probability of {exploration.chance:.0%} the exploration pays off within the further runs"
    stop = f"it is stopped at {STOP_MULTIPLE:g} times the incumbent's total"
    if exploration.paired is None:
        return f"{_label(tried)} is tried although {exploration.best_known.label} is the incumbent: {chance}; {stop}."
    return f"One extra trial repeats a setting at {_label(tried)}: {chance}; {stop}."


def _label(row: Assessment) -> str:
    return row.candidate.placement.label
