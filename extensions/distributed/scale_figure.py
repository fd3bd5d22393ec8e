"""Figure of the training speed of a model on a growing number of hosts."""

from pathlib import Path

from shunter.extensions.distributed.planning.scale import WAYS, ScaleReport

DPI = 130
LABELS = {"searched": "searched, tables as they are"}  # the other ways divide the tables evenly


def draw_scale(report: ScaleReport, path: Path) -> Path:
    """Plot samples per second over devices, both logarithmic, with a line for each way; return the PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for way in WAYS:
        points = [point for point in report.points if way in point.step_seconds]
        if points:
            devices = [point.devices for point in points]
            rates = [point.devices * report.batch_per_device / point.step_seconds[way] for point in points]
            axes.plot(devices, rates, marker="o", label=LABELS.get(way, way))
    first = report.points[0]
    ideal = max(first.devices * report.batch_per_device / seconds for seconds in first.step_seconds.values())
    axes.plot(
        [point.devices for point in report.points],
        [ideal * point.devices / first.devices for point in report.points],
        color="grey",
        linestyle=":",
        label="as on one host",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("devices")
    axes.set_ylabel("samples a second (simulated)")
    axes.set_title(f"{report.model} on {report.data}, {report.batch_per_device:,} samples of each device in a step")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    return path
