"""Accelerators of the catalogue that are clearly better than this machine, and the note on the best of them."""

import math
from collections.abc import Sequence

from shunter.planner.assessment import Assessment, Candidate
from shunter.planner.explain.sentences import format_totals
from shunter.planner.rank.ranking import rank
from shunter.planner.rank.totals import Terms

# Least saving of the objective of the whole command, and of its time: less is within the error of
# catalogue figures, or not worth another machine.
LEAST_GAIN, LEAST_SECONDS = 0.3, 60.0
EQUAL = 0.1  # share by which objectives of the catalogue may differ and count as equal


def saving(row: Assessment, best: Assessment, terms: Terms) -> float:
    """Return the share of the best local candidate's objective that another candidate saves.

    Both objectives are those of the whole command. The share is 0 if it is below `LEAST_GAIN` or saves less than
    `LEAST_SECONDS`.

    Args:
        row: Candidate on an accelerator of the catalogue.
        best: Best candidate of this machine.
        terms: Objective, and the seconds of the command outside its training runs.
    """
    less = 1 - _of_command(row, terms) / _of_command(best, terms)
    return less if less >= LEAST_GAIN and less * _hours(best, terms) * 3600 >= LEAST_SECONDS else 0.0


def clearly_better(best: Assessment, absent: Sequence[Candidate], terms: Terms) -> list[Candidate]:
    """Return the candidates on clearly better accelerators; all candidates if this machine cannot keep the limits.

    Of accelerators with practically equal objectives, only the cheapest is returned.

    Args:
        best: Best candidate of this machine.
        absent: Candidates on accelerators of the catalogue.
        terms: Limits and objective.
    """
    if best.excluded_by or not absent:
        return list(absent)
    rows = [row for row in _best_of_each(absent, terms) if saving(row, best, terms)]
    if not rows:
        return []
    equals = {_name(row) for row in _equals(rows, terms)} - {_name(_preferred(rows, terms))}
    worth = {_name(row) for row in rows} - equals
    return [candidate for candidate in absent if candidate.placement.accelerator in worth]


def better_elsewhere(best: Assessment, absent: Sequence[Candidate], terms: Terms) -> list[str]:
    """Return a note on the best absent candidate if it is clearly better than this machine; otherwise an empty list.

    Args:
        best: Best candidate of this machine.
        absent: Candidates on accelerators of the catalogue.
        terms: Limits and objective; an absent candidate that breaks a limit is not named.
    """
    rows = _best_of_each(absent, terms) if absent else []
    if not rows:
        return []
    other = _preferred(rows, terms)
    if best.excluded_by:
        return [
            f"Not in this machine, {_name(other)} is expected from the catalogue to keep them: {format_totals(other)}."
        ]
    less = saving(other, best, terms)
    if not less:
        return []
    # No probability is given: the error of a data sheet for this training run is unknown.
    return [
        f"Not in this machine, {_name(other)} is expected from the catalogue to need {less:.0%} less: "
        f"{format_totals(other)}."
    ]


def _best_of_each(absent: Sequence[Candidate], terms: Terms) -> list[Assessment]:
    """Return the best row of each accelerator that keeps the limits, in order of the objective."""
    rows: dict[str, Assessment] = {}
    for row in rank(absent, terms).table:
        if not row.excluded_by:
            rows.setdefault(_name(row), row)
    return list(rows.values())


def _equals(rows: Sequence[Assessment], terms: Terms) -> list[Assessment]:
    """Return the rows whose objective is within the share `EQUAL` of the first row's."""
    return [row for row in rows if row.score(terms.weights) <= (1 + EQUAL) * rows[0].score(terms.weights)]


def _preferred(rows: Sequence[Assessment], terms: Terms) -> Assessment:
    """Return the cheapest row of those with practically the first row's objective; at equal cost, the fewest watts."""

    def known(value: float | None) -> float:
        return math.inf if value is None else value

    return min(_equals(rows, terms), key=lambda row: (known(row.cost), known(row.watts) * row.candidate.machines))


def _name(row: Assessment) -> str:
    return row.candidate.placement.accelerator


def _of_command(row: Assessment, terms: Terms) -> float:
    """Return the objective of the whole command: each total grows in proportion to the command's total hours."""
    used = terms.weights.used
    power = sum(used.values()) if len(used) > 1 else 1.0
    return row.score(terms.weights) * (_hours(row, terms) / row.hours) ** power


def _hours(row: Assessment, terms: Terms) -> float:
    return row.hours + terms.job.beside_seconds / 3600
