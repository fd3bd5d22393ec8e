"""Writes docs/benchmarks.md from the result files and the descriptions of their figures; a test keeps the page fresh.

python -m benchmarks.page
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.report import RESULTS

DESCRIPTIONS = Path(__file__).parent / "descriptions.yaml"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "index.md"
UNKNOWN = "-"

INTRODUCTION = """\
# Benchmarks

<!-- Written by `python -m benchmarks.page` from benchmarks/results/*.json and benchmarks/descriptions.yaml. -->

Every figure that Shunter publishes, beside what it was compared with. "behind" marks a figure whose rival is better.
± is the standard deviation over the seeds. Figures are *measured* unless their description says *counted* or
*simulated*.

`python -m benchmarks.NAME` measures a benchmark again, `--quick` in under a minute; its module describes the method in
full. The machines were shared with other work, so compare figures of one table, not of two.
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
    about: str
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


def render(sections: Mapping[str, Section], results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page; a benchmark whose result nobody has published yet is not on it."""
    sections = {
        name: section.filled(results[name]["headline"]) for name, section in sections.items() if name in results
    }
    check(sections, results)
    contents = "\n".join(f"- [{section.title}](#{_anchor(section.title)})" for section in sections.values())
    parts = (_render_section(name, section, results[name]) for name, section in sections.items())
    return "\n".join([INTRODUCTION, contents, "", "\n".join(parts)])


def _render_section(name: str, section: Section, result: Mapping[str, Any]) -> str:
    machine, headline = result["machine"], result["headline"]
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items() if version)
    where = f"{machine['processor']}, {machine['usable_cores']} cores, {machine['memory_gib']} GiB of memory"
    when = result["date"][:10]
    cells = (
        (f"`{key}`", format_value(headline, key, figure), figure.what, format_comparison(headline, key, figure))
        for key, figure in section.figures.items()
    )
    rows = [f"| {' | '.join(row)} |" for row in cells]
    picture = [f"![{section.title}]({section.picture})", ""] if section.picture else []
    return "\n".join(
        [
            f"## {section.title}",
            "",
            section.about.strip(),
            "",
            f"`benchmarks/results/{name}.json`, measured on {when}: {where}; Python {machine['python']}, "
            f"{versions}" + (f"; seeds {_ranges(result['seeds'])}." if result["seeds"] else "."),
            "",
            "| key | value | what | beside |",
            "|---|---:|---|---|",
            *rows,
            "",
            *picture,
        ]
    )


def format_value(headline: Mapping[str, Any], key: str, figure: Figure) -> str:
    """The figure with its unit and, if known, its spread."""
    spread = f" ± {_format(headline[figure.spread], figure)}" if figure.spread else ""
    return _with_unit(_format(headline[key], figure) + spread, figure)


def format_comparison(headline: Mapping[str, Any], key: str, figure: Figure) -> str:
    """What the figure is compared with, whose it is, and "behind" where that is better or the figure none."""
    if figure.beside is None:
        return ""
    value, other = headline[key], figure.beside.find(headline)
    is_behind = figure.better is not None and (
        value is None or (value < other if figure.better == "higher" else value > other)
    )
    is_whole = figure.beside.key is None and other == round(other)
    text = f"{other:g}" if is_whole else _format(other, figure)
    return f"{_with_unit(text, figure)} ({figure.beside.who})" + (": **behind**" if is_behind else "")


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


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(read_descriptions(), read_results()))
    print(f"{PAGE} written")


if __name__ == "__main__":
    main()
