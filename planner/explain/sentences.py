"""Explanation of a decision as text: one sentence, one paragraph, or why no placement is feasible."""

from collections.abc import Sequence

from shunter.planner.assessment import Assessment
from shunter.planner.explain.cells import (
    format_carbon,
    format_difference,
    format_energy,
    format_money,
    format_time,
    how_sure,
)
from shunter.planner.explain.table import format_objective
from shunter.planner.rank.checks import Relaxation
from shunter.planner.rank.ranking import Ranking
from shunter.planner.rank.totals import Terms
from shunter.requests import Objective, Weights

NEAREST_SHOWN = 3
TOLD_SHARE = 0.05  # smallest reported deviation of the searched architectures' epoch time from the default's


def reason(ranking: Ranking, terms: Terms, binds: str | None) -> str:
    """Return one sentence that explains why the first placement of the ranking was chosen."""
    best, weights, limits, feasible = ranking.table[0], terms.weights, terms.limits, ranking.feasible
    amounts = [
        _amount(best, quantity)
        for quantity in Objective
        if quantity in weights.used or quantity in (Objective.TIME, Objective.ENERGY)
    ]
    runner_up = ""
    if feasible > 1:
        second = ranking.table[1]
        runner_up = f" ({second.candidate.placement.label} needs {_more(second, best, weights)})"
    within = "" if feasible == ranking.considered else f" that keep the limits (of {ranking.considered})"
    binding = "no limit binds" if binds is None else f"without the limit on {binds} another placement would have won"
    if ranking.shortened_by:
        binding = f"{' and '.join(miss.option or '' for miss in ranking.shortened_by)} will end it early"
    quality = (
        "" if limits.min_auc is None else f", and the requested AUC of {limits.min_auc:g} is checked after training"
    )
    return (
        f"{best.candidate.placement.label} needs the least {format_objective(weights)} of {feasible} placement(s)"
        f"{within}{runner_up}: {' and '.join(amounts)} for {_epochs(best, terms)}{_searched(best)}; {binding}{quality}."
    )


def explain(ranking: Ranking, terms: Terms) -> str:
    """Return the reason of the choice, the lead over the next one, its certainty, the binding limit, alternatives."""
    best, feasible = ranking.table[0], [row for row in ranking.table if not row.excluded_by]
    sentences = [
        _what(best, ranking.feasible, ranking.considered, terms.weights),
        *_beaten(best, feasible[1:], terms.weights),
        *_best_here(best, ranking.table, terms.weights),
        *_kept(best, terms),
        _binding(best, feasible[1:2], ranking.barred, terms.weights),
        *_quality(best, terms),
    ]
    return " ".join(sentences)


def explain_infeasible(ranking: Ranking, relaxations: Sequence[Relaxation]) -> str:
    """Return the nearest candidates with the limits they break, and the remedy, in one sentence."""
    nearest = "; ".join(f"{row.candidate.placement.label} ({_misses(row)})" for row in ranking.table[:NEAREST_SHOWN])
    remedy = "use a machine with more memory, or with known energy and price"
    if terms_of_quality := [miss for miss in ranking.table[0].excluded_by if miss.at_least]:
        remedy = f"require less than {terms_of_quality[0].limit.removeprefix('probability of ')}"
    if relaxations:
        remedy = f"relax {' or '.join(relaxation.text for relaxation in relaxations)}"
    head = f"None of {ranking.considered} placements keeps the limits, the nearest are {nearest}"
    return f"{head}: {remedy}, or relax a limit."


def _what(best: Assessment, feasible: int, total: int, weights: Weights) -> str:
    where = "" if best.candidate.is_here else ", which is not in this machine,"
    among = f"the {feasible} of {total} placements within the limits"
    if feasible == total:
        among = f"all {total} placements"
    label, least = best.candidate.placement.label, format_objective(weights)
    return f"{label}{where} needs the least {least} of {among}: {format_totals(best)}."


def format_totals(row: Assessment) -> str:
    """Format time, energy and cost of the whole job with interval and source, as far as known."""
    prediction = row.candidate.prediction
    of_time, of_energy = how_sure(row.time_level), how_sure(row.energy_level)
    figures = [f"{format_time(row.hours, row.hours_interval, of_time)} (step {prediction.step_seconds_source})"]
    if row.kwh is not None:
        figures.append(f"{format_energy(row.kwh, row.kwh_interval, of_energy)} (power {prediction.energy_source})")
    if row.cost is not None:
        cost = format_money(row.cost, row.cost_interval, of_time)
        figures.append(f"a cost of {cost} (price {row.candidate.price_source})")
    if row.carbon_grams is not None:
        figures.append(f"{format_carbon(row.carbon_grams, row.carbon_interval, of_energy)} (intensity given)")
    return _listed(figures)


def _beaten(best: Assessment, losers: Sequence[Assessment], weights: Weights) -> list[str]:
    """Describe the runner-up, the certainty of the order, and the best candidates on three other accelerators."""
    if not losers:
        return []
    runner_up, *_ = losers
    said = [f"The next, {runner_up.candidate.placement.label}, needs {_more(runner_up, best, weights)}"]
    said[0] += f"; {_sureness(best, runner_up, weights)}."
    seen = {best.candidate.placement.accelerator, runner_up.candidate.placement.accelerator}
    others = []
    for row in losers:
        if row.candidate.is_here and not best.candidate.is_here:
            continue  # described by `_best_here`
        if row.candidate.placement.accelerator not in seen and len(others) < NEAREST_SHOWN:
            seen.add(row.candidate.placement.accelerator)
            others.append(f"{row.candidate.placement.label} ({_more(row, best, weights)})")
    if others:
        said.append(f"Best on other accelerators: {_listed(others)}.")
    return said


def _best_here(best: Assessment, table: Sequence[Assessment], weights: Weights) -> list[str]:
    """Describe the best candidate of this machine if another machine's was chosen."""
    here = next((row for row in table if row.candidate.is_here), None)
    if best.candidate.is_here or here is None:
        return []
    label = here.candidate.placement.label
    if here.excluded_by:
        return [f"No placement on this machine is within the limits, the nearest is {label} ({_misses(here)})."]
    return [f"In this machine {label} is best, with {_more(here, best, weights)}: {format_totals(here)}."]


def _misses(row: Assessment) -> str:
    return ", ".join(miss.text for miss in row.excluded_by)


def _sureness(best: Assessment, loser: Assessment, weights: Weights) -> str:
    """Describe as text how certain the order of two candidates is, if too few past runs support a probability."""
    if _mixes_energies(best, loser, weights):
        return "the certainty is unknown, because power is measured for one and estimated for the other"
    spreads = [candidate.prediction.step_seconds_spread for candidate in (best.candidate, loser.candidate)]
    if spreads[0] is None or spreads[1] is None:
        return "the certainty is unknown, because the spread of the steps is unknown for one of them"
    pair = (best.candidate, loser.candidate)
    is_one_model = all(candidate.prediction.step_seconds_source == "estimated" for candidate in pair)
    if is_one_model and pair[0].placement.accelerator == pair[1].placement.accelerator:
        return (
            "both are estimates for one accelerator with similar errors, so their order is more certain "
            "than their figures"
        )
    exponent = sum(weights.used.values()) if len(weights.used) > 1 else 1.0
    best_at_most = best.score(weights) * spreads[0][1] ** exponent
    if loser.score(weights) * spreads[1][0] ** exponent > best_at_most:
        return "more than the variation of their step times"
    return "within the variation of their step times, so the order is uncertain"


def percent(chance: float) -> str:
    """Format a probability in per cent, never rounded to certainty."""
    return "over 99%" if chance > 0.99 else "under 1%" if chance < 0.01 else f"{chance:.0%}"


def _mixes_energies(row: Assessment, other: Assessment, weights: Weights) -> bool:
    """Return True if the objective compares measured joules with estimated joules of another accelerator.

    Two candidates on one accelerator are comparable, because estimates there follow from its measurements.
    """
    if not (weights.energy or weights.carbon):
        return False
    pair = (row.candidate, other.candidate)
    is_one = pair[0].placement.accelerator == pair[1].placement.accelerator
    return not is_one and len({candidate.prediction.energy_source for candidate in pair}) > 1


def _kept(best: Assessment, terms: Terms) -> list[str]:
    """Describe for each limit the probability that the chosen placement keeps it, if past jobs show one."""
    limits, calibration = terms.limits, terms.calibration
    time, energy = calibration.seconds, calibration.joules
    asked = [
        ("time", limits.max_hours, best.hours, time if best.time_level else None),
        ("energy", limits.max_kwh, best.kwh, energy if best.energy_level else None),
        ("cost", limits.max_cost, best.cost, time if best.time_level else None),
    ]
    kept = []
    for name, bound, value, ratios in asked:
        if bound is None or not value:
            continue
        chance = None if ratios is None else ratios.chance_below(bound / value * ratios.centre)
        if ratios is None or chance is None:
            kept.append(f"that on {name} by the expected value")
        else:
            kept.append(f"that on {name} with probability {percent(chance)} by {ratios.runs} past jobs")
    return [f"Of the limits it keeps {_listed(kept)}; training stops at them in any case."] if kept else []


def _binding(best: Assessment, next_best: Sequence[Assessment], barred: Assessment | None, weights: Weights) -> str:
    """Describe the limit that excludes a better candidate; if there is none, what would change the choice."""
    if barred is None:
        change = ""
        ratio = next_best[0].score(weights) / best.score(weights) if next_best else 1.0
        if ratio > 1:
            gap = format_difference(ratio)
            change = f"; it would change if this placement needed {gap} than expected, and the next one not"
        return f"No limit binds: without limits, the choice would be the same{change}."
    less = 1 - barred.score(weights) / best.score(weights)
    return (
        f"What binds: {barred.candidate.placement.label} would need {less:.1%} less {format_objective(weights)}, "
        f"but is excluded ({_misses(barred)}); a limit that permits it would change the choice."
    )


def _quality(best: Assessment, terms: Terms) -> list[str]:
    if terms.limits.min_auc is None:
        return []
    chance = best.candidate.quality_probability
    if chance is None:
        return [
            f"Whether it reaches AUC {terms.limits.min_auc:g} is unknown without past runs; it excludes no "
            f"placement and is checked after training."
        ]
    return [f"By past runs it reaches AUC {terms.limits.min_auc:g} with probability {percent(chance)}."]


def _more(row: Assessment, best: Assessment, weights: Weights) -> str:
    return format_difference(row.score(weights) / best.score(weights))


def _amount(row: Assessment, quantity: Objective) -> str:
    """Format one total with its source."""
    prediction = row.candidate.prediction
    if quantity is Objective.TIME:
        return f"{format_time(row.hours)} (step {prediction.step_seconds_source})"
    if quantity is Objective.COST:
        return "an unknown cost" if row.cost is None else f"a cost of {format_money(row.cost)}"
    if quantity is Objective.CARBON:
        return "unknown emissions" if row.carbon_grams is None else format_carbon(row.carbon_grams)
    return "an unknown energy" if row.kwh is None else f"{format_energy(row.kwh)} (power {prediction.energy_source})"


def _epochs(row: Assessment, terms: Terms) -> str:
    """Describe the expected number of epochs; without past runs, the planned number as an upper bound."""
    if row.candidate.work_log_deviation is None:
        return f"at most {terms.job.epochs:.3g} epochs"
    return f"~{terms.job.epochs * row.candidate.work_share:.3g} of at most {terms.job.epochs:.3g} epochs"


def _searched(row: Assessment) -> str:
    """Describe the epoch time of the searched architectures if it differs from the default's."""
    share = row.candidate.searched_share
    return "" if abs(share - 1) < TOLD_SHARE else f" of settings that take {share:.2g} times what the default does"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
