"""One self-contained page about one run: no network, no server, nothing executed but the page's own script."""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.reporting.page.figures import Chart, curves_chart, placements_chart, power_chart, trained_chart
from shunter.reporting.page.format import figure
from shunter.reporting.page.ranking import lengths_chart
from shunter.reporting.page.view import build_view, decision_rows
from shunter.tracking.tree import RunTree

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

HERE = Path(__file__).parent


def render_page(tree: RunTree, stalls: str | None = None) -> str:
    """The report as HTML.

    Args:
        tree: The run and its children.
        stalls: JSON of a stall report of the same data and model; None where there is none.
    """
    limits = {
        name.removeprefix("request."): value
        for name, value in tree.parent.metrics.items()
        if name.startswith(("request.max_", "request.min_"))
    }
    charts: dict[str, Chart | None] = {
        "placements": placements_chart(decision_rows(tree), limits),
        "trained": trained_chart(tree),
        "curves": curves_chart(tree),
        "power": power_chart(tree),
        "lengths": lengths_chart(tree),
    }
    script, style = (HERE / "page.js").read_text(), (HERE / "page.css").read_text()
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            view=build_view(tree, stalls, to_html=markdown),
            charts={name: chart.to_dict() if chart else None for name, chart in charts.items()},
            script=_trusted(script),
            style=_trusted(style),
            # The browser runs the script with this digest and no other, whatever the data may have brought in.
            script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def markdown(text: str) -> "Markup":
    """Markdown as HTML; HTML in it is shown as text, links and images are not made."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])
    return _trusted(parser.render(text))


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters["figure"] = figure
    environment.filters["percent"] = lambda share: f"{100 * share:.3g} %"
    environment.filters["count_words"] = lambda count: f"{count:,}"
    environment.policies["json.dumps_kwargs"] = {"default": str}
    return environment


def _trusted(text: str) -> "Markup":
    from markupsafe import Markup

    return Markup(text)  # our own files, and what the Markdown parser has escaped
