"""The figure shows every candidate whose figures are known, the limits that were set, and the chosen one."""

from matplotlib.axes import Axes

from shunter.planner.decide import decide
from shunter.planner.rank.totals import Terms
from shunter.reporting.decision_figure import decision_figure
from shunter.requests import Limits
from tests.planner.test_decide import FAST_HUNGRY, MIDDLE, SLOW_FRUGAL, TEN_EPOCHS, candidate


def marked_places(axes: Axes) -> set[tuple[float, float]]:
    return {tuple(collection.get_offsets()[0].tolist()) for collection in axes.collections}  # pyright: ignore


def dashed_lines(axes: Axes) -> set[tuple[float, float]]:
    return {(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_linestyle() == "--"}  # pyright: ignore


def test_energy_and_cost_each_have_a_panel_over_time() -> None:
    decision = decide(
        [MIDDLE, SLOW_FRUGAL, FAST_HUNGRY], Terms.of(Limits(max_hours=1.5, max_cost=1.2), "energy", TEN_EPOCHS)
    )
    energy, cost = decision_figure(decision).axes
    assert energy.get_xlabel() == "time of the whole job (min)", "the fastest takes half an hour"
    assert marked_places(energy) == {(60 * row.hours, row.kwh) for row in decision.table}
    assert marked_places(cost) == {(60 * row.hours, row.cost) for row in decision.table}
    assert dashed_lines(energy) == {(90, 0)}, "a limit that was not set has no line"
    assert dashed_lines(cost) == {(90, 0), (0, 1.2)}
    assert decision.placement.label in {text.get_text() for text in energy.texts}


def test_what_is_unknown_has_no_panel_and_no_mark() -> None:
    unknown = candidate(64, seconds=100, joules=None, price=None)
    decision = decide([unknown, candidate(512, price=None)], Terms.of(Limits(), "time", TEN_EPOCHS))
    (energy,) = decision_figure(decision).axes
    assert len(marked_places(energy)) == 1
    (memory,) = decision_figure(decide([unknown], Terms.of(Limits(), "time", TEN_EPOCHS))).axes
    assert memory.get_ylabel() == "memory (GiB)"
