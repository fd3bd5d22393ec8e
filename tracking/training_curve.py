"""The training curves as a page with plotly's drawing library in it.

The page is written as plotly's own writer does, from plain values: its Python side, which takes half a second to load
and to check them, is left out. Of the package only the two files are read that the page consists of.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.config import SelectBy
from engine.results import EpochReport

COLOURS = (  # plotly's `qualitative.D3`
    "#1F77B4",
    "#FF7F0E",
    "#2CA02C",
    "#D62728",
    "#9467BD",
    "#8C564B",
    "#E377C2",
    "#7F7F7F",
    "#BCBD22",
    "#17BECF",
)
HEIGHT = 520
PANELS = (
    ("Normalised entropy on validation", "NE (below 1 beats the base rate)", (0.0, 0.45)),
    ("Log loss", "log loss (nats per sample)", (0.55, 1.0)),
)
PAGE = """<!doctype html>
<html>
<head>
    <meta charset="utf-8" />
    <style>html, body {{height: 100%;}}</style>
</head>
<body>
    <div style="height:{height}px; width:100%;">
        <script>{library}</script>
        <div id="curves" class="plotly-graph-div" style="height:100%; width:100%;"></div>
        <script>Plotly.newPlot("curves", {data}, {layout}, {{"responsive": true}})</script>
    </div>
</body>
</html>
"""


def training_curve_page(histories: Mapping[str, Sequence[EpochReport]], select_by: SelectBy = "ne") -> str:
    """A page that shows `training_curve`; the library is in it, so that it shows without a network too."""
    figure = training_curve(histories, select_by)
    layout = {"template": json.loads(_packaged("templates/plotly_white.json")), **figure["layout"]}
    return PAGE.format(
        height=HEIGHT, library=_packaged("plotly.min.js"), data=_script(figure["data"]), layout=_script(layout)
    )


def training_curve(histories: Mapping[str, Sequence[EpochReport]], select_by: SelectBy = "ne") -> dict[str, Any]:
    """Validation NE and log loss over the epochs, the best epoch of each training marked, as plotly's plain values."""
    lines: list[dict[str, Any]] = []
    for position, (name, history) in enumerate(histories.items()):
        if history:
            lines += _training(name, history, COLOURS[position % len(COLOURS)], select_by)
    longest = max((len(history) for history in histories.values()), default=0)
    epochs = {"title": {"text": "epoch"}, "rangemode": "tozero", "tickformat": "d", "dtick": 1 + longest // 12}
    layout: dict[str, Any] = {"annotations": []}
    for number, (title, unit, (left, right)) in zip(("", "2"), PANELS, strict=True):
        layout[f"xaxis{number}"] = {"anchor": f"y{number}", "domain": [left, right], **epochs}
        layout[f"yaxis{number}"] = {"anchor": f"x{number}", "domain": [0.0, 1.0], "title": {"text": unit}}
        layout["annotations"].append(
            {
                "text": title,
                "font": {"size": 16},
                "showarrow": False,
                **{"x": (left + right) / 2, "xanchor": "center", "xref": "paper"},
                **{"y": 1.0, "yanchor": "bottom", "yref": "paper"},
            }
        )
    layout |= {"title": {"text": "Training curves (star: best epoch)"}, "height": HEIGHT}
    return {"data": lines, "layout": layout}


def _training(name: str, history: Sequence[EpochReport], colour: str, select_by: SelectBy) -> list[dict[str, Any]]:
    """Three lines: NE on the left, log loss of both parts on the right; one click in the legend hides all three."""
    entropy = [report.validation.ne for report in history]
    losses = [report.validation.loss_by(select_by) for report in history]
    is_best = [loss == min(losses) for loss in losses]
    stars = {
        "size": [12 if best else 6 for best in is_best],
        "symbol": ["star" if best else "circle" for best in is_best],
    }
    lines = (
        ("", f"{name}: NE", entropy, "solid", stars),
        ("2", f"{name}: log loss, validation", [report.validation.logloss for report in history], "solid", {"size": 6}),
        ("2", f"{name}: log loss, training", [report.train_logloss for report in history], "dot", {"size": 6}),
    )
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label,
            "legendgroup": name,
            "x": [report.epoch for report in history],
            "y": [value if math.isfinite(value) else None for value in values],
            "xaxis": f"x{panel}",
            "yaxis": f"y{panel}",
            "line": {"color": colour, "dash": dash},
            "marker": marker,
        }
        for panel, label, values, dash, marker in lines
    ]


def _script(value: Any) -> str:
    """JSON that no text of which ends the script around it."""
    return json.dumps(value).replace("<", "\\u003c")


@cache
def _packaged(name: str) -> str:
    """A file of plotly's package, which is found without being loaded."""
    found = find_spec("plotly")
    assert found is not None, "plotly is among the locked packages"
    assert found.origin is not None, "it is a package of files"
    return (Path(found.origin).parent / "package_data" / name).read_text(encoding="utf-8")
