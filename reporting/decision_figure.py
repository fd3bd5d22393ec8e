"""Figure of a decision: time against energy and cost of all candidates, limits as lines, and the chosen candidate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shunter.planner.explain.cells import energy_unit, time_unit
from shunter.requests import Objective

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

    from shunter.planner.assessment import Assessment
    from shunter.planner.decide import Decision

MOST_COLOURS = 9
OTHERS = "other accelerators"
WIDTH_INCHES, HEIGHT_INCHES = 6.4, 5.4


@dataclass(frozen=True)
class _Axis:
    """Axis of a panel: attribute of the rows, label, limit, and the factor from the stored to the shown unit."""

    name: str
    label: str
    limit: float | None
    option: str
    scale: float = 1.0

    def of(self, row: "Assessment") -> float:
        """Return the position of a row on the axis."""
        return self.scale * getattr(row, self.name)


def decision_figure(decision: "Decision") -> "Figure":
    """Plot energy and cost over time in one panel each, if known; without both, plot memory over time.

    Filled marks are placements within the limits; hollow marks exceed a limit. Circles are accelerators of this
    machine, triangles are other accelerators. A dark rim means a measured step time. Lines are prediction intervals of
    the best placement of each named accelerator.
    """
    from matplotlib.figure import Figure

    limits = decision.limits
    scale, unit = time_unit(min(row.hours for row in decision.table))
    time = _Axis("hours", f"time of the whole job ({unit})", limits.max_hours, "--max-hours", scale)
    panels = [axis for axis in _vertical_axes(decision) if any(getattr(row, axis.name) for row in decision.table)]
    panels = panels or [_Axis("memory_gib", "memory (GiB)", limits.max_memory_gib, "--max-memory-gib")]
    figure = Figure(figsize=(WIDTH_INCHES * len(panels) + 2.6, HEIGHT_INCHES), dpi=110, layout="constrained")
    colours = _colours(decision.table)
    for position, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), position)
        _draw_panel(axes, decision, time, panel, colours)
    figure.suptitle(
        f"{decision.placement.label}: best by {decision.objective} of {decision.feasible} placements within the limits "
        f"({decision.considered} considered)",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    _add_legend(figure, colours, decision.table)
    return figure


def _vertical_axes(decision: "Decision") -> list[_Axis]:
    limits = decision.limits
    scale, unit = energy_unit(min((row.kwh for row in decision.table if row.kwh), default=0.0))
    return [
        _Axis("kwh", f"energy of the whole job ({unit})", limits.max_kwh, "--max-kwh", scale),
        _Axis("cost", "cost of the whole job", limits.max_cost, "--max-cost"),
    ]


def _colours(table: Sequence["Assessment"]) -> dict[str, Any]:
    """Return a colour for each accelerator: own accelerators first, then the best; the rest are grey."""
    from matplotlib import colormaps

    here_first = sorted(table, key=lambda row: not row.candidate.is_here)
    names = list(dict.fromkeys(row.candidate.placement.accelerator for row in here_first))
    palette = colormaps["tab10"].colors  # pyright: ignore[reportAttributeAccessIssue]
    palette = [colour for index, colour in enumerate(palette) if index != 7]  # without the grey of the palette
    colours: dict[str, Any] = dict(zip(names[:MOST_COLOURS], palette, strict=False))
    if len(names) > MOST_COLOURS:
        colours[OTHERS] = "0.65"
    return colours


def _draw_panel(axes: "Axes", decision: "Decision", time: _Axis, panel: _Axis, colours: dict[str, Any]) -> None:
    known = [row for row in decision.table if getattr(row, panel.name)]
    seen: set[str] = set()
    for row in known:
        accelerator = row.candidate.placement.accelerator
        colour: Any = colours.get(accelerator) or colours[OTHERS]
        x, y = time.of(row), panel.of(row)
        if accelerator not in seen and accelerator in colours:
            seen.add(accelerator)
            _draw_interval(axes, row, time, panel, colour)
        is_measured = row.candidate.prediction.step_seconds_source == "measured"
        axes.scatter(
            [x],
            [y],
            s=36,
            marker="o" if row.candidate.is_here else "^",
            facecolors="none" if row.excluded_by else [colour],
            edgecolors="black" if is_measured else [colour],
            linewidths=1.2 if is_measured else 0.9,
            zorder=3,
        )
    _draw_front(axes, [row for row in known if not row.excluded_by], time, panel)
    chosen = decision.table[0]
    if getattr(chosen, panel.name):
        place = (time.of(chosen), panel.of(chosen))
        axes.scatter([place[0]], [place[1]], s=330, marker="*", facecolors="gold", edgecolors="black", zorder=5)
        axes.annotate(
            chosen.candidate.placement.label,
            place,
            xytext=(10, -10),
            textcoords="offset points",
            ha="left",
            va="top",
            fontsize=9,
            zorder=6,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )
    _draw_limit(axes, time, vertical=True)
    _draw_limit(axes, panel, vertical=False)
    axes.margins(0.12)
    for scaled in (axes.xaxis, axes.yaxis):
        _scale(axes, scaled)
    axes.set_xlabel(time.label)
    axes.set_ylabel(panel.label)
    axes.grid(visible=True, which="major", color="0.9")
    axes.set_axisbelow(True)


def _scale(axes: "Axes", axis: "XAxis | YAxis") -> None:
    """Make an axis logarithmic with plain numbers; label minor ticks if the axis spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    name = str(axis.axis_name)
    (axes.set_xscale if name == "x" else axes.set_yscale)("log")
    low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
    axis.set_major_formatter(plain)
    axis.set_minor_formatter(plain if high / low < 10 else NullFormatter())
    axis.set_tick_params(which="minor", labelsize=8)


def _draw_interval(axes: "Axes", row: "Assessment", time: _Axis, panel: _Axis, colour: Any) -> None:
    quantity = {"kwh": Objective.ENERGY, "cost": Objective.COST}.get(panel.name)
    interval, hours = None if quantity is None else row.interval(quantity), row.hours_interval
    if interval is None or hours is None:
        return
    # Energy and cost are proportional to the step time, so the interval is a diagonal line, not a cross.
    ends = [time.scale * end for end in hours], [panel.scale * end for end in interval]
    axes.plot(*ends, color=colour, linewidth=1.4, alpha=0.55, solid_capstyle="butt", zorder=2)


def _draw_front(axes: "Axes", rows: Sequence["Assessment"], time: _Axis, panel: _Axis) -> None:
    """Plot the Pareto front of the placements within the limits, as a staircase."""
    corners: list[tuple[float, float]] = []
    for x, y in sorted((time.of(row), panel.of(row)) for row in rows):
        if not corners or y < corners[-1][1]:
            corners.append((x, y))
    if len(corners) > 1:
        axes.step(*zip(*corners, strict=True), where="post", color="0.45", linewidth=1, linestyle=":", zorder=1)


def _draw_limit(axes: "Axes", axis: _Axis, *, vertical: bool) -> None:
    if axis.limit is None:
        return
    draw = axes.axvline if vertical else axes.axhline
    limit = axis.scale * axis.limit
    draw(limit, color="firebrick", linestyle="--", linewidth=1.2, zorder=1)
    words = f"{axis.option} {axis.limit:g}"
    if vertical:
        place, transform, shift, rotation = (limit, 0.02), axes.get_xaxis_transform(), (-3, 0), 90
    else:
        place, transform, shift, rotation = (0.98, limit), axes.get_yaxis_transform(), (0, 3), 0
    axes.annotate(
        words,
        place,
        xycoords=transform,
        xytext=shift,
        textcoords="offset points",
        rotation=rotation,
        ha="right",
        va="bottom",
        color="firebrick",
        fontsize=8,
    )


def _add_legend(figure: "Figure", colours: dict[str, Any], table: Sequence["Assessment"]) -> None:
    from matplotlib.lines import Line2D

    def mark(label: str, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="none", **{"marker": "o", "color": "0.4", **style, "label": label})

    entries = [mark(name, color=colour) for name, colour in colours.items()]
    entries.append(mark("chosen", marker="*", markersize=13, markerfacecolor="gold", markeredgecolor="black"))
    if any(row.excluded_by for row in table):
        entries.append(mark("breaks a limit", markerfacecolor="none"))
    if any(not row.candidate.is_here for row in table):
        entries.append(mark("not in this machine", marker="^"))
    if any(row.candidate.prediction.step_seconds_source == "measured" for row in table):
        entries.append(mark("step measured", markeredgecolor="black"))
    if any(row.hours_interval for row in table):
        level = table[0].time_level
        spread = "spread of the steps" if level is None else f"{100 * level:.0f} % interval"
        entries.append(Line2D([], [], color="0.4", alpha=0.55, label=spread))
    entries.append(Line2D([], [], color="0.45", linestyle=":", label="Pareto front"))
    figure.legend(handles=entries, loc="outside right upper", frameon=False, fontsize=9)
