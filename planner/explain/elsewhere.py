"""Note on a better accelerator of the catalogue that is not in this machine."""

from collections.abc import Sequence

from shunter.planner.assessment import Assessment, Candidate
from shunter.planner.explain.sentences import format_totals
from shunter.planner.rank.ranking import rank
from shunter.planner.rank.totals import Terms

LEAST_GAIN = 0.2  # of the objective: a smaller gain is within the error of catalogue figures


def better_elsewhere(best: Assessment, absent: Sequence[Candidate], terms: Terms) -> list[str]:
    """Return a note on the best absent candidate with a clearly lower objective; empty if there is none.

    Args:
        best: Best candidate of this machine.
        absent: Candidates on accelerators of the catalogue.
        terms: Limits and objective; an absent candidate that breaks a limit is not named.
    """
    if not absent:
        return []
    other = rank(absent, terms).table[0]
    if other.excluded_by:
        return []
    name = other.candidate.placement.accelerator
    if best.excluded_by:
        return [f"Not in this machine, {name} is expected from the catalogue to keep them: {format_totals(other)}."]
    less = 1 - other.score(terms.weights) / best.score(terms.weights)
    if less < LEAST_GAIN:
        return []
    # No probability is given: the error of a data sheet for this training is unknown.
    return [
        f"Not in this machine, {name} is expected from the catalogue to need {less:.0%} less: {format_totals(other)}."
    ]
