"""Tables of a choice and of a search, as data."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from shunter.flows.command.rendering import TextTable, duration, energy, number, quality
from shunter.hardware.units import JOULES_PER_KWH

if TYPE_CHECKING:
    from shunter.planner.assessment import Assessment
    from shunter.planner.decide import Decision
    from shunter.search.result import TuneResult

MOST_ACCELERATORS = 8


def decision_table(decision: "Decision", *, every_row: bool) -> TextTable:
    """Return the candidates in order, with time, energy, cost and memory of the whole job and why each lost.

    Args:
        decision: Decision to show.
        every_row: Whether to show every placement; else the best of each accelerator, of the `MOST_ACCELERATORS` first
            and of this machine.
    """
    shown: dict[str, Assessment] | list[Assessment]
    best: dict[str, Assessment] = {}
    for row in decision.table:
        best.setdefault(row.candidate.placement.accelerator, row)
    first = [*best.values()][:MOST_ACCELERATORS]
    here = [row for row in best.values() if row.candidate.is_here and row not in first]
    shown = list(decision.table) if every_row else [*first, *here]
    why = {row.rank: text["why"] for row, text in zip(decision.table, decision.shown_rows(), strict=True)}
    known: list[tuple[str, Callable[[Assessment], str]]] = [
        ("placement", lambda row: row.candidate.placement.label + ("" if row.candidate.is_here else " *")),
        ("time", lambda row: _marked(duration(row.hours * 3600), row.candidate.prediction.step_seconds_source)),
        ("energy", _energy),
        ("cost", lambda row: number(row.cost)),
        ("g CO2e", lambda row: number(row.carbon_grams)),
        ("memory", lambda row: _marked(number(row.memory_gib, "GiB"), row.candidate.prediction.memory_source)),
        ("why", lambda row: why[row.rank]),
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


def choice_rows(decision: "Decision") -> list[tuple[str, str]]:
    """Return the choice, how sure it is, and what limits it."""
    chosen = decision.chosen
    interval = chosen.hours_interval
    rows = [
        ("Choice", f"{decision.placement.label}, best by {decision.objective} of {decision.considered:,}"),
        ("Time", duration(decision.hours * 3600)),
        ("Limits", f"{decision.feasible:,} placements keep them; {decision.binds or 'none'} binds"),
    ]
    if interval is not None:
        low, high = (duration(hours * 3600) for hours in interval)
        level = "from its steps alone" if chosen.time_level is None else f"with {chosen.time_level:.0%} confidence"
        rows[1] = ("Time", f"{duration(decision.hours * 3600)}, {low} to {high} {level}")
    return rows


def _energy(row: "Assessment") -> str:
    return "" if row.kwh is None else energy(row.kwh * JOULES_PER_KWH, row.candidate.prediction.energy_source)


def _marked(text: str, source: str) -> str:
    return text if source == "measured" else f"~{text}"


def front_table(result: "TuneResult") -> TextTable:
    """Return the trials that no other one beats in both quality and cost."""
    from shunter.engine.metrics import FIGURES
    from shunter.search.front import front_rows

    figure, best = FIGURES[result.select_by], result.best.trial_number
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
