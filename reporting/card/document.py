"""Document as a list of sections, with output as Markdown or as one self-contained HTML file."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from shunter.markdown import plain

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1e21; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: .6rem 0; font-size: 13.5px; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #e3e5e8; vertical-align: top; }
th { font-weight: 600; } .number { text-align: right; font-variant-numeric: tabular-nums; }
td:first-child { white-space: nowrap; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; } li { margin: .2rem 0; }
""".strip()

REPEATS = (
    "`shunter train --repeat RUN` with this run gives the same weights bit by bit: at the placement "
    "above, on the same kind of processor, with the same versions of the libraries."
)


@dataclass(frozen=True)
class Paragraph:
    """Paragraph of a model card, as sentences."""

    text: str


@dataclass(frozen=True)
class Points:
    """Bullet points."""

    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Table of text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """Picture that is stored in its own file next to a Markdown document."""

    file: str
    svg: str
    alternative: str


Part = Paragraph | Points | Table | Picture


@dataclass(frozen=True)
class Section:
    """Heading and the parts below it."""

    title: str
    parts: Sequence[Part]


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the document as Markdown, which links to its pictures."""
    lines = [f"# {plain(title)}"]
    for section in sections:
        lines += ["", f"## {plain(section.title)}"]
        for part in section.parts:
            lines += ["", *_markdown(part)]
    return "\n".join(lines) + "\n"


def to_html(title: str, sections: Sequence[Section]) -> str:
    """Return the document as HTML, with its pictures embedded."""
    body = [f"<h1>{html.escape(title)}</h1>"]
    for section in sections:
        body += [f"<h2>{html.escape(section.title)}</h2>", *(_html(part) for part in section.parts)]
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>\n{STYLE}\n</style></head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _markdown(part: Part) -> list[str]:
    match part:
        case Paragraph(text):
            return [plain(text)]
        case Points(items):
            return [f"- {plain(item)}" for item in items]
        case Table(columns, rows):
            head, *below = ["| " + " | ".join(map(plain, row)) + " |" for row in (columns, *rows)]
            return [head, "|" + " --- |" * len(columns), *below]
        case Picture(file, _, alternative):
            return [f"![{plain(alternative)}]({file})"]


def _html(part: Part) -> str:
    match part:
        case Paragraph(text):
            return f"<p>{html.escape(text)}</p>"
        case Points(items):
            return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"
        case Table(columns, rows):
            numeric = [all(_is_number(row[position]) for row in rows) for position in range(len(columns))]
            head = "".join(_cell("th", cell, right) for cell, right in zip(columns, numeric, strict=True))
            body = ["".join(_cell("td", cell, right) for cell, right in zip(row, numeric, strict=True)) for row in rows]
            lines = "\n".join(f"<tr>{line}</tr>" for line in (head, *body))
            return f"<table>{lines}</table>"
        case Picture(_, svg, alternative):
            return f'<figure role="img" aria-label="{html.escape(alternative)}">{svg[svg.index("<svg") :]}</figure>'


def _cell(tag: str, text: str, is_number: bool) -> str:
    right_aligned = ' class="number"' if is_number else ""
    return f"<{tag}{right_aligned}>{html.escape(text)}</{tag}>"


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").removesuffix("%").isdigit()
