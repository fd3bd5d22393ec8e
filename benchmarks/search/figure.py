"""The picture of the benchmark of the search: what each method has found, by trials and by time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"frappe": "Frappe", "ml1m": "MovieLens-1M as clicks", "HPOLib": "HPOLib", "NASBench201": "NAS-Bench-201"}
# Okabe and Ito's colours, which people with any kind of colour vision tell apart; a method keeps its own everywhere,
# and is dashed where it begins from the past.
COLOURS = {"random": "#000000", "tpe": "#0072B2", "dnas": "#E69F00", "rl": "#009E73", "transfer": "#D55E00"}
WARM = "_warm"
GRID_POINTS = 200


def draw(parts: Mapping[str, Mapping[str, Any]]) -> "Figure | None":
    """Draw what is there of the parts `methods` and `hpo`; None where neither is.

    Args:
        parts: Parts of the result, by name.
    """
    from matplotlib.figure import Figure

    methods = parts.get("methods", {}).get("details", {})
    tables = parts.get("hpo", {}).get("details", {})
    panels = len(methods) * 2 + len(tables)
    if not panels:
        return None
    rows = (panels + 1) // 2
    figure = Figure(figsize=(13, 4.0 * rows), dpi=110, layout="constrained")
    axes = iter(figure.subplots(rows, 2, squeeze=False).flat)
    for data, by_method in methods.items():
        _draw_by_trial(next(axes), TITLES[data], by_method)
        _draw_by_time(next(axes), TITLES[data], by_method)
    for benchmark, by_method in tables.items():
        _draw_regret(next(axes), TITLES.get(benchmark, str(benchmark)), by_method)
    for left in axes:
        left.set_axis_off()
    for right in figure.axes[1::2]:
        if right.get_legend_handles_labels()[0]:
            right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _draw_by_trial(axes: "Axes", title: str, by_method: Mapping[str, Any]) -> None:
    """Mean over the seeds; dots at the right are the seeds' own results."""
    ends = []
    for place, (method, one) in enumerate(by_method.items()):
        best = np.array([run["best_ne"] for run in one["runs"]])
        trials = np.arange(1, best.shape[1] + 1)
        axes.step(trials, best.mean(0), where="post", color=COLOURS[method], label=method)
        axes.plot(np.full(len(best), trials[-1] + 0.6 * (place + 1)), best[:, -1], "o", color=COLOURS[method], ms=4)
        ends.extend([best.mean(0)[0], *best[:, -1]])
    axes.set(
        title=f"{title}: mean of the seeds (dots: each one's result)", xlabel="trials", ylabel="lowest validation NE"
    )
    _limit(axes, ends)


def _draw_by_time(axes: "Axes", title: str, by_method: Mapping[str, Any]) -> None:
    """Mean over the seeds of each search's staircase, from when all have a first trial until all have ended."""
    ends = []
    for method, one in by_method.items():
        seconds = [np.array(run["processor_seconds"]) for run in one["runs"]]
        times = np.linspace(max(own[0] for own in seconds), max(own[-1] for own in seconds), GRID_POINTS)
        stairs = [
            np.array(run["best_ne"])[np.searchsorted(own, times, side="right") - 1]
            for run, own in zip(one["runs"], seconds, strict=True)
        ]
        mean = np.mean(stairs, axis=0)
        axes.plot(times, mean, color=COLOURS[method], label=method)
        ends.extend([mean[0], mean[-1]])
    axes.set(
        title=f"{title}: the same by time",
        xlabel="seconds of one processor thread, a super-net included",
        ylabel="lowest validation NE",
    )
    axes.set_xlim(left=0)
    _limit(axes, ends)


def _draw_regret(axes: "Axes", title: str, by_method: Mapping[str, Any]) -> None:
    for method, one in by_method.items():
        regret = 100 * np.array(one["regret_by_trial"])
        colour = COLOURS[method.removesuffix(WARM)]
        style = "--" if method.endswith(WARM) else "-"
        axes.plot(
            np.arange(1, len(regret) + 1), regret, style, color=colour, label=method.replace(WARM, ", with a past")
        )
    axes.set(
        title=f"{title}, published tables: mean of data sets and seeds",
        xlabel="trials",
        ylabel="points better than the chosen one, %",
        yscale="log",
    )


def _limit(axes: "Axes", values: Sequence[float]) -> None:
    """Just what is shown, for the axis does not begin at 0."""
    margin = 0.05 * (max(values) - min(values))
    axes.set_ylim(min(values) - margin, max(values) + margin)
