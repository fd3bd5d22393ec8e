"""Rendering of a self-contained page about a run, which needs no network and no server, with only its own script."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from inspect import getfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.reporting.page.format import figure
from shunter.reporting.page.sections import REPORT_SECTIONS
from shunter.reporting.page.view import build_view
from shunter.tracking.tree import RunTree

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

HERE = Path(__file__).parent


def render_page(tree: RunTree) -> str:
    """Return the report of a run and its children as HTML."""
    view = build_view(tree)
    return render_view(view, [template_of(name) for name in REPORT_SECTIONS.names if name in view])


def render_view(view: Mapping[str, Any], templates: Sequence[Path]) -> str:
    """Return a report page as HTML from the values of its head and its sections, by name, and their templates."""
    folders = {template.parent for template in templates}
    script, style = (HERE / "page.js").read_text(), (HERE / "page.css").read_text()
    return (
        _environment(HERE, *sorted(folders - {HERE}))
        .get_template("page.html.j2")
        .render(
            view=view,
            templates=[template.name for template in templates],
            script=_trusted(script),
            style=_trusted(style),
            # The browser runs only the script with this digest, so that text in the data cannot inject a script.
            script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def template_of(name: str) -> Path:
    """Return the template of a section: the file `NAME.html.j2` beside the section's module."""
    return Path(getfile(REPORT_SECTIONS.load(name))).parent / f"{name}.html.j2"


def markdown(text: str) -> "Markup":
    """Return Markdown as HTML; HTML in the text is escaped, and links and images are not rendered."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])
    return _trusted(parser.render(text))


@cache
def _environment(*folders: Path) -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["figure"] = figure
    environment.filters["markdown"] = markdown
    environment.filters["percent"] = lambda share: f"{100 * share:.3g} %"
    environment.filters["count_words"] = lambda count: f"{count:,}"
    environment.policies["json.dumps_kwargs"] = {"default": str}
    return environment


def _trusted(text: str) -> "Markup":
    from markupsafe import Markup

    return Markup(text)  # text of Shunter's own files, or text that the Markdown parser has escaped
