"""Figure of a search: NE over each cost, with all trials, the Pareto front as a staircase, and the chosen trial."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from shunter.search.front import CostAxis, known_axes
from shunter.search.result import Setting, TuneResult, front_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_INCHES, HEIGHT_INCHES, LEGEND_INCHES = 5.0, 4.6, 1.7
LOGARITHMIC_FROM = 5.0  # ratio of the highest to the lowest cost
MOST_LABELS = 6
FAR = 4.0  # a trial is not drawn if its loss is further from the best than this multiple of the median's distance
# Colours of Okabe and Ito, which are distinct with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
LOSSES = {"ne": "NE", "auc": "1 - AUC", "logloss": "log loss"}
LABELS = {
    "step_seconds": "measured time of a step (ms)",
    "joules_per_sample": "{energy} energy of a training sample (mJ)",
    "parameter_bytes": "counted size of the parameters (MiB)",
}


def front_figure(result: TuneResult) -> "Figure":
    """Plot the loss over each known cost in a separate panel, the cost of the search first.

    Filled marks are complete trials, hollow marks trials that were stopped early, and crosses trials that exceed a
    limit. Colours are model families. Each panel has the Pareto front of its own cost, whose trials are labelled by
    number.

    Args:
        result: Result of the search.
    """
    from matplotlib.figure import Figure

    axes_of_costs = known_axes(result)
    width = PANEL_INCHES * len(axes_of_costs) + LEGEND_INCHES
    figure = Figure(figsize=(width, HEIGHT_INCHES), dpi=110, layout="constrained")
    families = list(
        dict.fromkeys(
            setting.spec.family for setting in sorted(result.settings, key=lambda setting: setting.trial_number)
        )
    )
    colours = dict(zip(families, COLOURS, strict=False))
    shared = None
    for position, axis in enumerate(axes_of_costs, start=1):
        axes = figure.add_subplot(1, len(axes_of_costs), position, sharey=shared)
        shared = shared or axes
        _draw_panel(axes, result, axis, colours)
        if position == 1:
            loss = result.figure if result.is_number else LOSSES[result.select_by]
            axes.set_ylabel(f"{loss} on the validation part (lower is better)")
    figure.suptitle(_title(result), fontsize=11, x=0.01, ha="left")
    _add_legend(figure, result, colours)
    return figure


def _title(result: TuneResult) -> str:
    count = len(result.settings)
    return (
        f"Quality against cost: {count} trial{'s' if count > 1 else ''} by {result.method}; trial "
        f"{result.best.trial_number} ranks first ({result.best_quality})"
    )


def _draw_panel(axes: "Axes", result: TuneResult, axis: CostAxis, colours: Mapping[str, str]) -> None:
    known = [setting for setting in result.settings if axis.name in setting.costs]
    for setting in known:
        axes.scatter([setting.costs[axis.name] * axis.scale], [setting.loss], **_style(setting, colours))
    front = front_settings(result.settings, axis.name)
    corners = [(setting.costs[axis.name] * axis.scale, setting.loss) for setting in reversed(front)]
    _scale(axes, [setting.costs[axis.name] * axis.scale for setting in known])
    axes.margins(0.12)
    _leave_out_far_trials(axes, [setting.loss for setting in known])
    if corners:
        right, top = axes.get_xlim()[1], axes.get_ylim()[1]
        stairs = [(corners[0][0], top), *corners, (right, corners[-1][1])]
        axes.step(*zip(*stairs, strict=True), where="post", color="0.35", linewidth=1.1, zorder=1)
        axes.set_xlim(right=right)
        axes.set_ylim(top=top)
    if axis.name in result.best.costs:
        place = (result.best.costs[axis.name] * axis.scale, result.best.loss)
        axes.scatter(*place, s=300, marker="*", facecolors="gold", edgecolors="black", linewidths=0.9, zorder=5)
    _label(axes, axis, front, result.best)
    axes.set_xlabel(LABELS[axis.name].format(energy=result.energy_source or "").strip())
    axes.grid(visible=True, which="major", color="0.9")
    axes.set_axisbelow(True)


def _style(setting: Setting, colours: Mapping[str, str]) -> dict[str, Any]:
    colour: Any = colours.get(setting.spec.family, "0.5")
    if not setting.is_feasible:
        return {"marker": "x", "color": colour, "s": 34, "linewidths": 1.2, "alpha": 0.7, "zorder": 2}
    if setting.is_pruned:
        return {"marker": "o", "facecolors": "none", "edgecolors": colour, "s": 30, "linewidths": 1.1, "zorder": 2}
    return {"marker": "o", "facecolors": colour, "edgecolors": "white", "s": 44, "linewidths": 0.6, "zorder": 3}


def _leave_out_far_trials(axes: "Axes", losses: Sequence[float]) -> None:
    """Exclude far worse trials from the axis, and show the number of excluded trials."""
    best = min(losses)
    highest = best + FAR * (median(losses) - best)
    far = sum(loss > highest for loss in losses)
    if highest > best and far:
        axes.set_ylim(top=highest)
        axes.annotate(f"{far} above", (0.98, 0.98), xycoords="axes fraction", ha="right", va="top", fontsize=8)


def _scale(axes: "Axes", costs: Sequence[float]) -> None:
    """Make the cost axis logarithmic with plain numbers if the costs differ by a large factor."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if min(costs) <= 0 or max(costs) / min(costs) < LOGARITHMIC_FROM:
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _label(axes: "Axes", axis: CostAxis, front: Sequence[Setting], best: Setting) -> None:
    """Label the best trial and up to about `MOST_LABELS` trials of the front, with both ends, by number."""
    step = max(1, -(-len(front) // MOST_LABELS))
    named = {
        setting.trial_number: setting for setting in [*front[::step], *front[-1:], best] if axis.name in setting.costs
    }
    for setting in named.values():
        axes.annotate(
            f"{setting.trial_number}",
            (setting.costs[axis.name] * axis.scale, setting.loss),
            xytext=(-7, -6),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=9,
            zorder=6,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.75},
        )


def _add_legend(figure: "Figure", result: TuneResult, colours: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D

    def mark(label: str, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="none", **{"marker": "o", "color": "0.4", **style, "label": label})

    entries = [mark(family, color=colour) for family, colour in colours.items()]
    entries.append(mark("ranks first", marker="*", markersize=13, markerfacecolor="gold", markeredgecolor="black"))
    if any(setting.is_pruned and setting.is_feasible for setting in result.settings):
        entries.append(mark("stopped early", markerfacecolor="none"))
    if not all(setting.is_feasible for setting in result.settings):
        entries.append(mark("breaks a limit", marker="x"))
    entries.append(Line2D([], [], color="0.35", linewidth=1.1, label="front, with the\nnumbers of its trials"))
    figure.legend(handles=entries, loc="outside right upper", frameon=False, fontsize=9)
