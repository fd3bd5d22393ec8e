"""Tables of a decision and of a search, and JSON values of a decision or of the error without one."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shunter.flows.command.rendering import TextTable, duration, energy, number, quality
from shunter.hardware.units import JOULES_PER_KWH

if TYPE_CHECKING:
    from shunter.errors import ShunterError
    from shunter.planner.assessment import Assessment
    from shunter.planner.decide import Decision
    from shunter.search.result import TuneResult

MOST_ACCELERATORS = 5


def decision_table(decision: "Decision", *, every_row: bool) -> TextTable:
    """Return a table of the candidates in order: time, energy, cost and memory of the whole job, reason of rejection.

    Args:
        decision: Decision to show.
        every_row: Whether to show every placement; otherwise the best placement of each of the first
            `MOST_ACCELERATORS` accelerators and of this machine's accelerators.
    """
    shown: dict[str, Assessment] | list[Assessment]
    best: dict[str, Assessment] = {}
    for row in decision.table:
        best.setdefault(row.candidate.placement.accelerator, row)
    first = [*best.values()][:MOST_ACCELERATORS]
    here = [row for row in best.values() if row.candidate.is_here and row not in first]
    shown = list(decision.table) if every_row else [*first, *here]
    known: list[tuple[str, Callable[[Assessment], str]]] = [
        ("placement", lambda row: row.candidate.placement.label + ("" if row.candidate.is_here else " *")),
        ("time", lambda row: _marked(duration(row.hours * 3600), row.candidate.prediction.step_seconds_source)),
        ("energy", _energy),
        ("cost", lambda row: number(row.cost)),
        ("g CO2e", lambda row: number(row.carbon_grams)),
        ("memory", lambda row: _marked(number(row.memory_gib, "GiB"), row.candidate.prediction.memory_source)),
        ("loss of NE", _quality_loss),
        ("outcome", lambda row: _outcome(decision, row)),
    ]
    columns = [(title, [cell(row) for row in shown]) for title, cell in known]
    columns = [(title, cells) for title, cells in columns if any(cells)]
    left_out = len(best) - len({row.candidate.placement.accelerator for row in shown})
    notes = ["~ estimated"]
    if not all(row.candidate.is_here for row in shown):
        notes.append("* not in this machine")
    if left_out:
        notes.append(f"{left_out} more accelerators: --every-row")
    return TextTable(
        [title for title, _ in columns],
        list(zip(*(cells for _, cells in columns), strict=True)),
        f"Placements by {decision.objective}, for {number(decision.job.epochs)} epochs",
        "; ".join(notes),
    )


def _quality_loss(row: "Assessment") -> str:
    """Return the expected loss of NE with its interval; empty if unknown."""
    loss = row.candidate.quality_loss
    return "" if loss is None else f"{loss.expected:+.1%} ({loss.low:+.1%} to {loss.high:+.1%})"


def _outcome(decision: "Decision", row: "Assessment") -> str:
    """Return the excess of a candidate's objective over the chosen one in percent, or the limits that it exceeds."""
    if row.rank == decision.chosen.rank:
        return "explored" if decision.is_exploration else "chosen"
    if row.excluded_by:
        return "; ".join(miss.text for miss in row.excluded_by)
    return f"+{100 * (decision.weighed(row) / decision.weighed(decision.chosen) - 1):.3g} % {decision.objective}"


def choice_rows(decision: "Decision") -> list[tuple[str, str]]:
    """Return table rows of label and text: the chosen placement, its time with the uncertainty, and the limits."""
    from shunter.planner.explain.cells import format_time

    chosen = decision.chosen
    sure = " (step time alone)" if chosen.time_level is None else f" ({chosen.time_level:.0%} interval)"
    are_limits = decision.limits.model_dump(exclude_defaults=True)
    keep = f"{decision.feasible:,} of {decision.considered:,} placements keep them; {decision.binds or 'none'} binds"
    return [
        ("Choice", f"{decision.placement.label}, best by {decision.objective} of {decision.considered:,}"),
        ("Time", format_time(decision.hours, chosen.hours_interval, sure)),
        ("Limits", keep if are_limits else "none given"),
    ]


def _energy(row: "Assessment") -> str:
    return "" if row.kwh is None else energy(row.kwh * JOULES_PER_KWH, row.candidate.prediction.energy_source)


def _marked(text: str, source: str) -> str:
    return text if source == "measured" else f"~{text}"


def front_table(result: "TuneResult") -> TextTable:
    """Return the Pareto front of the trials in quality and cost."""
    from shunter.search.front import front_rows

    figure, best = result.figure, result.best.trial_number
    rows = front_rows(result)
    cells = [
        [
            f"{value}{' *' if row['trial'] == best else ''}"
            if title == "trial"
            else quality(value)
            if title == figure
            else number(value)
            if isinstance(value, float)
            else str(value or "")
            for title, value in row.items()
        ]
        for row in rows
    ]
    return TextTable(list(rows[0]) if rows else (), cells, f"Front of {len(result.settings)} trials", "* ranks first")


def decision_as_json(decision: "Decision") -> dict[str, Any]:
    """Return the whole decision as JSON values, for `shunter select --json`."""
    return {
        "status": "chosen",
        "placement": decision.placement.model_dump(mode="json"),
        "is_here": decision.chosen.candidate.is_here,
        "objective": decision.objective,
        "limits": decision.limits.model_dump(mode="json"),
        "epochs": decision.job.epochs,
        "reason": decision.reason,
        "explanation": decision.explanation,
        "binds": decision.binds,
        "ends_at": [miss.limit for miss in decision.shortened_by],
        "notes": list(decision.notes),
        "table": decision.table_rows(),
        "run_id": decision.run_id,
    }


def error_as_json(error: "ShunterError") -> dict[str, Any]:
    """Return an error as JSON values; if no placement is feasible, add the fastest placement and limits to relax."""
    from shunter.engine.stopping import StoppedError
    from shunter.planner.decide import NoFeasiblePlacementError

    told = {"code": error.code, "message": str(error)}
    if isinstance(error, StoppedError):
        return {"status": "stopped", **told, "stop_reason": asdict(error.reason)}
    if not isinstance(error, NoFeasiblePlacementError):
        return {"status": "error", **told}
    return {
        "status": "infeasible",
        **told,
        "fastest": error.fastest.candidate.placement.model_dump(mode="json"),
        "fastest_hours": error.fastest.hours,
        "shortfall_seconds": error.shortfall_seconds,
        "best_auc": error.best_auc,
        "relaxations": [relaxation.model_dump(mode="json") for relaxation in error.relaxations],
    }
