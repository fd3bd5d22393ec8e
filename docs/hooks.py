"""Hooks of the documentation's site: pages made from the code, and links to files of the project."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command

from shunter.flows.command.cli import app
from shunter.flows.command.help import FEW, OPTIONS, OUTPUT
from shunter.model_families import MODEL_FAMILIES, RANKING_MODELS
from shunter.registry import Registry
from shunter.requests.support import CONFLICTS, NEEDS, PARTNERS, Use

DOCS = Path(__file__).parent
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)\s#]*)(?:#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the benchmarks and of the lab into the navigation, in the order of their titles."""
    for entry in config.nav or []:
        for title, pages in entry.items():
            if isinstance(pages, str) and pages.endswith("/"):
                found = sorted((DOCS / pages).glob("*.md"), key=lambda path: (path.stem != "index", path.read_text()))
                entry[title] = [f"{pages}{path.name}" for path in found]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    pages = {"reference/command.md": command_page(), "reference/support-matrix.md": support_matrix()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links to files outside of docs/, which the site does not hold, by their text.

    Raises:
        PluginError: There is no such file.
    """

    def replace(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = (DOCS / page.file.src_uri).parent.joinpath(target).resolve()
        if path.is_relative_to(DOCS):
            return match[0]
        if not path.exists():
            raise PluginError(f"{page.file.src_uri} links to {target}, which does not exist")
        return text

    return LINK.sub(replace, markdown)


def command_page() -> str:
    """Return the page of all commands with all options."""
    lines = [
        "# Commands",
        "",
        "This page lists each command with all of its options, as `shunter COMMAND --help-all` does.",
        "[Options](options.md) and [others](options-other-commands.md) explain what needs more than a line.",
    ]
    for name, command in commands(get_command(app), "shunter"):
        lines += ["", f"## {name}", "", (command.help or "").split("\n\n")[0].replace("\n", " ").strip()]
        context = command.make_context(name, [], resilient_parsing=True)
        panels: dict[str, list[str]] = {}
        parameters = command.get_params(context)
        other = OPTIONS if len(parameters) <= FEW else OUTPUT
        for parameter in parameters:
            record = parameter.get_help_record(context)
            if record and parameter.name not in ("help", "help_all"):
                is_argument = parameter.param_type_name == "argument"
                title = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or other
                panels.setdefault(title, []).append(f"- `{' '.join(record[0].split())}`: {escaped(record[1])}")
        for title, options in panels.items():
            heading = [] if title == OPTIONS and len(panels) == 1 else ["", f"**{title}**"]
            lines += [*heading, "", *options]
    return "\n".join(lines) + "\n"


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the full name of each command below a group, with the command."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    context = command.make_context(name, [], resilient_parsing=True)
    for below in command.list_commands(context):
        yield from commands(command.get_command(context, below), f"{name} {below}")


def escaped(text: str) -> str:
    """Return a help text with the characters that Markdown reads as markup escaped."""
    return re.sub(r"([*_<\[])", r"\\\1", " ".join(text.split()))


def support_matrix() -> str:
    """Return the page of what each model supports."""
    features = {
        "is_in_auto": "tried by `--model auto`",
        "has_hidden_layers": "hidden layers",
        "mixes_widths": "tables of several widths",
        "multiplies_numbers": "vectors for numbers",
        "reads_positions": "reads histories in order",
        "has_towers": "towers",
        "has_architecture_space": "architecture to search",
    }
    return "\n".join(
        [
            "# Support matrix",
            "",
            "This page is generated from the tables by which Shunter refuses what a model or an option cannot do.",
            "",
            "## Models that predict clicks",
            "",
            *matrix(MODEL_FAMILIES, features),
            "",
            "- **Tried by `--model auto`**: the search may choose this family. Families that read histories need one.",
            "- **Hidden layers**: widths, dropout and batch normalisation are searched; the layers can be compressed.",
            "- **Tables of several widths**: embedding tables may differ in width.",
            "- **Vectors for numbers**: `--set numeric_embedding=vector` is accepted.",
            "- **Reads histories in order**: other families see a history as a bag of ids.",
            "",
            "## Models that rank items",
            "",
            *matrix(RANKING_MODELS, {"is_solved": "has a closed form"}),
            "",
            "A model with a closed form is solved within seconds; the others are trained step by step.",
            "`shunter compress` and `--memory` of `shunter serve` refuse models that rank.",
            "",
            "## Options that need certain models",
            "",
            *table("option | needs a model that", ((f"`{need.use}`", need.trait.value) for need in NEEDS)),
            "",
            "## Options that exclude each other",
            "",
            *table("options | because", ((named(conflict.uses), conflict.because) for conflict in CONFLICTS)),
            "",
            "## Options that need another one",
            "",
            *table("option | needs one of", ((f"`{one.use}`", named(one.partners)) for one in PARTNERS)),
            "",
        ]
    )


def named(uses: Iterable[Use]) -> str:
    """Return options as on the command line."""
    return ", ".join(f"`{use}`" for use in uses)


def table(head: str, rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    """Yield the lines of a table."""
    yield f"| {head} |"
    yield "|" + "---|" * len(head.split("|"))
    yield from (f"| {' | '.join(row)} |" for row in rows)


def matrix(registry: Registry, features: dict[str, str]) -> Iterable[str]:
    """Yield the lines of a table with a row for each implementation and a column for each capability."""
    yield f"| model | extension | {' | '.join(features.values())} |"
    yield f"|---|---|{':---:|' * len(features)}"
    for name in registry.names:
        marks = " | ".join("yes" if registry.capability(name, feature) else "" for feature in features)
        yield f"| `{name}` | {registry.entry(name).extension or ''} | {marks} |"
