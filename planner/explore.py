"""Now and then tries a placement that is not the best known, because past runs of the same data leave room for it.

What a step takes is measured by probes within seconds, so no whole run is spent on that. How much work a batch size
needs until training ends shows in whole runs alone. Past runs of the same data and model family say what share of the
plan each batch size needed; the policy of `history.policy` then weighs what is known against what a trial promises.

A trial is bounded: it is stopped when it has taken a multiple of what the best known is expected to take (as Zeus does;
You, Chung and Chowdhury, NSDI 2023, section 4.4), and trials together waste at most a share of what the runs of this
job have taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from planner.assessment import Assessment
from planner.decide import Decision, Trial
from planner.history import Choice, History, PastRun, Posterior, choose_under_uncertainty
from shunter.requests import Explore, Weights

MOST_REGRET = 1.0  # A trial that is expected to need more than twice what the best known needs is not made.
STOP_MULTIPLE = 2.0  # of what the best known is expected to take, after which a trial is stopped
QUANTILES = (np.arange(50) + 0.5) / 50
MOST_WASTED = 0.25  # of what the runs of a job have taken, which its trials together may waste


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
    """The decision, or a trial of another placement that keeps all limits and is worth it after what past runs needed.

    Args:
        decision: Decision by what is known, its best first.
        job: Past runs of this job.
        mode: How far trials may go.
    """
    shares = job.work_shares([row.candidate.placement.batch_size for row in decision.table])
    best_known = _best_known(decision, job)
    if mode is Explore.NEVER or shares is None or best_known is None:
        return decision
    options = _Options(decision, shares, best_known)
    choice = options.choose()
    if not choice.tries:
        return options.taken(best_known)
    if mode is Explore.BOUNDED:
        allowed = allowance(job.runs(), options.best, options.weights)
        if options.expected_waste(choice.index) > allowed:
            return options.taken(best_known)
    return _tried(options.taken(choice.index), options.best, choice.reason)


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
        self._excluded = [
            not (_is_open(row) and math.isfinite(score)) for row, score in zip(decision.table, scores, strict=True)
        ]
        expected = np.log(np.where(self._excluded, 1.0, scores))
        self._belief = Posterior(expected, _power(self.weights) ** 2 * shares.covariance)

    def choose(self) -> Choice:
        """The best known, or a trial that is worth it."""
        far = self._belief.mean - self._belief.mean[self._best_index] > np.log1p(MOST_REGRET)
        excluded = [bool(is_far) or is_out for is_far, is_out in zip(far, self._excluded, strict=True)]
        return choose_under_uncertainty(self._belief, excluded=excluded, best_known=self._best_index)

    def expected_waste(self, index: int) -> float:
        """What a trial is expected to take beyond the best known, as a share of that.

        All that a trial takes is wasted that is stopped, or ends without the quality asked for.
        """
        runs = self.decision.table[index].candidate.expected_runs
        mean = float(self._belief.mean[index] - self._belief.mean[self._best_index])
        spread = float(self._belief.deviation_from(self._best_index)[index])
        cost = np.exp(mean + spread * norm.ppf(QUANTILES)) / runs ** _power(self.weights)
        if_good = np.where(cost > STOP_MULTIPLE, STOP_MULTIPLE, np.maximum(cost - 1, 0.0))
        return float(np.mean(if_good / runs + np.minimum(cost, STOP_MULTIPLE) * (1 - 1 / runs)))

    def taken(self, index: int) -> Decision:
        """The decision with another row of its table as the chosen one."""
        if index == 0:
            return self.decision
        chosen = self.decision.table[index]
        others = [row for row in self.decision.table if row is not chosen]
        table = [row.model_copy(update={"rank": rank}) for rank, row in enumerate([chosen, *others], start=1)]
        reason = (
            f"{_label(chosen)} needs the least of what past runs of this data have shown to be good enough; "
            f"{_label(others[0])} may need less, but has yet to be tried."
        )
        return self.decision.model_copy(
            update={
                "placement": chosen.candidate.placement,
                "prediction": chosen.candidate.prediction,
                "hours": chosen.hours,
                "kwh": chosen.kwh,
                "cost": chosen.cost,
                "memory_gib": chosen.memory_gib,
                "table": tuple(table),
                "reason": reason,
                "explanation": f"{reason} By what is expected: {self.decision.explanation}",
            }
        )


def allowance(runs: Sequence[PastRun], best: Assessment, weights: Weights) -> float:
    """What trials may still waste, as a share of what the best known is expected to take; negative when overdrawn.

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
        if run.was_trial:
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


def _power(weights: Weights) -> float:
    """By which power the objective grows with the time at one placement."""
    return 1.0 if len(weights.used) == 1 else sum(weights.used.values())


def _tried(decision: Decision, best: Assessment, why: str) -> Decision:
    """The decision as a trial, which ends at a multiple of what the best known is expected to take."""
    weights, chosen = Weights.parse(decision.objective), decision.chosen
    share = (STOP_MULTIPLE * best.score(weights) / chosen.score(weights)) ** (1 / _power(weights))
    hours = share * chosen.hours * chosen.candidate.expected_runs
    trial = Trial(best_known=best.candidate.placement, stop_multiple=STOP_MULTIPLE, stop_hours=hours)
    reason = (
        f"{_label(chosen)} is tried although {_label(best)} is the best known: by what past runs of this data needed, "
        f"{why}. It is stopped at {STOP_MULTIPLE:g} times what the best known is expected to take."
    )
    explanation = f"{reason} By what is expected: {decision.explanation}"
    return decision.model_copy(update={"trial": trial, "reason": reason, "explanation": explanation})


def _label(row: Assessment) -> str:
    return row.candidate.placement.label
