"""docs/benchmarks/ is what the result files say, and every headline figure has a description."""

import re

import pytest

from benchmarks.page import (
    DOCS,
    MOST_ROWS,
    Comparison,
    Figure,
    Section,
    filled,
    format_comparison,
    read_descriptions,
    read_results,
    render,
    written_pages,
)

MACHINE = {"processor": "P", "usable_cores": 2, "memory_gib": 8.0, "python": "3.11"}


def result(**headline: object) -> dict[str, object]:
    return {"date": "2026-01-02T03:04:05", "machine": MACHINE, "versions": {}, "seeds": [0], "headline": headline}


def section(**figures: Figure) -> Section:
    return Section(title="A title", about="What it is.", figures=figures)


def test_the_committed_pages_are_fresh_and_short() -> None:
    pages = render(read_descriptions(), read_results())
    written = {str(path.relative_to(DOCS)): path.read_text() for path in written_pages()}
    assert written == pages, "run `python -m benchmarks.page`"
    short = [text for name, text in pages.items() if name.startswith("benchmarks/") and name != "benchmarks/index.md"]
    assert all(text.count("\n") <= 60 for text in short)


def test_figures_that_other_pages_quote_are_fresh() -> None:
    sections, results = read_descriptions(), read_results()
    for path in (*DOCS.rglob("*.md"), DOCS.parent / "README.md"):
        text = path.read_text()
        assert filled(text, sections, results) == text, f"{path.name}: run `python -m benchmarks.page`"
        assert not re.search(r"^ *<!--figure", text, re.MULTILINE), f"{path.name}: a mark ends the paragraph before it"


def test_a_page_of_many_figures_shows_those_that_are_behind() -> None:
    figures = {f"f{number}": Figure(what="Seconds", better="lower") for number in range(MOST_ROWS + 1)}
    figures["slow"] = Figure(what="Seconds", better="lower", beside=Comparison(value=1, who="Z"))
    pages = render({"speed": section(**figures)}, {"speed": result(**dict.fromkeys(figures, 2.0))})
    assert "| Seconds | 2 | 1 (Z): **behind** | `slow` |" in pages["benchmarks/speed.md"]
    assert "`f40`" in pages["lab/speed.md"]
    assert "1 of 1" in pages["benchmarks/index.md"]


def test_a_figure_without_description_is_named() -> None:
    with pytest.raises(ValueError, match="speed: the headline figure fast has no description"):
        render({"speed": section()}, {"speed": result(fast=1.0)})


def test_a_description_without_figure_is_named() -> None:
    figures = {"fast": Figure(what="Speed", beside=Comparison(key="slow", who="a rival"))}
    with pytest.raises(ValueError, match=r"results/speed\.json"):
        render({"speed": section(**figures)}, {"speed": result(fast=1.0)})


def test_what_is_described_before_its_first_result_is_left_out() -> None:
    figures = {"fast": Figure(what="Speed")}
    pages = render({"speed": section(**figures), "coming": section(**figures)}, {"speed": result(fast=1.0)})
    assert set(pages) == {"benchmarks/index.md", "benchmarks/speed.md"}


def test_every_headline_of_the_wrong_uses_is_described() -> None:
    """Its result is published by hand, in a quiet hour."""
    figures = read_descriptions()["friendly"].figures
    counted = {"cases", "clear_share", "hangs", "tracebacks", "silent_losses"}
    assert set(figures) == {*counted, "help_seconds", "runs_seconds"}
    assert "benchmarks/friendly.md" in render(
        read_descriptions(), {**read_results(), "friendly": result(**dict.fromkeys(figures, 0))}
    )


def test_a_table_shows_unit_spread_and_comparison() -> None:
    figures = {
        "error": Figure(
            what="Error", decimals=1, unit="%", spread="error_std", beside=Comparison(key="other", who="Z")
        ),
        "other": Figure(what="Other"),
    }
    pages = render({"speed": section(**figures)}, {"speed": result(error=0.1234, error_std=0.01, other=0.5)})
    assert "| Error | 12.3 ± 1.0 % | 50.0 % (Z) | `error` |" in pages["benchmarks/speed.md"]
    assert "measured on 2026-01-02" in pages["benchmarks/speed.md"]


def test_a_pattern_describes_each_figure_of_a_table_that_is_made_in_parts() -> None:
    pattern = Figure(
        what="AUC of {model}", decimals=2, spread="{model}_std", beside=Comparison(key="{model}_rival", who="Z")
    )
    rival = Figure(what="Z's {model}", decimals=2)
    whole = Section(
        title="T", about="A.", figures={}, patterns={"(?P<model>[a-z]+)_auc": pattern, "(?P<model>[a-z]+)_rival": rival}
    )
    pages = render({"speed": whole}, {"speed": result(fm_auc=0.5, lr_auc=0.25, lr_rival=0.75)})
    assert "| AUC of fm | 0.50 |  | `fm_auc` |" in pages["benchmarks/speed.md"]
    assert "| AUC of lr | 0.25 | 0.75 (Z) | `lr_auc` |" in pages["benchmarks/speed.md"]
    with pytest.raises(ValueError, match="the headline figure seconds has no description"):
        render({"speed": whole}, {"speed": result(fm_auc=0.5, seconds=1)})


@pytest.mark.parametrize(("better", "is_behind"), [("higher", True), ("lower", False), (None, False)])
def test_a_better_rival_is_said_to_be_better(better: str | None, is_behind: bool) -> None:
    figure = Figure.model_validate(
        {"what": "Ratio", "decimals": 2, "better": better, "beside": {"value": 1, "who": "a rival"}}
    )
    shown = format_comparison({"ratio": 0.5}, "ratio", figure)
    assert shown == "1 (a rival)" + (": **behind**" if is_behind else "")


def test_a_figure_of_a_pattern_may_stand_beside_a_number_and_none_is_behind_it() -> None:
    pattern = Figure.model_validate(
        {"what": "Ratio of {who}", "decimals": 1, "better": "higher", "beside": {"value": 3, "who": "the aim"}}
    )
    whole = Section(title="T", about="A.", figures={}, patterns={"(?P<who>[a-z]+)_ratio": pattern})
    pages = render({"speed": whole}, {"speed": result(one_ratio=4.0, other_ratio=None)})
    assert "| Ratio of one | 4.0 | 3 (the aim) | `one_ratio` |" in pages["benchmarks/speed.md"]
    assert "| Ratio of other | - | 3 (the aim): **behind** | `other_ratio` |" in pages["benchmarks/speed.md"]


def test_published_figures_are_those_of_the_recipes_and_results() -> None:
    figures = read_descriptions()
    recipe = next(run["recipe"] for run in read_results()["graph"]["details"]["runs"] if run["model"] == "lightgcn")
    for name in ("ndcg20", "recall20"):
        beside = figures["graph"].figures[f"lightgcn_{name}"].beside
        assert beside is not None
        assert beside.value == recipe[f"published_{name}"]
