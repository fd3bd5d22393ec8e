"""Exploration of placements other than the best known, if past runs of the same data make it worthwhile.

Probes measure step times within seconds, so that no whole run is spent on them. The work that a batch size needs until
training ends shows only in whole runs. Past runs of the same data and model family give the share of the plan that each
batch size needed. An exploration is worthwhile if its expected gain over some recurrences exceeds its extra cost over
the best known placement (the knowledge gradient; Frazier, Powell and Dayanik, 2009).

Explorations are bounded. An exploration is stopped at a multiple of the best known placement's expected total (as in
Zeus; You, Chung and Chowdhury, NSDI 2023, section 4.4). All explorations together may waste at most a share of the
total of the job's runs. The constants were set on jobs drawn from the priors of `history.epochs`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.planner.assessment import Assessment
from shunter.planner.decide import Decision, Exploration
from shunter.planner.history import QUANTILES, History, PastRun, Posterior, knowledge_gradient
from shunter.requests import Explore, Weights

MOST_REGRET = 1.0  # no exploration with more than twice the expected total of the best known
STOP_MULTIPLE = 2.0  # an exploration is stopped at this multiple of the best known's expected total
PAYBACK_RUNS = 20  # runs of a recurring job within which an exploration must be expected to pay off
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
        """Return the belief about the logarithm of the share of the planned work; None without past runs."""
        return self.history.work_shares(batch_sizes, data=self.data, family=self.family)

    def good_batch_sizes(self) -> list[int]:
        """Return the batch sizes of runs that reached the quality."""
        return [run.placement.batch_size for run in self.runs() if not run.is_censored and run.placement is not None]

    def runs(self) -> list[PastRun]:
        """Return the past runs of this job."""
        return self.history.alike(self.data, self.family)


def explored(decision: Decision, job: PastJob, mode: Explore) -> Decision:
    """Return the decision, or an exploration of another feasible placement if past runs make it worthwhile.

    Args:
        decision: Decision by current knowledge, its best row first.
        job: Past runs of this job.
        mode: Permitted extent of explorations.
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
    """Return the index of the best row whose batch size reached the quality before; None if there is none."""
    good = set(job.good_batch_sizes())
    rows = enumerate(decision.table)
    return next((index for index, row in rows if _is_open(row) and row.candidate.placement.batch_size in good), None)


def _is_open(row: Assessment) -> bool:
    return not row.excluded_by and row.candidate.is_here


class _Options:
    """Rows of a decision with the belief about each row's objective.

    Args:
        decision: Decision by what is known.
        shares: Belief about the logarithm of the work of each row.
        best_known: Index of the row with which other rows are compared.
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
        """Return the index of the exploration with the highest worth; None if the best known is worth at least as much.

        The worth of a run is its expected gain over the following runs minus its own cost.
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
        """Describe the expected total of an exploration relative to the best known."""
        more = math.expm1(self._belief.mean[index] - self._belief.mean[self._best_index])
        doubt = math.expm1(self._deviation[index])
        expected = f"{abs(more):.0%} {'more' if more > 0 else 'less'} than" if abs(more) >= 0.005 else "as much as"
        return f"it is expected to need {expected} the best known, give or take {doubt:.0%}"

    def expected_waste(self, index: int) -> float:
        """Return the expected cost of an exploration beyond the best known, as a share of the best known's.

        If an exploration is stopped, or ends without the requested quality, its whole cost is wasted.
        """
        cost, chance = self._costs(index)
        if_good = np.where(cost > STOP_MULTIPLE, STOP_MULTIPLE, np.maximum(cost - 1, 0.0))
        return float(np.mean(chance * if_good + (1 - chance) * np.minimum(cost, STOP_MULTIPLE)))

    def _expected_cost(self, index: int) -> float:
        """Return the expected cost of a run, plus a run of the best known if it fails."""
        if index == self._best_index:
            return 1.0
        cost, chance = self._costs(index)
        fails = np.where(cost > STOP_MULTIPLE, 1.0, 1 - chance)
        return float(np.mean(np.minimum(cost, STOP_MULTIPLE) + fails))

    def _costs(self, index: int) -> tuple[np.ndarray, float]:
        """Return the cost quantiles of one run relative to the best known, and its chance to reach the quality."""
        runs = self.decision.table[index].candidate.expected_runs
        mean = float(self._belief.mean[index] - self._belief.mean[self._best_index])
        return np.exp(mean + self._deviation[index] * QUANTILES) / runs ** _power(self.weights), 1 / runs

    def taken(self, index: int) -> Decision:
        """Return the decision with another row of its table as the chosen row."""
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
    """Return the decision for the best known placement after an exploration failed.

    Args:
        decision: An exploration.
        because: Reason for giving it up, as a sentence.
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
    """Return the waste still allowed for explorations, as a share of the best known's total; negative if exceeded.

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
    """Return a run's objective in the unit of `Assessment.score`; None if not measured."""
    amounts = {quantity: run.total(quantity) for quantity in weights.used}
    if any(amount is None for amount in amounts.values()):
        return None
    if len(amounts) == 1:
        return next(iter(amounts.values()))
    return math.prod((amount or 0.0) ** weights.used[quantity] for quantity, amount in amounts.items())


def _score_of_one(row: Assessment, weights: Weights) -> float:
    """Return the objective of a single run, independent of reaching the quality."""
    return row.score(weights) / row.candidate.expected_runs ** _power(weights)


def _power(weights: Weights) -> float:
    """Return the power with which the objective grows with time at one placement."""
    return 1.0 if len(weights.used) == 1 else sum(weights.used.values())


def _tried(decision: Decision, best: Assessment, why: str) -> Decision:
    """Return the decision as an exploration that is stopped at a multiple of the best known's expected total."""
    weights, chosen = Weights.parse(decision.objective), decision.chosen
    share = (STOP_MULTIPLE * _score_of_one(best, weights) / _score_of_one(chosen, weights)) ** (1 / _power(weights))
    hours = share * chosen.hours
    exploration = Exploration(best_known=best.candidate.placement, stop_multiple=STOP_MULTIPLE, stop_hours=hours)
    reason = (
        f"{_label(chosen)} is tried although {_label(best)} is the best known: by what past runs of this data needed, "
        f"{why}. It is stopped at {STOP_MULTIPLE:g} times what the best known is expected to take."
    )
    explanation = f"{reason} By what is expected: {decision.explanation}"
    # Past jobs calibrate the error of tried placements, not of untried ones.
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
