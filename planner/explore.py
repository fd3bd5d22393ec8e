"""Now and then tries a placement that is not the best known, because past runs of the same data leave room for it.

What a step takes is measured by probes within seconds, so no whole run is spent on that. How much work a batch size
needs until training ends shows in whole runs alone. Past runs of the same data and model family say what share of the
plan each batch size needed. An exploration is worth it where what it is expected to teach, over some recurrences,
exceeds what it takes more than the best known (the knowledge gradient; Frazier, Powell and Dayanik, 2009).

It is bounded: it is stopped when it has taken a multiple of what the best known is expected to take (as Zeus does; You,
Chung and Chowdhury, NSDI 2023, section 4.4), and explorations together waste at most a share of what the runs of the
job have taken. The constants were set on jobs drawn from the priors of `history.epochs`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.planner.assessment import Assessment
from shunter.planner.decide import Decision, Exploration
from shunter.planner.history import QUANTILES, History, PastRun, Posterior, knowledge_gradient
from shunter.requests import Explore, Weights

MOST_REGRET = 1.0  # An exploration that is expected to need more than twice what the best known needs is not made.
STOP_MULTIPLE = 2.0  # of what the best known is expected to take, after which an exploration is stopped
PAYBACK_RUNS = 20  # of a recurring job, within which an exploration must be expected to save what it takes
UNTOLD = ("hours_interval", "kwh_interval", "cost_interval", "carbon_interval", "time_level", "energy_level")
MOST_WASTED = 0.25  # of what the runs of a job have taken, which its explorations together may waste


@dataclass(frozen=True)
class PastJob:
    """What earlier runs of the same job needed.

    Attributes:
        history: Past runs of all jobs.
        data: Key of the data, by `data_key`.
        family: Family of the model.
    """

    history: History
    data: str
    family: str

    def work_shares(self, batch_sizes: Sequence[int]) -> Posterior | None:
        """Belief about the logarithm of the share of the plan; None without past runs."""
        return self.history.work_shares(batch_sizes, data=self.data, family=self.family)

    def good_batch_sizes(self) -> list[int]:
        """Batch sizes of the runs that were good enough."""
        return [run.placement.batch_size for run in self.runs() if not run.is_censored and run.placement is not None]

    def runs(self) -> list[PastRun]:
        """Runs of this job that trained."""
        return self.history.alike(self.data, self.family)


def explored(decision: Decision, job: PastJob, mode: Explore) -> Decision:
    """The decision, or an exploration of another placement that keeps all limits, where past runs make it worth it.

    Args:
        decision: Decision by what is known, its best first.
        job: Past runs of this job.
        mode: How far explorations may go.
    """
    shares = job.work_shares([row.candidate.placement.batch_size for row in decision.table])
    best_known = _best_known(decision, job)
    if mode is Explore.NEVER or shares is None or best_known is None:
        return decision
    options = _Options(decision, shares, best_known)
    index = options.best_exploration()
    if index is None:
        return options.taken(best_known)
    if mode is Explore.BOUNDED:
        allowed = allowance(job.runs(), options.best, options.weights)
        if options.expected_waste(index) > allowed:
            return options.taken(best_known)
    return _tried(options.taken(index), options.best, options.describe(index))


def _best_known(decision: Decision, job: PastJob) -> int | None:
    """Index of the best row whose batch size was good enough before; None where none was."""
    good = set(job.good_batch_sizes())
    rows = enumerate(decision.table)
    return next((index for index, row in rows if _is_open(row) and row.candidate.placement.batch_size in good), None)


def _is_open(row: Assessment) -> bool:
    return not row.excluded_by and row.candidate.is_here


class _Options:
    """The rows of a decision, and what is believed of the objective of each.

    Args:
        decision: Decision by what is known.
        shares: Belief about the logarithm of the work of each row.
        best_known: Index of the row that others are compared with.
    """

    def __init__(self, decision: Decision, shares: Posterior, best_known: int) -> None:
        self.decision, self.weights = decision, Weights.parse(decision.objective)
        self.best, self._best_index = decision.table[best_known], best_known
        scores = np.array([row.score(self.weights) for row in decision.table])
        self._excluded = np.array(
            [not (_is_open(row) and math.isfinite(score)) for row, score in zip(decision.table, scores, strict=True)]
        )
        expected = np.log(np.where(self._excluded, 1.0, scores))
        power = _power(self.weights)
        self._belief = Posterior(expected, power**2 * shares.covariance, power * shares.noise)
        self._deviation = self._belief.deviation_from(best_known)

    def best_exploration(self) -> int | None:
        """Index of the exploration that pays back most; None where the best known is worth as much.

        What a run is worth is what it is expected to teach, over the runs that follow, less what it takes itself.
        """
        mean = self._belief.mean
        is_far = mean - mean[self._best_index] > np.log1p(MOST_REGRET)
        open_to_choice = np.flatnonzero(~(is_far | self._excluded))
        lessons = knowledge_gradient(self._belief.of(open_to_choice))
        taken = np.array([self._expected_cost(index) for index in map(int, open_to_choice)])
        worth = PAYBACK_RUNS * lessons - taken
        index = int(open_to_choice[int(np.argmax(worth))])
        return None if index == self._best_index else index

    def describe(self, index: int) -> str:
        """What is expected of an exploration, in words."""
        more = math.expm1(self._belief.mean[index] - self._belief.mean[self._best_index])
        doubt = math.expm1(self._deviation[index])
        expected = f"{abs(more):.0%} {'more' if more > 0 else 'less'} than" if abs(more) >= 0.005 else "as much as"
        return f"it is expected to need {expected} the best known, give or take {doubt:.0%}"

    def expected_waste(self, index: int) -> float:
        """What an exploration is expected to take beyond the best known, as a share of that.

        All that an exploration takes is wasted that is stopped, or ends without the quality asked for.
        """
        cost, chance = self._costs(index)
        if_good = np.where(cost > STOP_MULTIPLE, STOP_MULTIPLE, np.maximum(cost - 1, 0.0))
        return float(np.mean(chance * if_good + (1 - chance) * np.minimum(cost, STOP_MULTIPLE)))

    def _expected_cost(self, index: int) -> float:
        """What a run is expected to take, with that of the best known once more where it fails."""
        if index == self._best_index:
            return 1.0
        cost, chance = self._costs(index)
        fails = np.where(cost > STOP_MULTIPLE, 1.0, 1 - chance)
        return float(np.mean(np.minimum(cost, STOP_MULTIPLE) + fails))

    def _costs(self, index: int) -> tuple[np.ndarray, float]:
        """Quantiles of what one run takes, as shares of the best known, and the chance that it is good enough."""
        runs = self.decision.table[index].candidate.expected_runs
        mean = float(self._belief.mean[index] - self._belief.mean[self._best_index])
        return np.exp(mean + self._deviation[index] * QUANTILES) / runs ** _power(self.weights), 1 / runs

    def taken(self, index: int) -> Decision:
        """The decision with another row of its table as the chosen one."""
        if index == 0:
            return self.decision
        chosen = self.decision.table[index]
        others = [row for row in self.decision.table if row is not chosen]
        reason = (
            f"{_label(chosen)} needs the least of what past runs of this data have shown to be good enough; "
            f"{_label(others[0])} may need less, but has yet to be tried."
        )
        return self.decision.model_copy(
            update={
                **_taken(chosen, others),
                "reason": reason,
                "explanation": f"{reason} By what is expected: {self.decision.explanation}",
            }
        )


def gone_back(decision: Decision, because: str) -> Decision:
    """The decision for the best known placement, after an exploration came to nothing.

    Args:
        decision: An exploration.
        because: Why it is given up, a sentence.
    """
    assert decision.exploration is not None, "only an exploration goes back"
    best_known = decision.exploration.best_known
    chosen = next(row for row in decision.table if row.candidate.placement == best_known)
    others = [row for row in decision.table if row is not chosen]
    reason = f"{_label(chosen)} is the best known. {decision.placement.label} was tried first: {because}"
    return decision.model_copy(
        update={
            **_taken(chosen, others),
            "exploration": None,
            "reason": reason,
            "explanation": reason,
        }
    )


def _taken(chosen: Assessment, others: Sequence[Assessment]) -> dict[str, object]:
    """The fields of a decision that name what was chosen."""
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
    """What explorations may still waste, as a share of what the best known is expected to take; below 0 when overdrawn.

    Args:
        runs: Past runs of the job.
        best: Best known placement.
        weights: Quantities to minimise.
    """
    least = best.score(weights)
    spent, wasted = least, 0.0
    for run in runs:
        score = _score(run, weights)
        if score is None:
            continue
        spent += score
        if run.was_exploration:
            wasted += max(0.0, score - least) if not run.is_censored else score
    return (MOST_WASTED * spent - wasted) / least


def _score(run: PastRun, weights: Weights) -> float | None:
    """What a run took of the objective, in the unit of `Assessment.score`; None where it was not measured."""
    amounts = {quantity: run.total(quantity) for quantity in weights.used}
    if any(amount is None for amount in amounts.values()):
        return None
    if len(amounts) == 1:
        return next(iter(amounts.values()))
    return math.prod((amount or 0.0) ** weights.used[quantity] for quantity, amount in amounts.items())


def _score_of_one(row: Assessment, weights: Weights) -> float:
    """The objective of a single run, whether or not it is good enough."""
    return row.score(weights) / row.candidate.expected_runs ** _power(weights)


def _power(weights: Weights) -> float:
    """By which power the objective grows with the time at one placement."""
    return 1.0 if len(weights.used) == 1 else sum(weights.used.values())


def _tried(decision: Decision, best: Assessment, why: str) -> Decision:
    """The decision as an exploration, which ends at a multiple of what the best known is expected to take."""
    weights, chosen = Weights.parse(decision.objective), decision.chosen
    share = (STOP_MULTIPLE * _score_of_one(best, weights) / _score_of_one(chosen, weights)) ** (1 / _power(weights))
    hours = share * chosen.hours
    exploration = Exploration(best_known=best.candidate.placement, stop_multiple=STOP_MULTIPLE, stop_hours=hours)
    reason = (
        f"{_label(chosen)} is tried although {_label(best)} is the best known: by what past runs of this data needed, "
        f"{why}. It is stopped at {STOP_MULTIPLE:g} times what the best known is expected to take."
    )
    explanation = f"{reason} By what is expected: {decision.explanation}"
    # What past jobs took says how far a tried placement errs, not one that never was.
    untold = chosen.model_copy(update=dict.fromkeys(UNTOLD))
    return decision.model_copy(
        update={
            "exploration": exploration,
            "reason": reason,
            "explanation": explanation,
            "table": (untold, *decision.table[1:]),
        }
    )


def _label(row: Assessment) -> str:
    return row.candidate.placement.label
