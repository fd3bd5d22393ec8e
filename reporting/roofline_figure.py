"""Roofline plot with the layers of a model."""

from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import mean_ids_per_sample
from shunter.engine.profiling.roofline import place_layers
from shunter.hardware.cost.roofline import Roofline, RooflinePoint
from shunter.hardware.types import HardwareProfile, Precision
from shunter.models.registry import model_spec
from shunter.requests import ProfileRequest
from shunter.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DPI = 130
BLUE, ORANGE, GREEN, GREY = "#2563a8", "#d97b1f", "#3d8b50", "#6b7280"
COMPUTE_STYLES: dict[Precision, Literal["-", "-."]] = {"fp32": "-", "bf16": "-."}
LABEL_DISTANCE = 0.05  # smallest distance of labels, in decades; points that are closer share a label


def draw_rooflines(profiles: Sequence[HardwareProfile], dataset: Dataset | None, request: ProfileRequest) -> list[Path]:
    """Plot the roofline of each accelerator with the layers of a model.

    Args:
        profiles: Profiles of this machine.
        dataset: Data set with the features of the model; None plots the layers of a reference model.
        request: Model, batch size and precision.

    Returns:
        Paths of the PNG files, in the folder of the profiles.
    """
    about = "" if dataset is None else f".{dataset.fingerprint[:12]}"
    pictures = []
    for profile in profiles:
        if dataset is None:
            roofline = place_layers(profile)
        else:
            family = request.model or "dlrm"
            roofline = place_layers(
                profile,
                model_spec(family),
                dataset.features,
                batch_size=request.stalls.batch_size,
                precision=request.stalls.precision,
                ids_per_sample=mean_ids_per_sample(dataset),
                title=f"{family} on {dataset.name}",
            )
        name = f"{profile.host}.{profile.accelerator.name.replace(':', '')}{about}.roofline.png"
        pictures.append(draw_roofline(roofline, Settings().profile_directory / name))
    return pictures


def draw_roofline(roofline: Roofline, path: Path) -> Path:
    """Plot a roofline to a PNG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    roofline_figure(roofline).savefig(path, dpi=DPI)
    return path


def roofline_figure(roofline: Roofline) -> "Figure":
    """Plot the roofs as lines and each layer as a point, filled for the forward and hollow for the backward pass."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.add_subplot()
    _draw_roofs(axes, roofline)
    for point in roofline.points:
        axes.plot(
            point.intensity,
            point.flops_per_second / 1e9,
            "o",
            markersize=9,
            color=_colour(point),
            markerfacecolor=_colour(point) if point.phase == "forward" else "white",
            markeredgewidth=1.5,
            zorder=4,
        )
    for (intensity, rate), text in _labels(roofline.points):
        axes.annotate(text, (intensity, rate / 1e9), xytext=(9, -3), textcoords="offset points", fontsize=9, zorder=5)
    axes.set(xscale="log", yscale="log", xlabel="operations for each byte moved", ylabel="GFLOP/s")
    axes.set_title(
        f"{roofline.accelerator}, all measured\n{roofline.title}; data in the caches can exceed the memory's roof",
        fontsize=10,
        loc="left",
    )
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(handles=_roofline_legend(roofline), loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    return figure


def _draw_roofs(axes: "Axes", roofline: Roofline) -> None:
    fastest = max(roofline.compute_roofs.values())
    intensities = [point.intensity for point in roofline.points] or [1.0]
    ridge = fastest / roofline.copy_bytes_per_second
    left, right = min(intensities) / 2, 2 * max(*intensities, 2 * ridge)
    for bandwidth, style in ((roofline.copy_bytes_per_second, "-"), (roofline.gather_bytes_per_second, "--")):
        end = min(fastest / bandwidth, right)
        axes.plot([left, end], [left * bandwidth / 1e9, end * bandwidth / 1e9], style, color=GREY)
    for name, rate in roofline.compute_roofs.items():
        start = rate / roofline.copy_bytes_per_second
        axes.plot([start, right], [rate / 1e9] * 2, color=BLUE, linestyle=COMPUTE_STYLES[name])


def _colour(point: RooflinePoint) -> str:
    return GREEN if point.name == "embeddings" else ORANGE


def _labels(points: Sequence[RooflinePoint]) -> list[tuple[tuple[float, float], str]]:
    """Return positions and texts of the labels; points that nearly coincide share a label."""
    numbers = {name: number for number, name in enumerate(_names(points), start=1)}
    clusters: list[tuple[tuple[float, float], set[int]]] = []
    for point in points:
        place = (point.intensity, point.flops_per_second)
        for other, some in clusters:
            if max(abs(log10(a / b)) for a, b in zip(other, place, strict=True)) < LABEL_DISTANCE:
                some.add(numbers[point.name])
                break
        else:
            clusters.append((place, {numbers[point.name]}))
    return [(place, ", ".join(map(str, sorted(some)))) for place, some in clusters]


def _roofline_legend(roofline: Roofline) -> list[object]:
    from matplotlib.lines import Line2D

    handles: list[object] = [
        Line2D([], [], color=BLUE, linestyle=COMPUTE_STYLES[name], label=f"{name} {rate / 1e9:,.0f} GFLOP/s")
        for name, rate in roofline.compute_roofs.items()
    ]
    handles += [
        Line2D([], [], color=GREY, label=f"copy {roofline.copy_bytes_per_second / 1e9:.1f} GB/s"),
        Line2D(
            [], [], color=GREY, linestyle="--", label=f"random rows {roofline.gather_bytes_per_second / 1e9:.1f} GB/s"
        ),
        Line2D([], [], color=ORANGE, marker="o", linestyle="", label="forward"),
        Line2D([], [], color=ORANGE, marker="o", linestyle="", markerfacecolor="white", label="backward"),
    ]
    handles += [
        Line2D([], [], linestyle="", label=f"{number}  {name}")
        for number, name in enumerate(_names(roofline.points), start=1)
    ]
    return handles


def _names(points: Sequence[RooflinePoint]) -> list[str]:
    return list(dict.fromkeys(point.name for point in points))
