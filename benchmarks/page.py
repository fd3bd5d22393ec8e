"""Pages of docs/benchmarks/ and docs/lab/, made from the result files and the descriptions of their figures.

python -m benchmarks.page
"""

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.report import RESULTS

DESCRIPTIONS = Path(__file__).parent / "descriptions.yaml"
DOCS = Path(__file__).parents[1] / "docs"
UNKNOWN = "-"
FIGURE = re.compile(r"(<!--figure (\w+)\.(\w+)-->)[^<]*(<!--/-->)")
MOST_ROWS = 40  # of the table of a page; the others are on the page of the lab
WRITTEN = "<!-- Written by `python -m benchmarks.page` from benchmarks/results/ and benchmarks/descriptions.yaml. -->"

INTRODUCTION = """\
Each benchmark has one headline figure here and all its figures on a page of its own. Figures are *measured* unless
their description says *counted*, *estimated* or *simulated*; ± is the standard deviation over the seeds. The machines
were shared with other work: compare figures of one page, not of two.

**Behind** marks a figure whose rival, or whose aim, is better. This holds for {behind} of the {compared} figures that
are compared with anything; the last column counts them for each benchmark.

`python -m benchmarks.NAME` measures a benchmark again, and with `--quick` in under a minute. The name is that of the
page. Notes on how a benchmark came about, and what was tried on which day, are on its page in the lab.
"""


class Description(BaseModel):
    """Part of the descriptions; a misspelled field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Comparison(Description):
    """What a figure is compared with: another headline figure (`key`) or a fixed number (`value`)."""

    key: str | None = None
    value: float | None = None
    who: str

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.key is None) == (self.value is None):
            raise ValueError("give either key or value of what a figure is compared with")
        return self

    def find(self, headline: Mapping[str, Any]) -> float:
        """The number."""
        if self.value is not None:
            return self.value
        assert self.key
        return headline[self.key]


class Figure(Description):
    """What a headline figure means and how it is written."""

    what: str
    decimals: int = 0
    unit: str = ""
    spread: str | None = Field(default=None, description="Headline key of its standard deviation.")
    better: Literal["higher", "lower"] | None = None
    quick_within: float | None = Field(
        default=None,
        description="Share by which the figure of a quick run may be worse; only where its size hardly changes it.",
    )
    beside: Comparison | None = None

    def of(self, groups: Mapping[str, str], headline: Mapping[str, Any]) -> Self:
        """The figure of a pattern, with the groups of a match in its texts."""
        spread = self.spread.format(**groups) if self.spread else None
        rival = self.beside.key.format(**groups) if self.beside and self.beside.key else None
        return self.model_copy(
            update={
                "what": self.what.format(**groups),
                "spread": spread if spread in headline else None,
                "beside": self._comparison(rival, headline),
            }
        )

    def _comparison(self, rival: str | None, headline: Mapping[str, Any]) -> Comparison | None:
        """What a figure of a pattern is compared with: a number, or `rival` where the headline has it."""
        if self.beside is None or self.beside.key is None:
            return self.beside
        return self.beside.model_copy(update={"key": rival}) if rival in headline else None


class Section(Description):
    """A benchmark on the page."""

    title: str
    headline: str | None = Field(default=None, description="Key of the figure in the table of all benchmarks.")
    about: str
    notes: str = Field(default="", description="History of the benchmark, for its page in the lab.")
    picture: str | None = None
    figures: dict[str, Figure]
    patterns: dict[str, Figure] = Field(
        default={},
        description="Figures of tables that are made in parts, by regular expressions with named groups, which texts "
        "and keys may name as {group}; a spread or a rival that is not there is left out.",
    )

    def filled(self, headline: Mapping[str, Any]) -> Self:
        """The section with a description for each headline figure that a pattern matches, in the headline's order."""
        found: dict[str, Figure] = {}
        spreads = {figure.spread for figure in self.figures.values()}
        for key in headline:
            matches = ((re.fullmatch(pattern, key), figure) for pattern, figure in self.patterns.items())
            match, figure = next(((match, figure) for match, figure in matches if match), (None, None))
            if match and figure and key not in self.figures and key not in spreads:
                found[key] = figure.of(match.groupdict(), headline)
        return self.model_copy(update={"figures": {**self.figures, **found}, "patterns": {}})


def read_descriptions() -> dict[str, Section]:
    """Sections by the name of their benchmark, in the order of the page."""
    sections = yaml.safe_load(DESCRIPTIONS.read_text())
    return {name: Section.model_validate(section) for name, section in sections.items()}


def read_results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Published results by the name of their benchmark; quick runs are not published."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json")) if "." not in path.stem}


def check(sections: Mapping[str, Section], results: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare descriptions with results.

    Raises:
        ValueError: a figure has no description, or a description no figure; all of them are named.
    """
    published = {(name, key) for name, result in results.items() for key in result["headline"]}
    described: set[tuple[str, str]] = set()
    compared: set[tuple[str, str]] = set()
    for name, section in sections.items():
        for key, figure in section.figures.items():
            described |= {(name, each) for each in (key, figure.spread) if each}
            if figure.beside and figure.beside.key:
                compared.add((name, figure.beside.key))
    missing = (described | compared) - published
    problems = [
        *(f"{name}: the headline figure {key} has no description" for name, key in sorted(published - described)),
        *(f"{name}: {key} is described, and results/{name}.json lacks it" for name, key in sorted(missing)),
    ]
    if problems:
        raise ValueError("benchmarks/descriptions.yaml does not match the results:\n" + "\n".join(problems))


def render(sections: Mapping[str, Section], results: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the text of each page by its path below `docs/`; a benchmark without a result has no page."""
    sections = {
        name: section.filled(results[name]["headline"]) for name, section in sections.items() if name in results
    }
    check(sections, results)
    pages = {"benchmarks/index.md": _index(sections, results)}
    for name, section in sections.items():
        shown = _shown(section, results[name]["headline"])
        others = [key for key in section.figures if key not in shown]
        pages[f"benchmarks/{name}.md"] = _page(name, section, results[name], shown, bool(section.notes or others))
        if section.notes or others:
            pages[f"lab/{name}.md"] = _lab_page(name, section, results[name]["headline"], others)
    return pages


def _index(sections: Mapping[str, Section], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page with the headline figure of each benchmark."""
    rows, behind_in_all, compared_in_all = [], 0, 0
    for name, section in sections.items():
        headline = results[name]["headline"]
        key = section.headline or next(iter(section.figures))
        figure = section.figures[key]
        compared = [one for one in section.figures if section.figures[one].beside]
        behind = sum(is_behind(headline, one, section.figures[one]) for one in compared)
        behind_in_all, compared_in_all = behind_in_all + behind, compared_in_all + len(compared)
        cells = (
            f"[{section.title}]({name}.md)",
            figure.what,
            format_value(headline, key, figure),
            format_comparison(headline, key, figure),
            f"{behind} of {len(compared)}" if compared else "",
        )
        rows.append(f"| {' | '.join(cells)} |")
    introduction = INTRODUCTION.format(behind=behind_in_all, compared=compared_in_all)
    header = ["| benchmark | figure | value | compared with | behind |", "|---|---|---:|---|---:|"]
    return "\n".join(["# Benchmarks", "", WRITTEN, "", introduction, *header, *rows, ""])


def _shown(section: Section, headline: Mapping[str, Any]) -> list[str]:
    """Return the keys on the page of a benchmark: of too many, those compared, and above all those behind."""
    figures = section.figures
    if len(figures) <= MOST_ROWS:
        return list(figures)
    first = sorted(
        figures,
        key=lambda key: (
            key != section.headline,
            not is_behind(headline, key, figures[key]),
            figures[key].beside is None,
        ),
    )
    chosen = set(first[:MOST_ROWS])
    return [key for key in figures if key in chosen]


def _page(name: str, section: Section, result: Mapping[str, Any], shown: Iterable[str], has_lab: bool) -> str:
    """Return the page of one benchmark."""
    machine = result["machine"]
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items() if version)
    where = f"{machine['processor']}, {machine['usable_cores']} cores, {machine['memory_gib']} GiB of memory"
    conditions = f"`benchmarks/results/{name}.json`, measured on {result['date'][:10]}: {where}; Python "
    conditions += f"{machine['python']}, {versions}" + (
        f"; seeds {_ranges(result['seeds'])}." if result["seeds"] else "."
    )
    picture = ["", f"![{section.title}]({section.picture})"] if section.picture else []
    lab = ["", f"[Notes and further figures](../lab/{name}.md)"] if has_lab else []
    return "\n".join(
        [
            f"# {section.title}",
            "",
            WRITTEN,
            "",
            *_paragraphs(section.about),
            *_paragraphs(conditions),
            *_table(section, result["headline"], shown),
            *picture,
            *lab,
            "",
        ]
    )


def _lab_page(name: str, section: Section, headline: Mapping[str, Any], others: list[str]) -> str:
    """Return the page of a benchmark in the lab: its notes, and the figures that its own page has no room for."""
    figures = ["## Further figures", "", *_table(section, headline, others), ""] if others else []
    text = [f"# {section.title}: notes", "", WRITTEN, "", f"[The benchmark](../benchmarks/{name}.md)", ""]
    return "\n".join([*text, *_paragraphs(section.notes), *figures])


def _paragraphs(text: str) -> list[str]:
    """Return the lines of a text, wrapped, with an empty line after each paragraph."""
    wrapped = (
        textwrap.wrap(one, 120, break_on_hyphens=False, break_long_words=False) for one in text.strip().split("\n")
    )
    return [line for lines in wrapped if lines for line in (*lines, "")]


def _table(section: Section, headline: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    """Return the lines of a table of figures."""
    rows = []
    for key in keys:
        figure = section.figures[key]
        cells = (figure.what, format_value(headline, key, figure), format_comparison(headline, key, figure), f"`{key}`")
        rows.append(f"| {' | '.join(cells)} |")
    return ["| figure | value | compared with | key |", "|---|---:|---|---|", *rows]


def format_value(headline: Mapping[str, Any], key: str, figure: Figure) -> str:
    """The figure with its unit and, if known, its spread."""
    spread = f" ± {_format(headline[figure.spread], figure)}" if figure.spread else ""
    return _with_unit(_format(headline[key], figure) + spread, figure)


def format_comparison(headline: Mapping[str, Any], key: str, figure: Figure) -> str:
    """What the figure is compared with, whose it is, and "behind" where that is better or the figure none."""
    if figure.beside is None:
        return ""
    other = figure.beside.find(headline)
    is_whole = figure.beside.key is None and other == round(other)
    text = f"{other:g}" if is_whole else _format(other, figure)
    return f"{_with_unit(text, figure)} ({figure.beside.who})" + (
        ": **behind**" if is_behind(headline, key, figure) else ""
    )


def is_behind(headline: Mapping[str, Any], key: str, figure: Figure) -> bool:
    """Return True if what the figure is compared with is better, or the figure is unknown."""
    if figure.beside is None or figure.better is None:
        return False
    value, other = headline[key], figure.beside.find(headline)
    return value is None or (value < other if figure.better == "higher" else value > other)


def _format(value: float | str | bool | None, figure: Figure) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    scaled = value * 100 if figure.unit == "%" else value
    text = f"{scaled:,.{figure.decimals}f}"
    return text if scaled == 0 or text.strip("-0.") else f"{scaled:.0e}"


def _with_unit(text: str, figure: Figure) -> str:
    return f"{text} {figure.unit}".strip()


def _ranges(seeds: list[int]) -> str:
    """`0 to 19` for a long run of seeds."""
    if len(seeds) > 3 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def main() -> None:
    """Write the pages, delete those of benchmarks that are gone, and fill in the figures that other pages quote."""
    sections, results = read_descriptions(), read_results()
    pages = render(sections, results)
    for path in written_pages():
        if str(path.relative_to(DOCS)) not in pages:
            path.unlink()
    for name, text in pages.items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text)
    for path in (*DOCS.rglob("*.md"), DOCS.parent / "README.md"):
        text = path.read_text()
        if FIGURE.search(text):
            path.write_text(filled(text, sections, results))
    print(f"{len(pages)} pages written")


def filled(text: str, sections: Mapping[str, Section], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a text with its figures, as `<!--figure overhead.fixed_seconds-->9.7 s<!--/-->`, from the results.

    Raises:
        KeyError: There is no such figure.
    """

    def value(match: re.Match[str]) -> str:
        name, key = match[2], match[3]
        headline = results[name]["headline"]
        return match[1] + format_value(headline, key, sections[name].filled(headline).figures[key]) + match[4]

    return FIGURE.sub(value, text)


def written_pages() -> list[Path]:
    """Return the pages that this module has written."""
    found = (path for folder in ("benchmarks", "lab") for path in (DOCS / folder).glob("*.md"))
    return [path for path in found if WRITTEN in path.read_text()]


if __name__ == "__main__":
    main()
