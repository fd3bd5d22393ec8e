"""Figure of the stalls as stacked bars: the parts of a step in each run."""

from pathlib import Path
from typing import TYPE_CHECKING

from shunter.extensions.stalls.differences import StallName
from shunter.extensions.stalls.report import StallReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130
COLOURS: dict[str, str] = {
    "compute": "#b8c4d0",
    "contention": "#c9a26b",
    "all_reduce": "#2563a8",
    "embedding_exchange": "#6fb1e0",
    "prep": "#d97b1f",
    "fetch": "#b5403a",
    "network": "#7b4fa3",
    "slow_memory": "#3d8b50",
}
EXCHANGE: tuple[StallName, ...] = ("contention", "all_reduce", "embedding_exchange")  # interconnect stall
Bar = tuple[str, str, str, tuple[StallName, ...]]
# Each bar: title, the run shown, the run that it is compared with, and the stalls between them, as in `plan.py`.
BARS: tuple[Bar, ...] = (
    ("one device", "S1", "S1", ()),
    ("one device, tables\nin slower memory", "S7", "S1", ("slow_memory",)),
    ("all devices", "S2", "S1", EXCHANGE),
    ("reading from memory", "S4", "S1", (*EXCHANGE, "prep")),
    ("reading from disk", "S3", "S1", (*EXCHANGE, "prep", "fetch")),
    ("between machines\n(simulated)", "S5", "S1", (*EXCHANGE, "network")),
)


def draw_stalls(report: StallReport, path: Path) -> Path:
    """Draw the figure to a PNG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stall_figure(report).savefig(path, dpi=DPI)
    return path


def stall_figure(report: StallReport) -> "Figure":
    """Return a figure with a bar per run: compute, then the detected stalls, with the interval of the whole step."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.add_subplot()
    bars = [bar for bar in BARS if bar[1] in report.runs]
    shown: dict[str, None] = {}
    for row, bar in enumerate(bars):
        shown.update(dict.fromkeys(_draw_bar(axes, row, bar, report)))
    axes.set_xlim(0, 1.15e3 * max(report.runs[run].high for _, run, *_ in bars))
    axes.set_yticks(range(len(bars)), [title for title, *_ in bars])
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds a step")
    axes.set_title(
        f"{report.model} on {report.data_name}: {report.devices} x {report.accelerator}, {report.threads} thread(s), "
        f"{report.batch_size} samples each, {report.precision}\n"
        "whiskers: interval of 95 %; hatched: differences that are not significant",
        fontsize=10,
        loc="left",
    )
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(
        handles=[Patch(color=COLOURS[name], label=name.replace("_", " ")) for name in shown],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        fontsize=9,
    )
    return figure


def _draw_bar(axes: "Axes", row: int, bar: Bar, report: StallReport) -> list[str]:
    """Draw one bar; return the names of its parts."""
    _, run, base, names = bar
    time = report.runs[run]
    drawn, left = ["compute"], 1e3 * report.runs[base].seconds
    axes.barh(row, left, color=COLOURS["compute"], height=0.6)
    for name in names:
        seconds = report.stall(name).seconds
        if seconds is None:
            continue
        axes.barh(row, 1e3 * seconds, left=left, color=COLOURS[name], height=0.6)
        left += 1e3 * seconds
        drawn.append(name)
    rest = 1e3 * time.seconds - left
    if abs(rest) > 1e-9:  # the part not explained by detected stalls, of either sign
        axes.barh(
            row, abs(rest), left=min(left, left + rest), color="none", edgecolor="#555555", hatch="////", height=0.6
        )
    middle = 1e3 * time.seconds
    spread = [[middle - 1e3 * time.low], [1e3 * time.high - middle]]
    axes.errorbar(
        middle, row, xerr=[[max(0.0, deviation[0])] for deviation in spread], color="black", capsize=4, linewidth=1
    )
    axes.annotate(
        f" {middle:.2f}",
        (max(1e3 * time.high, left, left + rest), row),
        va="center",
        fontsize=9,
        xytext=(4, 0),
        textcoords="offset points",
    )
    return drawn
