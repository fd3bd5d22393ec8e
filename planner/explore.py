"""Now and then tries a placement that is not the best by plan, because past runs of the same data leave room for it.

What a step takes is measured by probes within seconds, so no whole run is spent on that. How much work a batch size
needs until training ends shows in whole runs alone: the plan counts the same epochs for all of them. Past runs of the
same data and model family say what share of the plan each batch size needed; the policy of `history.policy` then weighs
what is known against what a trial promises.
"""

import math

import numpy as np

from planner.assessment import Assessment
from planner.decide import Decision
from planner.history import Choice, History, Posterior, choose_under_uncertainty
from shunter.requests import Weights

MOST_REGRET = 1.0  # A trial that is expected to need more than twice what the best known needs is not made.


def explored(decision: Decision, history: History, *, data: str, family: str) -> Decision:
    """The decision, or one for another placement that keeps all limits and is worth taking after what past runs needed.

    Args:
        decision: Decision by plan, its best first.
        history: Past runs.
        data: Key of the data, by `data_key`.
        family: Family of the model.
    """
    weights = Weights.parse(decision.objective)
    table = decision.table
    sizes = [row.candidate.placement.batch_size for row in table]
    shares = history.work_shares(sizes, data=data, family=family)
    if shares is None:
        return decision
    scores = np.array([row.score(weights) for row in table])
    open_to_choice = [
        not row.excluded_by and row.candidate.is_here and math.isfinite(row.score(weights)) for row in table
    ]
    power = 1.0 if len(weights.used) == 1 else sum(weights.used.values())
    with np.errstate(divide="ignore"):
        planned = np.where(open_to_choice, np.log(scores), 0.0)
    belief = Posterior(planned + power * shares.mean, power**2 * shares.covariance)
    choice = choose_under_uncertainty(
        belief, excluded=[not is_open for is_open in open_to_choice], most_regret=MOST_REGRET
    )
    if choice.index == 0:
        return decision
    return _taken(decision, choice)


def _taken(decision: Decision, choice: Choice) -> Decision:
    """The decision with another row of its table as the chosen one."""
    chosen, first = decision.table[choice.index], decision.table[0]
    others = [row for row in decision.table if row is not chosen]
    table = [row.model_copy(update={"rank": rank}) for rank, row in enumerate([chosen, *others], start=1)]
    reason = (
        f"{_label(chosen)} is {'tried' if choice.tries else 'taken'} although by plan {_label(first)} needs less: "
        f"by the share of their plans that past runs of this data needed, {choice.reason}."
    )
    return decision.model_copy(
        update={
            "placement": chosen.candidate.placement,
            "prediction": chosen.candidate.prediction,
            "hours": chosen.hours,
            "kwh": chosen.kwh,
            "cost": chosen.cost,
            "memory_gib": chosen.memory_gib,
            "table": tuple(table),
            "reason": reason,
            "explanation": f"{reason} By plan: {decision.explanation}",
        }
    )


def _label(row: Assessment) -> str:
    return row.candidate.placement.label
